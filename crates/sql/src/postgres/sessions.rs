//! Sessions of an adapter, and the execution of one statement on one of them.
//!
//! At first, a statement that locks a row waits only briefly. If another transaction holds the row, the
//! statement is run again with a longer lock timeout, under a separate limit. Statements for other rows do
//! not wait for that lock.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use idmill::Result;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::classify::{IS_STANDBY, LOCK_NOT_AVAILABLE, busy, is_read_only, leaves_connection, read_only};
use super::durable::{CURRENT_TRANSACTION, Keeps, TRANSACTION_STATUS, must_be_durable};
use crate::{Answer, EngineError, Executor, Fault, Row, Statement, Timeout, Value};

/// The maximum number of concurrent statements, besides those waiting for locks. Further statements
/// queue.
pub const CONNECTIONS: usize = 4;
/// The maximum number of statements that wait longer for locks, each on its own connection.
pub const WAITING: usize = 4;
/// The lock timeout on a connection that others need as well: longer than most commits take.
const BRIEFLY: Duration = Duration::from_millis(100);
/// The maximum idle time of a connection. After a longer time, a firewall may have dropped it
/// silently.
const IDLE: Duration = Duration::from_secs(60);

/// The connections of a driver.
pub trait Driver: Send + Sync {
    /// A connection in use. If dropped, it is closed, since an answer may still be in transit. Only a client
    /// of the caller stays open.
    type Session: Send;

    /// Whether the store owns the sessions exclusively. In shared sessions another user may have a
    /// transaction open.
    fn owns(&self) -> bool;

    /// Whether there are several sessions, so that one can wait for a lock while others continue.
    fn has_several(&self) -> bool {
        true
    }

    /// Opens another session.
    ///
    /// # Errors
    /// [`Fault::Refused`], or the reason why the connection failed.
    fn open(&self, deadline: Instant) -> impl Future<Output = Result<Self::Session, Fault>> + Send;

    /// Returns whether a session is still usable after this idle time.
    fn is_good(
        &self,
        session: &mut Self::Session,
        idle: Duration,
        deadline: Instant,
    ) -> impl Future<Output = bool> + Send;

    /// Sends a statement once and collects its rows, whose columns are all text, until the server is ready
    /// for another query: only then has the statement committed. Returns the server's last warning about the
    /// commit.
    ///
    /// # Errors
    /// The reason for the failure.
    fn ask(
        &self,
        session: &mut Self::Session,
        statement: &Statement<'_>,
        lock_timeout: &str,
        rows: &mut Vec<Row>,
    ) -> impl Future<Output = Result<Option<String>, Fault>> + Send;

    /// Prepares a statement that was run, and returns whether the session is still usable.
    fn keep(
        &self,
        _: &mut Self::Session,
        _: &Statement<'_>,
        _: Instant,
    ) -> impl Future<Output = bool> + Send {
        ready(true)
    }

    /// Takes a usable session back. Returns it if it should be kept for the next statement.
    fn give_back(&self, session: Self::Session) -> Option<Self::Session>;
}

/// Runs statements on sessions. Clones share the sessions.
#[allow(missing_debug_implementations)] // a driver may hold a password
pub struct Sessions<D: Driver>(Arc<Inner<D>>);

struct Inner<D: Driver> {
    driver: D,
    timeout: Duration,
    keeps: Keeps,
    idle: Mutex<Vec<(D::Session, Instant)>>,
    permits: Semaphore,
    /// Limits the statements that wait for a lock.
    waiting: Semaphore,
}

impl<D: Driver> Sessions<D> {
    /// Creates sessions of this driver. Each statement takes at most `timeout`.
    pub fn new(driver: D, timeout: Duration, keeps: Keeps) -> Self {
        let (permits, waiting) = (Semaphore::new(CONNECTIONS), Semaphore::new(WAITING));
        Self(Arc::new(Inner { driver, timeout, keeps, idle: Mutex::default(), permits, waiting }))
    }

    /// Returns the driver.
    pub fn driver(&self) -> &D {
        &self.0.driver
    }

    /// Returns the durability required of grants.
    pub fn keeps(&self) -> Keeps {
        self.0.keeps
    }

    /// Returns how long a statement that begins now may wait for a lock, in PostgreSQL's format.
    pub fn lock_timeout(&self, timeout: Timeout) -> String {
        lock_timeout(timeout, self.deadline())
    }

    /// Returns the deadline of a statement that begins now, including its waits for a connection
    /// and for locks.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.0.timeout
    }

    /// Closes the idle sessions when this future completes, if the store still exists.
    pub fn end_with(&self, event: impl Future<Output = ()> + Send + 'static)
    where
        D: 'static,
    {
        let inner = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            event.await;
            // Sessions in use are closed after their statement.
            if let Some(inner) = inner.upgrade() {
                inner.idle.lock().clear();
            }
        });
    }

    /// Runs and commits one statement, and returns its rows.
    ///
    /// # Errors
    /// The reason for the failure.
    pub async fn run(&self, statement: Statement<'_>) -> Result<Vec<Row>, Fault> {
        self.clone().execute(statement).await.map(|answer| answer.rows)
    }

    /// Waits for a permit to run a statement.
    async fn place(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, Fault> {
        match timeout_at(halfway(deadline), self.0.permits.acquire()).await {
            Ok(permit) => Ok(permit.expect("never closed")),
            Err(_) => Err(busy(CONNECTIONS, self.0.timeout / 2)),
        }
    }

    /// Runs several SQL statements, without parameters, as one query. The query is one transaction.
    ///
    /// # Errors
    /// The reason for the failure.
    pub async fn batch(&self, sql: &str) -> Result<(), Fault> {
        let deadline = self.deadline();
        let _permit = self.place(deadline).await?;
        let mut session = self.session(deadline).await?;
        let statement = Statement::write(sql, []).once();
        let outcome = self.ask(&mut session, &statement, "", deadline).await;
        self.put_back(session, true, outcome.as_ref().err());
        outcome.map(drop)
    }

    async fn send(
        &self,
        statement: &Statement<'_>,
        timeout: Timeout,
        deadline: Instant,
    ) -> Result<Vec<Row>, Fault> {
        // Except for a caller's client, a session in use is not shared, and is closed if this future is
        // dropped.
        let mut session = self.session(deadline).await?;
        let mut outcome = self.ask(&mut session, statement, &lock_timeout(timeout, deadline), deadline).await;
        if let Ok(rows) = &outcome
            && statement.writes
            && let Err(fault) = self.must_last(&mut session, rows, statement.durable_at, deadline).await
        {
            outcome = Err(fault);
        }
        if let Err(fault) = &mut outcome
            && is_read_only(fault)
        {
            let standby = self.is_standby(&mut session, deadline).await;
            *fault = read_only(fault.clone(), standby.as_deref());
        }
        let sound = outcome.is_err() || self.0.driver.keep(&mut session, statement, deadline).await;
        self.put_back(session, sound, outcome.as_ref().err());
        outcome
    }

    /// Sends a statement. An error of the server has the rows that it returned before.
    async fn ask(
        &self,
        session: &mut D::Session,
        statement: &Statement<'_>,
        lock_timeout: &str,
        deadline: Instant,
    ) -> Result<Vec<Row>, Fault> {
        let mut rows = Vec::new();
        match timeout_at(deadline, self.0.driver.ask(session, statement, lock_timeout, &mut rows)).await {
            Ok(Ok(Some(warning))) if statement.writes => Err(Fault::Warned(warning)),
            Ok(Ok(_)) => Ok(rows),
            Ok(Err(Fault::Engine(error))) => Err(Fault::Engine(EngineError { rows, ..error })),
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(Fault::Silent(self.0.timeout)),
        }
    }

    /// Checks that written rows are durable, and not part of a transaction open on a shared connection.
    async fn must_last(
        &self,
        session: &mut D::Session,
        rows: &[Row],
        durable_at: usize,
        deadline: Instant,
    ) -> Result<(), Fault> {
        for row in rows {
            let durable = row.text(durable_at).unwrap_or_default();
            must_be_durable(durable, self.0.keeps).map_err(Fault::Refused)?;
        }
        let xid = rows.iter().find_map(|row| row.text(durable_at + 1));
        let Some(xid) = xid.filter(|_| !self.0.driver.owns()) else { return Ok(()) };
        let status = Statement::read(TRANSACTION_STATUS, [xid.into()]);
        let rows = self.ask(session, &status, "", deadline).await.map_err(Fault::after_write)?;
        must_be_over(rows.first())
    }

    /// Checks that no transaction is open on a connection of the caller.
    ///
    /// # Errors
    /// [`Fault::Uncommitted`] if a transaction is open; the errors of the query.
    pub async fn must_be_outside(&self) -> Result<(), Fault> {
        let rows = self.run(Statement::read(CURRENT_TRANSACTION, [])).await?;
        let Some(xid) = rows.first().and_then(|row| row.text(0)) else { return Ok(()) };
        must_be_over(self.run(Statement::read(TRANSACTION_STATUS, [xid.into()])).await?.first())
    }

    /// A server may reject writes because it is a standby, which may be promoted, or because of a
    /// setting. Returns `None` without an answer.
    async fn is_standby(&self, session: &mut D::Session, deadline: Instant) -> Option<String> {
        let rows = self.ask(session, &Statement::read(IS_STANDBY, []), "", deadline).await.ok()?;
        rows.first()?.text(0).map(str::to_owned)
    }

    /// Puts a session back after use. A lost session most likely means that the idle ones are lost too.
    fn put_back(&self, session: D::Session, sound: bool, fault: Option<&Fault>) {
        // Hold the lock while the driver decides: `end_with` must not clear the idle sessions between the
        // decision and the push.
        let mut idle = self.0.idle.lock();
        if matches!(fault, Some(Fault::Silent(_) | Fault::Broken(_))) {
            idle.clear();
        }
        if sound && fault.is_none_or(leaves_connection) {
            idle.extend(self.0.driver.give_back(session).map(|session| (session, Instant::now())));
        }
    }

    async fn session(&self, deadline: Instant) -> Result<D::Session, Fault> {
        match self.kept(deadline).await {
            Some(session) => Ok(session),
            None => self.0.driver.open(deadline).await,
        }
    }

    /// Returns the most recently used session, if it is still usable.
    async fn kept(&self, deadline: Instant) -> Option<D::Session> {
        let (mut session, since) = {
            let mut idle = self.0.idle.lock();
            idle.retain(|(_, since)| since.elapsed() < IDLE);
            idle.pop()?
        };
        if self.0.driver.is_good(&mut session, since.elapsed(), deadline).await {
            return Some(session);
        }
        // The other idle sessions were most likely lost too. No statement was running on them.
        self.0.idle.lock().clear();
        None
    }
}

impl<D: Driver> Clone for Sessions<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Driver> Executor for Sessions<D> {
    const IN_TRANSACTION: bool = false;

    /// Runs and commits one statement. Its rows report the durability of the commit. With [`Timeout::Full`],
    /// a statement whose lock is held for long is run again with a longer lock timeout, if few others wait in
    /// this way.
    async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
        // The deadline covers the waits for a permit, a connection, locks and the answer.
        let deadline = self.deadline();
        let permit = self.place(deadline).await?;
        let mut outcome = self.send(&statement, Timeout::Brief, deadline).await;
        drop(permit);
        let held = outcome.as_ref().is_err_and(|fault| fault.code() == Some(LOCK_NOT_AVAILABLE));
        let waits = statement.timeout == Timeout::Full && statement.values.contains(&Value::Timeout);
        // With only one connection, all other statements would wait too. If no permit is free, enough
        // statements wait for locks: return the fault.
        if held
            && waits
            && self.0.driver.has_several()
            && let Ok(_permit) = self.0.waiting.try_acquire()
        {
            outcome = self.send(&statement, Timeout::Full, deadline).await;
        }
        outcome.map(Answer::rows)
    }
}

fn must_be_over(status: Option<&Row>) -> Result<(), Fault> {
    match status.and_then(|row| row.text(0)) {
        Some("committed") => Ok(()),
        _ => Err(Fault::Uncommitted),
    }
}

/// Returns the middle of the remaining time, as the deadline of a wait that other steps follow.
pub fn halfway(deadline: Instant) -> Instant {
    let now = Instant::now();
    now + (deadline - now) / 2
}

/// Returns the lock timeout of a statement, in PostgreSQL's format. The limit is shorter than the timeout of
/// the answer, so that the server times out first and certainly has done nothing.
fn lock_timeout(timeout: Timeout, deadline: Instant) -> String {
    let most = halfway(deadline) - Instant::now();
    let timeout = if timeout == Timeout::Brief { most.min(BRIEFLY) } else { most };
    // Round up to offset the time that has passed, which is less than a millisecond.
    format!("{}ms", timeout.as_micros().div_ceil(1000).max(1))
}
