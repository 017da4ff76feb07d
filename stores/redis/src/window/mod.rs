//! A window on Redis or Valkey: ids that grow across processes at the speed of a cache. Each draw is one
//! script in one round trip.
//!
//! [`idmill_shared_cache::fenced`] describes the protocol and why it is correct. This module runs the
//! protocol's scripts, and reports a missing answer as an unknown outcome.

mod key;
mod options;

use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Grant, Reserve, SequenceInfo, Store, StoreFuture, exhausted};
use idmill::{Error, ErrorKind, IdRange, Operation, Result};
use idmill_kit::{WindowTarget, WindowView};
use idmill_shared_cache::counts::{Counts, late};
use idmill_shared_cache::known::{Known, TtlCache};
use idmill_shared_cache::{Drawn, Installed, Tiered, Window, fenced};
use tokio::time::Instant;

use self::key::{NEAR, key};
use crate::classify::{Asked, Fault};
use crate::connection::{Answer, Call, Link};

pub use self::options::RedisWindowOptions;
pub use idmill_shared_cache::WindowStats as RedisWindowStats;

macro_rules! script {
    ($file:literal) => {
        concat!(include_str!("../scripts/prelude.lua"), include_str!($file))
    };
}

const DRAW: &str = script!("scripts/draw.lua");
const INSTALL: &str = script!("scripts/install.lua");
const RELEASE: &str = script!("scripts/release.lua");
const RECALL: &str = script!("scripts/recall.lua");
const LOOK: &str = script!("scripts/look.lua");
const SCRIPTS: [&str; 5] = [DRAW, INSTALL, RELEASE, RECALL, LOOK];

/// The first wait of a draw during a refill by another caller: about as long as a reserve takes.
const WAIT: Duration = Duration::from_millis(2);
/// A window that is not refilled for this long expires, and its ids become a gap. So a removed sequence
/// leaves nothing behind.
const LIVES: Duration = Duration::from_secs(24 * 60 * 60);

/// A window on one Redis or Valkey server, for any store: see [`Tiered`].
///
/// ```no_run
/// # use std::sync::Arc;
/// # use idmill::store::Store;
/// # async fn demo(store: Arc<dyn Store>) -> idmill::Result<()> {
/// use idmill_shared_cache::Tiered;
/// use idmill_redis::window::{RedisWindow, RedisWindowOptions};
///
/// let window = RedisWindow::new(RedisWindowOptions::new("127.0.0.1:6379")?)?;
/// let tier = Tiered::new(store, window); // an `Arc<dyn Store>`
/// let ids = idmill::Sequences::builder(tier).start()?;
/// # Ok(()) }
/// ```
///
/// All sequences and callers of a window share one connection. It is opened on first use, and reopened after
/// a failure. Use the window within a tokio runtime with its I/O and time drivers enabled.
#[derive(Debug)]
pub struct RedisWindow {
    options: RedisWindowOptions,
    sequences: TtlCache<Known>,
    link: Link,
    counts: Counts,
    /// Creation time; draws are timed from here.
    began: Instant,
}

/// A claim on the server: the right to refill one window of one sequence, or to prepare its next range.
#[derive(Clone, Debug)]
pub struct RedisToken {
    token: u64,
    known: Known,
    asked: Instant,
    lives: Duration,
    /// Number of ids that the window had left when a draw claimed the next range; `None` for a refill.
    ahead: Option<u64>,
}

impl RedisWindow {
    /// Creates a window. Does not connect yet.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if an option is invalid.
    pub fn new(options: RedisWindowOptions) -> Result<Self> {
        options.check()?;
        let (sequences, link) = (TtlCache::new(options.window.refresh), Link::new(options.terms()));
        Ok(Self { options, sequences, link, counts: Counts::default(), began: Instant::now() })
    }

    /// Returns the counters of this window.
    pub fn stats(&self) -> RedisWindowStats {
        let mut stats = self.counts.stats();
        stats.round_trips = self.link.round_trips();
        stats
    }

    async fn run<const N: usize>(
        &self,
        script: &'static str,
        known: &Known,
        numbers: [u64; N],
    ) -> Result<Answer, Fault> {
        let call = Call {
            script,
            keys: vec![known.key.to_string()],
            arguments: numbers.iter().map(u64::to_string).collect(),
            asked: Asked::Write,
        };
        self.link.run(call).await
    }

    async fn draw(&self, request: &Reserve) -> Result<Drawn<RedisToken>> {
        let Some(known) = self.sequences.get(&request.name) else { return Ok(Drawn::UnknownSequence) };
        // Must be unique, also across processes.
        let token = idmill::store::Identity::fresh().incarnation;
        let count = request.count.clamp(1, fenced::MAX_LEN);
        let mut doubt = self.counts.uncertain.doubt(count);
        let (asked, lives) = (Instant::now(), known.pace.life(&self.options.window.limits()));
        let answer = self.run(DRAW, &known, [count, request.ceiling, token, millis(lives)]).await;
        let failed = |fault: Fault| self.failed(&fault);
        if !matches!(answer.as_ref().map(Answer::word), Err(_) | Ok("ids")) {
            doubt.ids = 0;
        }
        let answer = answer.map_err(failed)?;
        match answer.word() {
            "busy" => {
                self.counts.waits.add(1);
                Ok(Drawn::Busy(WAIT))
            }
            "claimed" => Ok(Drawn::Empty(RedisToken { token, known, asked, lives, ahead: None })),
            "above" => Err(exhausted(&request.name, request.ceiling).during(Operation::Reserve)),
            "ids" => {
                let range = drawn(&answer, request).map_err(failed)?;
                doubt.ids = 0;
                let (base, left) = (answer.number(3).map_err(failed)?, answer.number(4).map_err(failed)?);
                let low = answer.number(5).map_err(failed)? == 1;
                self.sequences.update(&request.name, |latest| {
                    let next = range.start().saturating_add(range.len());
                    latest.pace.drawn(&self.options.window.limits(), base, next, self.began.elapsed());
                });
                let ahead = RedisToken { token, known: known.clone(), asked, lives, ahead: Some(left) };
                let grant = self.sequences.granted(&request.name, range, &known);
                Ok(Drawn::Ids { grant, low: low.then_some(ahead) })
            }
            _ => Err(self.refused(&answer, &known).unwrap_or_else(|| failed(answer.garbled()))),
        }
    }

    async fn install(&self, request: &Reserve, held: RedisToken, grant: Grant) -> Result<Installed> {
        let RedisToken { token, known, asked, lives, ahead } = held;
        if grant.identity != known.identity {
            // The window has another key now: the range must not be stored under the old key.
            self.sequences.forget(&request.name);
            self.give_back(token, &known).await;
            return Ok(Installed::Refused);
        }
        let took = asked.elapsed();
        let refill = match ahead {
            None => fenced::refill(grant.range, request.count, request.ceiling),
            Some(left) => fenced::prepared(grant.range, left),
        };
        let installed = self.put(token, &known, &refill).await;
        self.sequences.update(&request.name, |latest| {
            latest.pace.took(took);
            if installed == Installed::Done {
                latest.pace.installed(ahead.unwrap_or(0) + refill.len);
            }
        });
        match installed {
            Installed::Done => {
                let refilled = if ahead.is_some() { &self.counts.ahead } else { &self.counts.refills };
                refilled.add(1);
                self.counts.abandoned.add(grant.range.len() - refill.len);
                // All ids may be above the caller's ceiling; other callers then use the whole range.
                let own = (!refill.own.is_empty()).then_some(refill.own);
                Ok(own.map_or(Installed::Done, |range| Installed::Ids(grant.range(range))))
            }
            Installed::Refused if ahead.is_none() && took >= lives => {
                let late = late("claim on the window", took, lives, grant.range.len());
                Err(self.error(ErrorKind::Unavailable, &late).of(&request.name))
            }
            installed => Ok(installed),
        }
    }

    async fn put(&self, token: u64, known: &Known, refill: &fenced::Refill) -> Installed {
        let numbers = [token, refill.base, refill.used, refill.len, refill.mark, millis(LIVES)];
        match self.run(INSTALL, known, numbers).await {
            // Not sent, so nothing was installed.
            Err(Fault::NotSent(_)) => Installed::Refused,
            Err(_) => Installed::Unknown,
            Ok(answer) => match answer.word() {
                "done" => Installed::Done,
                "changed" => Installed::Refused,
                _ => Installed::Unknown,
            },
        }
    }

    /// Releases a claim, so that other callers need not wait until it expires. If the release fails, the
    /// claim expires.
    async fn give_back(&self, token: u64, known: &Known) {
        let _ = self.run(RELEASE, known, [token]).await;
    }

    /// Deletes the window: the rest of its range becomes a gap.
    async fn recall(&self, sequence: &SequenceInfo) -> Result<()> {
        self.introduce(sequence);
        let Some(known) = self.sequences.last_known(&sequence.name) else { return Ok(()) };
        self.run(RECALL, &known, []).await.map(drop).map_err(|fault| self.failed(&fault))
    }

    /// Reads the end of the window, for a view.
    async fn look(&self, sequence: &SequenceInfo) -> Result<Option<u128>> {
        let known = Known::of(sequence, key(&self.options.window.prefix, sequence), None);
        let keys = vec![known.key.to_string()];
        let call = Call { script: LOOK, keys, arguments: Vec::new(), asked: Asked::Read };
        let failed = |fault: Fault| self.link.failed(&fault, Asked::Read);
        let answer = self.link.run(call).await.map_err(failed)?;
        match answer.word() {
            "until" => {
                let end = answer.words.get(1).and_then(|word| word.parse().ok());
                end.map(Some).ok_or_else(|| failed(answer.garbled()))
            }
            "nothing" => Ok(None),
            _ => Err(self.refused(&answer, &known).unwrap_or_else(|| failed(answer.garbled()))),
        }
    }

    fn failed(&self, fault: &Fault) -> Error {
        self.link.failed(fault, Asked::Write).during(Operation::Reserve)
    }

    fn error(&self, kind: ErrorKind, reason: &str) -> Error {
        let server = &self.link.terms.url.server;
        Error::new(kind, format!("redis at {server}: {reason}")).during(Operation::Reserve)
    }

    /// Returns the error of an answer that reports a refusal.
    fn refused(&self, answer: &Answer, known: &Known) -> Option<Error> {
        Some(match answer.word() {
            "replica" => self.error(ErrorKind::Unavailable, "the server became a replica; name the master"),
            "foreign" => {
                let (what, remedy) = ("a value that idmill did not write", "delete the key");
                let reason = format!(
                    "the window's key has {what}; {remedy} `{}`, and let no other program write under this prefix",
                    known.key
                );
                self.error(ErrorKind::StoreViolation, &reason)
            }
            _ => return None,
        })
    }
}

/// Decodes a draw, and checks it against the request.
fn drawn(answer: &Answer, request: &Reserve) -> Result<IdRange, Fault> {
    let (first, len) = (answer.number(1)?, answer.number(2)?);
    let range = IdRange::new(first, len).filter(|range| !range.is_empty() && len <= request.count.max(1));
    range.filter(|range| range.end() <= u128::from(request.ceiling) + 1).ok_or_else(|| answer.garbled())
}

impl WindowTarget for RedisWindowOptions {
    fn before(&self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Tiered::new(store, RedisWindow::new(self.clone())?)))
    }

    fn view(&self) -> Result<Option<Arc<dyn WindowView>>> {
        Ok(Some(Arc::new(RedisWindow::new(self.clone())?)))
    }
}

impl WindowView for RedisWindow {
    fn end<'a>(&'a self, sequence: &'a SequenceInfo) -> StoreFuture<'a, Result<Option<u128>>> {
        Box::pin(async move { self.look(sequence).await.map_err(|error| error.of(&sequence.name)) })
    }
}

impl Window for RedisWindow {
    type Token = RedisToken;

    fn draw<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Drawn<RedisToken>>> {
        Box::pin(async move { self.draw(request).await.map_err(|error| error.of(&request.name)) })
    }

    fn refill_size(&self, request: &Reserve, token: &RedisToken) -> u64 {
        let pace = self.sequences.last_known(&request.name).map(|known| known.pace).unwrap_or_default();
        self.sequences.update(&request.name, |latest| latest.pace.begins());
        let (limits, count) = (self.options.window.limits(), request.count.clamp(1, fenced::MAX_LEN));
        token.ahead.map_or_else(|| pace.size(&limits, count), |left| pace.more(&limits, left))
    }

    fn wants_news(&self, request: &Reserve) -> bool {
        // Read the state again if the ids may exceed the caller's ceiling.
        let known = self.sequences.last_known(&request.name);
        let reserved = self.options.window.block.saturating_mul(NEAR);
        known.is_none_or(|known| known.near(request.ceiling, reserved))
    }

    fn install<'a>(
        &'a self,
        request: &'a Reserve,
        token: RedisToken,
        grant: Grant,
    ) -> StoreFuture<'a, Result<Installed>> {
        Box::pin(self.install(request, token, grant))
    }

    fn release<'a>(&'a self, request: &'a Reserve, token: RedisToken, lost: bool) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.sequences.released(&request.name, token.asked, lost);
            self.give_back(token.token, &token.known).await;
        })
    }

    fn recall<'a>(&'a self, sequence: &'a SequenceInfo) -> StoreFuture<'a, Result<()>> {
        Box::pin(self.recall(sequence))
    }

    fn introduce(&self, sequence: &SequenceInfo) {
        self.sequences.hear(sequence, key(&self.options.window.prefix, sequence));
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
