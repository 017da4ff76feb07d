//! Ids inside transactions, for the stores that have those.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "spanner")]
mod spanner;
mod sqlite;

use std::time::Duration;

use idmill::{Error, ErrorKind, Result};

use crate::opening::Measured;

/// The stores that have them, for messages.
pub(super) fn known() -> String {
    let stores = [
        ("postgres", cfg!(feature = "postgres")),
        ("mysql", cfg!(feature = "mysql")),
        ("spanner", cfg!(feature = "spanner")),
    ];
    let others = stores.iter().filter(|(_, built)| *built).map(|(scheme, _)| format!(", `{scheme}:`"));
    format!("`sqlite:`{}", others.collect::<String>())
}

/// Somebody's transactions, of which any number of threads make one after the other.
pub(super) trait Transactions: Send + Sync {
    /// One transaction: takes so many ids, works for so long, and commits.
    fn run(&self, values: u64, hold: Duration) -> Result<()>;
}

pub(super) fn are_known(store: &Measured) -> bool {
    // A URL of a store that is not compiled in is refused before anybody asks.
    matches!(store.url.scheme(), "sqlite" | "postgres" | "mysql" | "spanner")
}

// Spanner awaits its connection.
#[cfg_attr(not(feature = "spanner"), allow(clippy::unused_async))]
pub(super) async fn open(store: &Measured, sequence: &str) -> Result<Box<dyn Transactions>> {
    // As it was given: the one that is printed has no password.
    let url = store.given.as_str();
    match store.url.scheme() {
        "sqlite" => sqlite::open(url, sequence),
        #[cfg(feature = "mysql")]
        "mysql" => mysql::open(url, sequence),
        #[cfg(feature = "spanner")]
        "spanner" => spanner::open(url, sequence).await,
        #[cfg(feature = "postgres")]
        "postgres" => postgres::open(url, sequence),
        other => Err(Error::new(ErrorKind::Unsupported, format!("`{other}:` has no transactions here"))),
    }
}
