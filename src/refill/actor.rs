//! The refill actor: one task that keeps every sequence of a [`Sequences`](crate::Sequences) filled.
//!
//! It makes no decisions: it passes events to the drivers, sends their reserves to the store, and passes the
//! answers back as events. Reserves that are due together share one round trip if the store supports batches.
//! Otherwise each is sent separately, so that no sequence waits for another. If a reserve was `Unavailable`
//! while others in its batch were granted, later reserves of its sequence are sent separately, until one gets
//! another answer.

use std::collections::{BTreeSet, HashSet};
use std::future::{Future, poll_fn};
use std::iter;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::join;
use futures_util::stream::{self, FuturesUnordered, Stream, StreamExt as _};
use tokio::runtime::Handle as RuntimeHandle;
use tokio::sync::Semaphore;
use tokio::task::coop;
use tokio::time::{Sleep, sleep_until, timeout};

use super::driver::{Driver, PendingGiveBack};
use super::round_trip::{Landed, RoundTrip, give_back};
use crate::error::{ErrorKind, Result};
use crate::state::clock::Clock;
use crate::state::core::{Core, NO_SLOT};
use crate::state::mailbox::{Arrived, Ending, Mailbox, Message};
use crate::state::metrics;
use crate::state::registry::Registry;
use crate::state::time::Time;
use crate::store::{Capabilities, Grant, Reserve, Store};
use crate::sync::{Arc, Counter, Ordering};

/// The most sequences in one round trip. Bounds the store's transaction and the memory of a burst.
const LARGEST_BATCH: usize = 256;

/// How many unused ranges, or batches of them, are given back concurrently when the sequences close. Shutdown
/// is not urgent, and many processes may shut down at the same time.
const GIVEN_BACK_AT_ONCE: usize = 16;
const BATCHES_GIVEN_BACK_AT_ONCE: usize = 2;

/// The most sequences checked for eviction before the actor serves its callers again.
const SWEEP: usize = 4096;

/// The most low-water signals per turn. Then answers, timers and messages are handled.
const MOST_SIGNALS: usize = 256;

/// Settings of the actor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActorConfig {
    /// How long a store may take to answer before the outcome counts as unknown.
    pub(crate) store_timeout: Duration,
    /// How long the remaining ids may take to be given back at the end.
    pub(crate) close_timeout: Duration,
    /// The time between two searches for idle sequences.
    pub(crate) idle: Option<Duration>,
    /// The store's capabilities.
    pub(crate) can: Capabilities,
}

pub(crate) struct Actor {
    mailbox: Arc<Mailbox>,
    store: Arc<dyn Store>,
    /// Runs the store's work.
    store_runtime: RuntimeHandle,
    registry: Arc<Registry>,
    clock: Clock,
    config: ActorConfig,
    /// Limits how many callers can wait; closed at the end.
    places: Arc<Semaphore>,
    drivers: Vec<Option<Box<Driver>>>,
    free: Vec<usize>,
    /// When to wake which slot: each slot once, at the time for which its driver is [armed](Driver::armed).
    /// An extra tick does nothing.
    timers: BTreeSet<(Time, usize)>,
    under_way: FuturesUnordered<RoundTrip>,
    /// Requested by the drivers, and not sent yet.
    reserves: Vec<(Arc<Core>, Reserve)>,
    /// The [`Core::key`] of each sequence that was unavailable in a batch in which others were granted. The
    /// store may wait for such a sequence and delay the others, so it is reserved separately.
    alone: HashSet<u64>,
    sweep: Sweep,
}

/// Progress of the search for idle sequences.
#[derive(Default)]
struct Sweep {
    due: Option<Time>,
    cursor: usize,
    /// Ids drawn from each slot's sequence up to the last sweep.
    drawn: Vec<u64>,
}

impl Actor {
    pub(crate) fn new(
        mailbox: Arc<Mailbox>,
        (store, store_runtime): (Arc<dyn Store>, RuntimeHandle),
        registry: Arc<Registry>,
        clock: Clock,
        config: ActorConfig,
        places: Arc<Semaphore>,
    ) -> Self {
        let due = config.idle.map(|idle| clock.now().saturating_add(idle));
        let sweep = Sweep { due, ..Sweep::default() };
        Self {
            mailbox,
            store,
            store_runtime,
            registry,
            clock,
            config,
            places,
            drivers: Vec::new(),
            free: Vec::new(),
            timers: BTreeSet::new(),
            under_way: FuturesUnordered::new(),
            reserves: Vec::new(),
            alone: HashSet::new(),
            sweep,
        }
    }

    /// Runs until the mailbox is closed. Dropping the future closes every sequence too.
    pub(crate) async fn run(mut self) {
        loop {
            let Arrived { messages, low, ending } = self.mailbox.receive(MOST_SIGNALS);
            for message in messages {
                self.message(message);
            }
            for core in low {
                self.each(&core, Driver::low);
            }
            match ending {
                None => {}
                Some(Ending::Abandoned) => return,
                Some(Ending::Asked) => return self.put_away().await,
            }
            self.tick();
            self.sweep();
            self.send();
            // Yield if due: while events keep arriving, the wait below never yields to other tasks of this
            // thread.
            coop::consume_budget().await;
            self.wait().await;
        }
    }

    /// Ends every sequence, and gives the remaining ids back if the store takes them.
    async fn put_away(&mut self) {
        // The ids of unanswered reserves become a gap: `end` fails the callers that wait for them.
        let under_way = std::mem::take(&mut self.under_way).into_iter();
        let mut begun: FuturesUnordered<_> = under_way.filter(RoundTrip::gives_back).collect();
        let rests = self.end();
        if !self.config.can.gives_back {
            return;
        }
        let (size, at_once) = if self.config.can.batches {
            (LARGEST_BATCH, BATCHES_GIVEN_BACK_AT_ONCE)
        } else {
            (1, GIVEN_BACK_AT_ONCE)
        };
        let left = [Counter::new(rests.len() as u64), Counter::new(rests.iter().map(ids_of).sum())];
        let left = Arc::new(left);
        let batches: Vec<_> = in_batches(rests, size).collect();
        let giving = stream::iter(batches).for_each_concurrent(at_once, |batch| {
            counting(self.store_runtime.clone(), self.store.clone(), batch, left.clone())
        });
        let limit = self.config.close_timeout;
        let all = join(giving, async { while begun.next().await.is_some() {} });
        if timeout(limit, all).await.is_err() {
            let [sequences, ids] = [0, 1].map(|place: usize| left[place].load(Ordering::Relaxed));
            tracing::warn!(
                sequences,
                ids,
                ?limit,
                "the store did not take back the unused ids in time: they may be a gap; raise `close_timeout`"
            );
        }
    }

    /// Ends every sequence, and returns the remaining ids.
    fn end(&mut self) -> Vec<PendingGiveBack> {
        let now = self.clock.now();
        let rests = self.drivers.iter_mut().flatten().filter_map(|driver| driver.close(now)).collect();
        for core in self.registry.cores() {
            core.close();
        }
        rests
    }

    fn message(&mut self, message: Message) {
        let (core, mailbox) = (message.core().clone(), self.mailbox.clone());
        self.each(&core, |driver, now| driver.message(message, &mailbox, now));
    }

    /// Passes an event to a core's driver, and creates the driver if there is none.
    fn each(&mut self, core: &Arc<Core>, event: impl FnOnce(&mut Driver, Time) -> Option<Reserve>) {
        let slot = self.slot(core);
        // A late message of an evicted core must not reach the core that has its slot now.
        let is_its_own = |driver: &Driver| Arc::ptr_eq(driver.core(), core);
        if self.drivers[slot].as_deref().is_some_and(is_its_own) {
            self.event(slot, event);
        }
    }

    /// Returns the slot of a core. The first call assigns a slot and creates the driver.
    fn slot(&mut self, core: &Arc<Core>) -> usize {
        // Relaxed, like all accesses to the slot: only this task uses it.
        let mut slot = core.slot.load(Ordering::Relaxed);
        if slot == NO_SLOT {
            slot = self.free.pop().unwrap_or_else(|| {
                self.drivers.push(None);
                self.drivers.len() - 1
            });
            core.slot.store(slot, Ordering::Relaxed);
            self.drivers[slot] =
                Some(Box::new(Driver::remembering(core.clone(), self.registry.recall(&core.name))));
        }
        slot
    }

    fn event(&mut self, slot: usize, event: impl FnOnce(&mut Driver, Time) -> Option<Reserve>) {
        let Some(driver) = self.drivers.get_mut(slot).and_then(Option::as_mut) else { return };
        if let Some(request) = event(driver, self.clock.now()) {
            self.reserves.push((driver.core().clone(), request));
        }
        let (rest, raise) = (driver.take_excess(), driver.raise());
        let raise = raise.map(|change| (driver.core().clone(), change));
        metrics::record(driver.core(), self.clock.now());
        if let Some((before, due)) = driver.rearm() {
            before.map(|time| self.timers.remove(&(time, slot)));
            due.map(|time| self.timers.insert((time, slot)));
        }
        if let Some(rest) = rest {
            self.return_rest(rest);
        }
        if let Some((core, change)) = raise {
            let (store, limit) = (self.store.clone(), self.config.store_timeout);
            self.under_way.push(RoundTrip::raise(&self.store_runtime, store, core, change, limit));
        }
    }

    fn tick(&mut self) {
        let now = self.clock.now();
        while let Some((time, slot)) = self.timers.first().copied() {
            if time > now {
                break;
            }
            self.timers.pop_first();
            self.event(slot, Driver::tick);
        }
    }

    fn send(&mut self) {
        let reserves = std::mem::take(&mut self.reserves);
        let (alone, together): (Vec<_>, Vec<_>) =
            reserves.into_iter().partition(|(core, _)| self.alone.contains(&core.key));
        for one in alone {
            self.reserve(vec![one]);
        }
        let batch = if self.config.can.batches { LARGEST_BATCH } else { 1 };
        for requests in in_batches(together, batch) {
            self.reserve(requests);
        }
    }

    fn reserve(&self, reserves: Vec<(Arc<Core>, Reserve)>) {
        let (store, limit) = (self.store.clone(), self.config.store_timeout);
        self.under_way.push(RoundTrip::reserve(&self.store_runtime, store, reserves, limit));
    }

    /// Gives the unused ids back, or drops them if the store takes no ids back, and then notifies the driver.
    fn return_rest(&self, rest: PendingGiveBack) {
        if self.config.can.gives_back {
            self.give_back(vec![rest]);
        } else {
            self.under_way.push(RoundTrip::of_lost(rest));
        }
    }

    fn give_back(&self, rests: Vec<PendingGiveBack>) {
        let (runtime, store) = (self.store_runtime.clone(), self.store.clone());
        let (limit, clock) = (self.config.store_timeout, self.clock.clone());
        self.under_way.push(RoundTrip::give_back(runtime, store, rests, limit, clock));
    }

    /// Waits until a message or signal arrives, the store answers, or a timer is due.
    async fn wait(&mut self) {
        let mailbox = self.mailbox.clone();
        let mut woken = pin!(mailbox.woken());
        let due = [self.timers.first().map(|timer| timer.0), self.sweep.due].into_iter().flatten().min();
        let mut timer = pin!(due.map(|time| sleep_until(self.clock.instant(time))));
        let landed = poll_fn(|cx| {
            if let Poll::Ready(Some(landed)) = Pin::new(&mut self.under_way).poll_next(cx) {
                return Poll::Ready(Some(landed));
            }
            if woken.as_mut().poll(cx).is_ready() || is_over(timer.as_mut().as_pin_mut(), cx) {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await;
        // The process was forked while the reserve was in flight: the answer belongs to the parent.
        if self.mailbox.is_forked() {
            return;
        }
        match landed {
            Some(Landed::Answers(answers)) => self.answered(answers),
            Some(Landed::Returned(cores)) => cores.iter().for_each(|core| self.each(core, Driver::returned)),
            Some(Landed::Raised(core)) => self.each(&core, Driver::raised),
            None => {}
        }
    }

    fn answered(&mut self, answers: Vec<(Arc<Core>, Result<Grant>)>) {
        let some_were_granted = answers.iter().any(|(_, outcome)| outcome.is_ok());
        for (core, outcome) in answers {
            let was_busy = outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable);
            if !was_busy {
                self.alone.remove(&core.key);
            } else if some_were_granted {
                self.alone.insert(core.key);
            }
            self.each(&core, |driver, now| driver.answered(outcome, now));
        }
    }

    /// Evicts sequences that have no users, and no draws since the last search.
    fn sweep(&mut self) {
        let (Some(idle), Some(due)) = (self.config.idle, self.sweep.due) else { return };
        let now = self.clock.now();
        if now < due {
            return;
        }
        // Cores without any event so far must be evicted too.
        let opened: Vec<_> = iter::from_fn(|| self.registry.next_opened()).take(SWEEP).collect();
        for core in &opened {
            self.slot(core);
        }
        let end = (self.sweep.cursor + SWEEP).min(self.drivers.len());
        self.sweep.drawn.resize(self.drivers.len(), u64::MAX);
        let rests = (self.sweep.cursor..end).filter_map(|slot| self.evict_if_idle(slot, now)).collect();
        for batch in in_batches(rests, LARGEST_BATCH) {
            self.give_back(batch);
        }
        let done = end == self.drivers.len() && opened.len() < SWEEP;
        self.sweep.cursor = if done { 0 } else { end };
        self.sweep.due = Some(if done { now.saturating_add(idle) } else { now });
    }

    /// Evicts the sequence of this slot if it is idle. Returns its ids in memory for a store that takes them
    /// back.
    fn evict_if_idle(&mut self, slot: usize, now: Time) -> Option<PendingGiveBack> {
        let driver = self.drivers[slot].as_mut()?;
        let drawn = driver.core().drawn();
        let same = std::mem::replace(&mut self.sweep.drawn[slot], drawn) == drawn;
        if !same || !driver.is_idle() || !driver.core().evict() {
            return None;
        }
        let rest = driver.evict(now).filter(|_| self.config.can.gives_back);
        metrics::record(driver.core(), now);
        let core = driver.core().clone();
        if let Some(time) = driver.armed() {
            self.timers.remove(&(time, slot));
        }
        self.alone.remove(&core.key);
        self.registry.remember(&core.name, driver.history());
        self.registry.forget(&core);
        self.drivers[slot] = None;
        self.free.push(slot);
        self.sweep.drawn[slot] = u64::MAX;
        tracing::debug!(sequence = %core.name, "evicted: idle");
        rest
    }
}

/// Fails all waiting callers, whether the task was closed or dropped with its runtime.
impl Drop for Actor {
    fn drop(&mut self) {
        self.mailbox.close(Ending::Abandoned);
        // Close the places before the runtime's timers end: callers that wait for a place use these timers.
        self.places.close();
        // No more messages arrive. The requests queued here are answered when the drivers close.
        for message in self.mailbox.receive(0).messages {
            self.message(message);
        }
        // Nothing can give these ids back any more.
        let _ = self.end();
        // Record the counters last: counters cannot decrease, so ids must not be recorded as gaps while they
        // can still be given back.
        let now = self.clock.now();
        self.drivers.iter().flatten().for_each(|driver| metrics::record(driver.core(), now));
    }
}

/// Gives unused ids back. Subtracts the numbers of sequences and ids from `left`.
async fn counting(
    runtime: RuntimeHandle,
    store: Arc<dyn Store>,
    batch: Vec<PendingGiveBack>,
    left: Arc<[Counter; 2]>,
) {
    let done = [batch.len() as u64, batch.iter().map(ids_of).sum()];
    give_back(&runtime, store, batch).await;
    for (left, done) in left.iter().zip(done) {
        left.fetch_sub(done, Ordering::Relaxed);
    }
}

fn ids_of(rest: &PendingGiveBack) -> u64 {
    rest.back().rest.len()
}

fn in_batches<T>(all: Vec<T>, size: usize) -> impl Iterator<Item = Vec<T>> {
    let mut all = all.into_iter();
    iter::from_fn(move || Some(all.by_ref().take(size).collect::<Vec<_>>()).filter(|batch| !batch.is_empty()))
}

fn is_over(timer: Option<Pin<&mut Sleep>>, cx: &mut Context<'_>) -> bool {
    timer.is_some_and(|timer| timer.poll(cx).is_ready())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::SequenceName;
    use crate::state::settings::Settings;
    use crate::state::want::Want;
    use crate::store::MemoryStore;

    #[tokio::test(start_paused = true)]
    async fn sequence_has_one_timer_for_all_deadlines() {
        let (mailbox, runtime) = (Arc::new(Mailbox::new()), RuntimeHandle::current());
        let (clock, store) = (Clock::start(&runtime), MemoryStore::new());
        let (limit, can) = (Duration::MAX, store.capabilities());
        let config = ActorConfig { store_timeout: limit, close_timeout: limit, idle: None, can };
        let (registry, places) = (Arc::new(Registry::new()), Arc::new(Semaphore::new(1)));
        let store = (Arc::new(store) as Arc<dyn Store>, runtime);
        let mut actor = Actor::new(mailbox.clone(), store, registry, clock.clone(), config, places);
        let settings = Arc::new(Settings::of::<u64>());
        let core = Arc::new(Core::new(SequenceName::new("s").unwrap(), settings));
        for _ in 0..1000 {
            // A long and a short deadline, both of which pass; the reserve is never sent.
            for timeout in [Duration::from_secs(2), Duration::from_secs(1)] {
                let pending = mailbox.ask(&core, Want::Ids(1), clock.now() + timeout, None).unwrap();
                mailbox.receive(0).messages.into_iter().for_each(|message| actor.message(message));
                drop(pending);
                assert_eq!(actor.timers.len(), 1);
            }
            for _ in 0..3 {
                tokio::time::advance(Duration::from_millis(700)).await;
                actor.tick();
            }
            assert_eq!(actor.timers.len(), 0);
        }
    }
}
