//! Sequences in a table of MySQL or MariaDB:
//! `mysql://USER:PASSWORD@HOST:PORT/DATABASE?table=NAME&mode=ro|rw|rwc&tls=on&timeout=10s`.
//!
//! # What holds
//!
//! - **Durable**: a range is on the server's disk before an id of it is handed out. The table's engine
//!   must be InnoDB, and the server's `innodb_flush_log_at_trx_commit` 1; where it writes a binary log,
//!   its `sync_binlog` too. Other servers are [`Unsupported`](crate::ErrorKind::Unsupported). This is
//!   looked at on every connection that the store makes itself, and when it is made over a
//!   [pool](MysqlStore::new) of the caller's.
//! - **Atomic**: a reserve is one `UPDATE` of one row, which commits by itself, under the condition that
//!   bounds and identity are those that the grant will name. Its isolation level does not matter.
//! - **Sent once**: no statement is sent again after it may have arrived. A connection that broke while it
//!   was idle is found out before it is used.
//! - **Gapless**, where it is asked for: see [`InTransaction`].
//!
//! What the server cannot protect from: a restored backup; a failover to a replica that had not received the
//! last commits, as is possible with all replication that does not wait; triggers on the table; whoever
//! changes a row by hand. See `docs/stores/mysql.md`.
//!
//! # Cancellation
//!
//! A call that is dropped may have been sent, and is then carried out; the range it reserved is a gap. Its
//! connection is closed. A store is used from within the tokio runtime that it was opened in.

mod classify;
mod database;
mod options;
mod reserve;
mod schema;
mod transaction;

use std::collections::HashMap;
use std::time::Duration;

use mysql_async::{Conn, Pool, Row};

use self::classify::{Asked, failed};
use self::database::{Connections, Database, rows, write};
use self::reserve::{DUPLICATES, TRIES, crowded, read_to_write};
use self::schema::{DEFAULT_TABLE, Known, Table};
use super::calls::calls;
use super::{
    Bounds, Capabilities, Change, Cursor, Durability, GiveBack, Grant, Listing, Page, Reserve, RetryCost,
    SequenceInfo, Store, already_exists, not_found,
};
use crate::error::{Error, Operation, Result};
use crate::name::SequenceName;
use crate::sync::{Arc, Mutex};

pub use self::options::{MysqlOptions, Tls};
pub use self::transaction::{InTransaction, next_in, reserve_in};
pub use super::Mode;
/// The driver, in the version whose transactions [`reserve_in`] takes.
pub use ::mysql_async as driver;

/// How long one statement may take unless told otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sequences in a table of MySQL or MariaDB. See the [module](self) for what holds.
///
/// Clones share the connections.
#[derive(Clone, Debug)]
pub struct MysqlStore {
    database: Database,
    /// What every reserve of a sequence is conditional on. Never trusted: a condition
    /// that is not met changes nothing.
    known: Arc<Mutex<HashMap<SequenceName, Known>>>,
}

impl MysqlStore {
    /// Over a pool that the caller has: in the table `idmill_sequences`, which is
    /// created if it does not exist.
    ///
    /// Connections are taken as they are; one that does not commit each statement, or counts the rows that
    /// were found in place of those that were changed, is refused by the calls that write.
    ///
    /// # Errors
    /// Those of [`open_with`](Self::open_with).
    pub async fn new(pool: &Pool) -> Result<Self> {
        Self::over(pool, DEFAULT_TABLE, Mode::default()).await
    }

    /// As [`new`](Self::new), with this table and mode.
    ///
    /// # Errors
    /// Those of [`open_with`](Self::open_with).
    pub async fn over(pool: &Pool, table: &str, mode: Mode) -> Result<Self> {
        let opening = async {
            let (connections, table) = (Connections::Given(pool.clone()), Table::new(table)?);
            let place = "the pool's server".to_owned();
            Self::within(Database { connections, table, timeout: DEFAULT_TIMEOUT, mode, place }).await
        };
        opening.await.map_err(|error: Error| error.during(Operation::Connect))
    }

    /// How long one statement may take before it is given up, 1 ms or more, and how long a connection may
    /// take to be had; default 10 s. A reserve is one statement as a rule.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.database.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Connects to the server that a URL names: see [`MysqlOptions`].
    ///
    /// # Errors
    /// Those of [`MysqlOptions::parse`] and of [`open_with`](Self::open_with).
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_with(MysqlOptions::parse(url)?).await
    }

    /// Connects to a server, and creates the table if it is missing and the mode allows that.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if the server cannot be reached;
    /// [`Denied`](crate::ErrorKind::Denied); [`NotFound`](crate::ErrorKind::NotFound) if the database
    /// is missing, or the table and it is not to be created; [`Conflict`](crate::ErrorKind::Conflict)
    /// if the table is there but not this crate's; [`Unsupported`](crate::ErrorKind::Unsupported) if
    /// commits would not be durable, or the server is another;
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for options that cannot be.
    pub async fn open_with(options: MysqlOptions) -> Result<Self> {
        let opening = async { Self::within(options.database()?).await };
        opening.await.map_err(|error| error.during(Operation::Connect))
    }

    async fn within(database: Database) -> Result<Self> {
        Ok(Self { database: database.open().await?, known: Arc::default() })
    }

    async fn try_reserve(&self, request: &Reserve) -> Result<Grant> {
        let before = self.known.lock().get(&request.name).copied();
        let mut connection = self.database.connect(Asked::Write).await?;
        let mut known = before;
        let outcome = reserve::reserve(&self.database, &mut connection, request, &mut known).await;
        if let Some(known) = known.filter(|_| known != before) {
            self.known.lock().insert(request.name.clone(), known);
        }
        self.database.release(connection, outcome).await
    }

    async fn try_give_back(&self, back: &GiveBack) -> Result<bool> {
        Ok(self.change(&self.database.table.give_back(back)).await? == 1)
    }

    async fn try_inspect(&self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        let found = self.rows(&self.database.table.select(name)).await?.pop();
        found.map(|row| self.database.table.decode(row)).transpose()
    }

    async fn try_create(&self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        let mut connection = self.database.connect(Asked::Write).await?;
        let info = schema::fresh(name, bounds);
        let outcome = self.insert(&mut connection, &info).await;
        self.database.release(connection, outcome).await.map(|()| info)
    }

    async fn insert(&self, connection: &mut Conn, info: &SequenceInfo) -> Result<()> {
        let mut duplicates = 0;
        loop {
            let insert = self.database.table.insert(info);
            let Err(fault) = self.database.attempt(write(connection, &insert)).await else { return Ok(()) };
            if !fault.is_duplicate() || duplicates >= DUPLICATES {
                return Err(failed(fault, Asked::Write));
            }
            // Of this name, or of something that a unique index of somebody's forbids.
            if self.read_to_write(connection, &info.name).await?.is_some() {
                return Err(already_exists(&info.name));
            }
            duplicates += 1;
        }
    }

    async fn read_to_write(
        &self,
        connection: &mut Conn,
        name: &SequenceName,
    ) -> Result<Option<SequenceInfo>> {
        let read = read_to_write(connection, &self.database.table, name);
        self.database.within(Asked::Read, read).await?.transpose()
    }

    async fn rows(&self, select: &str) -> Result<Vec<Row>> {
        let mut connection = self.database.connect(Asked::Read).await?;
        let outcome = self.database.within(Asked::Read, rows(&mut connection, select)).await;
        self.database.release(connection, outcome).await
    }

    async fn try_list(&self, page: &Page) -> Result<Listing> {
        let table = &self.database.table;
        let found = self.rows(&table.select_page(page)?).await?;
        let full = found.len() >= page.limit.max(1);
        let mut listing = Listing::default();
        for row in found {
            let name = schema::name(&row);
            listing.next = full.then(|| Cursor::of_bytes(&name));
            listing.add(String::from_utf8_lossy(&name), table.decode(row));
        }
        Ok(listing.sorted())
    }

    async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        let mut connection = self.database.connect(Asked::Write).await?;
        let outcome = self.replace(&mut connection, name, change).await;
        self.database.release(connection, outcome).await
    }

    /// Reads, decides, and writes if nothing has changed meanwhile; if something has, begins again.
    async fn replace(
        &self,
        connection: &mut Conn,
        name: &SequenceName,
        change: Change,
    ) -> Result<SequenceInfo> {
        for _ in 0..TRIES {
            let seen = self.read_to_write(connection, name).await?.ok_or_else(|| not_found(name))?;
            let mut after = seen.clone();
            after.apply(&change)?;
            // To write what is there counts as no change, which is what a conflict looks like.
            if after == seen {
                return Ok(after);
            }
            let replace = self.database.table.replace(&seen, &after);
            let written = self.database.within(Asked::Write, write(connection, &replace)).await?;
            if written.rows == 1 {
                return Ok(after);
            }
        }
        Err(crowded())
    }

    async fn try_remove(&self, name: &SequenceName) -> Result<bool> {
        Ok(self.change(&self.database.table.delete(name)).await? > 0)
    }

    /// One statement on a connection of its own; how many rows it changed.
    async fn change(&self, sql: &str) -> Result<u64> {
        let mut connection = self.database.connect(Asked::Write).await?;
        let outcome = self.database.within(Asked::Write, write(&mut connection, sql)).await;
        self.database.release(connection, outcome).await.map(|written| written.rows)
    }
}

impl Store for MysqlStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durability: Durability::Disk,
            retry: RetryCost::Gap,
            batches: false,
            shared: true,
            gives_back: true,
        }
    }

    calls!(reserve give_back create inspect list set remove);
}
