//! Provides connections, and limits the time of connecting and of statements.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use idmill::{Error, Result};
use idmill_sql::mysql::{failed, leaves_connection};
use idmill_sql::{Answer, Asked, Executor, Fault, Statement};
use mysql_async::{Conn, Error as Mysql, Opts, Pool};
use parking_lot::Mutex;

use super::convert::{Carried, connecting};
use super::session::{must_commit, run};

/// The source of connections.
#[derive(Clone)]
pub(super) enum Connections {
    /// The caller's pool.
    Given(Pool),
    /// A pool that is replaced when connecting or a statement times out.
    Own { pool: Arc<Mutex<Pool>>, options: Box<Opts> },
}

impl Connections {
    pub(super) fn own(options: Opts) -> Self {
        Self::Own { pool: Arc::new(Mutex::new(Pool::new(options.clone()))), options: Box::new(options) }
    }

    /// Whether the connections keep statements prepared. Connections of the caller's pool may be reset after
    /// each use.
    pub(super) fn keep(&self) -> bool {
        matches!(self, Self::Own { .. })
    }

    fn pool(&self) -> Pool {
        match self {
            Self::Given(pool) => pool.clone(),
            Self::Own { pool, .. } => pool.lock().clone(),
        }
    }

    /// Discards the idle connections after a connection timed out. The idle ones most likely lead to the same
    /// dead server, and each would cost another timeout and another unknown outcome. Connections in use are
    /// kept.
    fn discard_idle(&self) {
        if let Self::Own { pool, options } = self {
            *pool.lock() = Pool::new((**options).clone());
        }
    }
}

#[derive(Clone)]
pub(super) struct Database {
    pub(super) connections: Connections,
    pub(super) timeout: Duration,
    /// The server's address, for messages.
    pub(super) place: String,
}

impl Database {
    /// Gets a connection for one or a few statements. For a write, checks that the connection commits each
    /// statement.
    pub(super) async fn connect(&self, asked: Asked) -> Result<Session> {
        let connecting = async {
            let mut connection = self.connections.pool().get_conn().await?;
            if asked == Asked::Write {
                must_commit(&mut connection).await?;
            }
            Ok(connection)
        };
        match tokio::time::timeout(self.timeout, connecting).await {
            Ok(Ok(connection)) => Ok(Session::new(self, connection)),
            Ok(Err(error)) => Err(self.not_connected(error)),
            Err(_) => Err(self.unreachable(self.timed_out())),
        }
    }

    /// Runs a statement within the timeout.
    pub(super) async fn attempt<T>(&self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        tokio::time::timeout(self.timeout, work).await.unwrap_or_else(|_| Err(self.timed_out()))
    }

    fn timed_out(&self) -> Fault {
        self.connections.discard_idle();
        Fault::Silent(self.timeout)
    }

    fn not_connected(&self, error: Mysql) -> Error {
        match Carried::refusal(&error) {
            Some(ours) => ours.clone(),
            None => self.unreachable(connecting(error)),
        }
    }

    fn unreachable(&self, fault: Fault) -> Error {
        let error = failed(fault, Asked::Connect);
        let (kind, message) = (error.kind(), format!("cannot connect to {}: {error}", self.place));
        Error::new(kind, message).because(error)
    }
}

/// Omits the pool, whose options contain a password.
impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("place", &self.place).finish_non_exhaustive()
    }
}

/// A connection of the store, on which each statement commits and has its own timeout.
pub(super) struct Session {
    pub(super) database: Database,
    pub(super) connection: Conn,
    /// Whether the connection is closed after use.
    refused: bool,
}

impl Executor for Session {
    const IN_TRANSACTION: bool = false;

    async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
        let keeps = self.database.connections.keep();
        let outcome = self.database.attempt(run(&mut self.connection, statement, keeps)).await;
        self.refused |= outcome.as_ref().is_err_and(|fault| !leaves_connection(fault));
        outcome
    }

    fn discard(&mut self) {
        self.refused = true;
    }
}

impl Session {
    pub(super) fn new(database: &Database, connection: Conn) -> Self {
        Self { database: database.clone(), connection, refused: false }
    }

    /// Returns the connection to its pool, or closes it.
    pub(super) async fn put_back(self) {
        if self.refused {
            let _ = tokio::time::timeout(self.database.timeout, self.connection.disconnect()).await;
        }
    }
}
