//! The schemes that URLs begin with, and the errors for URLs that nothing reads.

use idmill::{Error, ErrorKind, Operation, Result};
use idmill_kit::{Read, Scheme, Target, WindowTarget, secrets};
use parking_lot::Mutex;

use crate::memory::MemoryTarget;

/// A set of schemes. The process has [one](Self::registered), which [`connect`](super::connect) and
/// [`StoreUrl`](super::StoreUrl) go by. A program adds to it with [`register`]. A library should not: it
/// takes a store, or a set of schemes, from its caller.
///
/// The default has `memory:` alone.
#[derive(Clone, Debug)]
pub struct Schemes(Vec<Scheme>);

impl Default for Schemes {
    fn default() -> Self {
        Self(vec![Scheme::store::<MemoryTarget>("memory", "memory:")])
    }
}

impl Schemes {
    /// Adds these schemes. Those that are there already change nothing.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) if another crate, or another version of the same, has one of the
    /// names.
    pub fn with(mut self, schemes: &[Scheme]) -> Result<Self> {
        for scheme in schemes {
            self.add(*scheme)?;
        }
        Ok(self)
    }

    /// A copy of the set that is registered in this process.
    pub fn registered() -> Self {
        REGISTERED.lock().clone().unwrap_or_default()
    }

    fn add(&mut self, new: Scheme) -> Result<()> {
        let Some(kind) = new.reader_type() else {
            if !self.0.iter().any(|known| known.name() == new.name()) {
                self.0.push(new);
            }
            return Ok(());
        };
        let is_window = |scheme: &Scheme| scheme.window_reader().is_some();
        let same = |known: &&Scheme| {
            known.name() == new.name() && known.remedy().is_none() && is_window(known) == is_window(&new)
        };
        match self.0.iter().find(same) {
            Some(known) if known.reader_type() == Some(kind) => Ok(()),
            Some(_) => {
                let message = format!(
                    "`{}:` is registered already, by another crate or another version of it; keep one of them",
                    new.name()
                );
                Err(Error::new(ErrorKind::Conflict, message).during(Operation::Configure))
            }
            None => {
                self.0.retain(|known| known.name() != new.name() || known.remedy().is_none());
                self.0.push(new);
                Ok(())
            }
        }
    }

    /// What reads the URLs of stores with this scheme, in lower case.
    pub(crate) fn store(&self, name: &str) -> Result<Read<dyn Target>> {
        let found = self.0.iter().filter(|scheme| scheme.name() == name).find_map(Scheme::store_reader);
        found.ok_or_else(|| self.absent(name))
    }

    /// What reads the URLs of windows with this scheme, in lower case.
    pub(crate) fn window(&self, name: &str) -> Result<Read<dyn WindowTarget>> {
        let found = self.0.iter().filter(|scheme| scheme.name() == name).find_map(Scheme::window_reader);
        found.ok_or_else(|| self.absent_window(name))
    }

    /// The error for a text without a scheme.
    pub(crate) fn none(&self, url: &str) -> Error {
        let examples = self.examples();
        if url.is_empty() {
            return Error::invalid(format!("the store's URL is empty; there are {examples}"));
        }
        if secrets::is_connection_string(url) {
            let message = "this is the connection string of a driver; write a URL, such as \
                           `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with special characters in user \
                           name and password percent-encoded";
            return Error::invalid(message);
        }
        let shown = secrets::redacted(url);
        let lower = url.to_ascii_lowercase();
        let begun = self.names().find(|name| lower.starts_with(&format!("{name}//")));
        let remedy = match begun {
            Some(name) => format!("write `{name}://`, with a colon"),
            // Not what was given: with something hidden, it is no path that could be typed.
            None if shown != url => format!("there are {examples}"),
            None => format!("for an SQLite database write `sqlite:{url}`; there are {examples}"),
        };
        Error::invalid(format!("{shown:?} is not the URL of a store: it begins with no scheme; {remedy}"))
    }

    /// The error for the scheme of a store that cannot be read.
    fn absent(&self, name: &str) -> Error {
        if let Some(remedy) = self.remedy(name, |known| known.store) {
            let message = format!("{remedy}; so far this program reads {}", self.readable());
            return Error::new(ErrorKind::Unsupported, message);
        }
        let examples = self.examples();
        Error::invalid(format!("`{name}:` is no store that is known here; there are {examples}"))
    }

    /// The error for the scheme of a window that cannot be read.
    fn absent_window(&self, name: &str) -> Error {
        match self.remedy(name, |known| known.window) {
            Some(remedy) => Error::new(ErrorKind::Unsupported, format!("a window on {name}: {remedy}")),
            // Not the text itself: it may hold a password.
            None => Error::invalid(
                "a window is written `memcached://HOST:PORT?block=1000` or `redis://HOST:PORT?block=1000`",
            ),
        }
    }

    /// What to do about a scheme that is known and not here.
    fn remedy(&self, name: &str, is_one: impl Fn(&Known) -> bool) -> Option<String> {
        let missing = self.0.iter().filter(|scheme| scheme.name() == name).find_map(Scheme::remedy);
        if let Some(remedy) = missing {
            return Some(format!("`{name}:` is not compiled in: {remedy}"));
        }
        let known = KNOWN.iter().filter(|known| is_one(known)).find(|known| known.names.contains(&name))?;
        let package = known.package;
        let path = package.replace('-', "_");
        Some(format!(
            "`{name}:` is not registered: add the crate `{package}`, and call `idmill_url::register({path}::SCHEMES)` first"
        ))
    }

    /// How the URLs of all stores are written, those of other crates too.
    fn examples(&self) -> String {
        let known = KNOWN.iter().filter(|known| known.store).map(|known| known.example);
        let added = self.0.iter().filter(|scheme| scheme.store_reader().is_some()).map(Scheme::example);
        let mut all: Vec<&str> = known.collect();
        for example in added.filter(|example| !example.is_empty()) {
            if !all.contains(&example) {
                all.push(example);
            }
        }
        listed(&all)
    }

    /// How the URLs are written that can be read.
    fn readable(&self) -> String {
        let stores =
            self.0.iter().filter(|scheme| scheme.store_reader().is_some() && !scheme.example().is_empty());
        listed(&stores.map(Scheme::example).collect::<Vec<_>>())
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        let known = KNOWN.iter().filter(|known| known.store).flat_map(|known| known.names.iter().copied());
        known.chain(self.0.iter().map(Scheme::name))
    }
}

fn listed(examples: &[&str]) -> String {
    examples.iter().map(|example| format!("`{example}`")).collect::<Vec<_>>().join(", ")
}

/// Those of the process; `None` until one is added.
static REGISTERED: Mutex<Option<Schemes>> = Mutex::new(None);

/// Makes [`connect`](super::connect), [`StoreUrl`](super::StoreUrl) and
/// [`Sequences::connect_blocking`](idmill::Sequences::connect_blocking) read these schemes, everywhere in this
/// process. A program calls it early; a second call changes nothing.
///
/// # Errors
/// As [`Schemes::with`]. Then none of these schemes is registered.
pub fn register(schemes: &[Scheme]) -> Result<()> {
    let mut registered = REGISTERED.lock();
    *registered = Some(registered.clone().unwrap_or_default().with(schemes)?);
    Ok(())
}

/// A store or a window of this project, for the message that says which crate to add.
struct Known {
    names: &'static [&'static str],
    example: &'static str,
    package: &'static str,
    store: bool,
    window: bool,
}

const KNOWN: &[Known] = &[
    known(&["sqlite"], "sqlite:PATH", "idmill-sqlite"),
    known(&["memory"], "memory:", "idmill"),
    known(&["postgres", "postgresql"], "postgres://HOST/DATABASE", "idmill-postgres"),
    known(&["mysql", "mariadb"], "mysql://HOST/DATABASE", "idmill-mysql"),
    known(&["mongodb", "mongodb+srv"], "mongodb://HOST/DATABASE", "idmill-mongodb"),
    known(&["cassandra"], "cassandra://HOST/KEYSPACE", "idmill-cassandra"),
    known(&["spanner"], "spanner://projects/P/instances/I/databases/D", "idmill-spanner"),
    known(&["datastore"], "datastore://PROJECT", "idmill-datastore"),
    Known { window: true, ..known(&["redis", "rediss"], "redis://HOST:PORT", "idmill-redis") },
    known(&["etcd"], "etcd://HOST:PORT", "idmill-etcd"),
    known(&["idmill", "idmills"], "idmill://HOST:PORT", "idmill-remote"),
    Known {
        store: false,
        window: true,
        ..known(&["memcached"], "memcached://HOST:PORT", "idmill-memcached")
    },
];

const fn known(names: &'static [&'static str], example: &'static str, package: &'static str) -> Known {
    Known { names, example, package, store: true, window: false }
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
    fn what_is_missing_says_its_remedy_until_it_is_there() {
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
        assert!(error.contains("`sqlite:PATH`") && error.contains("`toy:PATH`"), "{error}");
    }
}
