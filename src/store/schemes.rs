//! The schemes that URLs begin with, what reads each, and the errors for URLs that nothing reads.

use std::any::TypeId;
use std::fmt;
use std::str::FromStr;

use super::kit::secrets;
use super::memory::MemoryTarget;
use super::{Target, WindowTarget};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::sync::{Arc, Mutex};

/// A scheme, such as `postgres`, and what reads the URLs that begin with it. A crate with a store has one for
/// each way to write its URLs:
///
/// ```
/// # use std::{fmt, sync::Arc};
/// # use idmill::store::{MemoryStore, Scheme, Store, StoreFuture, Target};
/// # #[derive(Clone, Debug)] pub struct ToyOptions;
/// # impl fmt::Display for ToyOptions {
/// #     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str("toy:") }
/// # }
/// # impl std::str::FromStr for ToyOptions {
/// #     type Err = idmill::Error;
/// #     fn from_str(_: &str) -> idmill::Result<Self> { Ok(Self) }
/// # }
/// # impl Target for ToyOptions {
/// #     fn scheme(&self) -> &'static str { "toy" }
/// #     fn existing(&self) -> Arc<dyn Target> { Arc::new(self.clone()) }
/// #     fn connect(&self) -> StoreFuture<'_, idmill::Result<Arc<dyn Store>>> {
/// #         Box::pin(async { Ok(Arc::new(MemoryStore::new()) as Arc<dyn Store>) })
/// #     }
/// # }
/// /// `ToyOptions` are a `Target` with `FromStr`.
/// pub const SCHEMES: &[Scheme] = &[Scheme::store::<ToyOptions>("toy", "toy:PATH")];
///
/// /// Makes `idmill::connect` read URLs such as `toy:ids`.
/// pub fn register() -> idmill::Result<()> {
///     idmill::store::register(SCHEMES)
/// }
/// # register().unwrap();
/// # assert_eq!("toy:ids".parse::<idmill::store::StoreUrl>().unwrap().scheme(), "toy");
/// ```
#[derive(Clone, Copy)]
pub struct Scheme {
    name: &'static str,
    /// Empty for another way to write one that has an example.
    example: &'static str,
    reads: Reads,
}

#[derive(Clone, Copy)]
enum Reads {
    Store(Reader<dyn Target>),
    Window(Reader<dyn WindowTarget>),
    /// Nothing, since it is not built in; with what to do about it.
    Nothing(&'static str),
}

/// Reads a whole URL, with the scheme in lower case.
pub(super) type Read<T> = fn(&str) -> Result<Arc<T>>;

/// How the URLs of a scheme are read, and as which type.
struct Reader<T: ?Sized> {
    read: Read<T>,
    /// What it is read as. Two functions cannot be told apart reliably, and two versions of a crate have two
    /// types.
    of: fn() -> TypeId,
}

impl<T: ?Sized> Clone for Reader<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Reader<T> {}

fn store<O: Target + FromStr<Err = Error> + 'static>(url: &str) -> Result<Arc<dyn Target>> {
    Ok(Arc::new(url.parse::<O>()?))
}

fn window<O: WindowTarget + FromStr<Err = Error> + 'static>(url: &str) -> Result<Arc<dyn WindowTarget>> {
    Ok(Arc::new(url.parse::<O>()?))
}

impl Scheme {
    /// A scheme of stores, whose URLs are read as `O`. The name is in lower case; the example shows a user
    /// how such a URL is written.
    pub const fn store<O: Target + FromStr<Err = Error> + 'static>(
        name: &'static str,
        example: &'static str,
    ) -> Self {
        Self { name, example, reads: Reads::Store(Reader { read: store::<O>, of: TypeId::of::<O> }) }
    }

    /// A scheme of windows, whose URLs are read as `O`.
    pub const fn window<O: WindowTarget + FromStr<Err = Error> + 'static>(
        name: &'static str,
        example: &'static str,
    ) -> Self {
        Self { name, example, reads: Reads::Window(Reader { read: window::<O>, of: TypeId::of::<O> }) }
    }

    /// A scheme that is known but cannot be read, and the remedy, such as "build with the cargo feature
    /// `postgres`". A scheme of this name that can be read takes its place.
    pub const fn missing(name: &'static str, example: &'static str, remedy: &'static str) -> Self {
        Self { name, example, reads: Reads::Nothing(remedy) }
    }

    /// The same scheme by another name, which is not shown among the examples.
    #[must_use]
    pub const fn alias(self, name: &'static str) -> Self {
        Self { name, example: "", ..self }
    }

    fn is_missing(&self) -> bool {
        matches!(self.reads, Reads::Nothing(_))
    }

    fn is_store(&self) -> bool {
        matches!(self.reads, Reads::Store(_))
    }

    /// Which type reads it, and whether as a window.
    fn kind(&self) -> Option<(bool, TypeId)> {
        match self.reads {
            Reads::Store(reader) => Some((false, (reader.of)())),
            Reads::Window(reader) => Some((true, (reader.of)())),
            Reads::Nothing(_) => None,
        }
    }
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reads = match self.reads {
            Reads::Store(_) => "store",
            Reads::Window(_) => "window",
            Reads::Nothing(_) => "nothing",
        };
        f.debug_struct("Scheme").field("name", &self.name).field("reads", &reads).finish_non_exhaustive()
    }
}

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
        let Some(kind) = new.kind() else {
            if !self.0.iter().any(|known| known.name == new.name) {
                self.0.push(new);
            }
            return Ok(());
        };
        let same = |known: &&Scheme| {
            known.name == new.name && known.kind().is_some_and(|(window, _)| window == kind.0)
        };
        match self.0.iter().find(same) {
            Some(known) if known.kind() == Some(kind) => Ok(()),
            Some(_) => {
                let message = format!(
                    "`{}:` is registered already, by another crate or another version of it; keep one of them",
                    new.name
                );
                Err(Error::new(ErrorKind::Conflict, message).during(Operation::Configure))
            }
            None => {
                self.0.retain(|known| known.name != new.name || !known.is_missing());
                self.0.push(new);
                Ok(())
            }
        }
    }

    /// What reads the URLs of stores with this scheme, in lower case.
    pub(super) fn store(&self, name: &str) -> Result<Read<dyn Target>> {
        let found = self.0.iter().find_map(|scheme| match scheme.reads {
            Reads::Store(reader) if scheme.name == name => Some(reader.read),
            _ => None,
        });
        found.ok_or_else(|| self.absent(name))
    }

    /// What reads the URLs of windows with this scheme, in lower case.
    pub(super) fn window(&self, name: &str) -> Result<Read<dyn WindowTarget>> {
        let found = self.0.iter().find_map(|scheme| match scheme.reads {
            Reads::Window(reader) if scheme.name == name => Some(reader.read),
            _ => None,
        });
        found.ok_or_else(|| self.absent_window(name))
    }

    /// The error for a text without a scheme.
    pub(super) fn none(&self, url: &str) -> Error {
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
        let missing = self.0.iter().find_map(|scheme| match scheme.reads {
            Reads::Nothing(remedy) if scheme.name == name => Some(remedy),
            _ => None,
        });
        if let Some(remedy) = missing {
            return Some(format!("`{name}:` is not compiled in: {remedy}"));
        }
        let known = KNOWN.iter().filter(|known| is_one(known)).find(|known| known.names.contains(&name))?;
        let package = known.package;
        let path = package.replace('-', "_");
        Some(format!(
            "`{name}:` is not registered: add the crate `{package}`, and call `{path}::register()` first"
        ))
    }

    /// How the URLs of all stores are written, those of other crates too.
    fn examples(&self) -> String {
        let known = KNOWN.iter().filter(|known| known.store).map(|known| known.example);
        let added = self.0.iter().filter(|scheme| scheme.is_store()).map(|scheme| scheme.example);
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
        let stores = self.0.iter().filter(|scheme| scheme.is_store() && !scheme.example.is_empty());
        listed(&stores.map(|scheme| scheme.example).collect::<Vec<_>>())
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        let known = KNOWN.iter().filter(|known| known.store).flat_map(|known| known.names.iter().copied());
        known.chain(self.0.iter().map(|scheme| scheme.name))
    }
}

fn listed(examples: &[&str]) -> String {
    examples.iter().map(|example| format!("`{example}`")).collect::<Vec<_>>().join(", ")
}

/// Those of the process; `None` until one is added.
static REGISTERED: Mutex<Option<Schemes>> = Mutex::new(None);

/// Makes [`connect`](super::connect), [`StoreUrl`](super::StoreUrl) and
/// [`Sequences::connect_blocking`](crate::Sequences::connect_blocking) read these schemes, everywhere in this
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
    use super::*;
    use crate::store::{Store, StoreFuture};

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
