//! Ids from any store of idmill, by URL.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-any).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

use idmill_kit::Scheme;
pub use idmill_url::{Schemes, StoreUrl, connect, open_store};

pub use idmill;

/// The schemes of the stores that are compiled in; of the others, with the feature that adds each.
const SCHEMES: &[&[Scheme]] = &[
    #[cfg(feature = "sqlite")]
    idmill_sqlite::SCHEMES,
    #[cfg(not(feature = "sqlite"))]
    &[Scheme::missing("sqlite", "sqlite:PATH", "build with the cargo feature `sqlite`")],
    #[cfg(feature = "postgres")]
    idmill_postgres::SCHEMES,
    #[cfg(not(feature = "postgres"))]
    &[
        Scheme::missing("postgres", "postgres://HOST/DATABASE", "build with the cargo feature `postgres`"),
        Scheme::missing("postgres", "postgres://HOST/DATABASE", "build with the cargo feature `postgres`")
            .alias("postgresql"),
    ],
    #[cfg(feature = "mysql")]
    idmill_mysql::SCHEMES,
    #[cfg(not(feature = "mysql"))]
    &[
        Scheme::missing("mysql", "mysql://HOST/DATABASE", "build with the cargo feature `mysql`"),
        Scheme::missing("mysql", "mysql://HOST/DATABASE", "build with the cargo feature `mysql`")
            .alias("mariadb"),
    ],
    #[cfg(feature = "mongodb")]
    idmill_mongodb::SCHEMES,
    #[cfg(not(feature = "mongodb"))]
    &[
        Scheme::missing("mongodb", "mongodb://HOST/DATABASE", "build with the cargo feature `mongodb`"),
        Scheme::missing("mongodb", "mongodb://HOST/DATABASE", "build with the cargo feature `mongodb`")
            .alias("mongodb+srv"),
    ],
    #[cfg(feature = "cassandra")]
    idmill_cassandra::SCHEMES,
    #[cfg(not(feature = "cassandra"))]
    &[Scheme::missing("cassandra", "cassandra://HOST/KEYSPACE", "build with the cargo feature `cassandra`")],
    #[cfg(feature = "spanner")]
    idmill_spanner::SCHEMES,
    #[cfg(not(feature = "spanner"))]
    &[Scheme::missing(
        "spanner",
        "spanner://projects/P/instances/I/databases/D",
        "build with the cargo feature `spanner`",
    )],
    #[cfg(feature = "datastore")]
    idmill_datastore::SCHEMES,
    #[cfg(not(feature = "datastore"))]
    &[Scheme::missing("datastore", "datastore://PROJECT", "build with the cargo feature `datastore`")],
    #[cfg(feature = "redis")]
    idmill_redis::SCHEMES,
    #[cfg(not(feature = "redis"))]
    &[
        Scheme::missing("redis", "redis://HOST:PORT", "build with the cargo feature `redis`"),
        Scheme::missing("redis", "redis://HOST:PORT", "build with the cargo feature `redis`").alias("rediss"),
    ],
    #[cfg(feature = "etcd")]
    idmill_etcd::SCHEMES,
    #[cfg(not(feature = "etcd"))]
    &[Scheme::missing("etcd", "etcd://HOST:PORT", "build with the cargo feature `etcd`")],
    #[cfg(feature = "remote")]
    idmill_remote::SCHEMES,
    #[cfg(not(feature = "remote"))]
    &[
        Scheme::missing("idmill", "idmill://HOST:PORT", "build with the cargo feature `remote`"),
        Scheme::missing("idmill", "idmill://HOST:PORT", "build with the cargo feature `remote`")
            .alias("idmills"),
    ],
    #[cfg(feature = "memcached")]
    idmill_memcached::SCHEMES,
    #[cfg(not(feature = "memcached"))]
    &[Scheme::missing("memcached", "memcached://HOST:PORT", "build with the cargo feature `memcached`")],
];

/// Makes [`connect`] and [`StoreUrl`] read the URLs of every store that is
/// compiled in, everywhere in this process. A second call changes nothing.
///
/// # Errors
/// [`Conflict`](idmill::ErrorKind::Conflict) if another crate has one of the schemes.
pub fn register() -> idmill::Result<()> {
    SCHEMES.iter().try_for_each(|schemes| idmill_url::register(schemes))
}

/// The same schemes as a value, which changes nothing in the process.
///
/// # Errors
/// None in fact: no two of these crates have a scheme in common.
pub fn schemes() -> idmill::Result<Schemes> {
    SCHEMES.iter().try_fold(Schemes::default(), |all, schemes| all.with(schemes))
}
