//! A TCP proxy between a store and its engine, which injects faults into connections.
//!
//! The proxy forwards data in both directions until one side ends the connection, and then ends the other
//! side too. A test can change this behaviour in four independent ways:
//!
//! - [`arm`](Proxy::arm) sets a [`Fault`] for the requests that the test selects: the connection is cut
//!   before or after them, their answer is withheld or garbled, or they are held and arrive late.
//! - [`cut`](Proxy::cut), [`forget`](Proxy::forget), [`refuse`](Proxy::refuse) and
//!   [`redirect`](Proxy::redirect) affect all connections.
//! - [`requests`](ProxyBuilder::requests) and [`answers`](ProxyBuilder::answers) see all messages. Both
//!   functions can count and rewrite messages, and that of `requests` can choose a fault.
//! - [`frames`](ProxyBuilder::frames) defines where a message ends.
//!
//! A *request* is sent by a client, an *answer* by the engine. Without [`frames`](ProxyBuilder::frames), a
//! message is the data of one read, up to 64 KiB. Drivers split requests into pieces, use several connections
//! and send pings in between, so a piece cannot be attributed to a request. To reach every step of any
//! protocol, use a fault that lets some pieces pass first, in many rounds.
//!
//! ```
//! use idmill_conformance::Proxy;
//! use idmill_conformance::proxy::{Fault, Gate, nth};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use tokio::net::{TcpListener, TcpStream};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! // An engine that echoes everything.
//! let listener = TcpListener::bind("127.0.0.1:0").await?;
//! let engine = listener.local_addr()?;
//! tokio::spawn(async move {
//!     while let Ok((mut stream, _)) = listener.accept().await {
//!         tokio::spawn(async move {
//!             let (mut from, mut to) = stream.split();
//!             tokio::io::copy(&mut from, &mut to).await
//!         });
//!     }
//! });
//!
//! let proxy = Proxy::start(engine).await?;
//! let mut client = TcpStream::connect(proxy.address()).await?;
//! let mut answer = [0; 5];
//!
//! // The answer to the next request that has `two` in it comes late.
//! let gate = Gate::new();
//! proxy.arm(Fault::Withhold(gate.clone()), nth(0, |request| request.ends_with(b"two")));
//! client.write_all(b"1 one").await?;
//! client.read_exact(&mut answer).await?;
//! client.write_all(b"2 two").await?;
//! gate.caught().await; // it has come, and is withheld
//! gate.open();
//! client.read_exact(&mut answer).await?;
//! assert_eq!(&answer, b"2 two");
//!
//! // The next request arrives, and its answer does not.
//! proxy.arm(Fault::CutReply, nth(0, |_| true));
//! client.write_all(b"three").await?;
//! assert_eq!(client.read(&mut answer).await?, 0, "the end");
//! assert_eq!(proxy.disarm(), 1, "the fault hit one request");
//! # Ok(()) }
//! ```

mod connection;
mod fault;
mod pieces;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use connection::Connection;
pub use fault::{Fault, Gate, Nonsense, nth};

/// A proxy in front of an engine: see the [module](self).
///
/// The proxy works in tasks of the runtime in which it was started, and ends with that runtime. On drop, it
/// stops listening and cuts every connection. Held messages are then never delivered. All methods return
/// immediately, but their effect on connections may take a moment longer.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// A message, as [`requests`](ProxyBuilder::requests) and [`answers`](ProxyBuilder::answers) see it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Piece<'a> {
    /// The number of the connection, counted from 0 in the order of acceptance.
    pub connection: u64,
    /// The data. If it is changed, the new data is forwarded instead.
    pub bytes: &'a mut Vec<u8>,
}

/// A builder for a [`Proxy`], returned by [`Proxy::builder`]. The builder does not listen yet.
#[must_use]
pub struct ProxyBuilder {
    target: SocketAddr,
    listen: SocketAddr,
    frames: Option<Length>,
    requests: Requests,
    answers: Answers,
}

type Length = Box<dyn Fn(&[u8]) -> Option<usize> + Send + Sync>;
type Requests = Box<dyn FnMut(&mut Piece<'_>) -> Option<Fault> + Send>;
type Answers = Box<dyn FnMut(&mut Piece<'_>) + Send>;
type When = Box<dyn FnMut(&[u8]) -> bool + Send>;

struct Shared {
    frames: Option<Length>,
    requests: Mutex<Requests>,
    answers: Mutex<Answers>,
    plan: Mutex<Plan>,
    /// The commands for all connections.
    command: watch::Sender<Command>,
}

struct Plan {
    target: SocketAddr,
    armed: Option<(Fault, When)>,
    /// Number of requests that the current or the previous fault affected.
    met: u64,
    /// Number of requests that clients have sent.
    pieces: u64,
    connections: u64,
    refusing: bool,
}

/// Counters, so that a connection notices every command that was given after it was accepted.
#[derive(Clone, Copy, Debug, Default)]
struct Command {
    cuts: u64,
    forgets: u64,
    /// The proxy is gone.
    over: bool,
}

impl ProxyBuilder {
    /// Sets the address on which the proxy listens. Default: a free port of 127.0.0.1.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Sets where a message ends. `length` gets the data that was received in one direction and not forwarded
    /// yet, starting with the first byte of a message. The function returns the length of that message in
    /// bytes, or `None` if it needs more data. Requests and answers are then whole messages, and each is held
    /// in memory. If a connection ends with an incomplete message, that is forwarded, but neither shown nor
    /// counted.
    ///
    /// Default: the data of one read.
    pub fn frames(mut self, length: impl Fn(&[u8]) -> Option<usize> + Send + Sync + 'static) -> Self {
        self.frames = Some(Box::new(length));
        self
    }

    /// Sets a function that sees every request first. The function may rewrite the request, and may return a
    /// fault. If it returns none, the fault that is [armed](Proxy::arm) is checked next, with the rewritten
    /// request.
    ///
    /// The function is called for one request at a time, across all connections. A panic ends the connection.
    pub fn requests(mut self, look: impl FnMut(&mut Piece<'_>) -> Option<Fault> + Send + 'static) -> Self {
        self.requests = Box::new(look);
        self
    }

    /// Sets a function that sees every answer first, and may rewrite it. Like [`requests`](Self::requests),
    /// it is called for one answer at a time.
    pub fn answers(mut self, look: impl FnMut(&mut Piece<'_>) + Send + 'static) -> Self {
        self.answers = Box::new(look);
        self
    }

    /// Starts listening. The proxy does not check for an engine: without an engine, clients are cut off when
    /// they connect.
    ///
    /// # Errors
    /// Errors of binding the address.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub async fn start(self) -> io::Result<Proxy> {
        let listener = TcpListener::bind(self.listen).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            frames: self.frames,
            requests: Mutex::new(self.requests),
            answers: Mutex::new(self.answers),
            plan: Mutex::new(Plan::of(self.target)),
            command: watch::Sender::new(Command::default()),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Ok(Proxy { address, shared, accepting })
    }
}

impl Proxy {
    /// Starts a proxy from a free port of 127.0.0.1 to `target`.
    ///
    /// # Errors
    /// As [`ProxyBuilder::start`].
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        Self::builder(target).start().await
    }

    /// Returns a builder for a proxy to `target`.
    pub fn builder(target: SocketAddr) -> ProxyBuilder {
        ProxyBuilder {
            target,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            frames: None,
            requests: Box::new(|_| None),
            answers: Box::new(|_| ()),
        }
    }

    /// Returns the address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections accepted so far, without [refused](Self::refuse) ones.
    pub fn connections(&self) -> u64 {
        self.shared.plan.lock().connections
    }

    /// Returns the number of requests that clients have sent so far.
    pub fn pieces(&self) -> u64 {
        self.shared.plan.lock().pieces
    }

    /// Injects this fault into every later request for which `when` holds: see [`nth`] for a single one.
    /// Replaces the previous fault.
    ///
    /// `when` is called once for every request for which [`requests`](ProxyBuilder::requests) returned no
    /// fault, one at a time. `when` must not call the proxy.
    pub fn arm(&self, fault: Fault, when: impl FnMut(&[u8]) -> bool + Send + 'static) {
        let mut plan = self.shared.plan.lock();
        plan.armed = Some((fault, Box::new(when)));
        plan.met = 0;
    }

    /// Removes the fault. Returns the number of requests that it affected.
    pub fn disarm(&self) -> u64 {
        let mut plan = self.shared.plan.lock();
        plan.armed = None;
        plan.met
    }

    /// Cuts off every client. Held requests are still delivered when their gate is opened.
    pub fn cut(&self) {
        self.shared.command.send_modify(|command| command.cuts += 1);
    }

    /// Stops forwarding on all current connections, like a firewall that has dropped their state. The
    /// connections stay open and silent on both sides until they are [cut](Self::cut). Later connections
    /// work.
    pub fn forget(&self) {
        self.shared.command.send_modify(|command| command.forgets += 1);
    }

    /// Cuts off every client, current and new, until it is called with `false`.
    pub fn refuse(&self, refusing: bool) {
        self.shared.plan.lock().refusing = refusing;
        if refusing {
            self.cut();
        }
    }

    /// Directs later connections to another address, and cuts the current ones.
    pub fn redirect(&self, target: SocketAddr) {
        self.shared.plan.lock().target = target;
        self.cut();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.shared.plan.lock();
        f.debug_struct("Proxy")
            .field("address", &self.address)
            .field("target", &plan.target)
            .field("connections", &plan.connections)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ProxyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyBuilder")
            .field("target", &self.target)
            .field("listen", &self.listen)
            .finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.shared.command.send_modify(|command| command.over = true);
    }
}

impl Plan {
    fn of(target: SocketAddr) -> Self {
        Self { target, armed: None, met: 0, pieces: 0, connections: 0, refusing: false }
    }

    /// Returns the target and the number of a new connection; `None` if it is refused.
    fn admit(&mut self) -> Option<(SocketAddr, u64)> {
        if self.refusing {
            return None;
        }
        self.connections += 1;
        Some((self.target, self.connections - 1))
    }
}

impl Shared {
    /// Returns the fault for a request.
    fn meet(&self, mut piece: Piece<'_>) -> Option<Fault> {
        let chosen = {
            let look = &mut *self.requests.lock();
            look(&mut piece)
        };
        let mut plan = self.plan.lock();
        plan.pieces += 1;
        if chosen.is_some() {
            return chosen;
        }
        let (fault, when) = plan.armed.as_mut()?;
        let fault = when(piece.bytes).then(|| fault.clone())?;
        plan.met += 1;
        Some(fault)
    }

    fn answered(&self, mut piece: Piece<'_>) {
        let look = &mut *self.answers.lock();
        look(&mut piece);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        // Read the command before the target, so that the connection detects all later commands.
        let before = *shared.command.borrow();
        let Some((target, number)) = shared.plan.lock().admit() else { continue };
        let shared = shared.clone();
        tokio::spawn(async move {
            if let Ok(engine) = TcpStream::connect(target).await {
                Connection::new(shared, number, before).run(client, engine).await;
            }
        });
    }
}
