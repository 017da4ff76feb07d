//! Simulates one process through an outage: the real engine over a memory store, in simulated time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idmill::store::{Capabilities, GiveBack, Grant, MemoryStore, Reserve, Store, StoreFuture};
use idmill::{Allocator, Error, ErrorKind, Result, Sequences};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, sleep_until};

use crate::planning::Workload;

/// Approximate number of draws in an outage.
const DRAWS: u32 = 4_000;
const FINEST: Duration = Duration::from_millis(1);
/// Number of refills until the step is stable. The step grows at most fourfold per refill.
const SETTLED: u32 = 30;
/// Maximum number of draws until the sizes settle.
const LONGEST: u32 = 4_000_000;
/// Draws in a simulation never time out.
const TIMEOUT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The result of a simulation.
#[derive(Clone, Debug)]
pub(super) struct Outage {
    /// How long memory lasted; `None` if it lasted for the whole outage.
    pub(super) empty_after: Option<Duration>,
    /// Reserves before, during and after the outage.
    pub(super) reserves: u64,
    /// The lowest number of ids in memory.
    pub(super) least: u64,
}

/// Simulates an outage that begins at the worst moment: memory is at the watermark.
pub(super) fn outage(workload: &Workload, outage: Duration) -> Result<Outage> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let failed = |error| {
        Error::new(ErrorKind::Unavailable, "cannot start a runtime for the simulation").because(error)
    };
    runtime.map_err(failed)?.block_on(Simulation::run(workload, outage))
}

/// A store with latency, which can be unreachable.
#[derive(Clone, Debug, Default)]
struct Remote {
    memory: MemoryStore,
    latency: Duration,
    is_away: Arc<AtomicBool>,
}

impl Remote {
    /// Executes the call after half of the latency.
    async fn answer<R>(&self, call: impl Future<Output = Result<R>>) -> Result<R> {
        // Relaxed: there is only one thread.
        let is_away = self.is_away.load(Ordering::Relaxed);
        sleep(self.latency / 2).await;
        let answer = if is_away { Err(ErrorKind::Unavailable.into()) } else { call.await };
        sleep(self.latency.saturating_sub(self.latency / 2)).await;
        answer
    }
}

impl Store for Remote {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities().batches(false)
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(self.answer(self.memory.reserve(request)))
    }

    fn give_back<'a>(&'a self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        Box::pin(self.answer(self.memory.give_back(back)))
    }

    idmill::store_calls!(|this| this.memory => create inspect list set remove);
}

struct Simulation {
    store: Remote,
    ids: Allocator<u64>,
    workload: Workload,
    outage: Duration,
    watermark: u64,
    /// When the next draw is due, and the fraction of an id that is carried over.
    due: Instant,
    owed: f64,
}

impl Simulation {
    async fn run(workload: &Workload, outage: Duration) -> Result<Outage> {
        let store = Remote { latency: workload.latency, ..Remote::default() };
        let sequences = Sequences::builder(store.clone()).seed(0).start()?;
        let sequence = sequences.sequence::<u64>("plan").outage_budget(workload.outage_budget);
        let sequence = sequence.max_buffered(workload.max_buffered);
        let ids = sequence.timeout(TIMEOUT).await?;
        ids.warm(1).await?;
        let (workload, watermark) = (*workload, workload.sizes().watermark);
        let mut it = Self { store, ids, workload, outage, watermark, due: Instant::now(), owed: 0.0 };
        it.settle().await?;
        let outage = it.outage().await;
        sequences.close().await;
        outage
    }

    fn remaining(&self) -> u64 {
        self.ids.snapshot().remaining
    }

    /// Returns the time until the next draw: short near a refill, where the engine measures the rate, and
    /// long otherwise.
    fn tick(&self) -> Duration {
        let an_id = Duration::from_secs_f64(1.0 / self.workload.rate);
        let coarse = (self.outage / DRAWS).max(an_id).max(FINEST);
        let close = 1 + 2 * whole(self.workload.rate * coarse.as_secs_f64());
        let refilling = self.remaining().abs_diff(self.watermark) <= close;
        if refilling { coarse.min((self.workload.latency / 4).max(an_id / 8).max(FINEST)) } else { coarse }
    }

    /// Draws the ids of one tick. Returns how long the draw waited.
    async fn draw(&mut self) -> Result<Duration> {
        sleep_until(self.due).await;
        let tick = self.tick();
        self.due += tick;
        self.owed += self.workload.rate * tick.as_secs_f64();
        let whole = whole(self.owed);
        self.owed -= whole as f64;
        let before = Instant::now();
        if whole > 0 {
            let _ = self.ids.take(whole).await?;
        }
        Ok(before.elapsed())
    }

    /// Draws until the sizes have settled and the next draws would cross the watermark.
    async fn settle(&mut self) -> Result<()> {
        let (mut refills, mut before) = (0, self.remaining());
        for _ in 0..LONGEST {
            self.draw().await?;
            let remaining = self.remaining();
            refills += u32::from(remaining > before);
            before = remaining;
            let close = whole(self.workload.rate * 2.0 * self.tick().as_secs_f64()) + 1;
            if refills >= SETTLED && remaining <= self.watermark + close {
                return Ok(());
            }
        }
        let message = "the range sizes did not settle within the simulated time; set a higher `--rate`";
        Err(Error::new(ErrorKind::InvalidInput, message))
    }

    /// Draws during the outage, and for half of its length afterwards.
    async fn outage(&mut self) -> Result<Outage> {
        let budget = self.outage;
        let began = Instant::now();
        let mut seen = Outage { empty_after: None, reserves: 0, least: u64::MAX };
        self.store.is_away.store(true, Ordering::Relaxed);
        let mut healed = false;
        // The draw below waits during the outage, so another task must end the outage.
        let store = self.store.clone();
        let heal = tokio::spawn(async move {
            sleep_until(began + budget).await;
            store.is_away.store(false, Ordering::Relaxed);
        });
        while began.elapsed() < budget + budget / 2 {
            let at = began.elapsed();
            let waited = self.draw().await?;
            // The draw waited longer than a refill takes, so memory was empty and the store unreachable.
            if waited > 2 * self.workload.latency && seen.empty_after.is_none() && !healed {
                seen.empty_after = Some(at);
            }
            healed = heal.is_finished();
            seen.least = seen.least.min(self.remaining());
        }
        seen.reserves = self.ids.snapshot().reserves;
        Ok(seen)
    }
}

// A tick draws far fewer than 2^63 ids.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(ids: f64) -> u64 {
    ids as u64
}

#[cfg(test)]
mod tests;
