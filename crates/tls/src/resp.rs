//! Connections in Redis' protocol, which servers of more than one kind speak, and what their failures mean.
//!
//! The driver speaks the protocol and matches answers with questions. It never connects by itself and never
//! sends anything again: it is given the socket, and when that breaks, everything under way on it is unknown.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idmill::{Error, ErrorKind, Result};
use idmill_kit::{Address, Asked, advised};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind as Driver, RedisConnectionInfo, RedisError, RedisResult};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::client::{Advice, shake_hands};

/// How a call can fail.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "stores decide by all of them")]
pub enum Fault {
    /// There was no connection to send it on.
    NotSent(Error),
    /// The server's own words.
    Server {
        /// The first of them.
        code: String,
        /// The others.
        detail: String,
    },
    /// The connection broke after it was sent, or may have been.
    Lost(Arc<str>),
    /// No answer in time.
    Silent(Duration),
    /// The same, of a call that spent most of its time on the connection.
    Late(Duration),
    /// An answer that is not one to this question. Nothing of it is believed.
    Garbled(String),
    /// Done, and known to fewer replicas than were asked for.
    Unreplicated {
        /// So many know of it.
        known: i64,
        /// So many were asked for.
        wanted: u32,
    },
}

impl Fault {
    /// The server's refusal.
    pub fn server(code: &str, detail: Option<&str>) -> Self {
        Self::Server { code: code.to_owned(), detail: detail.unwrap_or_default().to_owned() }
    }

    /// Its code and the rest of it; empty if it is no refusal.
    pub fn words(&self) -> (&str, &str) {
        if let Self::Server { code, detail } = self { (code, detail) } else { ("", "") }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(error) => error.fmt(f),
            Self::Server { code, detail } => write!(f, "{code} {detail}"),
            Self::Lost(reason) => write!(f, "the connection was lost: {reason}"),
            Self::Silent(timeout) | Self::Late(timeout) => write!(f, "no answer within {timeout:?}"),
            Self::Garbled(what) => write!(f, "the answer is not one to what was asked: {what}"),
            Self::Unreplicated { known, wanted } => write!(f, "{known} of {wanted} replicas know of it"),
        }
    }
}

/// The words of servers of one kind.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "a constant of each store")]
pub struct Dialect {
    /// What such a server is called in errors.
    pub name: &'static str,
    /// The kind of a refused change, by the code and detail.
    pub of_code: fn(&str, &str) -> ErrorKind,
    /// Advice for a failure of this kind.
    pub remedy: fn(&Fault, ErrorKind) -> Option<Cow<'static, str>>,
    /// Advice where the server hung up on the first words.
    pub stranger: &'static str,
}

/// A connection; it ends when it is dropped.
#[derive(Debug)]
pub struct Line {
    /// The driver's.
    pub connection: MultiplexedConnection,
    task: JoinHandle<()>,
}

impl Line {
    /// Whether it has ended, as far as is known.
    pub fn is_closed(&self) -> bool {
        self.task.is_finished()
    }

    /// Ends it. The outcome of the calls under way on it is unknown.
    pub fn close(&self) {
        self.task.abort();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.close();
    }
}

impl Dialect {
    /// The kind of a failure.
    pub fn classify(&self, fault: &Fault, asked: Asked) -> ErrorKind {
        asked.kind(match fault {
            Fault::NotSent(error) => error.kind(),
            Fault::Server { code, detail } => (self.of_code)(code, detail),
            _ => ErrorKind::UnknownOutcome,
        })
    }

    /// A failure as an error; `server` is where.
    pub fn failed(&self, fault: &Fault, asked: Asked, server: &dyn fmt::Display) -> Error {
        if let Fault::NotSent(error) = fault {
            return error.clone();
        }
        let kind = self.classify(fault, asked);
        advised(kind, format_args!("{} at {server}: {fault}", self.name), (self.remedy)(fault, kind))
    }

    /// The error for a new connection that was refused: nothing of the caller's was sent yet.
    pub fn refused(&self, fault: &Fault) -> Error {
        let kind = self.classify(fault, Asked::Read);
        advised(kind, fault, (self.remedy)(fault, kind))
    }

    /// There is no connection: nothing of the caller's was sent yet.
    pub fn not_connected(&self, error: &RedisError) -> Error {
        // A refusal to change to a database has no code of its own.
        let code = error.code().or(error.detail().map(|_| "ERR"));
        let said = code.map(|code| Fault::server(code, error.detail()));
        let kind = match error.kind() {
            Driver::AuthenticationFailed => ErrorKind::Denied,
            Driver::InvalidClientConfig => ErrorKind::InvalidInput,
            _ => said.as_ref().map_or(ErrorKind::Unavailable, |fault| self.classify(fault, Asked::Read)),
        };
        let stranger = || Some(self.stranger.into());
        let advice = said.as_ref().map_or_else(stranger, |fault| (self.remedy)(fault, kind));
        advised(kind, error, advice)
    }

    /// Connects and logs in; over TLS if `tls` says how.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if the server cannot be reached; those of TLS and the login.
    pub async fn open(
        &self,
        server: &Address,
        tls: Option<(impl FnOnce() -> Result<ClientConfig> + Send + 'static, Advice)>,
        login: &RedisConnectionInfo,
    ) -> Result<Line> {
        let unreachable = |error: std::io::Error| Error::new(ErrorKind::Unavailable, error.to_string());
        let stream = TcpStream::connect((server.host(), server.port())).await.map_err(unreachable)?;
        // A call is one small packet each way: waiting for more to send would be all of its time.
        stream.set_nodelay(true).map_err(unreachable)?;
        let line = match tls {
            Some((config, advice)) => {
                log_in(shake_hands(config, server.host(), stream, advice).await?, login).await
            }
            None => log_in(stream, login).await,
        };
        line.map_err(|error| self.not_connected(&error))
    }
}

async fn log_in<S>(stream: S, login: &RedisConnectionInfo) -> RedisResult<Line>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // The caller's are the only timeouts: they know what was asked.
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    let (connection, driver) = MultiplexedConnection::new_with_config(login, stream, config).await?;
    Ok(Line { connection, task: tokio::spawn(driver) })
}
