//! Connections: how they are made, and how one statement is run on one of them.

use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_postgres::error::Severity;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::classify::{Asked, Fault, failed};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Arc, Mutex};

/// A parameter of a statement, and its type: so that a statement need not be prepared, which would be another round trip and
/// which poolers do not keep.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

pub(super) fn text<'a>(value: &'a (impl ToSql + Sync)) -> Parameter<'a> {
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
    /// The last warning that came along, of those that concern a commit.
    warning: Arc<Mutex<Option<String>>>,
}

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

    /// The same source, but with another patience and no connections yet.
    pub(super) fn with_timeout(self, timeout: Duration) -> Self {
        let most = self.0.permits.available_permits();
        match Arc::try_unwrap(self.0) {
            Ok(inner) => Self::new(inner.source, timeout, most),
            Err(shared) => match &shared.source {
                Source::Given(client) => Self::given(client.clone(), timeout, most),
                Source::Connect { config, tls, place } => {
                    Self::connect((**config).clone(), tls.clone(), place.clone(), timeout, most)
                }
            },
        }
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
        let _permit = self.0.permits.acquire().await.expect("never closed");
        // One that is in use is in nobody else's hands, and if this future is dropped it is closed.
        let session = self.session().await?;
        let parameters = parameters.iter().map(|(value, kind)| (*value, kind.clone())).collect::<Vec<_>>();
        let answer = timeout(self.0.timeout, session.client.query_typed(sql, &parameters)).await;
        let outcome = match answer {
            Ok(Ok(rows)) => match session.warning.lock().take().filter(|_| asked == Asked::Write) {
                Some(warning) => Err(Fault::Warned(warning)),
                None => Ok(rows),
            },
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Fault::Silent(self.0.timeout)),
        };
        if outcome.as_ref().map_or_else(Fault::leaves_connection, |_| true) {
            self.0.idle.lock().push(session);
        }
        outcome
    }

    /// Runs statements that stand in one string, without parameters; each string is a transaction.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), Fault> {
        let _permit = self.0.permits.acquire().await.expect("never closed");
        let session = self.session().await?;
        match timeout(self.0.timeout, session.client.batch_execute(sql)).await {
            Ok(Ok(())) => {
                self.0.idle.lock().push(session);
                Ok(())
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Fault::Silent(self.0.timeout)),
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
            (_, Source::Given(client)) => {
                Ok(Session { client: client.clone(), warning: Arc::default() })
            }
            (_, Source::Connect { config, tls, place }) => {
                // Others that are idle are most likely closed as well.
                self.0.idle.lock().retain(|session| !session.client.is_closed());
                connect(config, tls, place, self.0.timeout / 2).await.map_err(Fault::Refused)
            }
        }
    }
}

async fn connect(config: &Config, tls: &MakeRustlsConnect, place: &str, patience: Duration) -> Result<Session> {
    let connected = match timeout(patience, config.connect(tls.clone())).await {
        Ok(connected) => connected,
        Err(_) => {
            let message = format!("cannot connect to {place}: no answer within {patience:?}");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
    };
    let (client, mut connection) = match connected {
        Ok(connected) => connected,
        Err(error) => {
            let fault = Fault::Driver(error);
            let error = failed(fault, Asked::Connect);
            return Err(Error::new(error.kind(), format!("cannot connect to {place}: {error}")).because(error));
        }
    };
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
    Ok(Session { client: Arc::new(client), warning })
}

/// A commit that was to wait for standbys and was interrupted: it stands here, and could be missing after a failover.
fn is_of_commit(message: &str, code: &str) -> bool {
    code == "57P01" || message.contains("synchronous replication")
}
