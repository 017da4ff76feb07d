//! Calls of one or several servers, over a few connections that are shared by all callers of a process.
//!
//! Nothing is sent again by itself. Each call has a connection for itself while it is under way, since a server answers
//! what comes on one in its order: so no call waits behind another. Connections that are free are kept.
//!
//! What may have been sent to one server is not sent to another, except for what is only read.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ::redis::{Pipeline, RedisConnectionInfo, Value};
use idmill::store::Capabilities;
use idmill::{Error, ErrorKind, Operation, Result, Status};
use idmill_kit::Address;
use idmill_tls::client::{Advice, trusting};
use idmill_tls::{resp, showing};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::classify::{Asked, Fault, IDMILL};
use super::options::RemoteOptions;
use crate::protocol::{Answer, Ask, COMMAND, Outcome, Request, Said, VERSION};

const ADVICE: Advice = Advice { without: "idmill://", certificate: Some("cert=FILE&key=FILE") };
/// How many calls are under way at once; more wait.
const AT_ONCE: usize = 16;
/// How much of an answer that is none is shown.
const SHOWN: usize = 200;

/// The servers, and the connections to them.
pub(super) struct Link {
    options: RemoteOptions,
    idle: Mutex<Vec<Line>>,
    /// The server that answered last.
    preferred: AtomicUsize,
    places: Semaphore,
    number: AtomicU64,
    can: OnceLock<Capabilities>,
}

/// A connection on which nothing is under way but what its holder asked.
struct Line {
    /// Which of the servers.
    server: usize,
    line: resp::Line,
}

impl Link {
    pub(super) fn new(options: RemoteOptions) -> Self {
        Self {
            options,
            idle: Mutex::default(),
            preferred: AtomicUsize::new(0),
            places: Semaphore::new(AT_ONCE),
            // So that no two processes count alike.
            number: AtomicU64::new(fastrand::u64(..)),
            can: OnceLock::new(),
        }
    }

    /// Connects to one of the servers, and returns what its store can do.
    pub(super) async fn greet(&self) -> Result<Capabilities> {
        let line = self.line(self.until()).await?;
        self.keep(line);
        Ok(*self.can.get().expect("a line was greeted"))
    }

    /// Asks one server. What was to be changed is sent once.
    pub(super) async fn ask(&self, ask: Ask, asked: Asked) -> Result<Said> {
        let until = self.until();
        let Ok(Ok(_place)) = timeout_at(until, self.places.acquire()).await else {
            let message =
                format!("{AT_ONCE} other calls are under way, and none has ended within the timeout");
            return Err(Error::new(ErrorKind::Unavailable, message));
        };
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let request = Request { number, ask }.encode();
        let mut tries = if asked == Asked::Write { 1 } else { self.servers().len() + 1 };
        loop {
            let line = self.line(until).await?;
            let fault = match timeout_at(until, exchange(&line, number, &request)).await {
                Ok(Ok(said)) => return self.answered(line, said),
                Ok(Err(fault)) => fault,
                Err(_) => Fault::Silent(self.options.timeout),
            };
            self.leave(line.server);
            let error = IDMILL.failed(&fault, asked, &self.servers()[line.server]);
            tries -= 1;
            if tries == 0 || error.status() == Status::Permanent || Instant::now() >= until {
                return Err(error);
            }
        }
    }

    /// The error for an answer that does not fit the question.
    pub(super) fn garbled(&self, said: &Said, asked: Asked) -> Error {
        let servers: Vec<_> = self.servers().iter().map(Address::to_string).collect();
        IDMILL.failed(&Fault::Garbled(shown(said)), asked, &servers.join(","))
    }

    fn until(&self) -> Instant {
        Instant::now() + self.options.timeout
    }

    fn servers(&self) -> &[Address] {
        &self.options.servers
    }

    fn answered(&self, line: Line, said: Said) -> Result<Said> {
        if in_trouble(&said) {
            // Another server may reach the store.
            self.prefer_after(line.server);
        }
        self.keep(line);
        match said {
            Said::Failed(fault) => Err(fault.error()),
            said => Ok(said),
        }
    }

    fn keep(&self, line: Line) {
        let mut idle = self.idle.lock();
        if idle.len() < AT_ONCE && !line.line.is_closed() {
            idle.push(line);
        }
    }

    /// What is kept of connections to this server may lead nowhere as well, and later calls go to the next.
    fn leave(&self, server: usize) {
        self.idle.lock().retain(|line| line.server != server);
        self.prefer_after(server);
    }

    fn prefer_after(&self, server: usize) {
        let next = (server + 1) % self.servers().len();
        // Unless somebody else has left it meanwhile.
        let _ = self.preferred.compare_exchange(server, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The connection that was used last, if it is alive as far as is known: those before it end by
    /// themselves one day.
    fn kept(&self, server: usize) -> Option<Line> {
        let mut idle = self.idle.lock();
        idle.retain(|line| !line.line.is_closed());
        let at = idle.iter().rposition(|line| line.server == server)?;
        Some(idle.remove(at))
    }

    /// A connection to the server that answered last, or to the next that one can be had to. Nothing was sent
    /// on it.
    async fn line(&self, until: Instant) -> Result<Line> {
        let (first, servers) = (self.preferred.load(Ordering::Relaxed), self.servers().len());
        let patience = self.options.timeout / 2 / u32::try_from(servers).unwrap_or(u32::MAX);
        let mut failed: Option<Error> = None;
        for server in (first..first + servers).map(|server| server % servers) {
            if let Some(line) = self.kept(server) {
                return Ok(line);
            }
            let opened = timeout_at(until.min(Instant::now() + patience), self.open(server)).await;
            match opened.unwrap_or_else(|_| Err(silent(patience))) {
                Ok(line) => {
                    self.preferred.store(server, Ordering::Relaxed);
                    return Ok(line);
                }
                // What does not pass by itself is what has to be told.
                Err(error) if failed.is_none() || error.status() == Status::Permanent => {
                    let message = format!("idmill at {}: {error}", self.servers()[server]);
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
        let line = IDMILL.open(&self.servers()[server], is_on.then_some((config, ADVICE)), &login).await?;
        let line = Line { server, line };
        self.hear_what_it_can(&line).await?;
        Ok(line)
    }

    /// All servers are over one store, and what the engine counts on holds wherever it is sent.
    async fn hear_what_it_can(&self, line: &Line) -> Result<()> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let request = Request { number, ask: Ask::Capabilities }.encode();
        let can = match exchange(line, number, &request).await {
            Ok(Said::Capabilities(can)) => can,
            Ok(Said::Failed(fault)) => return Err(fault.error()),
            Ok(said) => return Err(IDMILL.refused(&Fault::Garbled(shown(&said)))),
            Err(fault) => return Err(IDMILL.refused(&fault)),
        };
        let known = *self.can.get_or_init(|| can);
        if promises(can, known) {
            return Ok(());
        }
        let message = format!(
            "the store behind it can less than the one that was opened, {can:?} and not {known:?}: all servers have to be over one store"
        );
        Err(Error::new(ErrorKind::Unsupported, message))
    }
}

/// Whether a store can all that another does.
fn promises(can: Capabilities, known: Capabilities) -> bool {
    let all = |can: Capabilities| [can.batches, can.shared, can.gives_back, can.records];
    can.durability >= known.durability
        && all(can).into_iter().zip(all(known)).all(|(can, known)| can >= known)
}

/// Whether the store behind the server did not answer, as far as this says so.
fn in_trouble(said: &Said) -> bool {
    match said {
        Said::Failed(fault) => fault.status != Status::Permanent,
        Said::Grants(outcomes) => outcomes
            .iter()
            .any(|one| matches!(one, Outcome::Failed(fault) if fault.status != Status::Permanent)),
        _ => false,
    }
}

/// Sends a request and reads its answer.
async fn exchange(line: &Line, number: u64, request: &[u8]) -> Result<Said, Fault> {
    let mut pipeline = Pipeline::with_capacity(1);
    pipeline.cmd(COMMAND).arg(VERSION).arg(request);
    let mut connection = line.line.connection.clone();
    let sent = connection.send_packed_commands(&pipeline, 0, 1).await;
    let values = sent.map_err(|error| Fault::Lost(error.to_string().into()))?;
    match values.as_slice() {
        [Value::BulkString(bytes)] => match Answer::decode(bytes) {
            Ok(answer) if answer.number == number => Ok(answer.said),
            Ok(answer) => Err(Fault::Garbled(format!("number {} instead of {number}", answer.number))),
            Err(error) => Err(Fault::Garbled(error.to_string())),
        },
        [Value::ServerError(error)] => Err(Fault::server(error.code(), error.details())),
        other => Err(Fault::Garbled(shown(&other))),
    }
}

fn shown(answer: &dyn fmt::Debug) -> String {
    format!("{answer:?}").chars().take(SHOWN).collect()
}

fn silent(patience: Duration) -> Error {
    Error::new(ErrorKind::Unavailable, format!("no answer within {patience:?}"))
}

/// Not the options, which hold a token.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("servers", &self.servers()).finish_non_exhaustive()
    }
}
