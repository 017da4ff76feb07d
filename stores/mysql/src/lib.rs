//! Ids from MySQL and MariaDB: small, unique, ordered, in ranges or inside your transactions.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-mysql).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
//!
//! # The store
//!
//! [`MysqlStore`] keeps sequences in a table of MySQL or MariaDB. [`MysqlOptions`] describes the URL.
//!
//! # Guarantees
//!
//! The guide describes durability and how ids are reserved. For ids without gaps, see
//! [`InTransaction`].
//!
//! The guide lists the limits. In addition, the store does not detect a row that was changed by hand.
//!
//! # Cancellation
//!
//! A call that is dropped may already have been sent. The server then executes it, and the reserved
//! range becomes a gap. The store closes the call's connection. Use a store in the tokio runtime
//! that it was opened in.

mod convert;
mod database;
mod options;
mod session;
mod transaction;

use idmill::{Error, Operation, Result};
use idmill_kit::Scheme;
use idmill_sql::mysql::{Calls, Table};
use idmill_sql::{Asked, Opening};
use mysql_async::Pool;

use self::database::{Connections, Database, Session};

pub use self::options::MysqlOptions;
pub use self::transaction::{InTransaction, next_in, next_in_sql, reserve_in};
/// The driver, in the version whose transactions [`reserve_in`] takes.
pub use ::mysql_async as driver;
pub use idmill;
pub use idmill_kit::Mode;
pub use idmill_kit::history::Failover;

const STORE: Scheme = Scheme::store::<MysqlOptions>("mysql", "mysql://HOST/DATABASE");

/// The URL schemes of this crate, for `Schemes::with` of `idmill-url`.
pub const SCHEMES: &[Scheme] = &[STORE, STORE.alias("mariadb")];

/// Opens the store at a URL such as `mysql://HOST/DATABASE` and returns its sequences. They run on the
/// current tokio runtime.
///
/// # Errors
/// The errors of [`idmill_kit::connect`].
pub async fn connect(url: &str) -> idmill::Result<idmill::Sequences> {
    idmill_kit::connect::<MysqlOptions>(url).await
}

/// A store of sequences in a table of MySQL or MariaDB. See the [crate docs](self) for its guarantees.
///
/// Clones share the connections.
#[derive(Clone)]
pub struct MysqlStore {
    database: Database,
    calls: Calls,
}

idmill_sql::store! {
    MysqlStore, session: |store, asked| store.session(asked).await?, |session| &mut session, session.put_back().await
}

impl MysqlStore {
    /// Uses the caller's pool, with the table, the mode, the timeout and the failover policy of the options.
    /// Their host, login, database and TLS are not used.
    ///
    /// Connections are used as they are. Calls that write reject a connection that does not commit
    /// each statement, or that counts found rows instead of changed rows.
    ///
    /// ```no_run
    /// # async fn demo(pool: idmill_mysql::driver::Pool) -> idmill::Result<()> {
    /// use idmill_mysql::{MysqlOptions, MysqlStore};
    ///
    /// let store = MysqlStore::from_pool(&pool, MysqlOptions::default().table("numbers")).await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The errors of [`open_with`](Self::open_with).
    pub async fn from_pool(pool: &Pool, options: MysqlOptions) -> Result<Self> {
        let opening = async {
            let (connections, table) = (Connections::Given(pool.clone()), options.checked_table()?);
            let place = "the pool's server".to_owned();
            let database = Database { connections, timeout: options.timeout, place };
            Self::within(database, table, options.opening()).await
        };
        opening.await.map_err(|error: Error| error.during(Operation::Connect))
    }

    /// Connects to the server that a URL names. See [`MysqlOptions`].
    ///
    /// # Errors
    /// The errors of [`MysqlOptions::parse`] and of [`open_with`](Self::open_with).
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_with(MysqlOptions::parse(url)?).await
    }

    /// Connects to a server, and creates the table if it is missing and the mode allows it.
    ///
    /// # Errors
    /// - [`Unavailable`](idmill::ErrorKind::Unavailable) if the server is unreachable;
    /// - [`Denied`](idmill::ErrorKind::Denied) if the server refuses access, or its certificate is not
    ///   accepted;
    /// - [`NotFound`](idmill::ErrorKind::NotFound) if the database is missing, or if the table is
    ///   missing and the mode does not create it;
    /// - [`Conflict`](idmill::ErrorKind::Conflict) if the table exists but is not this crate's;
    /// - [`Unsupported`](idmill::ErrorKind::Unsupported) if the table is not InnoDB, commits would not be
    ///   durable, an option is unsupported, or the server is neither MySQL nor MariaDB;
    /// - [`InvalidInput`](idmill::ErrorKind::InvalidInput) if an option is invalid.
    pub async fn open_with(options: MysqlOptions) -> Result<Self> {
        let opening = async {
            let (database, table) = options.open_database()?;
            Self::within(database, table, options.opening()).await
        };
        opening.await.map_err(|error| error.during(Operation::Connect))
    }

    async fn within(database: Database, table: Table, opening: Opening) -> Result<Self> {
        let mut session = database.connect(Asked::Read).await?;
        let calls = Calls::open(&mut session, table, &database.place, opening).await?;
        drop(session);
        Ok(Self { database, calls })
    }

    /// Takes a connection, if the mode allows the call.
    async fn session(&self, asked: Asked) -> Result<Session> {
        if asked == Asked::Write {
            self.calls.may_write()?;
        }
        self.database.connect(asked).await
    }
}
