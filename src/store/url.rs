//! From a URL to a store.

// Each store takes from it what its URL needs: SQLite's, the default, all of it.
#[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
pub(crate) mod query;
mod window;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use super::{MemoryStore, Store, StoreFuture};
use crate::error::{Error, ErrorKind, Operation, Result};

/// Every scheme that this crate knows, and how it is written; compiled in or not. A store adds its line here, and
/// implements [`Target`] for the options that it reads from its URL.
const SCHEMES: &[Scheme] = &[
    Scheme {
        name: "sqlite",
        example: "sqlite:PATH",
        feature: Some("sqlite"),
        #[cfg(feature = "sqlite")]
        parse: Some(|rest| Ok(Arc::new(super::sqlite::SqliteOptions::parse(rest)?))),
        #[cfg(not(feature = "sqlite"))]
        parse: None,
    },
    Scheme { name: "memory", example: "memory:", feature: None, parse: Some(Memory::parse) },
    Scheme {
        name: "postgres",
        example: "postgres://HOST/DATABASE",
        feature: Some("postgres"),
        #[cfg(feature = "postgres")]
        parse: Some(|rest| Ok(Arc::new(super::postgres::PostgresOptions::parse_rest(rest)?))),
        #[cfg(not(feature = "postgres"))]
        parse: None,
    },
    // The same, as others write it.
    Scheme {
        name: "postgresql",
        example: "",
        feature: Some("postgres"),
        #[cfg(feature = "postgres")]
        parse: Some(|rest| Ok(Arc::new(super::postgres::PostgresOptions::parse_rest(rest)?))),
        #[cfg(not(feature = "postgres"))]
        parse: None,
    },
    Scheme {
        name: "mysql",
        example: "mysql://HOST/DATABASE",
        feature: Some("mysql"),
        #[cfg(feature = "mysql")]
        parse: Some(|rest| Ok(Arc::new(super::mysql::MysqlOptions::parse_rest(rest)?))),
        #[cfg(not(feature = "mysql"))]
        parse: None,
    },
    // The same by its other name.
    Scheme {
        name: "mariadb",
        example: "",
        feature: Some("mysql"),
        #[cfg(feature = "mysql")]
        parse: Some(|rest| Ok(Arc::new(super::mysql::MysqlOptions::parse_rest(rest)?))),
        #[cfg(not(feature = "mysql"))]
        parse: None,
    },
    Scheme {
        name: "mongodb",
        example: "mongodb://HOST/DATABASE",
        feature: Some("mongodb"),
        #[cfg(feature = "mongodb")]
        parse: Some(|rest| Ok(Arc::new(super::mongodb::MongoOptions::parse_rest(rest)?))),
        #[cfg(not(feature = "mongodb"))]
        parse: None,
    },
    // Known, to be refused with what to write instead.
    Scheme {
        name: "mongodb+srv",
        example: "",
        feature: Some("mongodb"),
        #[cfg(feature = "mongodb")]
        parse: Some(|_| Err(super::mongodb::MongoOptions::no_srv())),
        #[cfg(not(feature = "mongodb"))]
        parse: None,
    },
    Scheme {
        name: "cassandra",
        example: "cassandra://HOST/KEYSPACE",
        feature: Some("cassandra"),
        #[cfg(feature = "cassandra")]
        parse: Some(|rest| Ok(Arc::new(super::cassandra::CassandraOptions::parse(rest)?))),
        #[cfg(not(feature = "cassandra"))]
        parse: None,
    },
    Scheme {
        name: "spanner",
        example: "spanner://projects/P/instances/I/databases/D",
        feature: Some("spanner"),
        #[cfg(feature = "spanner")]
        parse: Some(|rest| Ok(Arc::new(super::spanner::SpannerOptions::parse(rest)?))),
        #[cfg(not(feature = "spanner"))]
        parse: None,
    },
    Scheme {
        name: "datastore",
        example: "datastore://PROJECT",
        feature: Some("datastore"),
        #[cfg(feature = "datastore")]
        parse: Some(|rest| Ok(Arc::new(super::datastore::DatastoreOptions::parse(rest)?))),
        #[cfg(not(feature = "datastore"))]
        parse: None,
    },
    Scheme {
        name: "redis",
        example: "redis://HOST:PORT",
        feature: Some("redis"),
        #[cfg(feature = "redis")]
        parse: Some(|rest| Ok(Arc::new(super::redis::RedisOptions::parse_rest(false, rest)?))),
        #[cfg(not(feature = "redis"))]
        parse: None,
    },
    Scheme {
        name: "rediss",
        example: "",
        feature: Some("redis"),
        #[cfg(feature = "redis")]
        parse: Some(|rest| Ok(Arc::new(super::redis::RedisOptions::parse_rest(true, rest)?))),
        #[cfg(not(feature = "redis"))]
        parse: None,
    },
    Scheme {
        name: "etcd",
        example: "etcd://HOST:PORT",
        feature: Some("etcd"),
        #[cfg(feature = "etcd")]
        parse: Some(|rest| Ok(Arc::new(super::etcd::EtcdOptions::parse(rest)?))),
        #[cfg(not(feature = "etcd"))]
        parse: None,
    },
];

struct Scheme {
    name: &'static str,
    /// Empty for one that is only known to be refused, or a variant of another.
    example: &'static str,
    feature: Option<&'static str>,
    /// Reads what follows the colon; `None` where it is not compiled in.
    parse: Option<Parse>,
}

type Parse = fn(&str) -> Result<Arc<dyn Target>>;

/// What a URL names, checked but not yet connected to. Printing it gives the URL that reads back as the same, but for a password, which
/// must not be shown.
pub(crate) trait Target: fmt::Debug + fmt::Display + Send + Sync {
    fn scheme(&self) -> &'static str;

    /// The file that the store is kept in; `None` for a store that is not one file.
    fn file(&self) -> Option<&Path> {
        None
    }

    /// The same store, but opening it creates nothing.
    fn existing(&self) -> Arc<dyn Target>;

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
/// | URL | store |
/// | --- | --- |
/// | `sqlite:PATH?table=NAME&busy_timeout=5s&mode=ro\|rw\|rwc` | `sqlite::SqliteStore`, with the feature `sqlite` |
/// | `postgres://HOST/DATABASE?table=NAME&sequences=native&mode=ro\|rw\|rwc&timeout=10s` | `postgres::PostgresStore` or `NativeSequences`, with the feature `postgres` |
/// | `mysql://USER:PASSWORD@HOST:PORT/DATABASE?table=NAME&mode=ro\|rw\|rwc&tls=on\|off&timeout=10s` | `mysql::MysqlStore`, with the feature `mysql`; `mariadb://` is the same |
/// | `mongodb://HOST/DATABASE?collection=NAME&timeout=10s` | `mongodb::MongoStore`, with the feature `mongodb` |
/// | `cassandra://HOST,…/KEYSPACE?mode=flat\|geo&dc=NAME&range=N` | `cassandra::CassandraStore`, with the feature `cassandra` |
/// | `spanner://projects/P/instances/I/databases/D?table=NAME&emulator=HOST:PORT&mode=ro\|rw\|rwc` | `spanner::SpannerStore`, with the feature `spanner` |
/// | `datastore://PROJECT[/DATABASE]?namespace=NAME&kind=NAME&emulator=HOST:PORT&timeout=10s` | `datastore::DatastoreStore`, with the feature `datastore` |
/// | `redis://HOST:PORT/DB?prefix=NAME&timeout=5s&replicas=N&durability=disk\|trust\|process`, `rediss://…?ca=FILE` | `redis::RedisStore`, with the feature `redis` |
/// | `etcd://HOST:PORT,…?prefix=/idmill/&timeout=5s&tls=true&ca=FILE&cert=FILE&key=FILE` | `etcd::EtcdStore`, with the feature `etcd` |
/// | `memory:` | a new [`MemoryStore`], for tests |
///
/// Each also with `window=memcached://HOST:PORT`, with the feature `memcached`, or `window=redis://HOST:PORT`, with the feature
/// `redis`: the store behind a [window](crate::tier) on a cache, as in `sqlite:ids.db?window=memcached://10.0.0.7:11211`. Options of the window's own are
/// percent-encoded: `…window=memcached://10.0.0.7%3Fblock%3D5000`.
///
/// Schemes are read without regard to case. Printing a URL gives one that reads back as the same, but for a password, which
/// is hidden.
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
    /// [`InvalidInput`](ErrorKind::InvalidInput) for what is not the URL of a store, with what could have been meant;
    /// [`Unsupported`](ErrorKind::Unsupported) for a store that was not compiled in, with the feature that adds it.
    pub fn parse(url: &str) -> Result<Self> {
        parse(url).map_err(|error| error.during(Operation::Connect))
    }

    /// The scheme, in lower case.
    pub fn scheme(&self) -> &'static str {
        self.0.scheme()
    }

    /// The file that the store is kept in, as it was given; `None` for a store that is not one file.
    pub fn file(&self) -> Option<&Path> {
        self.0.file()
    }

    /// The same store, but opening it creates nothing: what does not exist is [`NotFound`](ErrorKind::NotFound). For
    /// looking at a store, where a mistyped path should not leave an empty one behind. `memory:` stays as it is.
    #[must_use]
    pub fn existing(self) -> Self {
        Self(self.0.existing())
    }

    /// Opens the store. Each call opens another: of `memory:`, an empty one.
    ///
    /// # Errors
    /// Those of opening the store.
    pub async fn connect(&self) -> Result<Arc<dyn Store>> {
        self.0.connect().await.map_err(|error| error.during(Operation::Connect))
    }
}

#[derive(Debug)]
struct Memory;

impl Memory {
    fn parse(rest: &str) -> Result<Arc<dyn Target>> {
        if matches!(rest, "" | "//") {
            return Ok(Arc::new(Self));
        }
        Err(Error::invalid("`memory:` stands alone: it takes no path and no options"))
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory:")
    }
}

impl Target for Memory {
    fn scheme(&self) -> &'static str {
        "memory"
    }

    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(Self)
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async { Ok(Arc::new(MemoryStore::new()) as Arc<dyn Store>) })
    }
}

fn parse(url: &str) -> Result<StoreUrl> {
    let Some((scheme, rest)) = split_scheme(url) else { return Err(no_scheme(url)) };
    let scheme = scheme.to_ascii_lowercase();
    let known = SCHEMES.iter().find(|known| known.name == scheme);
    let Some(parse) = known.and_then(|known| known.parse) else { return Err(absent(&scheme, known)) };
    let (rest, window) = window::split(rest)?;
    let store = parse(&rest)?;
    Ok(StoreUrl(match window {
        Some(window) => window::parse(store, &window)?,
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

fn no_scheme(url: &str) -> Error {
    if url.is_empty() {
        return Error::invalid(format!("the store's URL is empty; there are {}", examples(|_| true)));
    }
    let remedy = format!("for an SQLite database write `sqlite:{url}`; there are {}", examples(|_| true));
    Error::invalid(format!("{url:?} is not the URL of a store: it begins with no scheme; {remedy}"))
}

fn absent(scheme: &str, known: Option<&Scheme>) -> Error {
    if let Some(feature) = known.and_then(|known| known.feature) {
        let compiled = examples(|scheme| scheme.parse.is_some());
        let message = format!(
            "`{scheme}:` is not compiled in: build with the cargo feature `{feature}`; compiled in: {compiled}"
        );
        return Error::new(ErrorKind::Unsupported, message);
    }
    Error::invalid(format!("`{scheme}:` is no store that is known here; there are {}", examples(|_| true)))
}

fn examples(of: impl Fn(&Scheme) -> bool) -> String {
    let chosen = SCHEMES.iter().filter(|scheme| !scheme.example.is_empty() && of(scheme));
    chosen.map(|scheme| format!("`{}`", scheme.example)).collect::<Vec<_>>().join(", ")
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
        assert_eq!(store.list().await.unwrap().len(), 1);
        assert_eq!(connect("memory:").await.unwrap().list().await.unwrap(), []);
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
}
