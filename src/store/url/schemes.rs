//! The schemes that URLs begin with, and what is said of those that begin with none of them.

use std::sync::Arc;

use super::memory::Memory;
use super::{Target, given};
use crate::error::{Error, ErrorKind, Result};

/// Every scheme that this crate knows, and how it is written; compiled in or not. A store adds its line here,
/// and implements [`Target`] for the options that it reads from its URL.
const SCHEMES: &[Scheme] = &[
    Scheme {
        name: "sqlite",
        example: "sqlite:PATH",
        feature: Some("sqlite"),
        #[cfg(feature = "sqlite")]
        parse: Some(|rest| Ok(Arc::new(crate::store::sqlite::SqliteOptions::parse(rest)?))),
        #[cfg(not(feature = "sqlite"))]
        parse: None,
    },
    Scheme { name: "memory", example: "memory:", feature: None, parse: Some(Memory::parse) },
    POSTGRES,
    // The same, as others write it.
    Scheme { name: "postgresql", example: "", ..POSTGRES },
    MYSQL,
    // The same by its other name.
    Scheme { name: "mariadb", example: "", ..MYSQL },
    Scheme {
        name: "mongodb",
        example: "mongodb://HOST/DATABASE",
        feature: Some("mongodb"),
        #[cfg(feature = "mongodb")]
        parse: Some(|rest| Ok(Arc::new(crate::store::mongodb::MongoOptions::parse_rest(rest)?))),
        #[cfg(not(feature = "mongodb"))]
        parse: None,
    },
    // The same, by a name whose hosts and options are in the DNS.
    Scheme {
        name: "mongodb+srv",
        example: "",
        feature: Some("mongodb-srv"),
        #[cfg(feature = "mongodb-srv")]
        parse: Some(|rest| Ok(Arc::new(crate::store::mongodb::MongoOptions::parse_srv(rest)?))),
        // Known, to be refused with what to write instead.
        #[cfg(all(feature = "mongodb", not(feature = "mongodb-srv")))]
        parse: Some(|rest| Err(crate::store::mongodb::MongoOptions::parse_srv(rest).unwrap_err())),
        #[cfg(not(feature = "mongodb"))]
        parse: None,
    },
    Scheme {
        name: "cassandra",
        example: "cassandra://HOST/KEYSPACE",
        feature: Some("cassandra"),
        #[cfg(feature = "cassandra")]
        parse: Some(|rest| Ok(Arc::new(crate::store::cassandra::CassandraOptions::parse(rest)?))),
        #[cfg(not(feature = "cassandra"))]
        parse: None,
    },
    Scheme {
        name: "spanner",
        example: "spanner://projects/P/instances/I/databases/D",
        feature: Some("spanner"),
        #[cfg(feature = "spanner")]
        parse: Some(|rest| Ok(Arc::new(crate::store::spanner::SpannerOptions::parse(rest)?))),
        #[cfg(not(feature = "spanner"))]
        parse: None,
    },
    Scheme {
        name: "datastore",
        example: "datastore://PROJECT",
        feature: Some("datastore"),
        #[cfg(feature = "datastore")]
        parse: Some(|rest| Ok(Arc::new(crate::store::datastore::DatastoreOptions::parse(rest)?))),
        #[cfg(not(feature = "datastore"))]
        parse: None,
    },
    Scheme {
        name: "redis",
        example: "redis://HOST:PORT",
        feature: Some("redis"),
        #[cfg(feature = "redis")]
        parse: Some(|rest| Ok(Arc::new(crate::store::redis::RedisOptions::parse_rest(false, rest)?))),
        #[cfg(not(feature = "redis"))]
        parse: None,
    },
    Scheme {
        name: "rediss",
        example: "",
        feature: Some("redis"),
        #[cfg(feature = "redis")]
        parse: Some(|rest| Ok(Arc::new(crate::store::redis::RedisOptions::parse_rest(true, rest)?))),
        #[cfg(not(feature = "redis"))]
        parse: None,
    },
    Scheme {
        name: "etcd",
        example: "etcd://HOST:PORT",
        feature: Some("etcd"),
        #[cfg(feature = "etcd")]
        parse: Some(|rest| Ok(Arc::new(crate::store::etcd::EtcdOptions::parse(rest)?))),
        #[cfg(not(feature = "etcd"))]
        parse: None,
    },
];

const POSTGRES: Scheme = Scheme {
    name: "postgres",
    example: "postgres://HOST/DATABASE",
    feature: Some("postgres"),
    #[cfg(feature = "postgres")]
    parse: Some(|rest| Ok(Arc::new(crate::store::postgres::PostgresOptions::parse_rest(rest)?))),
    #[cfg(not(feature = "postgres"))]
    parse: None,
};

const MYSQL: Scheme = Scheme {
    name: "mysql",
    example: "mysql://HOST/DATABASE",
    feature: Some("mysql"),
    #[cfg(feature = "mysql")]
    parse: Some(|rest| Ok(Arc::new(crate::store::mysql::MysqlOptions::parse_rest(rest)?))),
    #[cfg(not(feature = "mysql"))]
    parse: None,
};

pub(super) struct Scheme {
    name: &'static str,
    /// Empty for one that is only known to be refused, or a variant of another.
    example: &'static str,
    feature: Option<&'static str>,
    /// Reads what follows the colon; `None` where it is not compiled in.
    pub(super) parse: Option<Parse>,
}

pub(super) type Parse = fn(&str) -> Result<Arc<dyn Target>>;

/// The scheme of this name, in lower case.
pub(super) fn find(name: &str) -> Option<&'static Scheme> {
    SCHEMES.iter().find(|known| known.name == name)
}

/// The error for a text without a scheme.
pub(super) fn none(url: &str) -> Error {
    if url.is_empty() {
        return Error::invalid(format!("the store's URL is empty; there are {}", examples(|_| true)));
    }
    if given::is_connection_string(url) {
        let message = "this is the connection string of a driver; write a URL, such as `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, \
                       with what is special in user name and password percent-encoded";
        return Error::invalid(message);
    }
    let shown = given::redacted(url);
    let begins = |scheme: &&Scheme| url.to_ascii_lowercase().starts_with(&format!("{}//", scheme.name));
    let remedy = match SCHEMES.iter().find(begins) {
        Some(scheme) => format!("write `{}://`, with a colon", scheme.name),
        // Not what was given: with something hidden, it is no path that could be typed.
        None if shown != url => format!("there are {}", examples(|_| true)),
        None => format!("for an SQLite database write `sqlite:{url}`; there are {}", examples(|_| true)),
    };
    Error::invalid(format!("{shown:?} is not the URL of a store: it begins with no scheme; {remedy}"))
}

/// The error for a scheme that is not known, or not compiled in.
pub(super) fn absent(scheme: &str, known: Option<&Scheme>) -> Error {
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
