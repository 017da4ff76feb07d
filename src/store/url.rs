//! From a URL to a store.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

#[cfg(feature = "sqlite")]
use super::sqlite::{SqliteOptions, SqliteStore};
use super::{MemoryStore, Store};
use crate::error::{Error, ErrorKind, Operation, Result};

/// Every scheme that this crate knows, and how it is written; compiled in or not.
const SCHEMES: [Scheme; 2] = [
    Scheme {
        name: "sqlite",
        example: "sqlite:PATH",
        feature: Some("sqlite"),
        compiled: cfg!(feature = "sqlite"),
    },
    Scheme { name: "memory", example: "memory:", feature: None, compiled: true },
];

struct Scheme {
    name: &'static str,
    example: &'static str,
    feature: Option<&'static str>,
    compiled: bool,
}

/// Opens the store that a URL names: see [`StoreUrl`] for the schemes.
///
/// ```
/// # async fn demo() -> idmill::Result<()> {
/// let store = idmill::store::connect("sqlite:ids.db?table=billing_sequences").await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// Those of [`StoreUrl::parse`] and of opening the store.
pub async fn connect(url: &str) -> Result<Arc<dyn Store>> {
    StoreUrl::parse(url)?.connect().await
}

/// The URL of a store, checked but not yet connected to.
///
/// | URL | store |
/// | --- | --- |
/// | `sqlite:PATH?table=NAME&busy_timeout=5s&mode=ro\|rw\|rwc` | `sqlite::SqliteStore`, with the feature `sqlite` |
/// | `memory:` | a new [`MemoryStore`], for tests |
///
/// Schemes are read without regard to case. Printing a URL gives one that reads back as the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUrl(Target);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteOptions),
    Memory,
}

impl StoreUrl {
    /// Reads a URL. Touches neither disk nor network, and never panics.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for what is not the URL of a store, with what could have been meant;
    /// [`Unsupported`](ErrorKind::Unsupported) for a store that was not compiled in, with the feature that adds it.
    pub fn parse(url: &str) -> Result<Self> {
        parse(url).map_err(|error| error.during(Operation::Connect))
    }

    /// The scheme, in lower case.
    pub fn scheme(&self) -> &'static str {
        match self.0 {
            #[cfg(feature = "sqlite")]
            Target::Sqlite(_) => "sqlite",
            Target::Memory => "memory",
        }
    }

    /// The file that the store is kept in, as it was given; `None` for a store that is not one file.
    pub fn file(&self) -> Option<&Path> {
        match &self.0 {
            #[cfg(feature = "sqlite")]
            Target::Sqlite(options) => Some(options.path()),
            Target::Memory => None,
        }
    }

    /// The same store, but opening it creates nothing: what does not exist is [`NotFound`](ErrorKind::NotFound). For
    /// looking at a store, where a mistyped path should not leave an empty one behind. `memory:` stays as it is.
    #[must_use]
    pub fn existing(self) -> Self {
        match self.0 {
            #[cfg(feature = "sqlite")]
            Target::Sqlite(options) => Self(Target::Sqlite(options.existing())),
            Target::Memory => self,
        }
    }

    /// Opens the store. Each call opens another: of `memory:`, an empty one.
    ///
    /// # Errors
    /// Those of opening the store.
    // Every store but the one in memory awaits something.
    #[cfg_attr(not(feature = "sqlite"), allow(clippy::unused_async))]
    pub async fn connect(&self) -> Result<Arc<dyn Store>> {
        Ok(match &self.0 {
            #[cfg(feature = "sqlite")]
            Target::Sqlite(options) => Arc::new(SqliteStore::open_with(options.clone()).await?),
            Target::Memory => Arc::new(MemoryStore::new()),
        })
    }
}

fn parse(url: &str) -> Result<StoreUrl> {
    let Some((scheme, rest)) = split_scheme(url) else { return Err(no_scheme(url)) };
    match scheme.to_ascii_lowercase().as_str() {
        #[cfg(feature = "sqlite")]
        "sqlite" => SqliteOptions::parse(rest).map(|options| StoreUrl(Target::Sqlite(options))),
        "memory" if matches!(rest, "" | "//") => Ok(StoreUrl(Target::Memory)),
        "memory" => Err(Error::invalid("`memory:` stands alone: it takes no path and no options")),
        other => Err(unknown(other)),
    }
}

/// The scheme and what follows its colon. One letter is a drive and not a scheme.
fn split_scheme(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    let valid = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    (valid && scheme.len() > 1).then_some((scheme, rest))
}

fn no_scheme(url: &str) -> Error {
    if url.is_empty() {
        return Error::invalid(format!("the store's URL is empty; there are {}", examples(|_| true)));
    }
    let remedy = format!("for an SQLite database write `sqlite:{url}`; there are {}", examples(|_| true));
    Error::invalid(format!("{url:?} is not the URL of a store: it begins with no scheme; {remedy}"))
}

fn unknown(scheme: &str) -> Error {
    let compiled = examples(|scheme| scheme.compiled);
    let known = SCHEMES.iter().find(|known| known.name == scheme);
    if let Some(feature) = known.and_then(|known| known.feature) {
        let message = format!(
            "`{scheme}:` is not compiled in: build with the cargo feature `{feature}`; compiled in: {compiled}"
        );
        return Error::new(ErrorKind::Unsupported, message);
    }
    let absent = examples(|scheme| !scheme.compiled);
    let absent = if absent.is_empty() { absent } else { format!("; known but not compiled in: {absent}") };
    Error::invalid(format!("`{scheme}:` is no store that is known here; compiled in: {compiled}{absent}"))
}

fn examples(of: impl Fn(&Scheme) -> bool) -> String {
    let chosen = SCHEMES.iter().filter(|scheme| of(scheme));
    chosen.map(|scheme| format!("`{}`", scheme.example)).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            #[cfg(feature = "sqlite")]
            Target::Sqlite(options) => options.fmt(f),
            Target::Memory => f.write_str("memory:"),
        }
    }
}

impl FromStr for StoreUrl {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Self::parse(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(url: &str, kind: ErrorKind, remedy: &str) {
        let error = StoreUrl::parse(url).unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert_eq!(error.operation(), Some(Operation::Connect));
        assert!(error.to_string().contains(remedy), "{url}: {error}");
    }

    #[test]
    fn what_is_no_url_of_a_store_is_refused_with_what_could_be_meant() {
        refused("", ErrorKind::InvalidInput, "`sqlite:PATH`, `memory:`");
        refused("ids.db", ErrorKind::InvalidInput, "`sqlite:ids.db`");
        refused("/var/lib/ids.db", ErrorKind::InvalidInput, "`sqlite:/var/lib/ids.db`");
        refused("C:\\ids.db", ErrorKind::InvalidInput, "`sqlite:C:\\ids.db`");
        refused(":memory:", ErrorKind::InvalidInput, "no scheme");
        refused("redis://localhost", ErrorKind::InvalidInput, "compiled in: ");
        refused("memory:ids", ErrorKind::InvalidInput, "stands alone");
    }

    #[test]
    #[cfg(not(feature = "sqlite"))]
    fn a_store_that_is_not_compiled_in_names_its_feature() {
        refused("sqlite:ids.db", ErrorKind::Unsupported, "cargo feature `sqlite`");
        refused("redis:", ErrorKind::InvalidInput, "not compiled in: `sqlite:PATH`");
    }

    #[test]
    #[cfg(feature = "sqlite")]
    fn schemes_are_read_without_regard_to_case() {
        let url: StoreUrl = "SQLite:ids.db?mode=rw".parse().unwrap();
        assert_eq!((url.scheme(), url.to_string().as_str()), ("sqlite", "sqlite:ids.db?mode=rw"));
        assert_eq!(StoreUrl::parse("memory://").unwrap().to_string(), "memory:");
    }

    #[tokio::test]
    #[cfg(feature = "sqlite")]
    async fn an_existing_store_is_never_created() {
        let dir = tempfile::tempdir().unwrap();
        let url = StoreUrl::parse(&format!("sqlite:{}", dir.path().join("ids.db").display())).unwrap();
        let file = url.file().unwrap().to_owned();
        let error = url.clone().existing().connect().await.unwrap_err();
        assert_eq!((error.kind(), file.exists()), (ErrorKind::NotFound, false));
        url.connect().await.unwrap();
        assert!(url.existing().connect().await.is_ok());
        let read_only = StoreUrl::parse("sqlite:ids.db?mode=ro").unwrap();
        assert_eq!(read_only.clone().existing(), read_only);
        assert_eq!(StoreUrl::parse("memory:").unwrap().existing().file(), None);
    }

    #[tokio::test]
    async fn memory_is_connected_to_and_empty_each_time() {
        let store = connect("memory:").await.unwrap();
        let name = crate::name::SequenceName::new("s").unwrap();
        store.create(&name, super::super::Bounds::of::<u64>()).await.unwrap();
        assert_eq!(store.list().await.unwrap().len(), 1);
        assert_eq!(connect("memory:").await.unwrap().list().await.unwrap(), []);
    }

    proptest! {
        #[test]
        fn nothing_panics_and_what_is_read_reads_back(
            scheme in prop_oneof!["sqlite:", "SQLITE://", "memory:", "\\PC{0,5}"],
            rest in prop_oneof!["\\PC{0,30}", "[a-z/%?&=0-9:#+]{0,30}", "\\PC{0,9}\\?(table|mode|busy_timeout)=\\PC{0,9}"],
        ) {
            if let Ok(url) = StoreUrl::parse(&format!("{scheme}{rest}")) {
                prop_assert_eq!(StoreUrl::parse(&url.to_string()).unwrap(), url);
            }
        }
    }
}
