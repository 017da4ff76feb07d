//! Every store against the suite: `cargo test --features conformance,STORE --test conformance -- STORE`.
//!
//! A store adds a module with its suite and a line below; its feature turns it on. Nothing runs unless a
//! store is named, since most need an engine, which is `Suite::new("x", …).engine(OnDemand::new("x"))` with
//! `use crate::engines::OnDemand`.

#[cfg(all(unix, feature = "cassandra"))]
mod cassandra;
#[cfg(all(unix, feature = "datastore"))]
mod datastore;
#[cfg(unix)]
#[path = "../engines/mod.rs"]
mod engines;
#[cfg(all(unix, feature = "etcd"))]
mod etcd;
#[cfg(all(unix, feature = "memcached"))]
mod memcached;
#[cfg(unix)]
mod memory;
#[cfg(all(unix, feature = "mongodb"))]
mod mongodb;
#[cfg(all(unix, feature = "mysql"))]
mod mysql;
#[cfg(all(unix, feature = "postgres"))]
mod postgres;
#[cfg(all(unix, feature = "redis"))]
mod redis;
#[cfg(all(unix, feature = "spanner"))]
mod spanner;
#[cfg(all(unix, feature = "sqlite"))]
mod sqlite;

#[cfg(unix)]
fn main() {
    idmill::conformance::main([
        memory::suite(),
        #[cfg(feature = "sqlite")]
        sqlite::suite(),
        #[cfg(feature = "mongodb")]
        mongodb::suite(),
        #[cfg(feature = "mysql")]
        mysql::suite(),
        #[cfg(feature = "cassandra")]
        cassandra::flat(),
        #[cfg(feature = "cassandra")]
        cassandra::geo(),
        #[cfg(feature = "postgres")]
        postgres::table(),
        #[cfg(feature = "postgres")]
        postgres::native(),
        #[cfg(feature = "spanner")]
        spanner::suite(),
        #[cfg(feature = "datastore")]
        datastore::suite(),
        #[cfg(feature = "datastore")]
        datastore::firestore(),
        #[cfg(feature = "etcd")]
        etcd::suite(),
        #[cfg(feature = "etcd")]
        etcd::oldest(),
        #[cfg(feature = "memcached")]
        memcached::memory(),
        #[cfg(all(feature = "memcached", feature = "sqlite"))]
        memcached::sqlite(),
        #[cfg(feature = "redis")]
        redis::store(),
        #[cfg(feature = "redis")]
        redis::window_memory(),
        #[cfg(all(feature = "redis", feature = "sqlite"))]
        redis::window_sqlite(),
    ])
}

#[cfg(not(unix))]
fn main() {
    println!("skipped: the suite sends signals to processes, which is for Unix");
}
