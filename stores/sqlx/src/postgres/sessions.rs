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
    Keeps, LOCK_NOT_AVAILABLE, TRANSACTION_STATUS, failed, leaves_connection, must_be_durable,
};
use idmill_sql::{Answer, Asked, Executor, Fault, Patience, Statement, Value};
use parking_lot::Mutex;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::{ConnectOptions, Connection, Error as SqlxError, PgConnection, PgPool, Postgres};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

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
        Self(Arc::new(Inner { source, timeout, keeps, idle: Mutex::default(), permits, waiting }))
    }

    /// How long a statement may wait for a lock, as PostgreSQL reads it: less than the statement itself may
    /// take, so that it is the server who gives up, and it is known that nothing was done.
    fn lock_timeout(&self, patience: Patience) -> String {
        let most = self.0.timeout / 2;
        let patience = if patience == Patience::Brief { most.min(BRIEFLY) } else { most };
        format!("{}ms", patience.as_millis().max(1))
    }

    /// Runs one statement, once. It has committed when this returns; how durably, its rows say. One that
    /// waits for locks as long as it may take is run again where another transaction holds the lock for long,
    /// as long as few others wait in this way.
    async fn run(&self, statement: &Statement<'_>) -> Result<Vec<PgRow>, Fault> {
        let outcome = {
            let _permit = self.0.permits.acquire().await.expect("never closed");
            self.send(statement, Patience::Brief).await
        };
        let held = outcome.as_ref().is_err_and(|fault| fault.code() == Some(LOCK_NOT_AVAILABLE));
        let waits = statement.patience == Patience::Full && statement.values.contains(&Value::Patience);
        if !held || !waits {
            return outcome;
        }
        // Where as many wait already, for other locks as likely as not, it is no good to wait for them.
        let Ok(_permit) = self.0.waiting.try_acquire() else { return outcome };
        self.send(statement, Patience::Full).await
    }

    async fn send(&self, statement: &Statement<'_>, patience: Patience) -> Result<Vec<PgRow>, Fault> {
        let sql = inlined(statement, &self.lock_timeout(patience))?;
        // One that is in use is in nobody else's hands, and if this future is dropped it is closed.
        let mut session = self.session().await?;
        let (mut outcome, warning) = listening(self.ask(&mut session, &sql)).await;
        if let (Ok(_), true, Some(warning)) = (&outcome, statement.writes, warning) {
            outcome = Err(Fault::Warned(warning));
        }
        // What is not durable is refused by whoever reads the rows; here, its session is not used again.
        let mut sound = true;
        if let (Ok(rows), true) = (&outcome, statement.writes) {
            sound = rows.iter().all(|row| self.is_durable(row));
            if sound && let Err(fault) = self.must_have_committed(&mut session, rows).await {
                outcome = Err(fault);
            }
        }
        self.put_back(session, sound, outcome.as_ref().err());
        outcome
    }

    async fn ask(&self, connection: &mut PgConnection, sql: &str) -> Result<Vec<PgRow>, Fault> {
        // The driver reads until the server is ready for another query: only then has this one committed.
        match timeout(self.0.timeout, rows(connection, sql)).await {
            Ok(answer) => answer.map_err(fault_of),
            Err(_) => Err(Fault::Silent(self.0.timeout)),
        }
    }

    fn is_durable(&self, row: &PgRow) -> bool {
        must_be_durable(&named(row, "durable").unwrap_or_default(), self.0.keeps).is_ok()
    }

    /// Not within a transaction that somebody left open on a connection of the caller's pool.
    async fn must_have_committed(&self, session: &mut Session, rows: &[PgRow]) -> Result<(), Fault> {
        let xid = rows.iter().find_map(|row| named(row, "xid"));
        let (Session::Shared(_), Some(xid)) = (&session, xid) else { return Ok(()) };
        let sql = inlined(&Statement::read(TRANSACTION_STATUS, [xid.into()]), "")?;
        let rows = self.ask(session, &sql).await.map_err(Fault::after_write)?;
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
            Session::Own(connection) => idle.push(Idle { connection, since: Instant::now() }),
            Session::Shared(mut borrowed) => drop(borrowed.0.take()),
        }
    }

    async fn session(&self) -> Result<Session, Fault> {
        match &self.0.source {
            Source::Shared(pool) => self.borrow(pool).await,
            Source::Own { pool, maker } => match self.kept().await {
                Some(connection) => Ok(Session::Own(connection)),
                None => self.connect(pool, maker).await.map(Session::Own),
            },
        }
    }

    /// The one that was used last, of those that are still good; the others are closed.
    async fn kept(&self) -> Option<PgConnection> {
        let mut idle = {
            let mut idle = self.0.idle.lock();
            idle.retain(|idle| idle.since.elapsed() < IDLE);
            idle.pop()?
        };
        if idle.since.elapsed() < FRESH {
            return Some(idle.connection);
        }
        let asked = timeout((self.0.timeout / 4).min(FRESH), idle.connection.ping()).await;
        if let Ok(Ok(())) = asked {
            return Some(idle.connection);
        }
        // Those that were idle beside it were lost with it. Nothing was asked of them.
        self.0.idle.lock().clear();
        None
    }

    async fn connect(&self, pool: &PgPool, maker: &PgPool) -> Result<PgConnection, Fault> {
        // They may have changed: a password that lasts for minutes, say.
        maker.set_connect_options((*pool.connect_options()).clone());
        match timeout(self.0.timeout / 2, maker.acquire()).await {
            Ok(Ok(connection)) => Ok(connection.detach()),
            Ok(Err(SqlxError::PoolTimedOut)) | Err(_) => Err(refused(pool, self.why_not(pool).await)),
            Ok(Err(error)) => Err(refused(pool, unconnected(error))),
        }
    }

    /// A pool tries again and again, and does not say in the end what the matter was.
    async fn why_not(&self, pool: &PgPool) -> Fault {
        match timeout(self.0.timeout / 4, pool.connect_options().connect()).await {
            Ok(Err(error)) => unconnected(error),
            _ => unavailable(format!(
                "it took longer than {:?}, half of the timeout; where the pool has an after_connect, look in the log \
                 whether that fails",
                self.0.timeout / 2
            )),
        }
    }

    async fn borrow(&self, pool: &PgPool) -> Result<Session, Fault> {
        let patience = self.0.timeout / 2;
        let most = pool.options().get_max_connections();
        match timeout(patience, pool.acquire()).await {
            Ok(Ok(connection)) => Ok(Session::Shared(Borrowed(Some(connection)))),
            Ok(Err(SqlxError::PoolTimedOut)) | Err(_) if pool.size() >= most && pool.num_idle() == 0 => {
                let patience = patience.min(pool.options().get_acquire_timeout());
                Err(unavailable(exhausted(most, patience)))
            }
            Ok(Err(SqlxError::PoolTimedOut)) | Err(_) => Err(refused(pool, self.why_not(pool).await)),
            Ok(Err(SqlxError::PoolClosed)) => {
                let message = "the pool that this store shares is closed; make another, and a store of it";
                Err(unavailable(message.to_owned()))
            }
            Ok(Err(error)) => Err(refused(pool, unconnected(error))),
        }
    }
}

/// What a deadlock looks like from here.
fn exhausted(most: u32, patience: Duration) -> String {
    format!(
        "all {most} connections of the shared pool are in use, and none came back within {patience:?}; where they are held while \
         an id is waited for, each waits for the others: give the store connections of its own (leave out `share_pool`), \
         draw the id before the connection is taken, or raise max_connections"
    )
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
