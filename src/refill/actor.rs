//! The refill actor: one task that keeps every sequence of a [`Sequences`](crate::Sequences) filled.
//!
//! It owns no decision: events go to the drivers, the reserves they order go to the store, and answers come back as
//! events. Orders that fall due together go out in one round trip where the store can do that; where it cannot,
//! each goes on its own, so that no sequence waits for another.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{self, FuturesUnordered, Stream, StreamExt as _};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tracing::Instrument as _;

use super::driver::Driver;
use crate::core::{Core, NO_SLOT};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::mailbox::{Ending, Mailbox, Message, Time};
#[cfg(feature = "metrics")]
use crate::observe::record;
use crate::registry::Registry;
use crate::store::{GiveBack, Grant, Reserve, Store};
use crate::sync::{Arc, Ordering};

/// The most sequences in one round trip: bounds the store's transaction and the memory of a burst.
const LARGEST_BATCH: usize = 256;

/// How many sequences give their rests back at the same time: at the end of a process there is no hurry, and the store may be busy with the
/// ends of many.
const GIVEN_BACK_AT_ONCE: usize = 16;

/// The most sequences looked at for eviction before the actor turns to its callers again.
const SWEEP: usize = 4096;

type Flight = Pin<Box<dyn Future<Output = Vec<(usize, Result<Grant>)>> + Send>>;

/// The actor's clock, which its callers reckon their deadlines by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Time {
        self.0.elapsed()
    }

    fn instant(self, time: Time) -> Instant {
        self.0 + time
    }
}

/// What the actor is to do besides refilling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Duties {
    /// How long a store may take to answer before the outcome counts as unknown.
    pub(crate) store_timeout: Duration,
    /// How long a sequence that nobody refers to is kept.
    pub(crate) idle: Option<Duration>,
}

pub(crate) struct Actor {
    mailbox: Arc<Mailbox>,
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
    clock: Clock,
    duties: Duties,
    /// Where callers wait for a place to wait; closed at the end.
    places: Arc<Semaphore>,
    drivers: Vec<Option<Box<Driver>>>,
    free: Vec<usize>,
    /// When which slot is to be woken. A tick too many does nothing.
    timers: BinaryHeap<Reverse<(Time, usize)>>,
    flights: FuturesUnordered<Flight>,
    /// Ordered but not yet sent.
    orders: Vec<(usize, Reserve)>,
    sweep: Sweep,
}

/// How far the search for idle sequences has come.
#[derive(Default)]
struct Sweep {
    due: Option<Time>,
    cursor: usize,
    /// What each slot had drawn at the last look.
    drawn: Vec<u64>,
}

impl Actor {
    pub(crate) fn new(
        mailbox: Arc<Mailbox>,
        store: Arc<dyn Store>,
        registry: Arc<Registry>,
        clock: Clock,
        duties: Duties,
        places: Arc<Semaphore>,
    ) -> Self {
        let sweep = Sweep { due: duties.idle.map(|idle| clock.now() + idle), ..Sweep::default() };
        Self {
            mailbox,
            store,
            registry,
            clock,
            duties,
            places,
            drivers: Vec::new(),
            free: Vec::new(),
            timers: BinaryHeap::new(),
            flights: FuturesUnordered::new(),
            orders: Vec::new(),
            sweep,
        }
    }

    /// Runs until the mailbox is closed. Dropping the future closes every sequence too.
    pub(crate) async fn run(mut self) {
        loop {
            let (messages, ending) = self.mailbox.receive();
            for message in messages {
                self.message(message);
            }
            while let Some(core) = self.mailbox.next_low() {
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
            self.wait().await;
        }
    }

    /// Ends every sequence, and gives back what is left of each to a store that takes it.
    async fn put_away(&mut self) {
        // What was asked for and not answered is a gap: nobody waits for it any more.
        self.flights.clear();
        let backs = self.end();
        if self.store.capabilities().gives_back {
            let giving = stream::iter(backs).for_each_concurrent(GIVEN_BACK_AT_ONCE, |(slot, back)| {
                let driver = self.drivers[slot].as_deref().expect("it is its own rest");
                give_back(&*self.store, driver, back)
            });
            if timeout(self.duties.store_timeout, giving).await.is_err() {
                tracing::warn!("the store did not take back all that was left: that is a gap");
            }
        }
    }

    /// Ends every sequence; what is left of them, by slot.
    fn end(&mut self) -> Vec<(usize, GiveBack)> {
        let now = self.clock.now();
        let drivers = self.drivers.iter_mut().enumerate();
        let closed =
            |(slot, driver): (_, &mut Option<Box<Driver>>)| Some((slot, driver.as_mut()?.close(now)?));
        let backs = drivers.filter_map(closed).collect();
        for core in self.registry.cores() {
            core.close();
        }
        backs
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Request(request) => {
                let core = request.core.clone();
                self.each(&core, |driver, now| driver.request(request, now));
            }
            Message::Revoked(core) => self.each(&core, Driver::revoked),
        }
    }

    /// Hands an event to a core's driver, making one where it has none yet.
    fn each(&mut self, core: &Arc<Core>, event: impl FnOnce(&mut Driver, Time) -> Option<Reserve>) {
        // Relaxed, as are all accesses of it: only this task uses the slot.
        let mut slot = core.slot.load(Ordering::Relaxed);
        if slot == NO_SLOT {
            slot = self.free.pop().unwrap_or_else(|| {
                self.drivers.push(None);
                self.drivers.len() - 1
            });
            core.slot.store(slot, Ordering::Relaxed);
            self.drivers[slot] = Some(Box::new(Driver::new(core.clone())));
        }
        // A late message of a core that was evicted meanwhile is not for whoever has its slot now.
        let is_its_own = |driver: &Driver| Arc::ptr_eq(driver.core(), core);
        if self.drivers[slot].as_deref().is_some_and(is_its_own) {
            self.event(slot, event);
        }
    }

    fn event(&mut self, slot: usize, event: impl FnOnce(&mut Driver, Time) -> Option<Reserve>) {
        let Some(driver) = self.drivers.get_mut(slot).and_then(Option::as_mut) else { return };
        if let Some(order) = event(driver, self.clock.now()) {
            self.orders.push((slot, order));
        }
        record(driver.core());
        if let Some(time) = driver.arm() {
            self.timers.push(Reverse((time, slot)));
        }
    }

    fn tick(&mut self) {
        let now = self.clock.now();
        while let Some(Reverse((time, slot))) = self.timers.peek().copied() {
            if time > now {
                break;
            }
            self.timers.pop();
            self.event(slot, Driver::tick);
        }
    }

    fn send(&mut self) {
        let mut orders = std::mem::take(&mut self.orders);
        let batch = if self.store.capabilities().batches { LARGEST_BATCH } else { 1 };
        while !orders.is_empty() {
            let rest = orders.split_off(orders.len().min(batch));
            self.flights.push(Box::pin(fly(self.store.clone(), orders, self.duties.store_timeout)));
            orders = rest;
        }
    }

    /// Waits until a message or signal arrives, the store answers, or a timer is due.
    async fn wait(&mut self) {
        let mailbox = self.mailbox.clone();
        let mut woken = pin!(mailbox.woken());
        let due = [self.timers.peek().map(|timer| timer.0.0), self.sweep.due].into_iter().flatten().min();
        let mut timer = pin!(due.map(|time| sleep_until(self.clock.instant(time))));
        let answers = poll_fn(|cx| {
            if let Poll::Ready(Some(answers)) = Pin::new(&mut self.flights).poll_next(cx) {
                return Poll::Ready(answers);
            }
            if woken.as_mut().poll(cx).is_ready() || is_over(timer.as_mut().as_pin_mut(), cx) {
                return Poll::Ready(Vec::new());
            }
            Poll::Pending
        })
        .await;
        for (slot, outcome) in answers {
            self.event(slot, |driver, now| driver.answered(outcome, now));
        }
    }

    /// Lets go of sequences that nobody refers to and nothing was drawn from for a while.
    fn sweep(&mut self) {
        let (Some(idle), Some(due)) = (self.duties.idle, self.sweep.due) else { return };
        let now = self.clock.now();
        if now < due {
            return;
        }
        let end = (self.sweep.cursor + SWEEP).min(self.drivers.len());
        self.sweep.drawn.resize(self.drivers.len(), u64::MAX);
        for slot in self.sweep.cursor..end {
            self.evict_if_idle(slot, now);
        }
        let done = end == self.drivers.len();
        self.sweep.cursor = if done { 0 } else { end };
        self.sweep.due = Some(if done { now + idle } else { now });
    }

    fn evict_if_idle(&mut self, slot: usize, now: Time) {
        let Some(driver) = self.drivers[slot].as_mut() else { return };
        let drawn = driver.core().drawn();
        let same = std::mem::replace(&mut self.sweep.drawn[slot], drawn) == drawn;
        if !same || !driver.is_idle() || !driver.core().evict() {
            return;
        }
        // A gap: giving back is for the end of a process, when nothing else is under way.
        let _ = driver.close(now);
        record(driver.core());
        let core = driver.core().clone();
        self.registry.forget(&core);
        self.drivers[slot] = None;
        self.free.push(slot);
        self.sweep.drawn[slot] = u64::MAX;
        tracing::debug!(sequence = %core.name, "evicted: idle");
    }
}

/// Whoever waits hears that it is over, however the task ended: asked to, or dropped with its runtime.
impl Drop for Actor {
    fn drop(&mut self) {
        self.mailbox.close(Ending::Abandoned);
        // Before the runtime's timers end, which callers without a place hold one of.
        self.places.close();
        // Nothing can arrive any more: what did is answered by the drivers' end.
        for message in self.mailbox.receive().0 {
            self.message(message);
        }
        // Nobody waits for it to be given back.
        let _ = self.end();
        // Not before: what is given back is no gap, and counters cannot go down.
        self.drivers.iter().flatten().for_each(|driver| record(driver.core()));
    }
}

/// Without anybody to tell.
#[cfg(not(feature = "metrics"))]
fn record(_core: &Core) {}

fn is_over(timer: Option<Pin<&mut Sleep>>, cx: &mut Context<'_>) -> bool {
    timer.is_some_and(|timer| timer.poll(cx).is_ready())
}

/// One round trip for one order or many.
async fn fly(
    store: Arc<dyn Store>,
    orders: Vec<(usize, Reserve)>,
    limit: Duration,
) -> Vec<(usize, Result<Grant>)> {
    let (slots, requests): (Vec<_>, Vec<_>) = orders.into_iter().unzip();
    let ids = requests.iter().fold(0_u64, |sum, request| sum.saturating_add(request.count));
    let span = tracing::debug_span!("reserve", sequences = requests.len(), ids);
    let asked = AssertUnwindSafe(async {
        match requests.as_slice() {
            [request] => vec![store.reserve(request).await],
            _ => store.reserve_many(&requests).await,
        }
    });
    // A store that panics fails its callers, not the actor; what it held is its own to keep consistent.
    let mut results = match timeout(limit, asked.catch_unwind()).instrument(span).await {
        Ok(Ok(results)) => results,
        Ok(Err(_)) => requests.iter().map(|_| Err(panicked())).collect(),
        Err(_) => requests.iter().map(|_| Err(silent(limit))).collect(),
    };
    // A store that answers too little has not said what became of the rest.
    results.resize_with(slots.len(), || Err(miscounted()));
    let results = results.into_iter().map(|result| result.map_err(|error| error.during(Operation::Reserve)));
    slots.into_iter().zip(results).collect()
}

/// Once: whatever comes of it, it is never tried again.
async fn give_back(store: &dyn Store, driver: &Driver, back: GiveBack) {
    let sequence = &back.name;
    match AssertUnwindSafe(async { store.give_back(&back).await }).catch_unwind().await {
        Ok(Ok(true)) => {
            tracing::debug!(%sequence, rest = ?back.rest, "gave the rest back");
            driver.gave_back(back.rest.len());
        }
        Ok(Ok(false)) => {
            tracing::debug!(%sequence, rest = ?back.rest, "others reserved after the rest: a gap");
        }
        Ok(Err(error)) => {
            tracing::warn!(%sequence, rest = ?back.rest, %error, "could not give the rest back: a gap");
        }
        Err(_) => tracing::warn!(%sequence, rest = ?back.rest, "the store panicked: the rest is a gap"),
    }
}

fn silent(limit: Duration) -> Error {
    let message = format!("the store did not answer within {limit:?}; whether it reserved is unknown");
    Error::new(ErrorKind::UnknownOutcome, message)
}

fn panicked() -> Error {
    Error::new(ErrorKind::UnknownOutcome, "the store panicked; whether it reserved is unknown")
}

fn miscounted() -> Error {
    Error::new(
        ErrorKind::UnknownOutcome,
        "the store answered a batch of reserves with another number of results",
    )
}
