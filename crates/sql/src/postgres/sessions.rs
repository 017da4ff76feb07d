//! Sessions of an adapter's, and how one statement is run on one of them.
//!
//! A statement that locks a row has little patience at first. Where another transaction holds the row it is
//! run again, with all the patience there is, on one of the sessions for those that wait: so those that need
//! another row do not wait with it.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use idmill::Result;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::classify::{IS_STANDBY, LOCK_NOT_AVAILABLE, busy, is_read_only, leaves_connection, read_only};
use super::durable::{CURRENT_TRANSACTION, Keeps, TRANSACTION_STATUS, must_be_durable};
use crate::{Answer, Asked, Executor, Fault, Patience, Pool, Row, Statement, Value};

/// Statements that run at the same time, besides those that wait for locks; more wait for their turn.
pub const CONNECTIONS: usize = 4;
/// How many statements may wait for locks for longer, each on a connection of its own.
pub const WAITING: usize = 4;
/// How long a lock is waited for on a connection that others need as well: longer than most commits take.
const BRIEFLY: Duration = Duration::from_millis(100);
/// How long a connection may be idle. One that was for longer may have been forgotten by a firewall in between.
const IDLE: Duration = Duration::from_secs(60);

/// The connections of a driver.
pub trait Driver: Send + Sync {
    /// A connection in use. One that is dropped is closed, since an answer may still be on its way.
    type Session: Send;

    /// Whether the sessions are this store's alone: in others somebody may have a transaction open.
    fn owns(&self) -> bool;

    /// Whether there are several, so that one may wait for a lock while others go on.
    fn has_several(&self) -> bool {
        true
    }

    /// Another session.
    ///
    /// # Errors
    /// [`Fault::Refused`], or how no connection was made.
    fn open(&self, deadline: Instant) -> impl Future<Output = Result<Self::Session, Fault>> + Send;

    /// Whether a session can still be used that was idle for so long.
    fn is_good(
        &self,
        session: &mut Self::Session,
        idle: Duration,
        deadline: Instant,
    ) -> impl Future<Output = bool> + Send;

    /// Sends a statement, once, and adds its rows, whose columns are all texts, until the server is ready for
    /// another query: only then has this one committed. Returns the last warning of the server that concerns
    /// the commit.
    ///
    /// # Errors
    /// How it failed.
    fn ask(
        &self,
        session: &mut Self::Session,
        statement: &Statement<'_>,
        lock_timeout: &str,
        rows: &mut Vec<Row>,
    ) -> impl Future<Output = Result<Option<String>, Fault>> + Send;

    /// Has the session keep a statement that was run; whether the session can be used again.
    fn keep(
        &self,
        _: &mut Self::Session,
        _: &Statement<'_>,
        _: Instant,
    ) -> impl Future<Output = bool> + Send {
        ready(true)
    }

    /// Takes a session back that is as good as before; returns it if it is to be kept for the next statement.
    fn give_back(&self, session: Self::Session) -> Option<Self::Session>;
}

/// Where statements are run. Clones share it.
#[allow(missing_debug_implementations)] // a driver may hold a password
pub struct Sessions<D: Driver>(Arc<Inner<D>>);

struct Inner<D: Driver> {
    driver: D,
    timeout: Duration,
    keeps: Keeps,
    idle: Mutex<Vec<(D::Session, Instant)>>,
    permits: Semaphore,
    /// Of statements that wait for a lock.
    waiting: Semaphore,
}

impl<D: Driver> Sessions<D> {
    /// Sessions of this driver, whose statements take no longer than `timeout`.
    pub fn new(driver: D, timeout: Duration, keeps: Keeps) -> Self {
        let (permits, waiting) = (Semaphore::new(CONNECTIONS), Semaphore::new(WAITING));
        Self(Arc::new(Inner { driver, timeout, keeps, idle: Mutex::default(), permits, waiting }))
    }

    /// The driver.
    pub fn driver(&self) -> &D {
        &self.0.driver
    }

    /// What makes sure that a crash of the server takes nothing back.
    pub fn keeps(&self) -> Keeps {
        self.0.keeps
    }

    /// How long a statement that begins now may wait for a lock, as PostgreSQL reads it.
    pub fn lock_timeout(&self, patience: Patience) -> String {
        lock_timeout(patience, self.deadline())
    }

    /// When a statement that begins now has to end, with its waits for a connection and for locks.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.0.timeout
    }

    /// Closes the idle sessions when this future ends, if the store is still there.
    pub fn end_with(&self, event: impl Future<Output = ()> + Send + 'static)
    where
        D: 'static,
    {
        let inner = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            event.await;
            // Those in use end after their statement.
            if let Some(inner) = inner.upgrade() {
                inner.idle.lock().clear();
            }
        });
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
    ///
    /// # Errors
    /// How it failed.
    pub async fn run(&self, statement: &Statement<'_>) -> Result<Vec<Row>, Fault> {
        let (rows, fault) = self.run_some(statement).await;
        fault.map_or(Ok(rows), Err)
    }

    /// The same, with the rows that came before it failed, if it did.
    pub async fn run_some(&self, statement: &Statement<'_>) -> (Vec<Row>, Option<Fault>) {
        // Of all: for a place, a connection, locks and the answer.
        let deadline = self.deadline();
        let outcome = match self.place(deadline).await {
            Ok(_permit) => self.send(statement, Patience::Brief, deadline).await,
            Err(fault) => return (Vec::new(), Some(fault)),
        };
        let held = outcome.1.as_ref().is_some_and(|fault| fault.code() == Some(LOCK_NOT_AVAILABLE));
        let waits = statement.patience == Patience::Full && statement.values.contains(&Value::Patience);
        // On the only one everybody would wait behind it.
        if !held || !waits || !self.0.driver.has_several() {
            return outcome;
        }
        // All places are taken, most likely by statements that wait for other locks.
        let Ok(_permit) = self.0.waiting.try_acquire() else { return outcome };
        self.send(statement, Patience::Full, deadline).await
    }

    /// Runs statements that stand in one text, without parameters; each text is a transaction.
    ///
    /// # Errors
    /// How it failed.
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
        patience: Patience,
        deadline: Instant,
    ) -> (Vec<Row>, Option<Fault>) {
        // One that is in use is in nobody else's hands, and if this future is dropped it is closed.
        let mut session = match self.session(deadline).await {
            Ok(session) => session,
            Err(fault) => return (Vec::new(), Some(fault)),
        };
        let (mut rows, lock_timeout) = (Vec::new(), lock_timeout(patience, deadline));
        let mut fault = self.ask(&mut session, statement, &lock_timeout, &mut rows, deadline).await.err();
        // The reader of the rows refuses those that are not durable; here, their session is not used again.
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

    /// Not within a transaction that somebody has open on a connection that is not this store's alone.
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

    /// That no transaction is open on a connection of the caller's.
    ///
    /// # Errors
    /// [`Fault::Uncommitted`] if one is; those of asking.
    pub async fn must_be_outside(&self) -> Result<(), Fault> {
        let rows = self.run(&Statement::read(CURRENT_TRANSACTION, [])).await?;
        let Some(xid) = rows.first().and_then(|row| row.text(0)) else { return Ok(()) };
        must_be_over(self.run(&Statement::read(TRANSACTION_STATUS, [xid.into()])).await?.first())
    }

    /// A server may refuse to write because it is a standby, which may be promoted, or because of a setting.
    async fn why_read_only(&self, session: &mut D::Session, refused: Fault, deadline: Instant) -> Fault {
        let (asks, mut rows) = (Statement::read(IS_STANDBY, []), Vec::new());
        // Without an answer it stays what it is.
        let _ = self.ask(session, &asks, "", &mut rows, deadline).await;
        read_only(refused, rows.first().and_then(|row| row.text(0)))
    }

    /// Gives a session back after use. A lost session most likely means that the idle ones are lost too.
    fn put_back(&self, session: D::Session, sound: bool, fault: Option<&Fault>) {
        // Held also while the driver decides: what ends the idle ones comes before this or after it.
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

    /// The one that was used last, if it is still good.
    async fn kept(&self, deadline: Instant) -> Option<D::Session> {
        let (mut session, since) = {
            let mut idle = self.0.idle.lock();
            idle.retain(|(_, since)| since.elapsed() < IDLE);
            idle.pop()?
        };
        if self.0.driver.is_good(&mut session, since.elapsed(), deadline).await {
            return Some(session);
        }
        // The other idle sessions were lost with it. Nothing was asked of them.
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

/// Half of the time that is left: for a wait after which something else has to be done.
pub fn halfway(deadline: Instant) -> Instant {
    let now = Instant::now();
    now + (deadline - now) / 2
}

/// How long a statement may wait for a lock, as PostgreSQL reads it: less than the statement itself may take,
/// so that it is the server who gives up, and it is known that nothing was done.
fn lock_timeout(patience: Patience, deadline: Instant) -> String {
    let most = halfway(deadline) - Instant::now();
    let patience = if patience == Patience::Brief { most.min(BRIEFLY) } else { most };
    // Rounded up: of 5 s, less than a millisecond has passed.
    format!("{}ms", patience.as_micros().div_ceil(1000).max(1))
}
