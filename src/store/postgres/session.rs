//! Connections: how they are made, and how one statement is run on one of them.

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
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Arc, Mutex};

/// cannot_connect_now
const STARTING: &str = "57P03";

/// A parameter of a statement, and its type: so that a statement need not be prepared, which would be another round trip and
/// which poolers do not keep.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

pub(super) fn text(value: &(impl ToSql + Sync)) -> Parameter<'_> {
    (value, Type::TEXT)
}

/// Where statements are run. Clones share it.
#[derive(Clone)]
pub(super) struct Sessions(Arc<Inner>);

struct Inner {
    source: Source,
    timeout: Duration,
    idle: Mutex<Vec<Session>>,
    permits: Semaphore,
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
        most: usize,
    ) -> Self {
        Self::new(Source::Connect { config: Box::new(config), tls, place }, timeout, most)
    }

    pub(super) fn given(client: Arc<Client>, timeout: Duration, most: usize) -> Self {
        Self::new(Source::Given(client), timeout, most)
    }

    fn new(source: Source, timeout: Duration, most: usize) -> Self {
        Self(Arc::new(Inner { source, timeout, idle: Mutex::default(), permits: Semaphore::new(most) }))
    }

    /// How long a statement may wait for a lock, as PostgreSQL reads it: less than the statement itself may take, so that it is the server
    /// who gives up, and it is known that nothing was done.
    pub(super) fn lock_timeout(&self) -> String {
        format!("{}ms", (self.0.timeout / 2).as_millis().max(1))
    }

    /// Runs one statement, once. It has committed, durably, when this returns.
    pub(super) async fn run(
        &self,
        asked: Asked,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Fault> {
        match self.run_some(asked, sql, parameters).await {
            (rows, None) => Ok(rows),
            (_, Some(fault)) => Err(fault),
        }
    }

    /// The same, with the rows that came before it failed, if it did.
    pub(super) async fn run_some(
        &self,
        asked: Asked,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> (Vec<Row>, Option<Fault>) {
        let _permit = self.0.permits.acquire().await.expect("never closed");
        // One that is in use is in nobody else's hands, and if this future is dropped it is closed.
        let session = match self.session().await {
            Ok(session) => session,
            Err(fault) => return (Vec::new(), Some(fault)),
        };
        let mut rows = Vec::new();
        session.warning.lock().take();
        let fault = match timeout(self.0.timeout, collect(&session.client, sql, parameters, &mut rows)).await
        {
            Ok(Ok(())) => session.warning.lock().take().filter(|_| asked == Asked::Write).map(Fault::Warned),
            Ok(Err(error)) => Some(error.into()),
            Err(_) => Some(Fault::Silent(self.0.timeout)),
        };
        if fault.as_ref().is_none_or(Fault::leaves_connection) {
            self.0.idle.lock().push(session);
        }
        (rows, fault)
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
        if fault.as_ref().is_none_or(Fault::leaves_connection) {
            self.0.idle.lock().push(session);
        }
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
        let kept = self.0.idle.lock().pop();
        match (kept, &self.0.source) {
            (Some(session), _) if !session.client.is_closed() => Ok(session),
            (_, Source::Given(client)) if client.is_closed() => Err(Fault::Refused(Error::new(
                ErrorKind::Unavailable,
                "the connection that this store was given is closed; make another client, and a store of it",
            ))),
            (_, Source::Given(client)) => Ok(Session { client: client.clone(), warning: Arc::default() }),
            (_, Source::Connect { config, tls, place }) => {
                // Others that are idle are most likely closed as well.
                self.0.idle.lock().retain(|session| !session.client.is_closed());
                let connected = connect(config, tls, place, self.0.timeout / 2).await;
                let (client, warning) = connected.map_err(Fault::Refused)?;
                Ok(Session { client: Arc::new(client), warning })
            }
        }
    }
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

/// A commit that was to wait for standbys and was interrupted: it stands here, and could be missing after a failover.
fn is_of_commit(message: &str, code: &str) -> bool {
    code == "57P01" || message.contains("synchronous replication")
}
