//! Opens any idmill store by its URL.
//!
//! For options, guarantees and errors, see the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-any).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

use std::sync::LazyLock;

pub use idmill;
use idmill::{Result, Sequences};
use idmill_kit::Scheme;
pub use idmill_url::{Schemes, StoreUrl};

/// The schemes of each store crate. If the feature of a crate is not enabled, its schemes only return an
/// error that names the feature.
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

/// Returns the schemes of the stores in this crate. Add the schemes of another crate by
/// `schemes().clone().with(other::SCHEMES)?`.
pub fn schemes() -> &'static Schemes {
    static SCHEMES: LazyLock<Schemes> = LazyLock::new(|| {
        let all = Schemes::default().with(&STORES.concat());
        all.expect("the schemes of these crates are distinct")
    });
    &SCHEMES
}

/// Parses the URL of a store that is compiled in.
///
/// # Errors
/// Those of [`Schemes::parse`].
pub fn parse(url: &str) -> Result<StoreUrl> {
    schemes().parse(url)
}

/// Opens the store at `url` and its sequences on the current tokio runtime. The store must be compiled in.
///
/// # Errors
/// Those of [`Schemes::connect`].
pub async fn connect(url: &str) -> Result<Sequences> {
    schemes().connect(url).await
}
