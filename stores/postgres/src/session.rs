//! Connections: how they are made, and how one statement is run on one of them.
//!
//! A statement that locks a row has little patience at first. Where another transaction holds the row it is
//! run again, with all the patience there is, on one of the connections for those that wait: so those that
//! need another row do not wait with it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use idmill::{Error, ErrorKind, Result};
use idmill_sql::postgres::{
    CANNOT_CONNECT_NOW, CURRENT_TRANSACTION, IS_STANDBY, Keeps, LOCK_NOT_AVAILABLE, TRANSACTION_STATUS, busy,
    failed, is_of_commit, is_read_only, leaves_connection, must_be_durable, read_only,
};
use idmill_sql::{Answer, Asked, Executor, Fault, Patience, Row, Statement, Value};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_postgres::error::Severity;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::client::Held;
use super::convert::{fault_of, unconnected};
use super::prepared::{Kept, Told, collect};

/// Statements that run at the same time, besides those that wait for locks; more wait for their turn.
const CONNECTIONS: usize = 4;
/// How long a lock is waited for on a connection that others need as well: longer than most commits take.
const BRIEFLY: Duration = Duration::from_millis(100);
/// How many statements may wait for locks for longer, each on a connection of its own.
const WAITING: usize = 4;
/// How long a connection may be idle. One that was for longer may have been
/// forgotten by a firewall in between.
const IDLE: Duration = Duration::from_secs(60);

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
    /// Whether sessions keep statements prepared: not behind a pooler.
    keeping: Arc<AtomicBool>,
}

struct Idle {
    session: Session,
    since: Instant,
}

enum Source {
    /// Connections of our own.
    Connect { config: Box<Config>, tls: MakeRustlsConnect, place: String },
    /// The caller's, which is never replaced.
    Given(Arc<Client>),
    /// Those of the caller's pool.
    #[cfg(feature = "deadpool")]
    Pool(deadpool_postgres::Pool),
}

struct Session {
    client: Held,
    warning: Warning,
    kept: Kept,
}

/// The last warning that came along, of those that concern a commit.
type Warning = Arc<Mutex<Option<String>>>;
type Connected = (Client, Warning);

impl Sessions {
    pub(super) fn connect(
        config: Config,
        tls: MakeRustlsConnect,
        place: String,
        timeout: Duration,
        keeps: Keeps,
    ) -> Self {
        Self::new(Source::Connect { config: Box::new(config), tls, place }, timeout, keeps)
    }

    pub(super) fn given(client: Arc<Client>, timeout: Duration) -> Self {
        Self::new(Source::Given(client), timeout, Keeps::Disk)
    }

    #[cfg(feature = "deadpool")]
    pub(super) fn pooled(pool: deadpool_postgres::Pool, timeout: Duration) -> Self {
        Self::new(Source::Pool(pool), timeout, Keeps::Disk)
    }

    fn new(source: Source, timeout: Duration, keeps: Keeps) -> Self {
        let (permits, waiting) = (Semaphore::new(CONNECTIONS), Semaphore::new(WAITING));
        // The sessions of others may be anybody's next.
        let keeping = Arc::new(AtomicBool::new(matches!(source, Source::Connect { .. })));
        Self(Arc::new(Inner { source, timeout, keeps, idle: Mutex::default(), permits, waiting, keeping }))
    }

    pub(super) fn keeps(&self) -> Keeps {
        self.0.keeps
    }

    /// How long a statement that begins now may wait for a lock, as PostgreSQL reads it.
    pub(super) fn lock_timeout(&self, patience: Patience) -> String {
        lock_timeout(patience, self.deadline())
    }

    /// When a statement that begins now has to end, with its waits for a connection and for locks.
    fn deadline(&self) -> Instant {
        Instant::now() + self.0.timeout
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
    pub(super) async fn run(&self, statement: &Statement<'_>) -> Result<Vec<Row>, Fault> {
        let (rows, fault) = self.run_some(statement).await;
        fault.map_or(Ok(rows), Err)
    }

    /// The same, with the rows that came before it failed, if it did.
    pub(super) async fn run_some(&self, statement: &Statement<'_>) -> (Vec<Row>, Option<Fault>) {
        let deadline = self.deadline();
        let outcome = match self.place(deadline).await {
            Ok(_permit) => self.send(statement, Patience::Brief, deadline).await,
            Err(fault) => return (Vec::new(), Some(fault)),
        };
        let held = outcome.1.as_ref().is_some_and(|fault| fault.code() == Some(LOCK_NOT_AVAILABLE));
        let waits = statement.patience == Patience::Full && statement.values.contains(&Value::Patience);
        // On a client of the caller's everybody would wait behind it.
        if !held || !waits || matches!(self.0.source, Source::Given(_)) {
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
    ) -> (Vec<Row>, Option<Fault>) {
        // One that is in use is in nobody else's hands, and if this future is dropped it is closed.
        let mut session = match self.session(deadline).await {
            Ok(session) => session,
            Err(fault) => return (Vec::new(), Some(fault)),
        };
        let (mut rows, lock_timeout) = (Vec::new(), lock_timeout(patience, deadline));
        session.warning.lock().take();
        let answer = session.kept.ask(&session.client, statement, &lock_timeout, &mut rows);
        let mut fault = match timeout_at(deadline, answer).await {
            Ok(Ok(())) => session.warning.lock().take().filter(|_| statement.writes).map(Fault::Warned),
            Ok(Err(error)) => Some(fault_of(error)),
            Err(_) => Some(Fault::Silent(self.0.timeout)),
        };
        // The reader of the rows refuses those that are not durable; here, their session is not used again.
        let mut sound = fault.is_some() || !statement.writes || rows.iter().all(|row| self.is_durable(row));
        if fault.is_none() && statement.writes && sound {
            fault = self.must_have_committed(&session.client, &rows, deadline).await.err();
        }
        if let Some(refused) = fault.take_if(|fault| is_read_only(fault)) {
            fault = Some(why_read_only(&session.client, refused, deadline).await);
        }
        if fault.is_none() && sound {
            sound = session.kept.keep(&session.client, statement, deadline).await;
        }
        self.put_back(session, sound, fault.as_ref());
        (rows.into_iter().map(|told| told.row).collect(), fault)
    }

    fn is_durable(&self, told: &Told) -> bool {
        must_be_durable(told.durable.as_deref().unwrap_or_default(), self.0.keeps).is_ok()
    }

    /// Not within a transaction that the caller has open on a client of its own.
    async fn must_have_committed(
        &self,
        client: &Client,
        rows: &[Told],
        deadline: Instant,
    ) -> Result<(), Fault> {
        let xid = rows.iter().find_map(|told| told.xid.as_deref());
        match (&self.0.source, xid) {
            (Source::Connect { .. }, _) | (_, None) => Ok(()),
            (_, Some(xid)) => self.must_be_over(client, xid, deadline).await.map_err(Fault::after_write),
        }
    }

    /// That no transaction is open on a client of the caller's.
    pub(super) async fn must_be_outside(&self) -> Result<(), Fault> {
        let Source::Given(client) = &self.0.source else { return Ok(()) };
        let rows = self.run(&Statement::read(CURRENT_TRANSACTION, [])).await?;
        match rows.first().and_then(|row| row.text(0)) {
            Some(xid) => self.must_be_over(client, xid, self.deadline()).await,
            None => Ok(()),
        }
    }

    async fn must_be_over(&self, client: &Client, xid: &str, deadline: Instant) -> Result<(), Fault> {
        let (mut rows, parameters) = (Vec::new(), [(&xid as _, Type::TEXT)]);
        let asked = collect(client, TRANSACTION_STATUS, &parameters, &mut rows);
        let answered = timeout_at(deadline, asked).await.map_err(|_| Fault::Silent(self.0.timeout))?;
        answered.map_err(fault_of)?;
        match rows.first().and_then(|told| told.row.text(0)) {
            Some("committed") => Ok(()),
            _ => Err(Fault::Uncommitted),
        }
    }

    /// Gives a session back after use. Where it was silent those that were idle meanwhile most
    /// likely lead to the same silence.
    fn put_back(&self, session: Session, sound: bool, fault: Option<&Fault>) {
        let mut idle = self.0.idle.lock();
        if matches!(fault, Some(Fault::Silent(_))) {
            idle.clear();
        }
        if !sound || !fault.is_none_or(leaves_connection) {
            return;
        }
        match session.client {
            #[cfg(feature = "deadpool")]
            Held::Lent(lent) => lent.give_back(),
            Held::Own(_) => idle.push(Idle { session, since: Instant::now() }),
        }
    }

    /// Runs statements that stand in one string, without parameters; each string is a transaction.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), Fault> {
        let deadline = self.deadline();
        let _permit = self.place(deadline).await?;
        let session = self.session(deadline).await?;
        let fault = match timeout_at(deadline, session.client.batch_execute(sql)).await {
            Ok(Ok(())) => session.warning.lock().take().map(Fault::Warned),
            Ok(Err(error)) => Some(fault_of(error)),
            Err(_) => Some(Fault::Silent(self.0.timeout)),
        };
        self.put_back(session, true, fault.as_ref());
        fault.map_or(Ok(()), Err)
    }

    /// One connection, on which the server ends each statement before `limit`: a client that no longer waits
    /// does not end it. The setting is local to a transaction: a pooler may give the connection to others later.
    pub(super) async fn to_scan(&self, limit: Duration) -> Result<Self> {
        let scanning = Self::given(Arc::new(self.client().await?), limit);
        let millis = limit.mul_f64(0.9).as_millis().max(1);
        let begin = format!("BEGIN READ ONLY; SET LOCAL statement_timeout = {millis}");
        scanning.batch(&begin).await.map_err(|fault| failed(fault, Asked::Connect))?;
        Ok(scanning)
    }

    /// One more connection, for somebody else.
    pub(super) async fn client(&self) -> Result<Client> {
        match &self.0.source {
            Source::Connect { config, tls, place } => {
                let (client, _) = connect(config, tls, place, halfway(self.deadline())).await?;
                Ok(client)
            }
            Source::Given(_) => Err(Error::new(ErrorKind::Unsupported, "the client is the caller's already")),
            #[cfg(feature = "deadpool")]
            Source::Pool(_) => Err(Error::new(ErrorKind::Unsupported, "the pool is the caller's already")),
        }
    }

    async fn session(&self, deadline: Instant) -> Result<Session, Fault> {
        match (self.kept(), &self.0.source) {
            (Some(session), _) => Ok(session),
            (_, Source::Given(client)) if client.is_closed() => Err(Fault::Refused(Error::new(
                ErrorKind::Closed,
                "the client that this store was given is closed: open the store `with_config`, which reconnects",
            ))),
            (_, Source::Given(client)) => Ok(self.held(Held::Own(client.clone()), Arc::default())),
            (_, Source::Connect { config, tls, place }) => {
                let connected = connect(config, tls, place, halfway(deadline)).await;
                let (client, warning) = connected.map_err(Fault::Refused)?;
                Ok(self.held(Held::Own(Arc::new(client)), warning))
            }
            #[cfg(feature = "deadpool")]
            (_, Source::Pool(pool)) => {
                let client = super::client::borrow(pool, halfway(deadline), self.0.timeout / 2).await?;
                Ok(self.held(Held::Lent(client), Arc::default()))
            }
        }
    }

    fn held(&self, client: Held, warning: Warning) -> Session {
        Session { client, warning, kept: Kept::new(self.0.keeping.clone()) }
    }

    /// The one that was used last, of those that are still good; the others are closed.
    fn kept(&self) -> Option<Session> {
        let mut idle = self.0.idle.lock();
        idle.retain(|idle| !idle.session.client.is_closed() && idle.since.elapsed() < IDLE);
        idle.pop().map(|idle| idle.session)
    }
}

impl Executor for &Sessions {
    const IN_TRANSACTION: bool = false;

    async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
        self.run(&statement).await.map(Answer::rows)
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
    // Rounded up: of 5 s, less than a millisecond has passed.
    format!("{}ms", patience.as_micros().div_ceil(1000).max(1))
}

/// A server may refuse to write because it is a standby, which may be promoted, or because of a setting.
async fn why_read_only(client: &Client, refused: Fault, deadline: Instant) -> Fault {
    let mut rows = Vec::new();
    let asked = collect(client, IS_STANDBY, &[], &mut rows);
    match timeout_at(deadline, asked).await {
        Ok(Ok(())) => read_only(refused, rows.first().and_then(|told| told.row.text(0))),
        _ => refused,
    }
}

/// A server that is starting up says so, and is tried again until the deadline.
async fn connect(
    config: &Config,
    tls: &MakeRustlsConnect,
    place: &str,
    deadline: Instant,
) -> Result<Connected> {
    let mut delays = ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(Duration::from_millis(250))
        .without_max_times()
        .with_jitter()
        .build();
    loop {
        let starting = match attempt(config, tls, place, deadline).await {
            Err(fault) if fault.code() == Some(CANNOT_CONNECT_NOW) => fault,
            Err(fault) => return Err(unreachable_at(place, fault)),
            Ok(connected) => return Ok(connected),
        };
        let delay = delays.next().unwrap_or_default();
        if Instant::now() + delay >= deadline {
            return Err(unreachable_at(place, starting));
        }
        sleep(delay).await;
    }
}

fn unreachable_at(place: &str, fault: Fault) -> Error {
    let error = failed(fault, Asked::Connect);
    Error::new(error.kind(), format!("cannot connect to {place}: {error}")).because(error)
}

async fn attempt(
    config: &Config,
    tls: &MakeRustlsConnect,
    place: &str,
    deadline: Instant,
) -> Result<Connected, Fault> {
    let Ok(connected) = timeout_at(deadline, config.connect(tls.clone())).await else {
        let message = format!("cannot connect to {place}: no answer in half of timeout=");
        return Err(Fault::Refused(Error::new(ErrorKind::Unavailable, message)));
    };
    let (client, mut connection) = connected.map_err(unconnected)?;
    let warning = Arc::new(Mutex::new(None));
    let heard = warning.clone();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notice(notice) = message
                && notice.parsed_severity() == Some(Severity::Warning)
                && is_of_commit(notice.message(), notice.code().code())
            {
                *heard.lock() = Some(notice.message().to_owned());
            }
        }
    });
    Ok((client, warning))
}

#[cfg(test)]
mod tests {
    use idmill_sql::Asked::Write;
    use idmill_sql::postgres::classify;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_postgres::NoTls;

    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(body.len() + 4).unwrap();
        [&[kind], &len.to_be_bytes()[..], body].concat()
    }

    /// A row of texts in columns of these names, after a statement that was parsed, bound and executed.
    fn row(columns: &[(&str, &str)]) -> Vec<u8> {
        let count = i16::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
        let (mut names, mut values) = (count.clone(), count);
        for (name, value) in columns {
            let of_text = [&[0; 6][..], &25_i32.to_be_bytes(), &[0xff; 6], &[0, 1]].concat();
            names.extend([name.as_bytes(), &[0], &of_text].concat());
            values.extend(i32::try_from(value.len()).unwrap().to_be_bytes());
            values.extend(value.as_bytes());
        }
        let [begun, bound] = [b'1', b'2'].map(|kind| message(kind, &[]));
        let [names, values] = [(b'T', names), (b'D', values)].map(|(kind, body)| message(kind, &body));
        [begun, bound, names, values, message(b'C', b"UPDATE 1\0"), message(b'Z', b"I")].concat()
    }

    /// A client of a server that lets it in and answers each statement in turn.
    async fn answered(answers: Vec<Vec<u8>>) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let welcome = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
            for answer in [welcome].into_iter().chain(answers) {
                assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
                stream.write_all(&answer).await.unwrap();
            }
            while stream.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {}
        });
        let (client, connection) =
            Config::new().host("127.0.0.1").port(port).user("u").connect(NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        client
    }

    /// It waited for as long as the statements before it took, and then as long again.
    #[tokio::test]
    async fn place_for_a_statement_is_waited_for_half_the_timeout() {
        let timeout = Duration::from_secs(10);
        let sessions = Sessions::given(Arc::new(answered(Vec::new()).await), timeout);
        tokio::time::pause();
        let began = Instant::now();
        let run = || async {
            let outcome = sessions.run(&Statement::write("UPDATE", [])).await;
            (outcome.err().map(|fault| classify(&fault, Write)), began.elapsed().as_secs())
        };
        let (silent, late) = (Some(ErrorKind::UnknownOutcome), Some(ErrorKind::Unavailable));
        let outcomes = tokio::join!(run(), run(), run(), run(), run());
        let expected = ((silent, 10), (silent, 10), (silent, 10), (silent, 10), (late, 5));
        assert_eq!(outcomes, expected);
    }

    #[tokio::test]
    async fn what_fails_after_a_write_does_not_undo_it() {
        use ErrorKind::{Conflict, UnknownOutcome};
        let error = |code: &str| {
            let said = format!("SERROR\0VERROR\0C{code}\0Mtext of it\0\0");
            [message(b'E', said.as_bytes()), message(b'Z', b"I")].concat()
        };
        let status = |status| row(&[("txid_status", status)]);
        for (answer, kind) in [
            (status("committed"), None),
            (status("in progress"), Some(Conflict)),
            // statement_timeout; no right to ask; no such function
            (error("57014"), Some(UnknownOutcome)),
            (error("42501"), Some(UnknownOutcome)),
            (error("42883"), Some(UnknownOutcome)),
        ] {
            let written = row(&[("durable", "on on on"), ("xid", "4711")]);
            let client = answered(vec![written, answer]).await;
            let sessions = Sessions::given(Arc::new(client), Duration::from_secs(5));
            let outcome = sessions.run(&Statement::write("UPDATE", [])).await;
            assert_eq!(outcome.err().map(|fault| classify(&fault, Write)), kind);
        }
    }
}
