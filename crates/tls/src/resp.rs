//! Connections in the Redis protocol, which several kinds of servers use, and the classification of their
//! failures.
//!
//! The driver implements the protocol and matches replies with requests. It never connects and never resends
//! a request. The driver uses the given socket. When the socket breaks, the outcome of all requests in
//! progress is unknown.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idmill::{Error, ErrorKind, Result};
use idmill_kit::{Address, Asked, advised};
use redis_driver::aio::MultiplexedConnection;
use redis_driver::{
    AsyncConnectionConfig, ErrorKind as Driver, RedisConnectionInfo, RedisError, RedisResult,
};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::client::{Advice, shake_hands};

/// The failure of a call.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "each store must handle a new fault")]
pub enum Fault {
    /// There was no connection, so nothing was sent.
    NotSent(Error),
    /// An error reply of the server.
    Server {
        /// The first word of the reply.
        code: String,
        /// The rest of the reply.
        detail: String,
    },
    /// The connection broke after the request was sent, or may have been sent.
    Lost(Arc<str>),
    /// No reply within the timeout.
    Silent(Duration),
    /// No reply within the timeout, after a call that spent most of its time on connecting.
    Late(Duration),
    /// A reply that does not fit the request. It is ignored.
    Garbled(String),
    /// The write was applied, but on fewer replicas than requested.
    Unreplicated {
        /// The number of replicas that confirmed the write.
        known: i64,
        /// The requested number of replicas.
        wanted: u32,
    },
}

impl Fault {
    /// Creates the fault of an error reply.
    pub fn server(code: &str, detail: Option<&str>) -> Self {
        Self::Server { code: code.to_owned(), detail: detail.unwrap_or_default().to_owned() }
    }

    /// Returns the code and the detail of an error reply; both are empty for another fault.
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
            Self::Garbled(what) => write!(f, "unexpected reply: {what}"),
            Self::Unreplicated { known, wanted } => {
                write!(f, "{known} of {wanted} replicas confirmed the write")
            }
        }
    }
}

/// The name, error kinds and advice of one kind of server.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "each store constructs one")]
pub struct Dialect {
    /// The name of the server in errors.
    pub name: &'static str,
    /// Returns the error kind of a rejected change, by code and detail.
    pub of_code: fn(&str, &str) -> ErrorKind,
    /// Returns advice for a failure of this kind.
    pub remedy: fn(&Fault, ErrorKind) -> Option<Cow<'static, str>>,
    /// Advice for a server that closed the connection during the login.
    pub stranger: &'static str,
}

/// A connection. It ends when it is dropped.
#[derive(Debug)]
pub struct Line {
    /// The connection of the driver.
    pub connection: MultiplexedConnection,
    task: JoinHandle<()>,
}

impl Line {
    /// Returns whether the connection is known to have ended.
    pub fn is_closed(&self) -> bool {
        self.task.is_finished()
    }

    /// Ends the connection. The outcome of calls in progress is unknown.
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
    /// Returns the error kind of a failure.
    pub fn classify(&self, fault: &Fault, asked: Asked) -> ErrorKind {
        asked.kind(match fault {
            Fault::NotSent(error) => error.kind(),
            Fault::Server { code, detail } => (self.of_code)(code, detail),
            _ => ErrorKind::UnknownOutcome,
        })
    }

    /// Returns a failure as an error. `server` is the address for the message.
    pub fn failed(&self, fault: &Fault, asked: Asked, server: &dyn fmt::Display) -> Error {
        if let Fault::NotSent(error) = fault {
            return error.clone();
        }
        let kind = self.classify(fault, asked);
        advised(kind, format_args!("{} at {server}: {fault}", self.name), (self.remedy)(fault, kind))
    }

    /// Returns the error for a rejected new connection. No request of the caller was sent.
    pub fn refused(&self, fault: &Fault) -> Error {
        let kind = self.classify(fault, Asked::Read);
        // A server of another kind, or with TLS, closes the connection at the first request.
        let advice = match fault {
            Fault::Lost(_) => Some(self.stranger.into()),
            _ => (self.remedy)(fault, kind),
        };
        advised(kind, fault, advice)
    }

    /// Returns the error for a failed connection. No request of the caller was sent.
    pub fn not_connected(&self, error: &RedisError) -> Error {
        // A failed SELECT of a database has no code.
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

    /// Connects and logs in, over TLS if `tls` is given.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if the server is unreachable; those of TLS and the login.
    pub async fn open(
        &self,
        server: &Address,
        tls: Option<(impl FnOnce() -> Result<ClientConfig> + Send + 'static, Advice)>,
        login: &RedisConnectionInfo,
    ) -> Result<Line> {
        let unreachable = |error: std::io::Error| Error::new(ErrorKind::Unavailable, error.to_string());
        let stream = TcpStream::connect((server.host(), server.port())).await.map_err(unreachable)?;
        // A call is one small packet each way. Nagle's algorithm would only delay it.
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
    // Only the callers set timeouts: they depend on the request.
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    let (connection, driver) = MultiplexedConnection::new_with_config(login, stream, config).await?;
    Ok(Line { connection, task: tokio::spawn(driver) })
}
