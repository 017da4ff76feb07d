//! Ids from any store of idmill, by URL.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-any).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

use std::sync::LazyLock;

pub use idmill;
use idmill::{Result, Sequences};
use idmill_kit::Scheme;
pub use idmill_url::{Schemes, StoreUrl};

/// Each crate of a store by its feature, and its schemes for the error of a build without it.
macro_rules! stores {
    ($($feature:literal $store:ident $($missing:ident $name:literal $example:literal $(or $alias:literal)?),+;)+) => {
        &[$(
            #[cfg(feature = $feature)]
            $store::SCHEMES,
            #[cfg(not(feature = $feature))]
            &[$(
                Scheme::$missing($name, $example, concat!("build with the cargo feature `", $feature, "`")),
                $(Scheme::$missing($name, "", concat!("build with the cargo feature `", $feature, "`"))
                    .alias($alias),)?
            )+],
        )+]
    };
}

const STORES: &[&[Scheme]] = stores! {
    "sqlite" idmill_sqlite missing "sqlite" "sqlite:PATH";
    "postgres" idmill_postgres missing "postgres" "postgres://HOST/DATABASE" or "postgresql";
    "mysql" idmill_mysql missing "mysql" "mysql://HOST/DATABASE" or "mariadb";
    "mongodb" idmill_mongodb missing "mongodb" "mongodb://HOST/DATABASE" or "mongodb+srv";
    "cassandra" idmill_cassandra missing "cassandra" "cassandra://HOST/KEYSPACE";
    "spanner" idmill_spanner missing "spanner" "spanner://projects/P/instances/I/databases/D";
    "datastore" idmill_datastore missing "datastore" "datastore://PROJECT";
    "redis" idmill_redis missing "redis" "redis://HOST:PORT" or "rediss",
        missing_window "redis" "redis://HOST:PORT" or "rediss";
    "etcd" idmill_etcd missing "etcd" "etcd://HOST:PORT";
    "remote" idmill_remote missing "idmill" "idmill://HOST:PORT" or "idmills";
    "memcached" idmill_memcached missing_window "memcached" "memcached://HOST:PORT";
};

/// The stores that are compiled in. To add one of another crate: `schemes().clone().with(other::SCHEMES)?`.
pub fn schemes() -> &'static Schemes {
    static SCHEMES: LazyLock<Schemes> = LazyLock::new(|| {
        let all = Schemes::default().with(&STORES.concat());
        all.expect("no two of these crates have a scheme in common")
    });
    &SCHEMES
}

/// Reads the URL of a store that is compiled in.
///
/// # Errors
/// Those of [`Schemes::parse`].
pub fn parse(url: &str) -> Result<StoreUrl> {
    schemes().parse(url)
}

/// Opens the store at `url`, which is compiled in, and its sequences, on the current tokio runtime.
///
/// # Errors
/// Those of [`Schemes::connect`].
pub async fn connect(url: &str) -> Result<Sequences> {
    schemes().connect(url).await
}
