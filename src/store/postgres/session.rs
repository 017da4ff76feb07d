//! Connections: how they are made, and how one statement is run on one of them.
//!
//! A statement that locks a row has little patience at first. Where another transaction holds the row it is
//! run again, with all the patience there is, on one of the connections for those that wait: so those that
//! need another row do not wait with it.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures_util::TryStreamExt;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::error::Severity;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::classify::{Asked, Fault, failed};
use super::durable::{self, Keeps};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Arc, Mutex};

/// Statements that run at the same time, besides those that wait for locks; more wait for their turn.
const CONNECTIONS: usize = 4;
/// cannot_connect_now
const STARTING: &str = "57P03";
/// lock_not_available
const LOCKED: &str = "55P03";
/// How long a lock is waited for on a connection that others need as well: longer than most commits take.
const BRIEFLY: Duration = Duration::from_millis(100);
/// How many statements may wait for locks for longer, each on a connection of its own.
const WAITING: usize = 4;
/// How long a connection may be idle. One that was for longer may have been
/// forgotten by a firewall in between.
const IDLE: Duration = Duration::from_secs(60);

/// A parameter of a statement, and its type: so that a statement need not be prepared, which would be another
/// round trip and which poolers do not keep.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

pub(super) fn text(value: &(impl ToSql + Sync)) -> Parameter<'_> {
    (value, Type::TEXT)
}

/// The types of as many texts.
pub(super) fn texts<const N: usize>(values: &[String; N]) -> [Parameter<'_>; N] {
    std::array::from_fn(|place| text(&values[place]))
}

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
    session: Session,
    since: Instant,
}

/// How long a statement may wait for locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Hardly: others wait for what comes of it.
    Brief,
    /// As long as it may take, but where no other waits for it.
    Full,
}

enum Source {
    /// Connections of our own.
    Connect { config: Box<Config>, tls: MakeRustlsConnect, place: String },
    /// The caller's, which is never replaced.
    Given(Arc<Client>),
}

struct Session {
    client: Arc<Client>,
    warning: Warning,
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

    fn new(source: Source, timeout: Duration, keeps: Keeps) -> Self {
        let (permits, waiting) = (Semaphore::new(CONNECTIONS), Semaphore::new(WAITING));
        Self(Arc::new(Inner { source, timeout, keeps, idle: Mutex::default(), permits, waiting }))
    }

    pub(super) fn keeps(&self) -> Keeps {
        self.0.keeps
    }

    /// How long a statement may wait for a lock, as PostgreSQL reads it: less than the statement itself may
    /// take, so that it is the server who gives up, and it is known that nothing was done.
    pub(super) fn lock_timeout(&self, patience: Patience) -> String {
        let most = self.0.timeout / 2;
        let patience = if patience == Patience::Brief { most.min(BRIEFLY) } else { most };
        format!("{}ms", patience.as_millis().max(1))
    }

    /// Runs one statement, once. It has committed, durably, when this returns.
    pub(super) async fn run(
        &self,
        asked: Asked,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Fault> {
        all(self.run_some(asked, sql, parameters).await)
    }

    /// Runs a statement that locks what it changes; it gets its `lock_timeout` among its values. With
    /// [`Patience::Full`] it is run again where another transaction holds the lock for long, as long as
    /// few others wait in this way.
    pub(super) async fn run_locking<const N: usize>(
        &self,
        patience: Patience,
        sql: &str,
        values: impl Fn(String) -> [String; N],
    ) -> Result<Vec<Row>, Fault> {
        all(self.run_locking_some(patience, sql, values).await)
    }

    /// The same, with the rows that came before it failed, if it did.
    pub(super) async fn run_locking_some<const N: usize>(
        &self,
        patience: Patience,
        sql: &str,
        values: impl Fn(String) -> [String; N],
    ) -> (Vec<Row>, Option<Fault>) {
        let brief = values(self.lock_timeout(Patience::Brief));
        let outcome = self.run_some(Asked::Write, sql, &texts(&brief)).await;
        let held = outcome.1.as_ref().is_some_and(|fault| fault.code() == Some(LOCKED));
        // On a client of the caller's everybody would wait behind it.
        if !held || patience == Patience::Brief || matches!(self.0.source, Source::Given(_)) {
            return outcome;
        }
        // Where as many wait already, for other locks as likely as not, it is no good to wait for them.
        let Ok(_permit) = self.0.waiting.try_acquire() else { return outcome };
        let full = values(self.lock_timeout(Patience::Full));
        self.send(Asked::Write, sql, &texts(&full)).await
    }

    async fn run_some(
        &self,
        asked: Asked,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> (Vec<Row>, Option<Fault>) {
        let _permit = self.0.permits.acquire().await.expect("never closed");
        self.send(asked, sql, parameters).await
    }

    async fn send(&self, asked: Asked, sql: &str, parameters: &[Parameter<'_>]) -> (Vec<Row>, Option<Fault>) {
        // One that is in use is in nobody else's hands, and if this future is dropped it is closed.
        let session = match self.session().await {
            Ok(session) => session,
            Err(fault) => return (Vec::new(), Some(fault)),
        };
        let mut rows = Vec::new();
        session.warning.lock().take();
        let answered = timeout(self.0.timeout, collect(&session.client, sql, parameters, &mut rows)).await;
        let mut fault = match answered {
            Ok(Ok(())) => session.warning.lock().take().filter(|_| asked == Asked::Write).map(Fault::Warned),
            Ok(Err(error)) => Some(error.into()),
            Err(_) => Some(Fault::Silent(self.0.timeout)),
        };
        if fault.is_none() && asked == Asked::Write {
            fault = self.must_have_committed(&rows).await.err();
        }
        self.put_back(session, fault.as_ref());
        (rows, fault)
    }

    /// As durably as is promised; and not within a transaction that the caller has
    /// open on a client of its own.
    async fn must_have_committed(&self, rows: &[Row]) -> Result<(), Fault> {
        for row in rows {
            durable::check(row, self.0.keeps).map_err(Fault::Refused)?;
        }
        let xid = rows.iter().find_map(|row| row.try_get::<_, Option<String>>("xid").ok().flatten());
        match (&self.0.source, xid) {
            (Source::Given(client), Some(xid)) => self.must_be_over(client, &xid).await,
            _ => Ok(()),
        }
    }

    /// That no transaction is open on a client of the caller's.
    pub(super) async fn must_be_outside(&self) -> Result<(), Fault> {
        let Source::Given(client) = &self.0.source else { return Ok(()) };
        let rows = self.run(Asked::Read, "SELECT txid_current()::text AS xid", &[]).await?;
        match rows.first().and_then(|row| row.try_get::<_, String>(0).ok()) {
            Some(xid) => self.must_be_over(client, &xid).await,
            None => Ok(()),
        }
    }

    async fn must_be_over(&self, client: &Client, xid: &str) -> Result<(), Fault> {
        let (mut rows, parameters) = (Vec::new(), [text(&xid)]);
        let asked = collect(client, "SELECT txid_status($1::text::bigint)", &parameters, &mut rows);
        timeout(self.0.timeout, asked).await.map_err(|_| Fault::Silent(self.0.timeout))??;
        let status = rows.first().and_then(|row| row.try_get::<_, Option<String>>(0).ok().flatten());
        if status.as_deref() == Some("committed") {
            return Ok(());
        }
        Err(Fault::Refused(Error::new(
            ErrorKind::Conflict,
            "the client that the store was given is in a transaction, whose ROLLBACK would take back what is reserved in it: \
             nothing of it is used; give the store a client of its own, or draw with next_in",
        )))
    }

    /// Gives a session back after use. Where it was silent those that were idle meanwhile most
    /// likely lead to the same silence.
    fn put_back(&self, session: Session, fault: Option<&Fault>) {
        let mut idle = self.0.idle.lock();
        if matches!(fault, Some(Fault::Silent(_))) {
            idle.clear();
        }
        if fault.is_none_or(Fault::leaves_connection) {
            idle.push(Idle { session, since: Instant::now() });
        }
    }

    /// Runs statements that stand in one string, without parameters; each string is a transaction.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), Fault> {
        let _permit = self.0.permits.acquire().await.expect("never closed");
        let session = self.session().await?;
        let fault = match timeout(self.0.timeout, session.client.batch_execute(sql)).await {
            Ok(Ok(())) => session.warning.lock().take().map(Fault::Warned),
            Ok(Err(error)) => Some(error.into()),
            Err(_) => Some(Fault::Silent(self.0.timeout)),
        };
        self.put_back(session, fault.as_ref());
        fault.map_or(Ok(()), Err)
    }

    /// One more connection, for somebody else.
    pub(super) async fn client(&self) -> Result<Client> {
        match &self.0.source {
            Source::Connect { config, tls, place } => {
                let (client, _) = connect(config, tls, place, self.0.timeout / 2).await?;
                Ok(client)
            }
            Source::Given(_) => Err(Error::new(ErrorKind::Unsupported, "the client is the caller's already")),
        }
    }

    async fn session(&self) -> Result<Session, Fault> {
        match (self.kept(), &self.0.source) {
            (Some(session), _) => Ok(session),
            (_, Source::Given(client)) if client.is_closed() => Err(Fault::Refused(Error::new(
                ErrorKind::Unavailable,
                "the connection that this store was given is closed; make another client, and a store of it",
            ))),
            (_, Source::Given(client)) => Ok(Session { client: client.clone(), warning: Arc::default() }),
            (_, Source::Connect { config, tls, place }) => {
                let connected = connect(config, tls, place, self.0.timeout / 2).await;
                let (client, warning) = connected.map_err(Fault::Refused)?;
                Ok(Session { client: Arc::new(client), warning })
            }
        }
    }

    /// The one that was used last, of those that are still good; the others are closed.
    fn kept(&self) -> Option<Session> {
        let mut idle = self.0.idle.lock();
        idle.retain(|idle| !idle.session.client.is_closed() && idle.since.elapsed() < IDLE);
        idle.pop().map(|idle| idle.session)
    }
}

/// The rows, unless the statement failed after them.
fn all((rows, fault): (Vec<Row>, Option<Fault>)) -> Result<Vec<Row>, Fault> {
    fault.map_or(Ok(rows), Err)
}

/// Until the server is ready for another query: only then has this one committed.
async fn collect(
    client: &Client,
    sql: &str,
    parameters: &[Parameter<'_>],
    rows: &mut Vec<Row>,
) -> Result<(), tokio_postgres::Error> {
    let parameters = parameters.iter().map(|(value, kind)| (*value, kind.clone()));
    let mut answers = pin!(client.query_typed_raw(sql, parameters).await?);
    while let Some(row) = answers.try_next().await? {
        rows.push(row);
    }
    Ok(())
}

/// A server that is starting up says so, and is tried again for as long as there is patience.
async fn connect(
    config: &Config,
    tls: &MakeRustlsConnect,
    place: &str,
    patience: Duration,
) -> Result<Connected> {
    let deadline = Instant::now() + patience;
    let mut delays = ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(Duration::from_millis(250))
        .without_max_times()
        .with_jitter()
        .build();
    loop {
        let starting = match attempt(config, tls, place, deadline).await {
            Err(fault) if fault.code() == Some(STARTING) => fault,
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
    let (client, mut connection) = connected?;
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

/// A commit that was to wait for standbys and was interrupted: it stands here, and could
/// be missing after a failover.
fn is_of_commit(message: &str, code: &str) -> bool {
    code == "57P01" || message.contains("synchronous replication")
}
