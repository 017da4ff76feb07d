//! URL schemes, and the errors for URLs without a parser.

use std::sync::Arc;

use idmill::{Error, ErrorKind, Operation, Result};
use idmill_kit::options::{Word, words};
use idmill_kit::{Read, Scheme, Target, WindowTarget, query, secrets};

use crate::memory::MemoryTarget;

/// The stores whose URLs a program can parse. `idmill-any` has all stores of this project in one value; add
/// the stores of another crate [with](Self::with) the schemes of that crate. A library should take a store,
/// or a `Schemes`, from its caller.
///
/// The default has only `memory:`.
#[derive(Clone, Debug)]
pub struct Schemes(Vec<Scheme>);

impl Default for Schemes {
    fn default() -> Self {
        Self(vec![Scheme::store::<MemoryTarget>("memory", "memory:")])
    }
}

impl Schemes {
    /// Adds these schemes. A present scheme is kept, unless only the new scheme has a parser.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) if another crate, or another version of the same crate, has one of
    /// the names.
    pub fn with(mut self, schemes: &[Scheme]) -> Result<Self> {
        schemes.iter().try_for_each(|scheme| self.add(*scheme))?;
        Ok(self)
    }

    fn add(&mut self, new: Scheme) -> Result<()> {
        let known = self.0.iter_mut().find(|known| is(known, new.name(), new.is_window()));
        match known {
            // `memory:` stays last in the examples.
            None => self.0.insert(self.0.len() - 1, new),
            Some(_) if new.remedy().is_some() => {}
            Some(known) if known.remedy().is_some() => *known = new,
            Some(known) if known.reader_type() == new.reader_type() => {}
            Some(_) => {
                let message = format!(
                    "`{}:` is already registered by another crate, or another version of the crate; keep \
                     only one",
                    new.name()
                );
                return Err(Error::new(ErrorKind::Conflict, message).during(Operation::Configure));
            }
        }
        Ok(())
    }

    fn find(&self, name: &str, is_window: bool) -> Option<&Scheme> {
        self.0.iter().find(|known| is(known, name, is_window))
    }

    /// Returns the parser for URLs of stores. The scheme must be in lower case.
    pub(crate) fn store(&self, name: &str) -> Result<Read<dyn Target>> {
        let known = self.find(name, false);
        if let Some(remedy) = known.and_then(Scheme::remedy) {
            let readable = self.examples(|scheme| scheme.remedy().is_none());
            let message = format!("`{name}:` is not compiled in: {remedy}; use one of: {readable}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        known.and_then(Scheme::store_reader).ok_or_else(|| {
            let examples = self.compiled();
            Error::invalid(format!("`{name}:` is not a known store; {examples}"))
        })
    }

    /// Returns the schemes of stores, including schemes that are not compiled in.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().filter(|scheme| !scheme.is_window()).map(Scheme::name)
    }

    /// Returns the schemes of the stores that are compiled in.
    pub fn compiled_names(&self) -> impl Iterator<Item = &'static str> {
        let stores = self.0.iter().filter(|scheme| !scheme.is_window() && scheme.remedy().is_none());
        stores.map(Scheme::name)
    }

    /// Lists the URLs that this program reads, and the URLs of stores that are not compiled in.
    fn compiled(&self) -> String {
        let here = self.examples(|scheme| scheme.remedy().is_none());
        let missing = self.examples(|scheme| scheme.remedy().is_some());
        if missing.is_empty() {
            format!("use one of: {here}")
        } else {
            format!("use one of: {here}; not compiled in: {missing}")
        }
    }

    /// Parses the URL of a window.
    pub(crate) fn window(&self, url: &str) -> Result<Arc<dyn WindowTarget>> {
        let (name, rest) = query::split_scheme(secrets::trimmed(url)?).unwrap_or_default();
        let known = self.find(&name, true);
        if let Some(remedy) = known.and_then(Scheme::remedy) {
            let message = format!("the window on `{name}:` is not compiled in: {remedy}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let read = known.and_then(Scheme::window_reader).ok_or_else(|| {
            // Omit the text, which may contain a password.
            let message = "the window's URL is invalid; write `memcached://HOST:PORT?block=1000` or \
                           `redis://HOST:PORT?block=1000`";
            Error::invalid(message)
        })?;
        read(&format!("{name}:{rest}"))
    }

    /// Returns the error for a text without a scheme.
    pub(crate) fn none(&self, url: &str) -> Error {
        let examples = self.examples(|_| true);
        if url.is_empty() {
            return Error::invalid(format!("the store's URL is empty; examples: {examples}"));
        }
        if secrets::is_connection_string(url) {
            let message = "this is the connection string of a driver; write a URL, such as \
                           `postgres://USER:PASSWORD@HOST:PORT/DATABASE`";
            return Error::invalid(message);
        }
        let shown = secrets::redacted(url);
        let lower = url.to_ascii_lowercase();
        let begun = self.0.iter().map(Scheme::name).find(|name| lower.starts_with(&format!("{name}//")));
        let remedy = match begun {
            Some(name) => format!("write `{name}://`, with a colon"),
            // A text with a redacted part is not a usable path.
            None if shown != url || self.find("sqlite", false).is_none() => format!("examples: {examples}"),
            None => format!("for an SQLite database write `sqlite:{url}`; examples: {examples}"),
        };
        Error::invalid(format!("{shown:?} is not the URL of a store: it has no scheme; {remedy}"))
    }

    /// Lists examples of the URLs of these stores.
    fn examples(&self, of: fn(&Scheme) -> bool) -> String {
        let stores = self.0.iter().filter(|scheme| !scheme.is_window() && of(scheme));
        let examples = stores.map(Scheme::example).filter(|example| !example.is_empty());
        examples.map(|example| format!("`{example}`")).collect::<Vec<_>>().join(", ")
    }
}

fn is(scheme: &Scheme, name: &str, is_window: bool) -> bool {
    scheme.name() == name && scheme.is_window() == is_window
}

/// Removes a boolean option from a URL and returns its value.
pub(crate) fn take_flag(option: &str, url: &str) -> Result<(String, bool)> {
    let (rest, value) = query::take(option, url)?;
    if let Some(value) = &value {
        words::<bool>().check(option, value)?;
    }
    Ok((rest, value.as_deref() == Some(true.word())))
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::str::FromStr;
    use std::sync::Arc;

    use super::*;
    use idmill::store::{Store, StoreFuture};

    macro_rules! target {
        ($name:ident) => {
            #[derive(Debug)]
            struct $name;

            impl FromStr for $name {
                type Err = Error;

                fn from_str(_: &str) -> Result<Self> {
                    Ok(Self)
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("toy:")
                }
            }

            impl Target for $name {
                fn scheme(&self) -> &'static str {
                    "toy"
                }

                fn existing(&self) -> Arc<dyn Target> {
                    Arc::new(Self)
                }

                fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
                    Box::pin(std::future::pending())
                }
            }
        };
    }

    target!(Toy);
    target!(Other);

    const TOY: Scheme = Scheme::store::<Toy>("toy", "toy:PATH");
    const MISSING: Scheme = Scheme::missing("toy", "toy:PATH", "build with the cargo feature `toy`");

    #[test]
    fn a_name_is_read_by_one_type() {
        let schemes = Schemes::default().with(&[TOY, TOY.alias("joy"), TOY]).unwrap();
        assert_eq!(schemes.0.len(), 3, "memory, toy and joy");
        assert!(schemes.parse("TOY:x").is_ok() && schemes.parse("joy:x").is_ok());
        let error = schemes.with(&[Scheme::store::<Other>("joy", "")]).unwrap_err();
        assert!(error.kind() == ErrorKind::Conflict && error.to_string().contains("`joy:`"), "{error}");
    }

    #[test]
    fn missing_scheme_names_its_remedy_until_added() {
        for schemes in [&[MISSING][..], &[MISSING, MISSING]] {
            let error = Schemes::default().with(schemes).unwrap().parse("toy:x").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("cargo feature `toy`"), "{error}");
        }
        for schemes in [[MISSING, TOY], [TOY, MISSING]] {
            assert!(Schemes::default().with(&schemes).unwrap().parse("toy:x").is_ok());
        }
    }

    #[test]
    fn a_store_of_another_crate_is_among_the_examples() {
        let schemes = Schemes::default().with(&[TOY]).unwrap();
        let error = schemes.parse("http://h").unwrap_err().to_string();
        assert!(error.contains("`memory:`") && error.contains("`toy:PATH`"), "{error}");
    }

    const WINDOW: Scheme =
        Scheme::missing_window("toy", "toy://HOST", "build with the cargo feature `window`");

    #[test]
    fn names_are_of_stores_and_compiled_names_have_parsers() {
        let other = Scheme::missing("other", "other:PATH", "build with the cargo feature `other`");
        let schemes = Schemes::default().with(&[TOY, other, WINDOW]).unwrap();
        assert_eq!(schemes.names().collect::<Vec<_>>(), ["toy", "other", "memory"]);
        assert_eq!(schemes.compiled_names().collect::<Vec<_>>(), ["toy", "memory"]);
    }

    fn message(schemes: &[Scheme], url: &str) -> String {
        Schemes::default().with(schemes).unwrap().parse(url).unwrap_err().to_string()
    }

    #[test]
    fn each_url_without_a_parser_has_its_own_message() {
        let none = "is not the URL of a store: it has no scheme";
        let sqlite = Scheme::missing("sqlite", "sqlite:PATH", "add the crate `idmill-sqlite`");
        for (schemes, url, expected) in [
            (&[TOY, TOY.alias("joy")][..], "", "the store's URL is empty; examples: `toy:PATH`, `memory:`".to_owned()),
            (&[TOY], "ids.db", format!("\"ids.db\" {none}; examples: `toy:PATH`, `memory:`")),
            (&[TOY], "Toy//h", format!("\"Toy//h\" {none}; write `toy://`, with a colon")),
            (
                &[sqlite],
                "ids.db",
                format!("\"ids.db\" {none}; for an SQLite database write `sqlite:ids.db`; examples: `sqlite:PATH`, `memory:`"),
            ),
            (&[sqlite], "u@ids.db", format!("\"***@ids.db\" {none}; examples: `sqlite:PATH`, `memory:`")),
            (
                &[],
                "host=db password=hunter2",
                "this is the connection string of a driver; write a URL, such as `postgres://USER:PASSWORD@HOST:PORT/DATABASE`"
                    .to_owned(),
            ),
            (&[], "http://h", "`http:` is not a known store; use one of: `memory:`".to_owned()),
            (
                &[TOY, sqlite],
                "http://h",
                "`http:` is not a known store; use one of: `toy:PATH`, `memory:`; not compiled in: `sqlite:PATH`".to_owned(),
            ),
            (
                &[TOY, sqlite],
                "sqlite:ids.db",
                "`sqlite:` is not compiled in: add the crate `idmill-sqlite`; use one of: `toy:PATH`, `memory:`".to_owned(),
            ),
            (&[], "memory:x", "`memory:` takes no path and no options; omit them".to_owned()),
            (&[], "memory:?table=t", "`memory:` takes no path and no options; omit them".to_owned()),
            (
                &[WINDOW],
                "memory:?window=toy://h",
                "the window on `toy:` is not compiled in: build with the cargo feature `window`".to_owned(),
            ),
            (
                &[TOY],
                "memory:?window=toy://h",
                "the window's URL is invalid; write `memcached://HOST:PORT?block=1000` or `redis://HOST:PORT?block=1000`"
                    .to_owned(),
            ),
        ] {
            assert_eq!(message(schemes, url), format!("connect: {expected}"), "{url}");
        }
    }

    #[test]
    fn flag_is_taken_out_of_a_url() {
        for (url, rest, is_set) in [
            ("a", "a", false),
            ("a?new=true", "a", true),
            ("a?new=false&x=1", "a?x=1", false),
            ("a?x=1", "a?x=1", false),
        ] {
            assert_eq!(take_flag("new", url).unwrap(), (rest.to_owned(), is_set), "{url}");
        }
        let error = take_flag("new", "a?new=1").unwrap_err();
        assert_eq!(error.to_string(), "connect: new=\"1\" is unknown; use one of: true, false");
    }
}
