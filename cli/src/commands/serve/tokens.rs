//! The file of tokens: how it is read, and what is put into it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::time::SystemTime;

use idmill_server::{Pattern, Right, Rights, Secret, Token};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::args::{Global, Token as Args};
use crate::failure::{Failure, Outcome};
use crate::output;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Entry {
    name: String,
    hash: String,
    rights: Vec<String>,
    sequences: Vec<String>,
    max_ids: Option<u64>,
    expires: Option<toml::value::Datetime>,
}

impl Entry {
    fn token(self) -> idmill::Result<Token> {
        let (rights, sequences) = (parsed::<Right, _>(&self.rights)?, parsed::<Pattern, _>(&self.sequences)?);
        let expires = self.expires.map(|end| {
            humantime::parse_rfc3339(&end.to_string()).map_err(|_| {
                idmill::Error::invalid(format!(
                    "expires = {end}; write a time of UTC, such as 2030-01-31T00:00:00Z"
                ))
            })
        });
        let mut token = Token::new(self.name, self.hash.parse()?, rights, sequences);
        (token.max_ids, token.expires) = (self.max_ids, expires.transpose()?);
        Ok(token)
    }
}

fn parsed<T: FromStr<Err = idmill::Error>, C: FromIterator<T>>(words: &[String]) -> idmill::Result<C> {
    words.iter().map(|word| word.parse()).collect()
}

pub(super) fn read(file: &Path) -> Outcome<Vec<Token>> {
    let entries = in_toml::<File>(file)?.token;
    let tokens = entries.into_iter().map(|entry| {
        let name = entry.name.clone();
        entry
            .token()
            .map_err(|error| Failure::usage(format!("{}: the token {name:?}: {error}", file.display())))
    });
    tokens.collect()
}

/// A file in TOML.
pub(super) fn in_toml<T: DeserializeOwned>(file: &Path) -> Outcome<T> {
    let text = fs::read_to_string(file);
    let text = text.map_err(|error| Failure::usage(format!("{} cannot be read: {error}", file.display())))?;
    // The error's own text shows the line, which may hold a password.
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        Failure::usage(format!("{}, line {line}: {}", file.display(), error.message()))
    })
}

/// `idmill token`: a new one, and what of it goes into the file.
pub(crate) fn run(global: &Global, args: &Args) -> Outcome {
    parsed::<Right, Rights>(&args.rights)?;
    parsed::<Pattern, Vec<_>>(&args.sequences)?;
    let secret = Secret::fresh()?;
    let entry = entry(args, &secret);
    if global.json {
        return output::print_json(&serde_json::json!({ "token": secret.reveal(), "entry": entry }));
    }
    output::print(&format!(
        "# for the client; it is not kept anywhere\n{}\n\n# for the file of tokens\n{entry}",
        secret.reveal()
    ))
}

fn entry(args: &Args, secret: &Secret) -> String {
    let list = |words: &[String]| toml::Value::from(words.to_vec());
    let mut entry = format!(
        "[[token]]\nname = {}\nhash = \"{}\"\nrights = {}\nsequences = {}\n",
        toml::Value::from(args.name.as_str()),
        secret.hash(),
        list(&args.rights),
        list(&args.sequences),
    );
    if let Some(ids) = args.max_ids {
        let _ = writeln!(entry, "max-ids = {ids}");
    }
    if let Some(time) = args.expires {
        let _ = writeln!(entry, "expires = {}", humantime::format_rfc3339_seconds(SystemTime::now() + time));
    }
    entry
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        let args = Args {
            name: "the \"shop\"".to_owned(),
            rights: vec!["draw".to_owned()],
            sequences: vec!["orders".to_owned(), "shop.*".to_owned()],
            max_ids: Some(1000),
            expires: Some(Duration::from_secs(60)),
        };
        let secret = Secret::fresh().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tokens.toml");
        fs::write(&file, entry(&args, &secret)).unwrap();
        let tokens = read(&file).unwrap();
        let [token] = &tokens[..] else { panic!("{tokens:?}") };
        assert_eq!((&*token.name, token.hash, token.max_ids), ("the \"shop\"", secret.hash(), Some(1000)));
        assert!(token.expires.unwrap() > SystemTime::now() && token.sequences.len() == 2);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_without_its_text() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tokens.toml");
        for (text, words) in [
            ("[[token]]\nname = \"a\"\nhash = \"topsecret\"\nrights = []\nsequences = []\n", "sha256:"),
            ("[[token]]\nsecret = \"topsecret\"\n", "line 2"),
            ("[[token]]\nname = topsecret\n", "line 2"),
        ] {
            fs::write(&file, text).unwrap();
            let message = read(&file).unwrap_err().message().to_owned();
            assert!(message.contains(words) && !message.contains("topsecret"), "{message}");
        }
    }
}
