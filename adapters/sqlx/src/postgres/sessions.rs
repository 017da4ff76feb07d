//! Connections: where they come from, and how one statement is run on one of them.
//!
//! A statement that locks a row has little patience at first. Where another transaction holds the row it is
//! run again, with all the patience there is, on one of the connections for those that wait: so those that
//! need another row do not wait with it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use idmill::{Error, ErrorKind};
use idmill_sql::postgres::{
    IS_STANDBY, Keeps, LOCK_NOT_AVAILABLE, TRANSACTION_STATUS, busy, exhausted, failed, is_read_only,
    leaves_connection, must_be_durable, read_only,
};
use idmill_sql::{Answer, Asked, Executor, Fault, Patience, Statement, Value};
use parking_lot::Mutex;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::{ConnectOptions, Connection, Error as SqlxError, PgConnection, PgPool, Postgres};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::convert::{fault_of, named, row_of, unconnected};
use super::notices::listening;
use super::options::PostgresOptions;
use super::text::inlined;
use crate::version::postgres::rows;

/// Statements that run at the same time, besides those that wait for locks; more wait for their turn.
const CONNECTIONS: usize = 4;
/// How long a lock is waited for on a connection that others need as well: longer than most commits take.
const BRIEFLY: Duration = Duration::from_millis(100);
/// How many statements may wait for locks for longer, each on a connection of its own.
const WAITING: usize = 4;
/// How long a connection may be idle. One that was for longer may have been forgotten by a firewall.
const IDLE: Duration = Duration::from_secs(60);
/// How long it may be idle before it is asked whether it is there: the driver does not say of a connection
/// that the server has closed it, and a write on such a one would be of unknown outcome.
const FRESH: Duration = Duration::from_secs(1);

/// Where statements are run. Clones share it.
#[derive(Clone)]
pub(super) struct Sessions(Arc<Inner>);

struct Inner {
    source: Source,
    timeout: Duration,
    keeps: Keeps,
    /// Whether the connections of our own end when the pool is closed.
    closes_with_pool: bool,
    idle: Mutex<Vec<Idle>>,
    permits: Semaphore,
    /// Of statements that wait for a lock.
    waiting: Semaphore,
}

struct Idle {
    connection: PgConnection,
    since: Instant,
}

enum Source {
    /// Connections of our own, made as the caller's pool makes them.
    Own { pool: PgPool, maker: PgPool },
    /// The caller's.
    Shared(PgPool),
}

/// A connection in use. One that is dropped is closed.
enum Session {
    Own(PgConnection),
    Shared(Borrowed),
}

/// One of the caller's pool. Dropped as it is, it does not go back to the pool, which would wait for the rest
/// of an answer, for ever perhaps.
struct Borrowed(Option<PoolConnection<Postgres>>);

impl Sessions {
    pub(super) fn new(pool: &PgPool, options: &PostgresOptions) -> Self {
        let pool = pool.clone();
        let source = if options.shares_pool {
            Source::Shared(pool)
        } else {
            Source::Own { maker: maker(&pool, options.timeout / 2), pool }
        };
        let (permits, waiting) = (Semaphore::new(CONNECTIONS), Semaphore::new(WAITING));
        let (timeout, keeps) = (options.timeout, options.keeps);
        let closes_with_pool = options.closes_with_pool;
        let idle = Mutex::default();
        let inner = Inner { source, timeout, keeps, closes_with_pool, idle, permits, waiting };
        let sessions = Self(Arc::new(inner));
        if let (Source::Own { pool, .. }, true) = (&sessions.0.source, closes_with_pool) {
            let (closing, inner) = (pool.close_event(), Arc::downgrade(&sessions.0));
            tokio::spawn(async move {
                closing.await;
                // Those in use end after their statement.
                if let Some(inner) = inner.upgrade() {
                    inner.idle.lock().clear();
                }
            });
        }
        sessions
    }

    /// One of the places for statements.
    async fn place(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, Fault> {
        match timeout_at(halfway(deadline), self.0.permits.acquire()).await {
            Ok(permit) => Ok(permit.expect("never closed")),
            Err(_) => Err(busy(CONNECTIONS, self.0.timeout / 2)),
        }
    }

    /// Runs one statement, once. It has committed when this returns; how durably, its rows say. One that
    /// waits for locks as long as it may take is run again where another transaction holds the lock for long,
    /// as long as few others wait in this way.
    async fn run(&self, statement: &Statement<'_>) -> Result<Vec<PgRow>, Fault> {
        // Of all: for a place, a connection, locks and the answer.
        let deadline = Instant::now() + self.0.timeout;
        let outcome = {
            let _permit = self.place(deadline).await?;
            self.send(statement, Patience::Brief, deadline).await
        };
        let held = outcome.as_ref().is_err_and(|fault| fault.code() == Some(LOCK_NOT_AVAILABLE));
        let waits = statement.patience == Patience::Full && statement.values.contains(&Value::Patience);
        if !held || !waits {
            return outcome;
        }
        // All places are taken, most likely by statements that wait for other locks.
        let Ok(_permit) = self.0.waiting.try_acquire() else { return outcome };
        self.send(statement, Patience::Full, deadline).await
    }

    async fn send(
        &self,
        statement: &Statement<'_>,
        patience: Patience,
        deadline: Instant,
    ) -> Result<Vec<PgRow>, Fault> {
        // One that is in use is in nobody else's hands, and if this future is dropped it is closed.
        let mut session = self.session(deadline).await?;
        let sql = inlined(statement, &lock_timeout(patience, deadline))?;
        let (mut outcome, warning) = listening(self.ask(&mut session, &sql, deadline)).await;
        if let (Ok(_), true, Some(warning)) = (&outcome, statement.writes, warning) {
            outcome = Err(Fault::Warned(warning));
        }
        // What is not durable is refused by whoever reads the rows; here, its session is not used again.
        let mut sound = true;
        if let (Ok(rows), true) = (&outcome, statement.writes) {
            sound = rows.iter().all(|row| self.is_durable(row));
            if sound && let Err(fault) = self.must_have_committed(&mut session, rows, deadline).await {
                outcome = Err(fault);
            }
        }
        if let Err(refused) = outcome {
            outcome = Err(self.why_read_only(&mut session, refused, deadline).await);
        }
        self.put_back(session, sound, outcome.as_ref().err());
        outcome
    }

    async fn ask(
        &self,
        connection: &mut PgConnection,
        sql: &str,
        deadline: Instant,
    ) -> Result<Vec<PgRow>, Fault> {
        // The driver reads until the server is ready for another query: only then has this one committed.
        match timeout_at(deadline, rows(connection, sql)).await {
            Ok(answer) => answer.map_err(fault_of),
            Err(_) => Err(Fault::Silent(self.0.timeout)),
        }
    }

    /// A server may refuse to write because it is a standby, which may be promoted, or because of a setting.
    async fn why_read_only(&self, session: &mut Session, refused: Fault, deadline: Instant) -> Fault {
        if !is_read_only(&refused) {
            return refused;
        }
        let rows = self.ask(session, IS_STANDBY, deadline).await.unwrap_or_default();
        read_only(refused, rows.first().and_then(|row| row_of(row).text(0).map(str::to_owned)).as_deref())
    }

    fn is_durable(&self, row: &PgRow) -> bool {
        must_be_durable(&named(row, "durable").unwrap_or_default(), self.0.keeps).is_ok()
    }

    /// Not within a transaction that somebody left open on a connection of the caller's pool.
    async fn must_have_committed(
        &self,
        session: &mut Session,
        rows: &[PgRow],
        deadline: Instant,
    ) -> Result<(), Fault> {
        let xid = rows.iter().find_map(|row| named(row, "xid"));
        let (Session::Shared(_), Some(xid)) = (&session, xid) else { return Ok(()) };
        let sql = inlined(&Statement::read(TRANSACTION_STATUS, [xid.into()]), "")?;
        let rows = self.ask(session, &sql, deadline).await.map_err(Fault::after_write)?;
        match rows.first().and_then(|row| row_of(row).text(0).map(str::to_owned)).as_deref() {
            Some("committed") => Ok(()),
            _ => Err(Fault::Uncommitted),
        }
    }

    /// Gives a session back after use. Where one was lost those that were idle meanwhile most likely are too.
    fn put_back(&self, session: Session, sound: bool, fault: Option<&Fault>) {
        let mut idle = self.0.idle.lock();
        if matches!(fault, Some(Fault::Silent(_) | Fault::Broken(_))) {
            idle.clear();
        }
        if !sound || !fault.is_none_or(leaves_connection) {
            return;
        }
        match session {
            // The lock is held: the task that clears them comes before this or after it.
            Session::Own(_) if self.has_closed() => {}
            Session::Own(connection) => idle.push(Idle { connection, since: Instant::now() }),
            Session::Shared(mut borrowed) => drop(borrowed.0.take()),
        }
    }

    /// Whether the connections of our own have ended with the pool.
    fn has_closed(&self) -> bool {
        matches!(&self.0.source, Source::Own { pool, .. } if self.0.closes_with_pool && pool.is_closed())
    }

    async fn session(&self, deadline: Instant) -> Result<Session, Fault> {
        let (pool, maker) = match &self.0.source {
            Source::Shared(pool) => return self.borrow(pool, deadline).await,
            Source::Own { .. } if self.has_closed() => return Err(closed()),
            Source::Own { pool, maker } => (pool, maker),
        };
        match self.kept(deadline).await {
            Some(connection) => Ok(Session::Own(connection)),
            None => self.connect(pool, maker, deadline).await.map(Session::Own),
        }
    }

    /// Returns the connection that was used last, if it is still good, and closes the bad ones.
    async fn kept(&self, deadline: Instant) -> Option<PgConnection> {
        let mut idle = {
            let mut idle = self.0.idle.lock();
            idle.retain(|idle| idle.since.elapsed() < IDLE);
            idle.pop()?
        };
        if idle.since.elapsed() < FRESH {
            return Some(idle.connection);
        }
        let patience = halfway(halfway(deadline)).min(Instant::now() + FRESH);
        let asked = timeout_at(patience, idle.connection.ping()).await;
        if let Ok(Ok(())) = asked {
            return Some(idle.connection);
        }
        // Those that were idle beside it were lost with it. Nothing was asked of them.
        self.0.idle.lock().clear();
        None
    }

    async fn connect(&self, pool: &PgPool, maker: &PgPool, deadline: Instant) -> Result<PgConnection, Fault> {
        // They may have changed: a password that lasts for minutes, say.
        maker.set_connect_options((*pool.connect_options()).clone());
        match timeout_at(halfway(deadline), maker.acquire()).await {
            Ok(Ok(connection)) => Ok(connection.detach()),
            Ok(Err(SqlxError::PoolTimedOut)) | Err(_) => {
                Err(refused(pool, self.why_not(pool, deadline).await))
            }
            Ok(Err(error)) => Err(refused(pool, unconnected(error))),
        }
    }

    /// A pool tries again and again, and does not say in the end what the matter was.
    async fn why_not(&self, pool: &PgPool, deadline: Instant) -> Fault {
        match timeout_at(halfway(deadline), pool.connect_options().connect()).await {
            Ok(Err(error)) => unconnected(error),
            _ => unavailable(format!(
                "it took longer than {:?}, half of the timeout; where the pool has an after_connect, look in the log \
                 whether that fails",
                self.0.timeout / 2
            )),
        }
    }

    async fn borrow(&self, pool: &PgPool, deadline: Instant) -> Result<Session, Fault> {
        let patience = self.0.timeout / 2;
        let most = pool.options().get_max_connections();
        match timeout_at(halfway(deadline), pool.acquire()).await {
            Ok(Ok(connection)) => Ok(Session::Shared(Borrowed(Some(connection)))),
            Ok(Err(SqlxError::PoolTimedOut)) | Err(_) if pool.size() >= most && pool.num_idle() == 0 => {
                let patience = patience.min(pool.options().get_acquire_timeout());
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                Err(exhausted(most, patience, "leave out `share_pool`", "max_connections"))
            }
            Ok(Err(SqlxError::PoolTimedOut)) | Err(_) => {
                Err(refused(pool, self.why_not(pool, deadline).await))
            }
            Ok(Err(SqlxError::PoolClosed)) => Err(closed()),
            Ok(Err(error)) => Err(refused(pool, unconnected(error))),
        }
    }
}

/// Half of the time that is left: for a wait after which something else has to be done.
fn halfway(deadline: Instant) -> Instant {
    let now = Instant::now();
    now + (deadline - now) / 2
}

/// How long a statement may wait for a lock, as PostgreSQL reads it: less than the statement itself may take,
/// so that it is the server who gives up, and it is known that nothing was done.
fn lock_timeout(patience: Patience, deadline: Instant) -> String {
    let most = halfway(deadline) - Instant::now();
    let patience = if patience == Patience::Brief { most.min(BRIEFLY) } else { most };
    format!("{}ms", patience.as_micros().div_ceil(1000).max(1))
}

fn closed() -> Fault {
    let message = "the pool of this store is closed: open a store of another";
    Fault::Refused(Error::new(ErrorKind::Closed, message))
}

fn unavailable(message: String) -> Fault {
    Fault::Refused(Error::new(ErrorKind::Unavailable, message))
}

fn refused(pool: &PgPool, fault: Fault) -> Fault {
    let options = pool.connect_options();
    let place = match options.get_socket() {
        Some(path) => path.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    let error = failed(fault, Asked::Connect);
    Fault::Refused(Error::new(error.kind(), format!("cannot connect to {place}: {error}")).because(error))
}

/// A pool that makes connections as the caller's does, with its `after_connect`, and keeps none of them.
fn maker(pool: &PgPool, patience: Duration) -> PgPool {
    let options = pool.options().clone();
    let most =
        options.get_max_connections().clamp(1, u32::try_from(CONNECTIONS + WAITING).unwrap_or(u32::MAX));
    let options = options.max_connections(most).min_connections(0).acquire_timeout(patience);
    let options = options.idle_timeout(None).max_lifetime(None);
    options.connect_lazy_with((*pool.connect_options()).clone())
}

impl Executor for &Sessions {
    const IN_TRANSACTION: bool = false;

    async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
        let rows = self.run(&statement).await?;
        Ok(Answer::rows(rows.iter().map(row_of).collect()))
    }
}

impl Deref for Session {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Shared(borrowed) => borrowed.0.as_ref().expect("there until it is dropped"),
        }
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Shared(borrowed) => borrowed.0.as_mut().expect("there until it is dropped"),
        }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        drop(self.0.take().map(PoolConnection::detach));
    }
}
