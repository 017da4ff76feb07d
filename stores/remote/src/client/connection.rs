//! Sends calls to one or several servers, over a few connections that all callers of a process share.
//!
//! A server replies to the requests on a connection in order. So each call uses a connection exclusively,
//! and does not wait for another call's reply. Idle connections are kept.
//!
//! A request that may have reached a server is resent, to the same or another server, only if it is a read.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ::redis_driver::{Pipeline, RedisConnectionInfo, Value};
use idmill::store::Capabilities;
use idmill::{Error, ErrorKind, Operation, Result, Status};
use idmill_kit::{Address, Preferred, no_answer};
use idmill_tls::client::{Advice, trusting};
use idmill_tls::resp::{ErrorReply, broken, garbled};
use idmill_tls::{resp, showing};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::classify::{Asked, Fault, IDMILL};
use super::options::RemoteOptions;
use crate::protocol::{Answer, Ask, COMMAND, Outcome, Request, Said, VERSION};

const ADVICE: Advice = Advice { without: "idmill://", certificate: Some("cert=FILE&key=FILE") };
/// Maximum number of concurrent calls. Further calls wait.
const AT_ONCE: usize = 16;
/// Maximum length of the part of an invalid reply that an error contains.
const SHOWN: usize = 200;

/// The servers and the connections to them.
pub(super) struct Link {
    options: RemoteOptions,
    idle: Mutex<Vec<Line>>,
    preferred: Preferred,
    places: Semaphore,
    number: AtomicU64,
    can: OnceLock<Capabilities>,
}

/// A connection that is used by one call at a time.
struct Line {
    /// Index of the server.
    server: usize,
    line: resp::Line,
}

impl Link {
    pub(super) fn new(options: RemoteOptions) -> Self {
        Self {
            preferred: Preferred::new(options.servers.len()),
            options,
            idle: Mutex::default(),
            places: Semaphore::new(AT_ONCE),
            // The first number is random, so that two processes do not use the same numbers.
            number: AtomicU64::new(fastrand::u64(..)),
            can: OnceLock::new(),
        }
    }

    /// Connects to one of the servers, and returns the capabilities of its store.
    pub(super) async fn greet(&self) -> Result<Capabilities> {
        let line = self.line(self.until()).await?;
        self.keep(line);
        Ok(*self.can.get().expect("a connection is greeted before its first request"))
    }

    /// Sends a request to a server. A change is sent at most once.
    pub(super) async fn ask(&self, ask: Ask) -> Result<Said> {
        let (asked, until) = (ask.asked(), self.until());
        let Ok(Ok(_place)) = timeout_at(until, self.places.acquire()).await else {
            let message =
                format!("{AT_ONCE} other calls are in progress, and none ended in time; raise `timeout`");
            return Err(Error::new(ErrorKind::Unavailable, message));
        };
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let request = Request { number, ask }.encode();
        let mut tries = if asked == Asked::Write { 1 } else { self.options.servers.len() + 1 };
        loop {
            let line = self.line(until).await?;
            let fault = match timeout_at(until, exchange(&line, number, &request)).await {
                Ok(Ok(said)) => return self.answered(line, said),
                Ok(Err(fault)) => fault,
                Err(_) => Fault::silent(self.options.timeout),
            };
            let error = IDMILL.failed(&fault, asked, &self.options.servers[line.server]);
            self.failed(line, &fault, error.status());
            tries -= 1;
            if tries == 0 || error.status() == Status::Permanent || Instant::now() >= until {
                return Err(error);
            }
        }
    }

    /// Returns the error for a reply that does not fit the request.
    pub(super) fn garbled(&self, said: &Said, asked: Asked) -> Error {
        let servers: Vec<_> = self.options.servers.iter().map(Address::to_string).collect();
        IDMILL.failed(&garbled(shown(said)), asked, &servers.join(","))
    }

    fn until(&self) -> Instant {
        Instant::now() + self.options.timeout
    }

    fn answered(&self, line: Line, said: Said) -> Result<Said> {
        if in_trouble(&said) {
            // Another server may still reach the store.
            self.preferred.leave(line.server);
        }
        self.keep(line);
        match said {
            Said::Failed(fault) => Err(fault.error()),
            said => Ok(said),
        }
    }

    /// Keeps a connection on which the server replied with an error. After another fault, leaves the server.
    fn failed(&self, line: Line, fault: &Fault, status: Status) {
        if fault.server().is_none() {
            return self.leave(line.server);
        }
        if status != Status::Permanent {
            self.preferred.leave(line.server);
        }
        self.keep(line);
    }

    fn keep(&self, line: Line) {
        let mut idle = self.idle.lock();
        if idle.len() < AT_ONCE && !line.line.is_closed() {
            idle.push(line);
        }
    }

    /// Drops all idle connections to this server, because they may be broken too. Later calls use the next
    /// server.
    fn leave(&self, server: usize) {
        self.idle.lock().retain(|line| line.server != server);
        self.preferred.leave(server);
    }

    /// Returns the most recently used idle and open connection to this server. Older connections stay idle,
    /// so that a proxy can close them.
    fn kept(&self, server: usize) -> Option<Line> {
        let mut idle = self.idle.lock();
        idle.retain(|line| !line.line.is_closed());
        let at = idle.iter().rposition(|line| line.server == server)?;
        Some(idle.remove(at))
    }

    /// Returns an idle or new connection to the preferred server, or to the next server that can be reached.
    /// This is safe for every request, since none was sent yet.
    async fn line(&self, until: Instant) -> Result<Line> {
        let timeout =
            self.options.timeout / 2 / u32::try_from(self.options.servers.len()).unwrap_or(u32::MAX);
        let mut failed: Option<Error> = None;
        for server in self.preferred.order() {
            if let Some(line) = self.kept(server) {
                return Ok(line);
            }
            let opened = timeout_at(until.min(Instant::now() + timeout), self.open(server)).await;
            match opened.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, no_answer(timeout)))) {
                Ok(line) => {
                    self.preferred.prefer(server);
                    return Ok(line);
                }
                // Prefer a permanent error over a transient error.
                Err(error) if failed.is_none() || error.status() == Status::Permanent => {
                    let message = format!("idmill at {}: {error}", self.options.servers[server]);
                    failed = Some(Error::new(error.kind(), message).during(Operation::Connect));
                }
                Err(_) => {}
            }
        }
        Err(failed.expect("there is a server"))
    }

    async fn open(&self, server: usize) -> Result<Line> {
        let options = self.options.clone();
        let token = spawn_blocking(move || options.token_now()).await;
        let token = token.map_err(|error| Error::from(ErrorKind::Unavailable).because(error))??;
        let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(token) = token {
            login = login.set_password(token);
        }
        let tls = self.options.tls.clone();
        let is_on = tls.is_on();
        let config = move || showing(trusting(tls.ca.as_deref(), "ca")?, &tls);
        let line =
            IDMILL.open(&self.options.servers[server], is_on.then_some((config, ADVICE)), &login).await?;
        let line = Line { server, line };
        self.hear_what_it_can(&line).await?;
        Ok(line)
    }

    /// Reads the capabilities of the server's store. Rejects a store with fewer capabilities than the first
    /// server's store, because the allocator relies on the first capabilities for all servers.
    async fn hear_what_it_can(&self, line: &Line) -> Result<()> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let request = Request { number, ask: Ask::Capabilities }.encode();
        let can = match exchange(line, number, &request).await {
            Ok(Said::Capabilities(can)) => can,
            Ok(Said::Failed(fault)) => return Err(fault.error()),
            Ok(said) => return Err(IDMILL.refused(&garbled(shown(&said)))),
            Err(fault) => return Err(IDMILL.refused(&fault)),
        };
        let known = *self.can.get_or_init(|| can);
        if promises(can, known) {
            return Ok(());
        }
        let message = format!(
            "this server's store has {can:?}, but the first server's has {known:?}; point all servers at the \
             same store"
        );
        Err(Error::new(ErrorKind::Unsupported, message))
    }
}

/// Returns whether a store has every capability of another store.
fn promises(can: Capabilities, known: Capabilities) -> bool {
    let all = |can: Capabilities| [can.batches, can.shared, can.gives_back, can.records];
    can.durability >= known.durability
        && all(can).into_iter().zip(all(known)).all(|(can, known)| can >= known)
}

/// Returns whether the reply shows a non-permanent failure of a call or of a reserve.
fn in_trouble(said: &Said) -> bool {
    match said {
        Said::Failed(fault) => fault.status != Status::Permanent,
        Said::Grants(outcomes) => outcomes
            .iter()
            .any(|one| matches!(one, Outcome::Failed(fault) if fault.status != Status::Permanent)),
        _ => false,
    }
}

/// Sends a request and reads its reply.
async fn exchange(line: &Line, number: u64, request: &[u8]) -> Result<Said, Fault> {
    let mut pipeline = Pipeline::with_capacity(1);
    pipeline.cmd(COMMAND).arg(VERSION).arg(request);
    let mut connection = line.line.connection.clone();
    let sent = connection.send_packed_commands(&pipeline, 0, 1).await;
    let values = sent.map_err(|error| broken(&error))?;
    match values.as_slice() {
        [Value::BulkString(bytes)] => match Answer::decode(bytes) {
            Ok(answer) if answer.number == number => Ok(answer.said),
            Ok(answer) => Err(garbled(format_args!("a reply to request {}, not {number}", answer.number))),
            Err(error) => Err(garbled(error)),
        },
        [Value::ServerError(error)] => Err(ErrorReply::from(error).into()),
        other => Err(garbled(shown(&other))),
    }
}

fn shown(answer: &dyn fmt::Debug) -> String {
    format!("{answer:?}").chars().take(SHOWN).collect()
}

// Omits the options, which contain a token.
idmill_kit::debug_fields!(Link | link | servers = link.options.servers);
