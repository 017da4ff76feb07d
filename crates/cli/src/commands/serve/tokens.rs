//! The token file: parsing, and new entries.

use std::collections::HashMap;
use std::fs;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::Path;
use std::str::FromStr;
use std::time::SystemTime;

use idmill_server::{Pattern, Right, Rights, Secret, Token};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::args::{Global, Token as Args};
use crate::error::{CliError, Outcome};
use crate::output;

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Entry>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Entry {
    name: String,
    hash: String,
    rights: Vec<String>,
    sequences: Vec<String>,
    max_ids: Option<NonZeroU64>,
    requests_per_second: Option<NonZeroU32>,
    burst: Option<NonZeroU32>,
    max_connections: Option<NonZeroU32>,
    new_sequences: Option<u32>,
    expires: Option<toml::value::Datetime>,
}

impl Entry {
    fn token(self) -> idmill::Result<Token> {
        let (rights, sequences) = (parsed::<Right, _>(&self.rights)?, parsed::<Pattern, _>(&self.sequences)?);
        let expires = self.expires.map(|end| {
            humantime::parse_rfc3339(&end.to_string()).map_err(|_| {
                idmill::Error::invalid(format!(
                    "`expires = {end}` is not a UTC time; write one such as `2030-01-31T00:00:00Z`"
                ))
            })
        });
        let mut token = Token::new(self.name, self.hash.parse()?, rights, sequences);
        if self.burst.is_some() && self.requests_per_second.is_none() {
            return Err(idmill::Error::invalid("`burst` needs `requests-per-second`; set both"));
        }
        (token.max_ids, token.expires) = (self.max_ids.map(NonZeroU64::get), expires.transpose()?);
        (token.requests_per_second, token.burst) = (self.requests_per_second, self.burst);
        token.max_connections = self.max_connections.map(NonZeroU32::get);
        token.new_sequences = self.new_sequences;
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
            .map_err(|error| CliError::usage(format!("{}: the token {name:?}: {error}", file.display())))
    });
    let tokens: Vec<_> = tokens.collect::<Outcome<_>>()?;
    distinct(file, &tokens)?;
    Ok(tokens)
}

/// Reads tokens like [`read`], but rejects a file without tokens, which would lock out every client.
pub(super) fn read_some(file: &Path) -> Outcome<Vec<Token>> {
    let tokens = read(file)?;
    if tokens.is_empty() {
        let message = format!("{} has no tokens, so every client would be rejected", file.display());
        return Err(CliError::usage(message).hint("add the entry that `idmill token` prints"));
    }
    Ok(tokens)
}

/// Rejects duplicate hashes: only the rights of one entry would apply.
fn distinct(file: &Path, tokens: &[Token]) -> Outcome {
    let mut names = HashMap::new();
    for token in tokens {
        if let Some(other) = names.insert(token.hash, &token.name) {
            return Err(CliError::usage(format!(
                "{}: the tokens {other:?} and {:?} have the same hash; remove one, or run `idmill token` again",
                file.display(),
                token.name
            )));
        }
    }
    Ok(())
}

/// Reads a TOML file.
pub(super) fn in_toml<T: DeserializeOwned>(file: &Path) -> Outcome<T> {
    let text = fs::read_to_string(file);
    let text =
        text.map_err(|error| CliError::usage(format!("{} cannot be read: {error}", file.display())))?;
    // Print only the message: the full error shows the line, which may contain a password.
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        CliError::usage(format!("{}, line {line}: {}", file.display(), error.message()))
    })
}

/// Creates a token for `idmill token`, and prints its entry for the file.
pub(crate) fn run(global: &Global, args: &Args) -> Outcome {
    parsed::<Right, Rights>(&args.rights)?;
    parsed::<Pattern, Vec<_>>(&args.sequences)?;
    let secret = Secret::fresh()?;
    let entry = entry(args, &secret);
    if global.json {
        return output::print_json(&serde_json::json!({ "token": secret.reveal(), "entry": entry }));
    }
    output::print(&format!(
        "# token for the client; it is not stored anywhere\n{}\n\n# entry for the tokens file\n{entry}",
        secret.reveal()
    ))
}

fn entry(args: &Args, secret: &Secret) -> String {
    let expires = args.expires.map(|time| humantime::format_rfc3339_seconds(SystemTime::now() + time));
    let entry = Entry {
        name: args.name.clone(),
        hash: secret.hash().to_string(),
        rights: args.rights.clone(),
        sequences: args.sequences.clone(),
        max_ids: args.max_ids.and_then(NonZeroU64::new),
        requests_per_second: args.requests_per_second,
        burst: args.burst,
        max_connections: args.max_connections,
        new_sequences: args.new_sequences,
        expires: expires.map(|end| end.to_string().parse().expect("a valid TOML time")),
    };
    toml::to_string(&File { token: vec![entry] }).expect("a token serializes to TOML")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn printed_token_entry_is_read() {
        let args = Args {
            name: "the \"shop\"".to_owned(),
            rights: vec!["draw".to_owned()],
            sequences: vec!["orders".to_owned(), "shop.*".to_owned()],
            max_ids: Some(1000),
            requests_per_second: NonZeroU32::new(500),
            burst: NonZeroU32::new(2000),
            max_connections: NonZeroU32::new(8),
            new_sequences: Some(0),
            expires: Some(Duration::from_secs(60)),
        };
        let secret = Secret::fresh().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tokens.toml");
        fs::write(&file, entry(&args, &secret)).unwrap();
        let tokens = read(&file).unwrap();
        let [token] = &tokens[..] else { panic!("{tokens:?}") };
        assert_eq!((&*token.name, token.hash, token.max_ids), ("the \"shop\"", secret.hash(), Some(1000)));
        assert_eq!((token.requests_per_second, token.burst), (NonZeroU32::new(500), NonZeroU32::new(2000)));
        assert_eq!((token.max_connections, token.new_sequences), (Some(8), Some(0)));
        assert!(token.expires.unwrap() > SystemTime::now() && token.sequences.len() == 2);
    }

    #[test]
    fn bad_tokens_file_error_names_the_line_without_its_text() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tokens.toml");
        for (text, words) in [
            ("[[token]]\nname = \"a\"\nhash = \"topsecret\"\nrights = []\nsequences = []\n", "sha256:"),
            ("[[token]]\nsecret = \"topsecret\"\n", "line 2"),
            ("[[token]]\nname = topsecret\n", "line 2"),
            ("[[token]]\nname = \"a\"\nrequests-per-second = 0\n", "line 3"),
        ] {
            fs::write(&file, text).unwrap();
            let message = read(&file).unwrap_err().message().to_owned();
            assert!(message.contains(words) && !message.contains("topsecret"), "{message}");
        }
    }
}
