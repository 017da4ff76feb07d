//! The scheme of a store's URLs, what reads them, and how the store is opened.

use std::any::TypeId;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Store, StoreFuture};
use idmill::{Error, ErrorKind, Operation, Result, Sequences};

use crate::{Target, WindowTarget, query, secrets};

/// How long opening a store on the network may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens the store at `url`, whose options are `O`, and its sequences. A store's crate has a `connect` that
/// calls this.
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) for a URL that `O` rejects; those of opening the store, and
/// [`Unavailable`](ErrorKind::Unavailable) if it is not open within [30 s](CONNECT_TIMEOUT).
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

/// Waits until a store is open, for `limit` at most. The error names the store by its URL, and what to check.
///
/// # Errors
/// Those of opening it; [`Unavailable`](ErrorKind::Unavailable) if it is not open in time.
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
                "something accepts connections, or requests, and does not answer in time; check whether it is frozen, \
                 overloaded or another service, or allow more time"
            } else {
                "another process holds the file, or its disk does not answer; or allow more time"
            };
            let message = format!("{url} could not be opened within {limit:?}: {why}");
            Err(Error::new(ErrorKind::Unavailable, message))
        }),
    };
    opened.map_err(|error| error.during(Operation::Connect))
}

/// A scheme, such as `postgres`, and what reads the URLs that begin with it. A crate with a store has one for
/// each way to write its URLs:
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
/// /// Opens the store at a URL such as `toy:ids`, and its sequences.
/// pub async fn connect(url: &str) -> idmill::Result<idmill::Sequences> {
///     idmill_kit::connect::<ToyOptions>(url).await
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    name: &'static str,
    /// Empty for another way to write one that has an example.
    example: &'static str,
    reads: Reads,
    /// The type that reads it. Two functions cannot be told apart reliably, and two versions of a crate have
    /// two types.
    reader: fn() -> TypeId,
}

#[derive(Clone, Copy, Debug)]
enum Reads {
    Store(Read<dyn Target>),
    Window(Read<dyn WindowTarget>),
    /// Nothing, since it is not built in; with the remedy.
    Nothing {
        is_window: bool,
        remedy: &'static str,
    },
}

/// Reads a whole URL, with the scheme in lower case.
pub type Read<T> = fn(&str) -> Result<Arc<T>>;

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
        Self { name, example, reads: Reads::Store(store::<O>), reader: TypeId::of::<O> }
    }

    /// A scheme of windows, whose URLs are read as `O`.
    pub const fn window<O: WindowTarget + FromStr<Err = Error> + 'static>(
        name: &'static str,
        example: &'static str,
    ) -> Self {
        Self { name, example, reads: Reads::Window(window::<O>), reader: TypeId::of::<O> }
    }

    /// A scheme of stores that is known but cannot be read, and the remedy, such as "build with the cargo
    /// feature `postgres`". A scheme of this name that can be read takes its place.
    pub const fn missing(name: &'static str, example: &'static str, remedy: &'static str) -> Self {
        let reads = Reads::Nothing { is_window: false, remedy };
        Self { name, example, reads, reader: TypeId::of::<()> }
    }

    /// The same of windows.
    pub const fn missing_window(name: &'static str, example: &'static str, remedy: &'static str) -> Self {
        let reads = Reads::Nothing { is_window: true, remedy };
        Self { reads, ..Self::missing(name, example, remedy) }
    }

    /// The same scheme by another name, which is not shown among the examples.
    #[must_use]
    pub const fn alias(self, name: &'static str) -> Self {
        Self { name, example: "", ..self }
    }

    /// What URLs of this scheme begin with, in lower case.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How such a URL is written; empty for an alias.
    pub fn example(&self) -> &'static str {
        self.example
    }

    /// What reads the URLs of a store of this scheme.
    pub fn store_reader(&self) -> Option<Read<dyn Target>> {
        if let Reads::Store(read) = self.reads { Some(read) } else { None }
    }

    /// What reads the URLs of a window of this scheme.
    pub fn window_reader(&self) -> Option<Read<dyn WindowTarget>> {
        if let Reads::Window(read) = self.reads { Some(read) } else { None }
    }

    /// Whether it is a scheme of windows.
    pub fn is_window(&self) -> bool {
        matches!(self.reads, Reads::Window(_) | Reads::Nothing { is_window: true, .. })
    }

    /// What to do about a scheme that cannot be read.
    pub fn remedy(&self) -> Option<&'static str> {
        if let Reads::Nothing { remedy, .. } = self.reads { Some(remedy) } else { None }
    }

    /// The type that reads it; `()` if nothing does.
    pub fn reader_type(&self) -> TypeId {
        (self.reader)()
    }
}
