//! From a URL to a store.

mod existing;
mod guard;
mod window;
mod witness;

pub use self::witness::WitnessUrl;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::kit::{query, secrets};
use super::{Schemes, Store, StoreFuture, Target};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::name::SequenceName;

/// Opens the store that a URL names: see [`StoreUrl`] for the schemes.
///
/// ```
/// # async fn demo() -> idmill::Result<()> {
/// let store = idmill::store::connect("memory:").await?; // or "sqlite:ids.db", by `idmill-sqlite`
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
/// | URL | crate, store |
/// | --- | --- |
/// | `sqlite:PATH` | `idmill_sqlite::SqliteStore` |
/// | `postgres://HOST/DATABASE` | `idmill_postgres::PostgresStore` |
/// | `postgres://HOST/DATABASE?sequences=native` | `idmill_postgres::NativeSequences` |
/// | `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, or `mariadb://` | `idmill_mysql::MysqlStore` |
/// | `mongodb://HOST/DATABASE` | `idmill_mongodb::MongoStore` |
/// | `mongodb+srv://HOST/DATABASE` | the same, with its feature `srv` |
/// | `cassandra://HOST,…/KEYSPACE` | `idmill_cassandra::CassandraStore` |
/// | `spanner://projects/P/instances/I/databases/D` | `idmill_spanner::SpannerStore` |
/// | `datastore://PROJECT[/DATABASE]` | `idmill_datastore::DatastoreStore` |
/// | `redis://HOST:PORT/DB`, or `rediss://` | `idmill_redis::RedisStore` |
/// | `etcd://HOST:PORT,…` | `idmill_etcd::EtcdStore` |
/// | `idmill://HOST:PORT,…`, or `idmills://` | `idmill_remote::RemoteStore` |
/// | `memory:` | a new [`MemoryStore`](super::MemoryStore), for tests |
///
/// All but the last are read once their crate is [registered](super::register), and so are the URLs of any
/// other crate.
///
/// Options follow as `?key=value&key=value`; the page of a store's crate has a table of them. All have the
/// same grammar: a boolean is `true` or `false`, and a duration is a whole number and its unit, `ms`, `s`,
/// `m` or `h`, as in `timeout=500ms`.
///
/// Every store takes three more:
///
/// - `window=memcached://HOST:PORT`, with `idmill-memcached`, or `window=redis://HOST:PORT`, with
///   `idmill-redis`, puts a [window](crate::tier) on a cache in front of the store, as in
///   `sqlite:ids.db?window=memcached://10.0.0.7:11211`. The window's own options are percent-encoded:
///   `…window=memcached://10.0.0.7%3Fblock%3D5000`.
/// - `guard=URL` has each range claimed at a [witness](crate::guard) before it is used, so that no id comes
///   twice although the store was restored from a backup. The witness is `file:PATH`, or any other store that
///   keeps records: `sqlite:ids.db?guard=file:/mnt/other/ids.witness`. Special characters are
///   percent-encoded. A witness that is the store itself, or is kept by the same server, is refused, and so
///   is a missing one where ids were reserved before: see [`WitnessUrl`].
/// - `existing=true` creates nothing, neither the store nor a sequence: see
///   [`Existing`](crate::store::Existing).
///
/// Upper and lower case are the same in a scheme. White space and a pair of quotes around a URL are taken
/// off. A URL prints as one that reads back as the same, except for a password, which is hidden.
#[derive(Clone, Debug)]
pub struct StoreUrl(Arc<dyn Target>);

/// Two URLs are equal if they print the same, whatever their passwords.
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
    /// have been meant; [`Unsupported`](ErrorKind::Unsupported) for a store that this program does not
    /// have, with the crate or the feature that adds it.
    pub fn parse(url: &str) -> Result<Self> {
        Schemes::registered().parse(url)
    }

    /// What may be shown of a text that was perhaps meant to be a URL: all but what looks like a password.
    ///
    /// ```
    /// # use idmill::store::StoreUrl;
    /// assert_eq!(StoreUrl::redacted("postgres//app:secret@db1/shop"), "postgres//***@db1/shop");
    /// ```
    pub fn redacted(text: &str) -> String {
        secrets::redacted(text)
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

    /// The same store, but neither opening nor using it creates anything: a draw from a sequence that does
    /// not exist is [`NotFound`](ErrorKind::NotFound) too. `existing=true` says so in a URL; see
    /// [`Existing`](crate::store::Existing).
    #[must_use]
    pub fn existing_sequences(self) -> Self {
        Self(existing::of(&*self.0))
    }

    /// The statement that creates the table of the store, for those who create tables by migrations of their
    /// own; `None` for a store that has no table to create. Touches neither disk nor network.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a table that cannot be.
    pub fn ddl(&self) -> Result<Option<String>> {
        self.0.ddl()
    }

    pub(crate) fn target(&self) -> &dyn Target {
        &*self.0
    }

    /// What else the same database has under the store's name, in words; `None` if there is nothing.
    pub(crate) async fn lookalikes(&self) -> Result<Option<String>> {
        self.in_time(self.0.lookalikes()).await
    }

    /// The sequences whose next reserve would be refused, each with the error.
    pub(crate) async fn refused(&self) -> Result<Vec<(SequenceName, Error)>> {
        self.in_time(self.0.refused()).await
    }

    async fn in_time<T>(&self, looking: StoreFuture<'_, Result<T>>) -> Result<T> {
        let limit = Self::CONNECT_TIMEOUT;
        tokio::time::timeout(limit, looking).await.unwrap_or_else(|_| {
            let message = format!("{self} had no answer within {limit:?}");
            Err(Error::new(ErrorKind::Unavailable, message))
        })
    }

    /// The witness that `guard=URL` names.
    pub fn guard(&self) -> Option<&WitnessUrl> {
        self.0.guard()
    }

    /// The same store, guarded by a witness, as by `guard=URL`.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if it is guarded already, or if the witness is in the store
    /// itself.
    pub fn guarded(self, witness: WitnessUrl) -> Result<Self> {
        guard::by(self.0, witness).map(Self)
    }

    /// The statement that creates the table of the store's [records](super::Store::swap_record), for the
    /// same: needed only where the store is a [witness](crate::guard::StoreWitness), which creates it by
    /// itself unless it may not.
    ///
    /// # Errors
    /// As [`ddl`](Self::ddl).
    pub fn witness_ddl(&self) -> Result<Option<String>> {
        self.0.witness_ddl()
    }

    /// How long [`connect`](Self::connect) waits for a store that does not answer.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

    /// Opens the store. Each call opens another: of `memory:`, an empty one.
    ///
    /// A store on the network gets [30 s](Self::CONNECT_TIMEOUT) for this. The `timeout` in its URL bounds
    /// each request, and opening takes several.
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
            let why = if self.0.is_remote() {
                "something accepts connections, or requests, and does not answer in time; check whether it is frozen, \
                 overloaded or another service, or allow more time"
            } else {
                "another process holds the file, or its disk does not answer; or allow more time"
            };
            Err(Error::new(ErrorKind::Unavailable, format!("{self} could not be opened within {limit:?}: {why}")))
        });
        opened.map_err(|error| error.during(Operation::Connect))
    }
}

impl Schemes {
    /// Reads the URL of a store. Touches neither disk nor network, and never panics.
    ///
    /// # Errors
    /// Those of [`StoreUrl::parse`].
    pub fn parse(&self, url: &str) -> Result<StoreUrl> {
        self.read(url).map_err(|error| error.during(Operation::Connect))
    }

    /// Opens the store that a URL names.
    ///
    /// # Errors
    /// Those of [`StoreUrl::parse`] and of opening the store.
    pub async fn connect(&self, url: &str) -> Result<Arc<dyn Store>> {
        self.parse(url)?.connect().await
    }

    fn read(&self, url: &str) -> Result<StoreUrl> {
        let url = secrets::trimmed(url)?;
        let Some((scheme, rest)) = split_scheme(url) else { return Err(self.none(url)) };
        let scheme = scheme.to_ascii_lowercase();
        let read = self.store(&scheme)?;
        let (rest, window) = query::take("window", rest)?;
        let (rest, existing) = query::take("existing", &rest)?;
        let (rest, guard) = query::take("guard", &rest)?;
        let store = read(&format!("{scheme}:{rest}"))?;
        // What a window holds was claimed when it was reserved.
        let store = match guard {
            Some(witness) => guard::beside(store, self, &witness)?,
            None => store,
        };
        let store = match window {
            Some(window) => window::before(store, self, &window)?,
            None => store,
        };
        Ok(StoreUrl(match existing {
            Some(value) => existing::parse(store, &value)?,
            None => store,
        }))
    }
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
    use std::future::pending;

    use super::*;
    use proptest::prelude::*;

    fn refused(url: &str, kind: ErrorKind, remedy: &str) {
        let error = StoreUrl::parse(url).unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert_eq!(error.operation(), Some(Operation::Connect));
        assert!(error.to_string().contains(remedy), "{url}: {error}");
    }

    /// Is never open, on this machine or another.
    #[derive(Debug)]
    struct Stuck {
        is_remote: bool,
    }

    impl fmt::Display for Stuck {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("stuck:")
        }
    }

    impl Target for Stuck {
        fn scheme(&self) -> &'static str {
            "stuck"
        }

        fn existing(&self) -> Arc<dyn Target> {
            Arc::new(Self { ..*self })
        }

        fn is_remote(&self) -> bool {
            self.is_remote
        }

        fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
            Box::pin(pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_file_is_not_said_to_accept_connections() {
        for (is_remote, why) in [(true, "accepts connections"), (false, "another process holds the file")] {
            let url = StoreUrl(Arc::new(Stuck { is_remote }));
            let error = url.connect_within(Duration::from_secs(1)).await.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert_eq!(error.contains("connections"), is_remote, "{error}");
        }
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
    fn a_store_that_is_not_registered_names_its_crate() {
        refused(
            "sqlite:ids.db",
            ErrorKind::Unsupported,
            "add the crate `idmill-sqlite`, and call `idmill_sqlite::register()`",
        );
        refused("rediss://h", ErrorKind::Unsupported, "the crate `idmill-redis`");
        refused("memory:?window=memcached://h", ErrorKind::Unsupported, "the crate `idmill-memcached`");
        refused("memcached://h", ErrorKind::InvalidInput, "`memcached:` is no store");
        refused("memory:?window=http://h", ErrorKind::InvalidInput, "memcached://HOST:PORT");
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
