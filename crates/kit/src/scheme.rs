//! URL schemes, their parsers, and how a store is opened.

use std::any::TypeId;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Store, StoreFuture};
use idmill::{Error, ErrorKind, Operation, Result, Sequences};

use crate::{Target, WindowTarget, query, secrets};

/// The timeout for opening a store on the network.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens the store at `url` and returns its sequences. `O` is the type of the store's options. Each store
/// crate has a `connect` that calls this.
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) for a URL that `O` rejects; those of opening the store;
/// [`Unavailable`](ErrorKind::Unavailable) if a remote store is not open within [30 s](CONNECT_TIMEOUT).
pub async fn connect<O: Target + FromStr<Err = Error>>(url: &str) -> Result<Sequences> {
    let read = || -> Result<O> {
        let url = secrets::trimmed(url)?;
        match query::split_scheme(url) {
            Some((scheme, rest)) => format!("{scheme}:{rest}").parse(),
            None => url.parse(),
        }
    };
    let target = read().map_err(|error| error.during(Operation::Connect))?;
    let limit = target.is_remote().then_some(CONNECT_TIMEOUT);
    Sequences::new(open(&target, target.is_remote(), limit, target.connect()).await?)
}

/// Opens a store within `limit`. The error of a timeout contains the URL of the store and advice.
///
/// # Errors
/// Those of `opening`; [`Unavailable`](ErrorKind::Unavailable) after `limit`.
pub async fn open(
    url: &(dyn fmt::Display + Sync),
    is_remote: bool,
    limit: Option<Duration>,
    opening: StoreFuture<'_, Result<Arc<dyn Store>>>,
) -> Result<Arc<dyn Store>> {
    let opened = match limit {
        None => opening.await,
        Some(limit) => tokio::time::timeout(limit, opening).await.unwrap_or_else(|_| {
            let why = if is_remote {
                "the server is unreachable or does not answer; check the host and port, or allow more \
                 time"
            } else {
                "another process holds the file, or its disk does not answer; stop that process, or allow \
                 more time"
            };
            let message = format!("cannot open {url} within {limit:?}: {why}");
            Err(Error::new(ErrorKind::Unavailable, message))
        }),
    };
    opened.map_err(|error| error.during(Operation::Connect))
}

/// A scheme, such as `postgres`, and the parser of its URLs. A store crate defines one `Scheme` for each URL
/// prefix that it accepts:
///
/// ```
/// # use std::{fmt, sync::Arc};
/// # use idmill::store::{MemoryStore, Store, StoreFuture};
/// # use idmill_kit::{Scheme, Target};
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
/// /// Opens the store at a URL such as `toy:ids`, and returns its sequences.
/// pub async fn connect(url: &str) -> idmill::Result<idmill::Sequences> {
///     idmill_kit::connect::<ToyOptions>(url).await
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    name: &'static str,
    /// Empty for an alias.
    example: &'static str,
    reads: Reads,
    /// The type that parses the URLs. Conflicting schemes differ in this type; comparing function pointers is
    /// not reliable.
    reader: fn() -> TypeId,
}

#[derive(Clone, Copy, Debug)]
enum Reads {
    Store(Read<dyn Target>),
    Window(Read<dyn WindowTarget>),
    /// No parser: the store is not built in. Contains the remedy.
    Nothing {
        is_window: bool,
        remedy: &'static str,
    },
}

/// Parses a whole URL, whose scheme is in lower case.
pub type Read<T> = fn(&str) -> Result<Arc<T>>;

fn store<O: Target + FromStr<Err = Error> + 'static>(url: &str) -> Result<Arc<dyn Target>> {
    Ok(Arc::new(url.parse::<O>()?))
}

fn window<O: WindowTarget + FromStr<Err = Error> + 'static>(url: &str) -> Result<Arc<dyn WindowTarget>> {
    Ok(Arc::new(url.parse::<O>()?))
}

impl Scheme {
    /// Creates a scheme of stores, whose URLs are parsed as `O`. The name must be in lower case. Errors show
    /// the example.
    pub const fn store<O: Target + FromStr<Err = Error> + 'static>(
        name: &'static str,
        example: &'static str,
    ) -> Self {
        Self { name, example, reads: Reads::Store(store::<O>), reader: TypeId::of::<O> }
    }

    /// Creates a scheme of windows, whose URLs are parsed as `O`.
    pub const fn window<O: WindowTarget + FromStr<Err = Error> + 'static>(
        name: &'static str,
        example: &'static str,
    ) -> Self {
        Self { name, example, reads: Reads::Window(window::<O>), reader: TypeId::of::<O> }
    }

    /// Creates a scheme of stores that is known but not built in. `remedy` is, for example, "build with the
    /// cargo feature `postgres`". A scheme of the same name that has a parser replaces it.
    pub const fn missing(name: &'static str, example: &'static str, remedy: &'static str) -> Self {
        let reads = Reads::Nothing { is_window: false, remedy };
        Self { name, example, reads, reader: TypeId::of::<()> }
    }

    /// Like [`missing`](Self::missing), for windows.
    pub const fn missing_window(name: &'static str, example: &'static str, remedy: &'static str) -> Self {
        let reads = Reads::Nothing { is_window: true, remedy };
        Self { reads, ..Self::missing(name, example, remedy) }
    }

    /// Returns the same scheme with another name, which has no example.
    #[must_use]
    pub const fn alias(self, name: &'static str) -> Self {
        Self { name, example: "", ..self }
    }

    /// Returns the name, in lower case.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns an example URL; empty for an alias.
    pub fn example(&self) -> &'static str {
        self.example
    }

    /// Returns the parser of a store's URLs.
    pub fn store_reader(&self) -> Option<Read<dyn Target>> {
        if let Reads::Store(read) = self.reads { Some(read) } else { None }
    }

    /// Returns the parser of a window's URLs.
    pub fn window_reader(&self) -> Option<Read<dyn WindowTarget>> {
        if let Reads::Window(read) = self.reads { Some(read) } else { None }
    }

    /// Returns whether this is a scheme of windows.
    pub fn is_window(&self) -> bool {
        matches!(self.reads, Reads::Window(_) | Reads::Nothing { is_window: true, .. })
    }

    /// Returns the remedy for a scheme without a parser.
    pub fn remedy(&self) -> Option<&'static str> {
        if let Reads::Nothing { remedy, .. } = self.reads { Some(remedy) } else { None }
    }

    /// Returns the type that parses the URLs; `()` if there is none.
    pub fn reader_type(&self) -> TypeId {
        (self.reader)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use idmill::store::MemoryStore;

    /// A store that opens at once, or never if its place is `stuck`.
    #[derive(Clone, Debug)]
    struct Toy(String);

    impl FromStr for Toy {
        type Err = Error;

        fn from_str(url: &str) -> Result<Self> {
            let place = url.strip_prefix("toy:").ok_or_else(|| Error::invalid(format!("no toy: {url}")))?;
            Ok(Self(place.to_owned()))
        }
    }

    impl fmt::Display for Toy {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "toy:{}", self.0)
        }
    }

    impl Target for Toy {
        crate::target!(|toy| "toy" => open_toy);

        fn is_remote(&self) -> bool {
            self.0.starts_with("stuck")
        }
    }

    async fn open_toy(toy: Toy) -> Result<MemoryStore> {
        if toy.is_remote() { std::future::pending().await } else { Ok(MemoryStore::new()) }
    }

    impl WindowTarget for Toy {
        fn before(&self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>> {
            Ok(store)
        }
    }

    #[test]
    fn scheme_returns_what_it_was_created_with() {
        let (store, window) =
            (Scheme::store::<Toy>("toy", "toy:PATH"), Scheme::window::<Toy>("toy", "toy://HOST"));
        let (missing, missing_window) = (
            Scheme::missing("toy", "toy:PATH", "add it"),
            Scheme::missing_window("toy", "toy://HOST", "add it"),
        );
        for (scheme, example, is_window, remedy) in [
            (store, "toy:PATH", false, None),
            (window, "toy://HOST", true, None),
            (missing, "toy:PATH", false, Some("add it")),
            (missing_window, "toy://HOST", true, Some("add it")),
            (store.alias("joy"), "", false, None),
        ] {
            assert_eq!((scheme.example(), scheme.is_window(), scheme.remedy()), (example, is_window, remedy));
            let has_reader = (scheme.store_reader().is_some(), scheme.window_reader().is_some());
            assert_eq!(has_reader, (remedy.is_none() && !is_window, remedy.is_none() && is_window));
            let reader = if remedy.is_none() { TypeId::of::<Toy>() } else { TypeId::of::<()>() };
            assert_eq!(scheme.reader_type(), reader);
        }
        assert_eq!((store.name(), store.alias("joy").name()), ("toy", "joy"));
        assert_eq!(store.store_reader().unwrap()("toy:x").unwrap().to_string(), "toy:x");
        assert_eq!(window.window_reader().unwrap()("toy:x").unwrap().to_string(), "toy:x");
        assert!(store.store_reader().unwrap()("x").is_err_and(|error| error.to_string() == "no toy: x"));
    }

    #[tokio::test(start_paused = true)]
    async fn connect_waits_thirty_seconds_for_a_remote_store() {
        assert_eq!(CONNECT_TIMEOUT, Duration::from_secs(30));
        let ids = connect::<Toy>(" TOY:x ").await.unwrap();
        assert_eq!(ids.sequence::<u64>("s").await.unwrap().next().await.unwrap(), 1);
        let begun = tokio::time::Instant::now();
        let stuck = connect::<Toy>("toy:stuck").await.unwrap_err();
        let message = "connect: cannot open toy:stuck within 30s: the server is unreachable or does not answer; check the host \
                       and port, or allow more time";
        assert_eq!((stuck.kind(), stuck.to_string().as_str()), (ErrorKind::Unavailable, message));
        assert_eq!(begun.elapsed(), Duration::from_secs(30));
        for (url, says) in [("joy:x", "no toy: joy:x"), ("x", "no toy: x")] {
            let other = connect::<Toy>(url).await.unwrap_err().to_string();
            assert_eq!(other, format!("connect: {says}"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn file_that_does_not_open_in_time_is_not_unreachable() {
        let never = || Box::pin(std::future::pending());
        let held = open(&"toy:file", false, Some(Duration::from_secs(2)), never()).await.unwrap_err();
        let message = "connect: cannot open toy:file within 2s: another process holds the file, or its disk does not answer; \
                       stop that process, or allow more time";
        assert_eq!((held.kind(), held.to_string().as_str()), (ErrorKind::Unavailable, message));
        let failing = || Box::pin(async { Err(Error::invalid("bad")) });
        for limit in [None, Some(Duration::from_secs(2))] {
            let failed = open(&"toy:x", true, limit, failing()).await.unwrap_err();
            assert_eq!(failed.to_string(), "connect: bad", "{limit:?}");
        }
    }
}
