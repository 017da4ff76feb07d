//! Connections in the Redis protocol, which several kinds of servers use, and the classification of their
//! failures.
//!
//! The driver implements the protocol and matches replies with requests. It never connects and never resends
//! a request. The driver uses the given socket. When the socket breaks, the outcome of all requests in
//! progress is unknown.

use std::borrow::Cow;
use std::fmt;

use idmill::{Error, ErrorKind, Result};
use idmill_kit::{Address, Asked, advised};
use redis_driver::aio::MultiplexedConnection;
use redis_driver::{
    AsyncConnectionConfig, ErrorKind as Driver, RedisConnectionInfo, RedisError, RedisResult, ServerError,
};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::client::{Advice, shake_hands};

/// The failure of a call.
pub type Fault = idmill_kit::Fault<ErrorReply>;

/// An error reply of the server.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "these are all parts of a reply")]
pub struct ErrorReply {
    /// The first word.
    pub code: String,
    /// The rest.
    pub detail: String,
}

impl ErrorReply {
    /// Creates an error reply.
    pub fn new(code: &str, detail: Option<&str>) -> Self {
        Self { code: code.to_owned(), detail: detail.unwrap_or_default().to_owned() }
    }
}

impl From<&ServerError> for ErrorReply {
    fn from(error: &ServerError) -> Self {
        Self::new(error.code(), error.details())
    }
}

impl fmt::Display for ErrorReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.detail)
    }
}

/// The fault of a connection that broke after the request was sent, or may have been sent.
pub fn broken(error: &RedisError) -> Fault {
    Fault::lost(format!("the connection was lost: {error}"))
}

/// The fault of a reply that does not fit the request.
pub fn garbled(what: impl fmt::Display) -> Fault {
    Fault::lost(format!("unexpected reply: {what}"))
}

/// Returns the code of an error reply; empty for another fault.
pub fn code(fault: &Fault) -> &str {
    fault.server().map_or("", |reply| reply.code.as_str())
}

/// The name, error kinds and advice of one kind of server.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "each store constructs one")]
pub struct Dialect {
    /// The name of the server in errors.
    pub name: &'static str,
    /// Returns the error kind of a rejected change, by code and detail.
    pub of_code: fn(&str, &str) -> ErrorKind,
    /// Returns advice for a failure with this code, if the server replied, and of this kind.
    pub remedy: fn(&str, ErrorKind) -> Option<Cow<'static, str>>,
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
        fault.kind(asked, |reply| (self.of_code)(&reply.code, &reply.detail))
    }

    /// Returns a failure as an error. `server` is the address for the message.
    pub fn failed(&self, fault: &Fault, asked: Asked, server: &dyn fmt::Display) -> Error {
        if let Fault::NotSent(error) = fault {
            return error.clone();
        }
        let kind = self.classify(fault, asked);
        advised(kind, format_args!("{} at {server}: {fault}", self.name), (self.remedy)(code(fault), kind))
    }

    /// Returns the error for a rejected new connection. No request of the caller was sent.
    pub fn refused(&self, fault: &Fault) -> Error {
        let kind = self.classify(fault, Asked::Read);
        // A server of another kind, or with TLS, closes the connection at the first request.
        let advice = match fault {
            Fault::Lost(_) => Some(self.stranger.into()),
            _ => (self.remedy)(code(fault), kind),
        };
        advised(kind, fault, advice)
    }

    /// Returns the error for a failed connection. No request of the caller was sent.
    pub fn not_connected(&self, error: &RedisError) -> Error {
        // A failed SELECT of a database has no code.
        let code = error.code().or(error.detail().map(|_| "ERR"));
        let said = code.map(|code| Fault::from(ErrorReply::new(code, error.detail())));
        let kind = match error.kind() {
            Driver::AuthenticationFailed => ErrorKind::Denied,
            Driver::InvalidClientConfig => ErrorKind::InvalidInput,
            _ => said.as_ref().map_or(ErrorKind::Unavailable, |fault| self.classify(fault, Asked::Read)),
        };
        let stranger = || Some(self.stranger.into());
        let advice = code.map_or_else(stranger, |code| (self.remedy)(code, kind));
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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    /// Denies `NOAUTH`, and advises to restart the server after each other error reply.
    const TOY: Dialect = Dialect {
        name: "Toy",
        of_code: |code, detail| match (code, detail) {
            ("NOAUTH", _) => ErrorKind::Denied,
            ("ERR", "no such database") => ErrorKind::NotFound,
            _ => ErrorKind::UnknownOutcome,
        },
        remedy: |code, kind| match (code, kind) {
            (_, ErrorKind::Denied) => Some("log in".into()),
            ("", _) => None,
            _ => Some("restart the server".into()),
        },
        stranger: "this is no Toy server",
    };

    fn not_sent() -> Fault {
        Fault::NotSent(Error::new(ErrorKind::Unsupported, "no route"))
    }

    fn lost() -> Fault {
        Fault::lost("reset")
    }

    fn reply(code: &str, detail: Option<&str>) -> Fault {
        ErrorReply::new(code, detail).into()
    }

    fn expect(error: &Error, kind: ErrorKind, message: &str) {
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, message));
    }

    #[test]
    fn fault_is_printed_in_words() {
        let cut = RedisError::from((Driver::Io, "cut"));
        for (fault, text, word) in [
            (not_sent(), "no route", ""),
            (reply("ERR", Some("bad")), "ERR bad", "ERR"),
            (reply("ERR", None), "ERR ", "ERR"),
            (broken(&cut), &*format!("the connection was lost: {cut}"), ""),
            (garbled("nil"), "unexpected reply: nil", ""),
        ] {
            assert_eq!((fault.to_string().as_str(), code(&fault)), (text, word));
        }
    }

    #[test]
    fn only_a_write_that_was_sent_has_an_unknown_outcome() {
        let denied = reply("NOAUTH", None);
        for (fault, write, read) in [
            (not_sent(), ErrorKind::Unsupported, ErrorKind::Unsupported),
            (denied, ErrorKind::Denied, ErrorKind::Denied),
            (reply("ERR", None), ErrorKind::UnknownOutcome, ErrorKind::Unavailable),
            (lost(), ErrorKind::UnknownOutcome, ErrorKind::Unavailable),
        ] {
            assert_eq!(
                (TOY.classify(&fault, Asked::Write), TOY.classify(&fault, Asked::Read)),
                (write, read),
                "{fault}"
            );
        }
    }

    #[test]
    fn failure_has_the_server_and_the_advice() {
        let failed = |fault: &Fault| TOY.failed(fault, Asked::Write, &"h:1");
        expect(&failed(&not_sent()), ErrorKind::Unsupported, "no route");
        let message = "Toy at h:1: ERR bad; restart the server";
        expect(&failed(&reply("ERR", Some("bad"))), ErrorKind::UnknownOutcome, message);
        let message = "Toy at h:1: reset";
        expect(&failed(&lost()), ErrorKind::UnknownOutcome, message);
        let message = "reset; this is no Toy server";
        expect(&TOY.refused(&lost()), ErrorKind::Unavailable, message);
        expect(&TOY.refused(&reply("NOAUTH", None)), ErrorKind::Denied, "NOAUTH ; log in");
    }

    #[test]
    fn failed_login_is_classified_by_its_reply() {
        let extension = |code: &str, detail: &str| {
            redis_driver::make_extension_error(code.to_owned(), Some(detail.to_owned()))
        };
        for (error, kind, advice) in [
            (
                RedisError::from((Driver::AuthenticationFailed, "x")),
                ErrorKind::Denied,
                "this is no Toy server",
            ),
            (
                RedisError::from((Driver::InvalidClientConfig, "x")),
                ErrorKind::InvalidInput,
                "this is no Toy server",
            ),
            (RedisError::from((Driver::Io, "x")), ErrorKind::Unavailable, "this is no Toy server"),
            (extension("NOAUTH", "who"), ErrorKind::Denied, "log in"),
            (extension("BUSY", "later"), ErrorKind::Unavailable, "restart the server"),
            (
                RedisError::from((Driver::UnexpectedReturnType, "x", "no such database".to_owned())),
                ErrorKind::NotFound,
                "restart the server",
            ),
        ] {
            expect(&TOY.not_connected(&error), kind, &format!("{error}; {advice}"));
        }
    }

    /// Accepts one connection, answers `+OK` to each command, and ends when the client closes it.
    fn server() -> (Address, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::parse(&listener.local_addr().unwrap().to_string(), None).unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                let commands = str::from_utf8(&buffer[..read]).unwrap().matches('*').count();
                let _ = stream.write_all("+OK\r\n".repeat(commands).as_bytes());
            }
        });
        (address, serving)
    }

    async fn open(address: &Address) -> Result<Line> {
        let no_tls = None::<(fn() -> Result<ClientConfig>, Advice)>;
        TOY.open(address, no_tls, &RedisConnectionInfo::default()).await
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
    }

    /// Runs the other tasks until `done`, for at most a minute.
    async fn eventually(done: impl Fn() -> bool) {
        let begun = std::time::Instant::now();
        while !done() {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing happened for a minute");
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn connection_ends_when_it_is_closed_or_dropped() {
        run(async {
            let (address, serving) = server();
            let line = open(&address).await.unwrap();
            assert!(!line.is_closed());
            line.close();
            eventually(|| line.is_closed()).await;
            serving.join().unwrap();
            let (address, serving) = server();
            let line = open(&address).await.unwrap();
            let clone = line.connection.clone();
            drop(line);
            eventually(|| serving.is_finished()).await;
            serving.join().unwrap();
            drop(clone);
        });
    }

    #[test]
    fn unreachable_server_is_unavailable() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = run(open(&Address::parse(&free.to_string(), None).unwrap())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}
