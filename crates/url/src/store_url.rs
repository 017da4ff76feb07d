//! Parses the URL of a store and opens the store.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Store, StoreFuture};
use idmill::{Error, ErrorKind, Operation, Result, SequenceName, Sequences};
use idmill_kit::options::Word;
use idmill_kit::{CONNECT_TIMEOUT, Existing, Target, WindowTarget, WindowView, open, query, secrets};

use crate::schemes::take_flag;
use crate::{Schemes, WitnessUrl, guard};
use idmill_guard::Witness;

/// The URL of a store: validated, but not yet connected.
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
/// | `memory:` | a new [`MemoryStore`](idmill::store::MemoryStore), for tests |
///
/// A URL is parsed only if the program's [`Schemes`] include the schemes of its crate.
///
/// Options follow as `?key=value&key=value`. The page of each store crate has a table of the options. All
/// options have the same grammar: a boolean is `true` or `false`. A duration is a whole number with its unit,
/// `ms`, `s`, `m` or `h`, as in `timeout=500ms`.
///
/// Every store has three more options:
///
/// - `window=memcached://HOST:PORT`, with `idmill-memcached`, or `window=redis://HOST:PORT`, with
///   `idmill-redis`, puts a window (`idmill-shared-cache`) on a cache in front of the store, as in
///   `sqlite:ids.db?window=memcached://10.0.0.7:11211`. Percent-encode the window's own options:
///   `…window=memcached://10.0.0.7%3Fblock%3D5000`.
/// - `guard=URL` claims each range at a [witness](idmill_guard) before it is used, so that no id repeats
///   after the store is restored from a backup. The witness is `file:PATH`, or any other store that keeps
///   records: `sqlite:ids.db?guard=file:/mnt/other/ids.witness`. Percent-encode special characters. The
///   witness must not be the store itself or on the same server. If ids were already reserved, the witness
///   must exist: see [`WitnessUrl`].
/// - `existing=true` creates neither the store nor a sequence: see [`Existing`](idmill_kit::Existing).
///
/// Schemes are case-insensitive. White space and a pair of quotes around a URL are removed. `Display` prints
/// a URL that parses to the same value, except for the password, which is hidden.
#[derive(Clone, Debug)]
pub struct StoreUrl {
    target: Arc<dyn Target>,
    guard: Option<WitnessUrl>,
    window: Option<Arc<dyn WindowTarget>>,
    /// The objects that may be created when the store is used.
    creates: Creates,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Creates {
    /// No store and no sequence. A claim may still create the witness.
    Nothing,
    /// Sequences, and a missing witness.
    Sequences,
    All,
}

/// Two URLs are equal if they print the same. Passwords are ignored.
impl PartialEq for StoreUrl {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for StoreUrl {}

impl StoreUrl {
    pub(crate) fn read(schemes: &Schemes, url: &str) -> Result<Self> {
        let url = secrets::trimmed(url)?;
        let Some((scheme, rest)) = query::split_scheme(url) else { return Err(schemes.none(url)) };
        let read = schemes.store(&scheme)?;
        let (rest, window) = query::take("window", rest)?;
        let (rest, existing) = take_flag("existing", &rest)?;
        let (rest, guard) = query::take("guard", &rest)?;
        let target = read(&format!("{scheme}:{rest}"))?;
        let mut url = Self { target, guard: None, window: None, creates: Creates::All };
        if let Some(witness) = guard {
            url = url.guarded(WitnessUrl::read(schemes, &witness)?)?;
        }
        if let Some(window) = window {
            url.window = Some(schemes.window(&window)?);
        }
        Ok(if existing { url.existing_sequences() } else { url })
    }

    /// Returns the scheme, in lower case.
    pub fn scheme(&self) -> &'static str {
        self.target.scheme()
    }

    /// Returns the file of the store, as it was given; `None` if the store is not a single file.
    pub fn file(&self) -> Option<&Path> {
        self.target.file()
    }

    /// Returns the same store in a mode that does not create the store. Opening a store that does not exist
    /// fails with [`NotFound`](ErrorKind::NotFound). Use it for inspection: a mistyped path then creates no
    /// empty store. `memory:` is unchanged.
    #[must_use]
    pub fn existing(self) -> Self {
        Self { target: self.target.existing(), creates: self.creates.min(Creates::Sequences), ..self }
    }

    /// Returns the same store in a mode that creates neither the store nor sequences. A draw from a sequence
    /// that does not exist also fails with [`NotFound`](ErrorKind::NotFound). The URL form is
    /// `existing=true`; see [`Existing`].
    #[must_use]
    pub fn existing_sequences(self) -> Self {
        Self { creates: Creates::Nothing, ..self.existing() }
    }

    /// Returns the statement that creates the store's table, for use in migrations; `None` if the store has
    /// no such statement. Does no I/O.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for an invalid table name.
    pub fn ddl(&self) -> Result<Option<String>> {
        self.target.ddl()
    }

    /// Returns the store itself, without its window and guard.
    pub fn target(&self) -> &dyn Target {
        &*self.target
    }

    /// Returns a read-only view of the window in front of the store; `None` without a window, or if it has no
    /// view.
    ///
    /// # Errors
    /// As [`WindowTarget::view`].
    pub fn window(&self) -> Result<Option<Arc<dyn WindowView>>> {
        self.window.as_ref().map_or(Ok(None), |window| window.view())
    }

    /// Describes other objects of the same database that have the name of the store's table; `None` if there
    /// are none.
    ///
    /// # Errors
    /// As [`Target::lookalikes`]; [`Unavailable`](ErrorKind::Unavailable) after 30 s.
    pub async fn lookalikes(&self) -> Result<Option<String>> {
        self.in_time(self.target.lookalikes()).await
    }

    /// Returns the sequences whose next reserve the store would reject, each with the error.
    ///
    /// # Errors
    /// As [`Target::refused`]; [`Unavailable`](ErrorKind::Unavailable) after 30 s.
    pub async fn refused(&self) -> Result<Vec<(SequenceName, Error)>> {
        self.in_time(self.target.refused()).await
    }

    async fn in_time<T>(&self, looking: StoreFuture<'_, Result<T>>) -> Result<T> {
        let limit = CONNECT_TIMEOUT;
        tokio::time::timeout(limit, looking).await.unwrap_or_else(|_| {
            let message = format!("no answer from {self} within {limit:?}");
            Err(Error::new(ErrorKind::Unavailable, message))
        })
    }

    /// Returns the witness of `guard=URL`.
    pub fn guard(&self) -> Option<&WitnessUrl> {
        self.guard.as_ref()
    }

    /// Returns the place of the store, as a guard notes it in each ledger.
    pub fn place(&self) -> String {
        guard::place(&*self.target)
    }

    /// Opens the existing witness of `guard=URL`, for inspection; `None` without a guard. `store` is the open
    /// store: a witness that is the store itself is rejected.
    ///
    /// # Errors
    /// Those of [`WitnessUrl::open_existing`]; [`InvalidInput`](ErrorKind::InvalidInput) if the witness is
    /// not separate from the store.
    pub async fn witness(&self, store: &dyn Store) -> Result<Option<Arc<dyn Witness>>> {
        let Some(witness) = &self.guard else { return Ok(None) };
        witness.inspected(store, self.file()).await.map(Some)
    }

    /// Returns the same store guarded by a witness, as with `guard=URL`.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if it is already guarded, or if the witness is the store
    /// itself.
    pub fn guarded(self, witness: WitnessUrl) -> Result<Self> {
        if self.guard.is_some() {
            return Err(Error::invalid(
                "the store already has a guard; give one witness, in the URL or separately",
            ));
        }
        witness.must_differ(&*self.target)?;
        Ok(Self { guard: Some(witness), ..self })
    }

    /// Returns the statement that creates the table of the store's [records](Store::swap_record), for use in
    /// migrations. It is needed only if the store is a [witness](idmill_guard::StoreWitness) that may not
    /// create tables.
    ///
    /// # Errors
    /// As [`ddl`](Self::ddl).
    pub fn witness_ddl(&self) -> Result<Option<String>> {
        self.target.witness_ddl()
    }

    /// Opens the store. Each call opens a new one; for `memory:`, an empty one.
    ///
    /// The timeout for a store on the network is [30 s](idmill_kit::CONNECT_TIMEOUT). The `timeout` in its
    /// URL limits each request; opening needs several.
    ///
    /// # Errors
    /// Those of opening the store; [`Unavailable`](ErrorKind::Unavailable) after the timeout.
    pub async fn connect(&self) -> Result<Arc<dyn Store>> {
        let is_remote = self.is_remote();
        open(self, is_remote, is_remote.then_some(CONNECT_TIMEOUT), self.opened()).await
    }

    /// Opens the store within `limit`. Requires a tokio runtime with timers.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_within(&self, limit: Duration) -> Result<Arc<dyn Store>> {
        open(self, self.is_remote(), Some(limit), self.opened()).await
    }

    pub(crate) fn is_remote(&self) -> bool {
        self.target.is_remote() || self.guard.as_ref().is_some_and(WitnessUrl::is_remote)
    }

    fn opened(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async {
            let store = match &self.guard {
                None => self.target.connect().await?,
                Some(witness) => guard::guarded(&*self.target, witness, self.creates == Creates::All).await?,
            };
            // A window needs no second guard: its ids were claimed when they were reserved.
            let store = match &self.window {
                None => store,
                Some(window) => window.before(store)?,
            };
            Ok(if self.creates == Creates::Nothing { Arc::new(Existing::of(store)) } else { store })
        })
    }
}

impl Schemes {
    /// Parses the URL of a store. Does no I/O, and never panics.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for an invalid URL, with a suggestion;
    /// [`Unsupported`](ErrorKind::Unsupported) for a store that is not compiled in, with the remedy.
    pub fn parse(&self, url: &str) -> Result<StoreUrl> {
        StoreUrl::read(self, url).map_err(|error| error.during(Operation::Connect))
    }

    /// Opens the store at `url`.
    ///
    /// # Errors
    /// Those of [`parse`](Self::parse) and of opening the store.
    pub async fn open(&self, url: &str) -> Result<Arc<dyn Store>> {
        self.parse(url)?.connect().await
    }

    /// Opens the store at `url` and returns its sequences, which run on the current tokio runtime.
    ///
    /// # Errors
    /// Those of `open` and [`Sequences::new`].
    pub async fn connect(&self, url: &str) -> Result<Sequences> {
        Sequences::new(self.open(url).await?)
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.target.to_string();
        // The address stays readable, because errors contain the URL.
        if let Some(witness) = &self.guard {
            query::append(&mut url, "guard", &witness.to_string());
        }
        if let Some(window) = &self.window {
            query::append(&mut url, "window", &window.to_string());
        }
        if self.creates == Creates::Nothing {
            query::append(&mut url, "existing", true.word());
        }
        f.write_str(&url)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use idmill_kit::Scheme;
    use proptest::prelude::*;

    /// Parses a URL with more schemes that are known but not built in.
    fn parse(url: &str) -> Result<StoreUrl> {
        let missing = [
            Scheme::missing("sqlite", "sqlite:PATH", "add the crate `idmill-sqlite`"),
            Scheme::missing("redis", "redis://HOST:PORT", "add the crate `idmill-redis`").alias("rediss"),
            Scheme::missing_window("memcached", "memcached://HOST:PORT", "add the crate `idmill-memcached`"),
        ];
        Schemes::default().with(&missing)?.parse(url)
    }

    fn refused(url: &str, kind: ErrorKind, remedy: &str) {
        let error = parse(url).unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert_eq!(error.operation(), Some(Operation::Connect));
        assert!(error.to_string().contains(remedy), "{url}: {error}");
    }

    fn of(target: impl Target + 'static) -> StoreUrl {
        StoreUrl { target: Arc::new(target), guard: None, window: None, creates: Creates::All }
    }

    /// A store that never opens, local or remote.
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
    async fn slow_file_is_not_reported_as_unreachable() {
        for (is_remote, why) in [(true, "is unreachable"), (false, "another process holds the file")] {
            let url = of(Stuck { is_remote });
            let error = url.connect_within(Duration::from_secs(1)).await.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert_eq!(error.contains("unreachable"), is_remote, "{error}");
        }
    }

    #[test]
    fn invalid_store_url_is_rejected_with_a_suggestion() {
        refused("", ErrorKind::InvalidInput, "`sqlite:PATH`, ");
        refused("ids.db", ErrorKind::InvalidInput, "`sqlite:ids.db`");
        refused("/var/lib/ids.db", ErrorKind::InvalidInput, "`sqlite:/var/lib/ids.db`");
        refused("C:\\ids.db", ErrorKind::InvalidInput, "`sqlite:C:\\ids.db`");
        refused(":memory:", ErrorKind::InvalidInput, "no scheme");
        refused("http://localhost", ErrorKind::InvalidInput, "not compiled in: `sqlite:PATH`");
        refused("memory:ids", ErrorKind::InvalidInput, "takes no path and no options");
    }

    #[test]
    fn a_store_that_is_missing_names_its_remedy() {
        refused("sqlite:ids.db", ErrorKind::Unsupported, "add the crate `idmill-sqlite`; use one of");
        refused("rediss://h", ErrorKind::Unsupported, "the crate `idmill-redis`");
        refused("memory:?window=memcached://h", ErrorKind::Unsupported, "the crate `idmill-memcached`");
        refused("memcached://h", ErrorKind::InvalidInput, "`memcached:` is not a known store");
        refused("memory:?window=http://h", ErrorKind::InvalidInput, "memcached://HOST:PORT");
    }

    #[tokio::test]
    async fn memory_is_connected_to_and_empty_each_time() {
        let store = Schemes::default().open("memory:").await.unwrap();
        let name = idmill::SequenceName::new("s").unwrap();
        store.create(&name, idmill::store::Bounds::of::<u64>()).await.unwrap();
        assert_eq!(store.list_all().await.unwrap().len(), 1);
        assert_eq!(Schemes::default().open("memory:").await.unwrap().list_all().await.unwrap(), []);
    }

    proptest! {
        #[test]
        fn any_url_parses_without_panic_and_prints_back(
            scheme in prop_oneof!["sqlite:", "SQLITE://", "memory:", "mongodb://", "\\PC{0,5}"],
            rest in prop_oneof!["\\PC{0,30}", "[a-z/%?&=0-9:#+]{0,30}", "\\PC{0,9}\\?(table|mode|busy_timeout)=\\PC{0,9}"],
        ) {
            if let Ok(url) = parse(&format!("{scheme}{rest}")) {
                prop_assert_eq!(parse(&url.to_string()).unwrap(), url);
            }
        }
    }

    /// Accepts connections and never replies.
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

        fn lookalikes(&self) -> StoreFuture<'_, Result<Option<String>>> {
            Box::pin(pending())
        }

        fn refused(&self) -> StoreFuture<'_, Result<Vec<(SequenceName, Error)>>> {
            Box::pin(pending())
        }

        fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_store_is_waited_for_without_an_end() {
        let begun = tokio::time::Instant::now();
        let url = of(Silent);
        let error = url.connect().await.unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Unavailable, Some(Operation::Connect)));
        assert!(error.to_string().contains("cannot open silent://host within 30s"), "{error}");
        assert_eq!(begun.elapsed().as_secs(), 30);
        let error =
            url.clone().existing_sequences().connect_within(Duration::from_secs(2)).await.unwrap_err();
        assert!(error.to_string().contains("cannot open silent://host?existing=true within 2s"), "{error}");
        assert_eq!(begun.elapsed().as_secs(), 32);
        for error in [url.lookalikes().await.unwrap_err(), url.refused().await.unwrap_err()] {
            let message = "no answer from silent://host within 30s";
            assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Unavailable, message));
        }
        assert_eq!(begun.elapsed().as_secs(), 92);
    }
}
