//! Connections, what is found out about the server on each, and how a statement is run on one.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use mysql_async::consts::StatusFlags;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as Mysql, Opts, Pool, Row, Transaction};

use super::classify::{Asked, Fault, failed};
use super::schema::{LAYOUT, Table};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Mode;
use crate::store::mode::NEVER_MADE;
use crate::sync::{Arc, Mutex};

/// The connections.
#[derive(Clone)]
pub(super) enum Connections {
    /// Of a pool that the caller made.
    Given(Pool),
    /// Of a pool that is replaced when one of its connections turns out to be dead.
    Own { pool: Arc<Mutex<Pool>>, options: Box<Opts> },
}

impl Connections {
    pub(super) fn own(options: Opts) -> Self {
        Self::Own { pool: Arc::new(Mutex::new(Pool::new(options.clone()))), options: Box::new(options) }
    }

    fn pool(&self) -> Pool {
        match self {
            Self::Given(pool) => pool.clone(),
            Self::Own { pool, .. } => pool.lock().clone(),
        }
    }

    /// One was silent. Those that were idle meanwhile most likely lead to the same silence, and
    /// each would cost as much time and another unknown outcome to find out; so the next is a
    /// new one. Those in use go on.
    fn discard_idle(&self) {
        if let Self::Own { pool, options } = self {
            *pool.lock() = Pool::new((**options).clone());
        }
    }
}

/// A server, and the table in it.
#[derive(Clone)]
pub(super) struct Database {
    pub(super) connections: Connections,
    pub(super) table: Table,
    pub(super) timeout: Duration,
    pub(super) mode: Mode,
    /// Where it is, for messages.
    pub(super) place: String,
}

impl Database {
    /// Looks at the server and the table, and creates the table where the mode says so.
    pub(super) async fn open(mut self) -> Result<Self> {
        let mut connection = self.connect(Asked::Read).await?;
        let at = self.within(Asked::Read, connected_to(&mut connection)).await?;
        self.table = self.table.within(&at);
        if self.mode != Mode::ReadOnly {
            self.within(Asked::Read, must_be_durable(&mut connection)).await?;
        }
        if !self.exists(&mut connection).await? {
            self.create(&mut connection).await?;
        }
        drop(connection);
        Ok(self)
    }

    /// A connection, for one statement or a few. Where a change is to be made, one on which each
    /// statement commits by itself.
    pub(super) async fn connect(&self, asked: Asked) -> Result<Conn> {
        if asked == Asked::Write && self.mode == Mode::ReadOnly {
            return Err(Error::new(
                ErrorKind::Denied,
                "the store was opened with mode=ro, to look only; use mode=rw",
            ));
        }
        let connecting = async {
            let mut connection = self.connections.pool().get_conn().await?;
            if asked == Asked::Write {
                must_commit(&mut connection).await?;
            }
            Ok(connection)
        };
        let connected = match tokio::time::timeout(self.timeout, connecting).await {
            Ok(outcome) => outcome.map_err(Fault::Driver),
            Err(_) => Err(self.silent()),
        };
        connected.map_err(|fault| self.unreachable(fault))
    }

    /// Runs a statement, or a few, in the time that there is for one.
    pub(super) async fn within<T>(
        &self,
        asked: Asked,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T> {
        self.attempt(work).await.map_err(|fault| failed(fault, asked))
    }

    /// As [`within`](Self::within), with the fault as it is.
    pub(super) async fn attempt<T>(&self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        tokio::time::timeout(self.timeout, work).await.unwrap_or_else(|_| Err(self.silent()))
    }

    fn silent(&self) -> Fault {
        self.connections.discard_idle();
        Fault::Silent(self.timeout)
    }

    /// Gives a connection back after use. One to a server that refused is not used again: after a failover it
    /// may have become a replica, and the next connection leads to another.
    pub(super) async fn release<T>(&self, connection: Conn, outcome: Result<T>) -> Result<T> {
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Denied) {
            let _ = tokio::time::timeout(self.timeout, connection.disconnect()).await;
        }
        outcome
    }

    async fn exists(&self, connection: &mut Conn) -> Result<bool> {
        let engine = self.table.engine();
        let found = self.within(Asked::Read, rows(connection, &engine)).await?;
        let Some(row) = found.first() else { return Ok(false) };
        let engine = row.get_opt::<Option<String>, _>(0).and_then(Result::ok).flatten();
        if !engine.as_ref().is_some_and(|engine| engine.eq_ignore_ascii_case("InnoDB")) {
            let (name, engine) = (self.table.name(), engine.unwrap_or_else(|| "none, as a view".to_owned()));
            let message = format!(
                "the engine of the table `{name}` is {engine}, which does not keep what was committed; use ALTER TABLE \
                 `{name}` ENGINE = InnoDB, or name another with ?table=NAME"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let columns = self.within(Asked::Read, rows(connection, &self.table.columns())).await?;
        self.check_layout(&columns).map(|()| true)
    }

    fn check_layout(&self, columns: &[Row]) -> Result<()> {
        let text =
            |row: &Row, column| row.get_opt::<String, _>(column).and_then(Result::ok).unwrap_or_default();
        let layout: Vec<_> =
            columns.iter().map(|row| format!("{} {}", text(row, 0), text(row, 1).to_lowercase())).collect();
        let keyed = columns.first().is_some_and(|row| text(row, 2) == "PRI");
        if layout.join(", ") == LAYOUT && keyed {
            return Ok(());
        }
        let message = format!(
            "the table `{}` is there, but it has the columns {}; name another with ?table=NAME",
            self.table.name(),
            layout.join(", ")
        );
        Err(Error::new(ErrorKind::Conflict, message))
    }

    /// Of several that do this at the same time, all find the table afterwards.
    async fn create(&self, connection: &mut Conn) -> Result<()> {
        let name = self.table.name();
        if self.mode != Mode::Create {
            let message = format!("there is no table `{name}` at {}; {NEVER_MADE}", self.place);
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        let outcome = self.attempt(write(connection, &self.table.create())).await;
        // It creates no sequence: nothing is unknown that looking does not tell.
        outcome.map_err(|fault| failed(fault, Asked::Read))?;
        if self.exists(connection).await? {
            return Ok(());
        }
        let message =
            format!("the table `{name}` was created and cannot be seen: grant the user SELECT on it");
        Err(Error::new(ErrorKind::Denied, message))
    }

    fn unreachable(&self, fault: Fault) -> Error {
        let ours = matches!(&fault, Fault::Driver(Mysql::Other(error)) if error.is::<Error>());
        let error = failed(fault, Asked::Connect);
        if ours {
            return error;
        }
        let (kind, message) = (error.kind(), format!("cannot connect to {}: {error}", self.place));
        Error::new(kind, message).because(error)
    }
}

/// Not the pool, whose options hold a password.
impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("place", &self.place)
            .field("table", &self.table)
            .field("mode", &self.mode)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Something that runs statements, and knows what the server said last.
pub(super) trait Session: Queryable {
    /// Whether a statement of this session commits by itself, or with the caller's transaction.
    const COMMITS: bool;

    fn connection(&self) -> &Conn;
}

impl Session for Conn {
    const COMMITS: bool = true;

    fn connection(&self) -> &Conn {
        self
    }
}

impl Session for Transaction<'_> {
    const COMMITS: bool = false;

    fn connection(&self) -> &Conn {
        self
    }
}

/// What the server said of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// How many rows were changed.
    pub(super) rows: u64,
    /// What *this* statement gave to `LAST_INSERT_ID`; the answer to one that did not call it has none,
    /// whatever the connection's last such value is.
    pub(super) insert_id: Option<u64>,
}

/// Sends one statement, once.
pub(super) async fn write<S: Session>(session: &mut S, sql: &str) -> Result<Written, Fault> {
    let result = session.query_iter(sql).await?;
    let written = Written { rows: result.affected_rows(), insert_id: result.last_insert_id() };
    result.drop_result().await?;
    let open = match status(session.connection()) {
        Some(status) if S::COMMITS => !commits(status),
        Some(status) => !status.contains(StatusFlags::SERVER_STATUS_IN_TRANS),
        None => true,
    };
    if open { Err(Fault::Uncommitted) } else { Ok(written) }
}

/// Reads.
pub(super) async fn rows<S: Session>(session: &mut S, sql: &str) -> Result<Vec<Row>, Fault> {
    Ok(session.query::<Row, _>(sql).await?)
}

fn status(connection: &Conn) -> Option<StatusFlags> {
    connection.last_ok_packet().map(mysql_async::OkPacket::status_flags)
}

fn commits(status: StatusFlags) -> bool {
    status.contains(StatusFlags::SERVER_STATUS_AUTOCOMMIT)
        && !status.contains(StatusFlags::SERVER_STATUS_IN_TRANS)
}

/// Of a pool that the caller made, connections are as the caller left them.
async fn must_commit(connection: &mut Conn) -> Result<(), Mysql> {
    if connection.opts().client_found_rows() {
        return Err(ours(
            "the pool was made with `client_found_rows`, with which a change that a trigger undid looks like one that \
             was made; make the store one without",
        ));
    }
    if status(connection).is_none() {
        connection.ping().await?;
    }
    if status(connection).is_some_and(commits) {
        return Ok(());
    }
    Err(ours(
        "the pool's connections do not commit each statement (autocommit=0, or an open transaction): ids would be taken \
         back; give the store a pool of its own",
    ))
}

fn ours(message: &'static str) -> Mysql {
    Mysql::Other(Box::new(Error::new(ErrorKind::Unsupported, message)))
}

async fn connected_to<S: Session>(session: &mut S) -> Result<String, Fault> {
    let rows = rows(session, "SELECT DATABASE()").await?;
    let name =
        rows.first().and_then(|row| row.get_opt::<Option<String>, _>(0)).and_then(Result::ok).flatten();
    // As the server itself would have it.
    name.ok_or_else(|| {
        let message = "no database is selected; name one in the URL or in the options of the pool";
        Fault::Driver(Mysql::Other(Box::new(Error::invalid(message))))
    })
}

/// Whether what the server calls committed survives a crash of its machine. To be asked on each new
/// connection, which may lead to another server than the last.
pub(super) async fn must_be_durable<S: Session>(session: &mut S) -> Result<(), Fault> {
    let sql = "SELECT @@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.log_bin, @@GLOBAL.sync_binlog";
    let found = rows(session, sql).await?;
    let value =
        |column: usize| found.first().and_then(|row| row.get_opt::<u64, _>(column)).and_then(Result::ok);
    let (Some(flush), Some(binlog), Some(sync)) = (value(0), value(1), value(2)) else {
        return Err(Fault::Answer("the server does not say how durable its commits are".to_owned()));
    };
    let lost = if flush != 1 {
        format!("innodb_flush_log_at_trx_commit is {flush}: set it to 1")
    } else if binlog != 0 && sync != 1 {
        // With a binary log, recovery rolls back what is not in it, although InnoDB has it.
        format!("there is a binary log, and sync_binlog is {sync}: set it to 1")
    } else {
        return Ok(());
    };
    let message = format!(
        "the server may forget commits when its machine crashes, and ids would be handed out twice; {lost}"
    );
    Err(Fault::Driver(Mysql::Other(Box::new(Error::new(ErrorKind::Unsupported, message)))))
}
