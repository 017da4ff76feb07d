//! From a URL to a store.

mod existing;
pub(crate) mod given;
mod memory;
// Each store takes from it what its URL needs: SQLite's, the default, all of it.
#[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
pub(crate) mod query;
mod schemes;
mod window;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::{Store, StoreFuture};
use crate::error::{Error, ErrorKind, Operation, Result};

/// What a URL names, checked but not yet connected to. Printing it gives the URL that reads back as the same,
/// but for a password, which must not be shown.
pub(crate) trait Target: fmt::Debug + fmt::Display + Send + Sync {
    fn scheme(&self) -> &'static str;

    /// The file that the store is kept in; `None` for a store that is not one file.
    fn file(&self) -> Option<&Path> {
        None
    }

    /// The same store, but opening it creates nothing.
    fn existing(&self) -> Arc<dyn Target>;

    /// Whether opening it waits for another machine or process, which may never answer.
    fn is_remote(&self) -> bool {
        true
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>>;
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
/// | URL | feature, store |
/// | --- | --- |
/// | `sqlite:PATH` | `sqlite`: `sqlite::SqliteStore` |
/// | `postgres://HOST/DATABASE` | `postgres`: `postgres::PostgresStore` |
/// | `postgres://HOST/DATABASE?sequences=native` | `postgres`: `postgres::NativeSequences` |
/// | `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, or `mariadb://` | `mysql`: `mysql::MysqlStore` |
/// | `mongodb://HOST/DATABASE` | `mongodb`: `mongodb::MongoStore` |
/// | `mongodb+srv://HOST/DATABASE` | `mongodb-srv`: the same |
/// | `cassandra://HOST,…/KEYSPACE` | `cassandra`: `cassandra::CassandraStore` |
/// | `spanner://projects/P/instances/I/databases/D` | `spanner`: `spanner::SpannerStore` |
/// | `datastore://PROJECT[/DATABASE]` | `datastore`: `datastore::DatastoreStore` |
/// | `redis://HOST:PORT/DB`, or `rediss://` | `redis`: `redis::RedisStore` |
/// | `etcd://HOST:PORT,…` | `etcd`: `etcd::EtcdStore` |
/// | `memory:` | a new [`MemoryStore`](super::MemoryStore), for tests |
///
/// Options follow as `?key=value&key=value`:
///
/// - `sqlite`: `table=NAME`, `busy_timeout=5s`, `mode=ro|rw|rwc`
/// - `postgres`: `table=NAME`, `mode=ro|rw|rwc`, `timeout=10s`
/// - `mysql`: `table=NAME`, `mode=ro|rw|rwc`, `tls=on|off`, `timeout=10s`
/// - `mongodb`: `collection=NAME`, `timeout=10s`
/// - `cassandra`: `mode=flat|geo`, `dc=NAME`, `range=N`
/// - `spanner`: `table=NAME`, `emulator=HOST:PORT`, `mode=ro|rw|rwc`
/// - `datastore`: `namespace=NAME`, `kind=NAME`, `emulator=HOST:PORT`, `timeout=10s`
/// - `redis`: `prefix=NAME`, `timeout=5s`, `replicas=N`, `durability=disk|trust|process`; with `rediss` also
///   `ca=FILE`
/// - `etcd`: `prefix=/idmill/`, `timeout=5s`, `tls=true`, `ca=FILE`, `cert=FILE`, `key=FILE`
///
/// Each also with `window=memcached://HOST:PORT`, with the feature `memcached`, or
/// `window=redis://HOST:PORT`, with the feature `redis`: the store behind a [window](crate::tier) on a cache,
/// as in `sqlite:ids.db?window=memcached://10.0.0.7:11211`. Options of the window's own are percent-encoded:
/// `…window=memcached://10.0.0.7%3Fblock%3D5000`.
///
/// And each with `existing=yes`, which creates nothing, neither the store nor a sequence: see
/// [`Existing`](crate::store::Existing).
///
/// Schemes are read without regard to case; white space and a pair of quotes around a URL are taken off.
/// Printing a URL gives one that reads back as the same, except for a password, which is hidden.
#[derive(Clone, Debug)]
pub struct StoreUrl(Arc<dyn Target>);

/// Two URLs are the same if they are written the same once they were read, whatever their passwords.
impl PartialEq for StoreUrl {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for StoreUrl {}

impl StoreUrl {
    /// Reads a URL. Touches neither disk nor network, and never panics.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for what is not the URL of a store, with what could
    /// have been meant; [`Unsupported`](ErrorKind::Unsupported) for a store that was not compiled in,
    /// with the feature that adds it.
    pub fn parse(url: &str) -> Result<Self> {
        parse(url).map_err(|error| error.during(Operation::Connect))
    }

    /// What may be shown of a text that was perhaps meant to be a URL: without what looks like a password.
    ///
    /// ```
    /// # use idmill::store::StoreUrl;
    /// assert_eq!(StoreUrl::redacted("postgres//app:secret@db1/shop"), "postgres//***@db1/shop");
    /// ```
    pub fn redacted(text: &str) -> String {
        given::redacted(text)
    }

    /// The scheme, in lower case.
    pub fn scheme(&self) -> &'static str {
        self.0.scheme()
    }

    /// The file that the store is kept in, as it was given; `None` for a store that is not one file.
    pub fn file(&self) -> Option<&Path> {
        self.0.file()
    }

    /// The same store, but opening it creates nothing: what does not exist is
    /// [`NotFound`](ErrorKind::NotFound). For looking at a store, where a mistyped path should not leave an
    /// empty one behind. `memory:` stays as it is.
    #[must_use]
    pub fn existing(self) -> Self {
        Self(self.0.existing())
    }

    /// The same store, but neither opening nor using it creates anything: of a sequence that does not exist,
    /// a draw is [`NotFound`](ErrorKind::NotFound) too. As `existing=yes` says in a URL; see
    /// [`Existing`](crate::store::Existing).
    #[must_use]
    pub fn existing_sequences(self) -> Self {
        Self(existing::of(&*self.0))
    }

    /// How long [`connect`](Self::connect) waits for a store that does not answer.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

    /// Opens the store. Each call opens another: of `memory:`, an empty one.
    ///
    /// A store on the network has [30 s](Self::CONNECT_TIMEOUT) for it; a URL's own `timeout` bounds each
    /// request, of which opening takes several.
    ///
    /// # Errors
    /// Those of opening the store; [`Unavailable`](ErrorKind::Unavailable) if it is not open in time.
    pub async fn connect(&self) -> Result<Arc<dyn Store>> {
        if self.0.is_remote() {
            return self.connect_within(Self::CONNECT_TIMEOUT).await;
        }
        self.0.connect().await.map_err(|error| error.during(Operation::Connect))
    }

    /// Opens the store within this time. Needs a tokio runtime with timers.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_within(&self, limit: Duration) -> Result<Arc<dyn Store>> {
        let opened = tokio::time::timeout(limit, self.0.connect()).await.unwrap_or_else(|_| {
            let message = format!("{self} could not be opened within {limit:?}: something takes connections, or \
                                   requests, and does not answer in time; look whether it is frozen, overloaded or another \
                                   service, or allow for more time");
            Err(Error::new(ErrorKind::Unavailable, message))
        });
        opened.map_err(|error| error.during(Operation::Connect))
    }
}

fn parse(url: &str) -> Result<StoreUrl> {
    let url = given::trimmed(url)?;
    let Some((scheme, rest)) = split_scheme(url) else { return Err(schemes::none(url)) };
    let scheme = scheme.to_ascii_lowercase();
    let known = schemes::find(&scheme);
    let Some(parse) = known.and_then(|known| known.parse) else {
        return Err(schemes::absent(&scheme, known));
    };
    let (rest, window) = query::take("window", rest)?;
    let (rest, existing) = query::take("existing", &rest)?;
    let store = parse(&rest)?;
    let store = match window {
        Some(window) => window::parse(store, &window)?,
        None => store,
    };
    Ok(StoreUrl(match existing {
        Some(value) => existing::parse(store, &value)?,
        None => store,
    }))
}

/// The scheme and what follows its colon. One letter is a drive and not a scheme.
fn split_scheme(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    let valid = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    (valid && scheme.len() > 1).then_some((scheme, rest))
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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
        refused("", ErrorKind::InvalidInput, "`sqlite:PATH`, ");
        refused("ids.db", ErrorKind::InvalidInput, "`sqlite:ids.db`");
        refused("/var/lib/ids.db", ErrorKind::InvalidInput, "`sqlite:/var/lib/ids.db`");
        refused("C:\\ids.db", ErrorKind::InvalidInput, "`sqlite:C:\\ids.db`");
        refused(":memory:", ErrorKind::InvalidInput, "no scheme");
        refused("http://localhost", ErrorKind::InvalidInput, "there are `sqlite:PATH`");
        refused("memory:ids", ErrorKind::InvalidInput, "stands alone");
    }

    #[test]
    #[cfg(not(feature = "sqlite"))]
    fn a_store_that_is_not_compiled_in_names_its_feature() {
        refused("sqlite:ids.db", ErrorKind::Unsupported, "cargo feature `sqlite`");
        refused("http:", ErrorKind::InvalidInput, "there are `sqlite:PATH`");
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
        assert_eq!(store.list_all().await.unwrap().len(), 1);
        assert_eq!(connect("memory:").await.unwrap().list_all().await.unwrap(), []);
    }

    proptest! {
        #[test]
        fn nothing_panics_and_what_is_read_reads_back(
            scheme in prop_oneof!["sqlite:", "SQLITE://", "memory:", "mongodb://", "\\PC{0,5}"],
            rest in prop_oneof!["\\PC{0,30}", "[a-z/%?&=0-9:#+]{0,30}", "\\PC{0,9}\\?(table|mode|busy_timeout)=\\PC{0,9}"],
        ) {
            if let Ok(url) = StoreUrl::parse(&format!("{scheme}{rest}")) {
                prop_assert_eq!(StoreUrl::parse(&url.to_string()).unwrap(), url);
            }
        }
    }

    /// Takes connections and never answers.
    #[derive(Debug)]
    struct Silent;

    impl fmt::Display for Silent {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("silent://host")
        }
    }

    impl Target for Silent {
        fn scheme(&self) -> &'static str {
            "silent"
        }

        fn existing(&self) -> Arc<dyn Target> {
            Arc::new(Self)
        }

        fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_store_is_waited_for_without_an_end() {
        let begun = tokio::time::Instant::now();
        let url = StoreUrl(Arc::new(Silent));
        let error = url.connect().await.unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Unavailable, Some(Operation::Connect)));
        assert!(error.to_string().contains("silent://host could not be opened within 30s"), "{error}");
        assert_eq!(begun.elapsed().as_secs(), 30);
        assert!(url.existing_sequences().connect_within(Duration::from_secs(2)).await.is_err());
        assert_eq!(begun.elapsed().as_secs(), 32);
    }
}
