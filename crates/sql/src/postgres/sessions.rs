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
use crate::{Answer, Asked, Executor, Fault, Pool, Row, Statement, Timeout, Value};

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

    /// Waits for a permit to run a statement.
    async fn place(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, Fault> {
        match timeout_at(halfway(deadline), self.0.permits.acquire()).await {
            Ok(permit) => Ok(permit.expect("never closed")),
            Err(_) => Err(busy(CONNECTIONS, self.0.timeout / 2)),
        }
    }

    /// Runs and commits one statement. Its rows report the durability of the commit. With [`Timeout::Full`],
    /// a statement whose lock is held for long is run again with a longer lock timeout, if few others wait in
    /// this way.
    ///
    /// # Errors
    /// The reason for the failure.
    pub async fn run(&self, statement: &Statement<'_>) -> Result<Vec<Row>, Fault> {
        let (rows, fault) = self.run_some(statement).await;
        fault.map_or(Ok(rows), Err)
    }

    /// Like [`run`](Self::run), but also returns the rows that were received before a failure.
    pub async fn run_some(&self, statement: &Statement<'_>) -> (Vec<Row>, Option<Fault>) {
        // The deadline covers the waits for a permit, a connection, locks and the answer.
        let deadline = self.deadline();
        let outcome = match self.place(deadline).await {
            Ok(_permit) => self.send(statement, Timeout::Brief, deadline).await,
            Err(fault) => return (Vec::new(), Some(fault)),
        };
        let held = outcome.1.as_ref().is_some_and(|fault| fault.code() == Some(LOCK_NOT_AVAILABLE));
        let waits = statement.timeout == Timeout::Full && statement.values.contains(&Value::Timeout);
        // With only one connection, all other statements would wait too.
        if !held || !waits || !self.0.driver.has_several() {
            return outcome;
        }
        // If no permit is free, enough statements wait for locks: return the fault.
        let Ok(_permit) = self.0.waiting.try_acquire() else { return outcome };
        self.send(statement, Timeout::Full, deadline).await
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
        let fault = self.ask(&mut session, &statement, "", &mut Vec::new(), deadline).await.err();
        self.put_back(session, true, fault.as_ref());
        fault.map_or(Ok(()), Err)
    }

    async fn send(
        &self,
        statement: &Statement<'_>,
        timeout: Timeout,
        deadline: Instant,
    ) -> (Vec<Row>, Option<Fault>) {
        // Except for a caller's client, a session in use is not shared, and is closed if this future is
        // dropped.
        let mut session = match self.session(deadline).await {
            Ok(session) => session,
            Err(fault) => return (Vec::new(), Some(fault)),
        };
        let (mut rows, lock_timeout) = (Vec::new(), lock_timeout(timeout, deadline));
        let mut fault = self.ask(&mut session, statement, &lock_timeout, &mut rows, deadline).await.err();
        // The caller rejects rows that are not durable; here, the session that sent them is not reused.
        let durable =
            |row: &Row| must_be_durable(row.text(statement.durable_at).unwrap_or_default(), self.0.keeps);
        let mut sound = fault.is_some() || !statement.writes || rows.iter().all(|row| durable(row).is_ok());
        if fault.is_none() && statement.writes && sound {
            let xid = rows.iter().find_map(|row| row.text(statement.durable_at + 1));
            fault = self.must_have_committed(&mut session, xid, deadline).await.err();
        }
        if let Some(refused) = fault.take_if(|fault| is_read_only(fault)) {
            fault = Some(self.why_read_only(&mut session, refused, deadline).await);
        }
        if fault.is_none() && sound {
            sound = self.0.driver.keep(&mut session, statement, deadline).await;
        }
        self.put_back(session, sound, fault.as_ref());
        (rows, fault)
    }

    async fn ask(
        &self,
        session: &mut D::Session,
        statement: &Statement<'_>,
        lock_timeout: &str,
        rows: &mut Vec<Row>,
        deadline: Instant,
    ) -> Result<(), Fault> {
        match timeout_at(deadline, self.0.driver.ask(session, statement, lock_timeout, rows)).await {
            Ok(Ok(Some(warning))) if statement.writes => Err(Fault::Warned(warning)),
            Ok(answered) => answered.map(drop),
            Err(_) => Err(Fault::Silent(self.0.timeout)),
        }
    }

    /// Checks that a write was not part of a transaction open on a shared connection.
    async fn must_have_committed(
        &self,
        session: &mut D::Session,
        xid: Option<&str>,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let Some(xid) = xid.filter(|_| !self.0.driver.owns()) else { return Ok(()) };
        let (status, mut rows) = (Statement::read(TRANSACTION_STATUS, [xid.into()]), Vec::new());
        let asked = self.ask(session, &status, "", &mut rows, deadline).await;
        asked.map_err(Fault::after_write)?;
        must_be_over(rows.first())
    }

    /// Checks that no transaction is open on a connection of the caller.
    ///
    /// # Errors
    /// [`Fault::Uncommitted`] if a transaction is open; the errors of the query.
    pub async fn must_be_outside(&self) -> Result<(), Fault> {
        let rows = self.run(&Statement::read(CURRENT_TRANSACTION, [])).await?;
        let Some(xid) = rows.first().and_then(|row| row.text(0)) else { return Ok(()) };
        must_be_over(self.run(&Statement::read(TRANSACTION_STATUS, [xid.into()])).await?.first())
    }

    /// A server may reject writes because it is a standby, which may be promoted, or because of a
    /// setting.
    async fn why_read_only(&self, session: &mut D::Session, refused: Fault, deadline: Instant) -> Fault {
        let (asks, mut rows) = (Statement::read(IS_STANDBY, []), Vec::new());
        // Without an answer the fault is unchanged.
        let _ = self.ask(session, &asks, "", &mut rows, deadline).await;
        read_only(refused, rows.first().and_then(|row| row.text(0)))
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

    async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
        self.run(&statement).await.map(Answer::rows)
    }
}

impl<D: Driver> Pool for Sessions<D> {
    type Session = Self;
    type Held = Self;

    async fn take(&self, _: Asked) -> Result<Self> {
        Ok(self.clone())
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
