//! A window of ids on memcached in front of any store: small, unique, ordered.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-memcached).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
//!
//! # The window
//!
//! [`MemcachedWindow`] puts a window on memcached in front of any store, and [`MemcachedOptions`] describes
//! its URL. [`cache`] describes the protocol and why it is correct. This crate sends the commands of the
//! protocol, and reports a missing reply as an unknown outcome.

mod connection;
mod dial;
mod key;
mod options;
mod refill;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Grant, Reserve, SequenceInfo, Store, StoreFuture, exhausted};
use idmill::{Error, ErrorKind, Operation, Result};
use idmill_kit::{Asked, Scheme, SharedConnection, WindowTarget, WindowView};
use idmill_shared_cache::cache;
use idmill_shared_cache::cache::{Command, Fence, Layout, LookReply, Next, Taken};
use idmill_shared_cache::counts::Counts;
use idmill_shared_cache::known::{Known, TtlCache};
use idmill_shared_cache::{Drawn, Installed, Tiered, Window};
use tokio::time::Instant;

use self::connection::{Connection, Fault};
use self::dial::Tcp;
use self::key::key;
use self::wire::Reply;

#[doc(hidden)] // for the simulation, which has its own server
pub use self::dial::{Dial, Stream};
pub use self::options::MemcachedOptions;
pub use idmill;
pub use idmill_shared_cache::WindowStats as MemcachedStats;

/// The URL schemes of this crate, for `Schemes::with` of `idmill-url`.
pub const SCHEMES: &[Scheme] = &[Scheme::window::<MemcachedOptions>("memcached", "memcached://HOST:PORT")];

/// First pause of a draw that waits for another caller's refill, about the duration of a reserve.
const WAIT: Duration = Duration::from_millis(2);

/// Minimum time for which a draw on a used-up window waits for a range that is being prepared.
const TIMEOUT: Duration = Duration::from_millis(50);
const UNNUMBERED: &str = "the server has no CAS values, so the window is unsafe; start it without `-C` \
                          (`--disable-cas`)";

/// If fewer blocks than this are left in the sequence, the caller that refills the window reads the sequence
/// before it reserves. The cached position can be as old as the refresh interval, and other processes may
/// have reserved about this number of blocks since.
const NEAR_THE_END: u64 = 1_000;

/// A window on one memcached server, for any store. See [`Tiered`].
///
/// ```no_run
/// # use std::sync::Arc;
/// # use idmill::store::Store;
/// # async fn demo(store: Arc<dyn Store>) -> idmill::Result<()> {
/// use idmill_shared_cache::Tiered;
/// use idmill_memcached::{MemcachedOptions, MemcachedWindow};
///
/// let window = MemcachedWindow::new(MemcachedOptions::new("127.0.0.1:11211"))?;
/// let tier = Tiered::new(store, window); // an `Arc<dyn Store>`
/// let ids = idmill::Sequences::builder(tier).start()?;
/// # Ok(()) }
/// ```
///
/// All sequences and callers of a window share one connection, which is opened on first use and replaced if
/// it fails. Use a window within a tokio runtime whose I/O and time drivers are enabled.
#[derive(Debug)]
pub struct MemcachedWindow {
    options: MemcachedOptions,
    dial: Arc<dyn Dial>,
    sequences: TtlCache<Known>,
    connection: SharedConnection<Connection>,
    counts: Counts,
    /// Creation time, from which the times of draws are counted.
    began: Instant,
}

/// The right to refill the window of one sequence.
#[derive(Clone, Debug)]
pub struct MemcachedToken {
    right: Right,
    /// The time at which the stub or the draw was requested.
    asked: Instant,
    known: Known,
}

#[derive(Clone, Copy, Debug)]
enum Right {
    /// This process created a stub in the cache.
    Stub { fence: Fence, lives: Duration },
    /// A draw of this process moved the window past its mark. Contains the window's end and the number of
    /// ids left.
    Low { end: u64, left: u64 },
}

impl MemcachedWindow {
    /// Creates a window. It connects on first use.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](ErrorKind::InvalidInput) if an option is invalid.
    pub fn new(options: MemcachedOptions) -> Result<Self> {
        Self::over(options, Arc::new(Tcp))
    }

    /// Creates a window that reaches its server through `dial`.
    #[doc(hidden)]
    pub fn over(options: MemcachedOptions, dial: Arc<dyn Dial>) -> Result<Self> {
        options.check()?;
        Ok(Self {
            sequences: TtlCache::new(options.window.refresh),
            options,
            dial,
            connection: SharedConnection::default(),
            counts: Counts::default(),
            began: Instant::now(),
        })
    }

    /// Returns the counters of this window.
    pub fn stats(&self) -> MemcachedStats {
        self.counts.stats()
    }

    /// Returns the deadline of a call that begins now.
    fn deadline(&self) -> Instant {
        Instant::now() + self.options.window.timeout
    }

    /// Returns the current connection, unless it is closed.
    fn live(&self) -> Option<Arc<Connection>> {
        self.connection.get().filter(|connection| !connection.is_closed())
    }

    /// Returns the current connection, or opens a new one.
    async fn connected(&self, deadline: Instant) -> Result<Arc<Connection>> {
        let connect = || {
            let number = self.counts.connections.add(1);
            let (dial, address) = (self.dial.clone(), self.options.address.clone());
            let timeout = self.options.window.timeout;
            async move {
                let opened = Connection::open(&*dial, &address, number, timeout).await;
                opened.map_err(|reason| Error::new(ErrorKind::Unavailable, reason.to_string()))
            }
        };
        let opened = self.connection.open(deadline, |open| !open.is_closed(), connect).await;
        opened.map_err(|error| self.error(error.kind(), &error.to_string()))
    }

    /// Sends one command once. Returns its last reply.
    async fn send(
        &self,
        connection: &Connection,
        known: &Known,
        command: Command,
        deadline: Instant,
    ) -> Result<Reply, Fault> {
        let (bytes, replies) = wire::write(command, &known.key, self.life(known).as_secs());
        self.counts.round_trips.add(1);
        let last = connection.exchange(bytes, replies, deadline).await?.pop();
        last.ok_or_else(|| Fault::lost("no reply"))
    }

    /// Returns the lifetime of a stub that is created now, rounded up to whole seconds.
    fn life(&self, known: &Known) -> Duration {
        let life = known.pace.life(&self.options.window.limits());
        Duration::from_secs(life.as_secs() + u64::from(life.subsec_nanos() > 0))
    }

    async fn draw(&self, request: &Reserve) -> Result<Drawn<MemcachedToken>> {
        let Some(known) = self.sequences.get(&request.name) else { return Ok(Drawn::UnknownSequence) };
        // If the window may be near the caller's ceiling, look first: drawn ids above the ceiling would be
        // lost.
        let look = known.looks_stuck() || known.empty.is_some() || known.near(request.ceiling, 0);
        let begin = cache::draw(request.count);
        let mut command = if look { Command::Look } else { begin };
        let deadline = self.deadline();
        let mut connection = self.connected(deadline).await?;
        let mut again = true;
        loop {
            let asked = Instant::now();
            let (next, position) = match self.step(&connection, &known, command, deadline).await {
                // The connection was closed before the command was sent. Start again on a new connection,
                // where a cas from the old connection is not valid.
                Err(Fault::NotSent(_)) if again => {
                    again = false;
                    connection = self.connected(deadline).await?;
                    command = if look { Command::Look } else { begin };
                    continue;
                }
                outcome => outcome.map_err(|fault| self.failed(&fault, Asked::Write))?,
            };
            match next {
                Next::Take(taken) => return Ok(self.taken(request, &known, taken)),
                Next::Draw => command = up_to_ceiling(request, position)?,
                Next::Send(next) => command = next,
                Next::Refill(fence) => {
                    let right = Right::Stub { fence, lives: self.life(&known) };
                    return Ok(Drawn::Empty(MemcachedToken { right, asked, known }));
                }
                Next::Await { end, cas } if self.waited_for(request, end) => {
                    command = Command::Clear { cas };
                }
                Next::Wait | Next::Await { .. } => {
                    self.counts.waits.add(1);
                    self.sequences.update(&request.name, Known::found_busy);
                    return Ok(Drawn::Busy(WAIT));
                }
                Next::Foreign => return Err(self.foreign(&known)),
                Next::Unnumbered => return Err(self.error(ErrorKind::Unsupported, UNNUMBERED)),
            }
        }
    }

    /// Returns whether draws have waited long enough for the range after `end`, which another caller
    /// prepares.
    fn waited_for(&self, request: &Reserve, end: u64) -> bool {
        let (now, mut since) = (Instant::now(), None);
        self.sequences.update(&request.name, |latest| since = Some(latest.found_empty(end, now)));
        let timeout = self.sequences.last_known(&request.name).map(|known| known.pace.timeout());
        since.is_none_or(|since| now - since >= timeout.unwrap_or_default().max(TIMEOUT))
    }

    /// Sends one command of a draw. Returns the next step and, after a look, the window's next id.
    async fn step(
        &self,
        connection: &Connection,
        known: &Known,
        command: Command,
        deadline: Instant,
    ) -> Result<(Next, Option<u64>), Fault> {
        let ids = if let Command::Add { count } = command { count } else { 0 };
        let mut doubt = self.counts.uncertain.doubt(ids);
        let outcome = self.send(connection, known, command, deadline).await;
        if !matches!(outcome, Err(Fault::Lost(_))) {
            doubt.ids = 0;
        }
        let last = outcome?;
        let next = match command {
            Command::Add { count } => {
                last.added().map(|added| (cache::after_add(known.layout(), count, added), None))
            }
            _ => last.seen().map(|seen| {
                let number = if let LookReply::Number { number, .. } = seen { Some(number) } else { None };
                let next = cache::after_look(connection.number, seen);
                (next, number.and_then(|number| known.layout().next_of(number)))
            }),
        };
        next.map_err(|reply| {
            doubt.ids = ids;
            unexpected(&reply)
        })
    }

    fn taken(&self, request: &Reserve, known: &Known, taken: Taken) -> Drawn<MemcachedToken> {
        let Taken { range, after, low } = taken;
        let mut prepare = low;
        self.sequences.update(&request.name, |latest| {
            // The store has granted at least all ids below this end.
            latest.advance(known.identity, known.layout().id(after.end));
            // A mark is a power of two, between a quarter and half of the window's size. Estimate the size as
            // three times the mark, the middle of the possible sizes: otherwise the size would drift from one
            // window to the next.
            latest.pace.found(after.mark.saturating_mul(3));
            let limits = self.options.window.limits();
            latest.pace.drawn(&limits, after.end, after.end - after.left, self.began.elapsed());
            prepare &= latest.apart == 0;
            latest.apart = latest.apart.saturating_sub(low.into());
        });
        let grant = self.sequences.granted(&request.name, range, known);
        let right = Right::Low { end: after.end, left: after.left };
        let token = || MemcachedToken { right, asked: Instant::now(), known: known.clone() };
        Drawn::Ids { grant, low: prepare.then(token) }
    }

    /// Deletes the item, so the rest of its block becomes a gap.
    async fn recall(&self, sequence: &SequenceInfo) -> Result<()> {
        self.introduce(sequence);
        let Some(known) = self.sequences.get(&sequence.name) else { return Ok(()) };
        let deadline = self.deadline();
        let connection = self.connected(deadline).await?;
        let deleted = self.send(&connection, &known, Command::Delete, deadline).await;
        let held = deleted.and_then(|reply| reply.held().map_err(|reply| unexpected(&reply)));
        held.map(drop).map_err(|fault| self.failed(&fault, Asked::Write))
    }

    /// Reads the end of the window, for a view.
    async fn look(&self, sequence: &SequenceInfo) -> Result<Option<u128>> {
        let known = Known::of(sequence, key(&self.options.window.prefix, sequence), None);
        let deadline = self.deadline();
        let connection = self.connected(deadline).await?;
        let looked = self.send(&connection, &known, Command::Peek, deadline).await;
        let seen = looked.and_then(|reply| reply.seen().map_err(|other| unexpected(&other)));
        match seen.map_err(|fault| self.failed(&fault, Asked::Read))? {
            // Use `u128`, because the sum can be 2^64.
            LookReply::Number { number, .. } => Ok(Layout::decode(number)
                .map(|standing| u128::from(sequence.bounds.start()) + u128::from(standing.end))),
            _ => Ok(None),
        }
    }

    fn failed(&self, fault: &Fault, asked: Asked) -> Error {
        self.error(fault.kind(asked, |never| match *never {}), &fault.to_string())
    }

    fn error(&self, kind: ErrorKind, reason: &str) -> Error {
        Error::new(kind, format!("memcached at {}: {reason}", self.options.address))
            .during(Operation::Reserve)
    }

    fn foreign(&self, known: &Known) -> Error {
        let remedy =
            format!("delete the key `{}`, and let no other program write under this prefix", known.key);
        let reason = format!("the window's key has an item that idmill did not write; {remedy}");
        self.error(ErrorKind::StoreViolation, &reason)
    }
}

impl WindowTarget for MemcachedOptions {
    fn before(&self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Tiered::new(store, MemcachedWindow::new(self.clone())?)))
    }

    fn view(&self) -> Result<Option<Arc<dyn WindowView>>> {
        Ok(Some(Arc::new(MemcachedWindow::new(self.clone())?)))
    }
}

impl WindowView for MemcachedWindow {
    fn end<'a>(&'a self, sequence: &'a SequenceInfo) -> StoreFuture<'a, Result<Option<u128>>> {
        Box::pin(async move { self.look(sequence).await.map_err(|error| error.of(&sequence.name)) })
    }
}

impl Window for MemcachedWindow {
    type Token = MemcachedToken;

    fn draw<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Drawn<MemcachedToken>>> {
        Box::pin(async move { self.draw(request).await.map_err(|error| error.of(&request.name)) })
    }

    fn refill_size(&self, request: &Reserve, token: &MemcachedToken) -> u64 {
        let Some(known) = self.sequences.last_known(&request.name) else { return request.count };
        self.sequences.update(&request.name, |latest| latest.pace.begins());
        let limits = self.options.window.limits();
        match token.right {
            Right::Stub { .. } => {
                let size = known.pace.size(&limits, request.count);
                known.layout().refill_of(known.next, known.bounds.max(), request.count, size)
            }
            Right::Low { end, left } => {
                let size = known.pace.more(&limits, left);
                known.layout().refill_of(known.layout().id(end), known.bounds.max(), 1, size)
            }
        }
    }

    fn wants_news(&self, request: &Reserve) -> bool {
        // Read the state again if the ids may exceed the caller's ceiling, and near the end of the sequence,
        // where no full block may be left.
        self.sequences.last_known(&request.name).is_none_or(|known| {
            if known.near(request.ceiling, 0) {
                return true;
            }
            let left = known.next.map_or(0, |next| known.bounds.max().saturating_sub(next));
            left / self.options.window.block < NEAR_THE_END
        })
    }

    fn install<'a>(
        &'a self,
        request: &'a Reserve,
        token: MemcachedToken,
        grant: Grant,
    ) -> StoreFuture<'a, Result<Installed>> {
        Box::pin(self.install(request, token, grant))
    }

    fn release<'a>(&'a self, request: &'a Reserve, token: MemcachedToken, lost: bool) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.sequences.released(&request.name, token.asked, lost);
            self.give_back(token.right, &token.known).await;
        })
    }

    fn recall<'a>(&'a self, sequence: &'a SequenceInfo) -> StoreFuture<'a, Result<()>> {
        Box::pin(self.recall(sequence))
    }

    fn introduce(&self, sequence: &SequenceInfo) {
        self.sequences.hear(sequence, key(&self.options.window.prefix, sequence));
    }
}

/// Returns a draw that is limited to ids up to the caller's ceiling, given the window's next id.
fn up_to_ceiling(request: &Reserve, position: Option<u64>) -> Result<Command> {
    let Some(room) = request.ceiling.checked_sub(position.unwrap_or_default()) else {
        return Err(exhausted(&request.name, request.ceiling).during(Operation::Reserve));
    };
    Ok(cache::draw(request.count.min(room.saturating_add(1))))
}

fn unexpected(reply: &Reply) -> Fault {
    match reply {
        Reply::Error(text) => Fault::lost(text.as_str()),
        reply => Fault::lost(format!("unexpected reply {reply:?}")),
    }
}
