//! Ids from PostgreSQL, from rows or sequences: small, unique, ordered, in ranges or inside your
//! transactions.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-postgres).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
//!
//! # The store
//!
//! [`PostgresStore`] keeps sequences in rows of a table; [`NativeSequences`] draws from PostgreSQL's own
//! `SEQUENCE`s. [`PostgresOptions`] describes the URL.
//!
//! # Guarantees
//!
//! The guide describes durability and how ids are reserved. For ids without gaps, see [`InTransaction`].
//!
//! # Cancellation
//!
//! A call that is dropped may already have been sent. The server then executes it, and the reserved range
//! becomes a gap. The store closes the connection, but not your client.

mod client;
mod convert;
mod native;
mod options;
mod prepared;
mod session;
mod tls;
mod transaction;

use std::sync::Arc;

use idmill::Result;
use idmill_kit::Scheme;
use idmill_sql::postgres::{Calls, Driver, Table, failed};
use idmill_sql::{Asked, Opening};
use tokio_postgres::{Client, Config};

use self::session::{Sessions, given};

pub use self::native::NativeSequences;
pub use self::options::{PostgresOptions, Storage};
pub use self::tls::SslMode;
pub use self::transaction::{InTransaction, next_in, next_in_sql, reserve_in};
/// The pool, in the version that [`PostgresStore::from_pool`] takes.
#[cfg(feature = "deadpool")]
pub use deadpool_postgres as deadpool;
pub use idmill;
pub use idmill_kit::Mode;
pub use idmill_kit::history::Failover;
pub use idmill_sql::postgres::Keeps;
pub use idmill_sql::postgres::native::Values;
/// The driver, in the version whose clients and transactions this crate takes.
pub use tokio_postgres as driver;

const STORE: Scheme = Scheme::store::<PostgresOptions>("postgres", "postgres://HOST/DATABASE");

/// The URL schemes of this crate, for `Schemes::with` of `idmill-url`.
pub const SCHEMES: &[Scheme] = &[STORE, STORE.alias("postgresql")];

/// Opens the store at a URL such as `postgres://HOST/DATABASE` and returns its sequences. They run on the
/// current tokio runtime.
///
/// # Errors
/// The errors of [`idmill_kit::connect`].
pub async fn connect(url: &str) -> idmill::Result<idmill::Sequences> {
    idmill_kit::connect::<PostgresOptions>(url).await
}

/// A store of sequences in a table of a PostgreSQL database. See the [crate docs](self) for its guarantees.
///
/// Clones share their connections: at most four, plus four that wait for locks; or the caller's one
/// client.
#[derive(Clone)]
pub struct PostgresStore {
    sessions: Sessions,
    calls: Calls,
}

idmill_sql::store! { batches PostgresStore, session: |store, _| store.sessions.clone(), |session| &mut session, drop(session) }

impl PostgresStore {
    /// Connects to the database that a URL names. See [`PostgresOptions`].
    ///
    /// # Errors
    /// The errors of [`PostgresOptions::parse`] and of [`open_with`](Self::open_with).
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_with(PostgresOptions::parse(url)?).await
    }

    /// Connects to a database, and creates the table if the options allow it. If the future is
    /// dropped, the table may already have been created.
    ///
    /// # Errors
    /// - [`InvalidInput`](idmill::ErrorKind::InvalidInput) if an option is invalid;
    /// - [`Unavailable`](idmill::ErrorKind::Unavailable) if the server is unreachable;
    /// - [`Denied`](idmill::ErrorKind::Denied) if the server refuses access, or its certificate is
    ///   not accepted;
    /// - [`NotFound`](idmill::ErrorKind::NotFound) if the database or the schema is missing, or if
    ///   the table is missing and the mode does not create it;
    /// - [`Conflict`](idmill::ErrorKind::Conflict) if the table is unlogged or not this crate's, if
    ///   the `search_path` leads to two tables, or if the server does not sync its writes;
    /// - [`Unsupported`](idmill::ErrorKind::Unsupported) if the server does not report the history that the
    ///   `failover` option needs, or lacks required TLS.
    pub async fn open_with(options: PostgresOptions) -> Result<Self> {
        options.open().await
    }

    /// Uses the caller's client, with the table, the schema, the mode, the durability, the failover policy
    /// and the timeout of the options. Their location and TLS are not used. The client can be used for other
    /// statements at the same time, but opening and writes fail with `Conflict` while the client is in a
    /// transaction. Statements on one client run one after another, so the store waits only briefly for
    /// locks.
    ///
    /// A closed client is not replaced: all calls then fail with
    /// [`Closed`](idmill::ErrorKind::Closed). Use [`from_config`](Self::from_config), which
    /// reconnects. The server's warnings go to the task that polls the connection, so the store
    /// does not detect that a wait for a synchronous standby was cancelled.
    ///
    /// # Errors
    /// The errors of [`open_with`](Self::open_with).
    pub async fn from_client(client: impl Into<Arc<Client>>, options: PostgresOptions) -> Result<Self> {
        options.open_over(Ok(given(client.into(), options.timeout, options.keeps))).await
    }

    /// Connects with this configuration, and reconnects when a connection is lost. The same options are used
    /// as in [`from_client`](Self::from_client), and the certificates of the options. [`SslMode::Require`]
    /// or [`SslMode::VerifyFull`] in the options replaces the configuration's `ssl_mode`. The server's
    /// certificate is verified only with `VerifyFull`.
    ///
    /// ```no_run
    /// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
    /// use idmill_postgres::driver::Config;
    /// use idmill_postgres::{PostgresOptions, PostgresStore, SslMode};
    ///
    /// let config: Config = "host=db1 user=app password=secret dbname=shop".parse()?;
    /// let options = PostgresOptions::default().ssl_mode(SslMode::VerifyFull);
    /// let store = PostgresStore::from_config(config, options).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The errors of [`open_with`](Self::open_with).
    pub async fn from_config(config: Config, options: PostgresOptions) -> Result<Self> {
        options.open_over(options.sessions_of(config)).await
    }

    /// Uses up to four connections of the caller's pool, plus four that wait for locks. Each write costs a
    /// second round trip. The same options are used, and warnings are missed, as for
    /// [`from_client`](Self::from_client).
    ///
    /// Draw ids before you take a connection. If callers hold all connections while they wait for
    /// an id, the refill cannot get a connection. It then fails after half of the timeout with
    /// [`Unavailable`](idmill::ErrorKind::Unavailable).
    ///
    /// ```no_run
    /// # async fn demo(pool: idmill_postgres::deadpool::Pool) -> idmill::Result<()> {
    /// use idmill_postgres::{Keeps, PostgresOptions, PostgresStore};
    ///
    /// // For a database of tests with `fsync=off`, as testcontainers starts it.
    /// let options = PostgresOptions::default().keeps(Keeps::Trust);
    /// let store = PostgresStore::from_pool(pool, options).await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The errors of [`open_with`](Self::open_with).
    #[cfg(feature = "deadpool")]
    pub async fn from_pool(pool: deadpool_postgres::Pool, options: PostgresOptions) -> Result<Self> {
        options.open_over(Ok(session::pooled(pool, options.timeout, options.keeps))).await
    }

    async fn over(sessions: Sessions, table: Table, opening: Opening) -> Result<Self> {
        if opening.mode != Mode::ReadOnly && !sessions.driver().has_several() {
            sessions.must_be_outside().await.map_err(|fault| failed(fault, Asked::Read))?;
        }
        let calls = Calls::open(&mut sessions.clone(), table, opening).await?;
        Ok(Self { sessions, calls })
    }
}
