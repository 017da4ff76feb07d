//! A TCP proxy between a store and its engine, which does to connections what a test tells it to.
//!
//! It passes on what it reads, in both directions, until one side ends the connection, which then ends on the
//! other side too. A test tells it to do otherwise in four ways, which do not depend on each other:
//!
//! - [`arm`](Proxy::arm) has a [`Fault`] befall the requests that the test names: the connection is cut
//!   before or after them, their answer is withheld, or nonsense, or they are held and arrive late.
//! - [`cut`](Proxy::cut), [`forget`](Proxy::forget), [`refuse`](Proxy::refuse) and
//!   [`redirect`](Proxy::redirect) are done to all connections at once.
//! - [`requests`](ProxyBuilder::requests) and [`answers`](ProxyBuilder::answers) are shown all that passes:
//!   they count, rewrite, and choose faults by what they have seen.
//! - [`frames`](ProxyBuilder::frames) says where a message ends.
//!
//! A *request* is what a client sends, an *answer* is what the engine does. Without
//! [`frames`](ProxyBuilder::frames), one is as much as was read at once, up to 64 KiB: drivers send a request
//! in pieces, over several connections, and pings in between, so nobody can say which piece belongs to what.
//! A fault that lets some pieces pass first, and many rounds of them, come to every step of any protocol.
//!
//! ```
//! use idmill_conformance::Proxy;
//! use idmill_conformance::proxy::{Fault, Gate, nth};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use tokio::net::{TcpListener, TcpStream};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! // An engine that says everything back.
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
//! assert_eq!(proxy.disarm(), 1, "one request met the fault");
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
/// It works in tasks of the runtime that it was started in, and ends with that. When it is dropped, it stops
/// listening and cuts every connection; what was held and not let go is then never delivered. All methods are
/// immediate: what they do to connections may take a moment more.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// A message on its way, as [`requests`](ProxyBuilder::requests) and [`answers`](ProxyBuilder::answers) see
/// it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Piece<'a> {
    /// On which connection: they are counted from 0, in the order in which they were accepted.
    pub connection: u64,
    /// What is sent; what is made of it is passed on instead.
    pub bytes: &'a mut Vec<u8>,
}

/// How a [`Proxy`] is to be, made by [`Proxy::builder`]; nothing listens yet.
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
    /// What all connections are told.
    command: watch::Sender<Command>,
}

struct Plan {
    target: SocketAddr,
    armed: Option<(Fault, When)>,
    /// Requests that met what is armed, or was last.
    met: u64,
    /// Requests that clients have sent.
    pieces: u64,
    connections: u64,
    refusing: bool,
}

/// Counted, so that a connection sees a command that was given after it began to wait.
#[derive(Clone, Copy, Debug, Default)]
struct Command {
    cuts: u64,
    forgets: u64,
    /// The proxy is gone.
    over: bool,
}

impl ProxyBuilder {
    /// Where it listens. Default: a port of 127.0.0.1 that is free.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Where a message ends: `length` is shown what has come in one direction and is not passed on yet, from
    /// the beginning of a message, and says how long that is in bytes, or `None` while too little has come to
    /// say. Requests and answers are then whole messages, each of which is held in memory. Half a message
    /// that a connection ends with is passed on, and neither shown nor counted.
    ///
    /// Default: as much as is read at once.
    pub fn frames(mut self, length: impl Fn(&[u8]) -> Option<usize> + Send + Sync + 'static) -> Self {
        self.frames = Some(Box::new(length));
        self
    }

    /// Is shown every request before anything is done with it, may rewrite it, and says which fault befalls
    /// it. If none, what is [armed](Proxy::arm) is asked next, of the request as it was rewritten.
    ///
    /// One request at a time, whatever connection it is on; a panic ends that connection.
    pub fn requests(mut self, look: impl FnMut(&mut Piece<'_>) -> Option<Fault> + Send + 'static) -> Self {
        self.requests = Box::new(look);
        self
    }

    /// Is shown every answer before anything is done with it, and may rewrite it. As
    /// [`requests`](Self::requests), one at a time.
    pub fn answers(mut self, look: impl FnMut(&mut Piece<'_>) + Send + 'static) -> Self {
        self.answers = Box::new(look);
        self
    }

    /// Listens. Whether there is an engine is only seen by those who connect: without one, they are cut off.
    ///
    /// # Errors
    /// Those of binding the address.
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
    /// One that passes everything on to `target`, from a free port of 127.0.0.1.
    ///
    /// # Errors
    /// As [`ProxyBuilder::start`], which it is short for.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        Self::builder(target).start().await
    }

    /// One that passes on to `target`, to be told more before it starts.
    pub fn builder(target: SocketAddr) -> ProxyBuilder {
        ProxyBuilder {
            target,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            frames: None,
            requests: Box::new(|_| None),
            answers: Box::new(|_| ()),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections clients have made so far, without those that were [refused](Self::refuse).
    pub fn connections(&self) -> u64 {
        self.shared.plan.lock().connections
    }

    /// How many requests clients have sent so far.
    pub fn pieces(&self) -> u64 {
        self.shared.plan.lock().pieces
    }

    /// From now on, every request for which `when` holds meets this fault: see [`nth`] for one alone. Takes
    /// the place of what was armed before.
    ///
    /// `when` is asked once for every request, one at a time; it must not call the proxy.
    pub fn arm(&self, fault: Fault, when: impl FnMut(&[u8]) -> bool + Send + 'static) {
        let mut plan = self.shared.plan.lock();
        plan.armed = Some((fault, Box::new(when)));
        plan.met = 0;
    }

    /// Has no fault befall requests to come; says how many have met what was armed last.
    pub fn disarm(&self) -> u64 {
        let mut plan = self.shared.plan.lock();
        plan.armed = None;
        plan.met
    }

    /// Cuts every client off. Requests that are held still arrive when their gate is opened.
    pub fn cut(&self) {
        self.shared.command.send_modify(|command| command.cuts += 1);
    }

    /// Carries nothing any more on the connections that there are, as a firewall that forgot them: they stay
    /// open on both sides, and silent, until they are [cut](Self::cut). Later ones are as ever.
    pub fn forget(&self) {
        self.shared.command.send_modify(|command| command.forgets += 1);
    }

    /// Cuts every client off, and any that comes, until told otherwise.
    pub fn refuse(&self, refusing: bool) {
        self.shared.plan.lock().refusing = refusing;
        if refusing {
            self.cut();
        }
    }

    /// Has later connections lead elsewhere; cuts those that there are.
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

    /// Where a connection that has come leads, and its number; `None` if it is refused.
    fn admit(&mut self) -> Option<(SocketAddr, u64)> {
        if self.refusing {
            return None;
        }
        self.connections += 1;
        Some((self.target, self.connections - 1))
    }
}

impl Shared {
    /// What happens to the request that has come.
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
        // Before it is looked where it leads: it hears of what is commanded from here on.
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
