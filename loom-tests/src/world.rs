//! The parts of the models: stocks, cores, callers, and an actor reduced to its protocol.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::thread::{self, Thread};

use crate::error::ErrorKind;
use crate::name::SequenceName;
use crate::range::{IdRange, Ranges};
use crate::refill::driver::Driver;
use crate::state::core::Core;
use crate::state::mailbox::{Arrived, Ending, Mailbox, Message, Request};
use crate::state::reply::Reply;
use crate::state::segment::{Drawn, Segment};
use crate::state::settings::{Order, Settings, Sizing};
use crate::state::stock::Stock;
use crate::state::time::Time;
use crate::state::want::Want;
use crate::store::{Bounds, Grant, Identity, Reserve};
use crate::sync::Arc;

/// Time stands still, since no model depends on the time.
pub(crate) const NOW: Time = Duration::ZERO;
/// One signal a turn, so that a turn leaves signals for the next turn.
pub(crate) const MOST_SIGNALS: usize = 1;
pub(crate) const NEVER: Time = Duration::from_secs(1 << 30);

pub(crate) fn range(start: u64, len: u64) -> IdRange {
    IdRange::new(start, len).expect("fits")
}

/// A stock with segments of these lengths, whose ids begin at 1.
pub(crate) fn stock(lens: &[u64]) -> Arc<Stock> {
    let stock = Arc::new(Stock::new());
    fill(&stock, lens);
    stock
}

fn fill(stock: &Stock, lens: &[u64]) {
    let mut start = 1;
    for len in lens {
        assert!(stock.publish(range(start, *len), 0, 0, |_| ()));
        start += len;
    }
}

/// Draws one id from the stock, beginning at `segment`.
pub(crate) fn draw(stock: &Stock, segment: &mut Arc<Segment>) -> Result<u64, ErrorKind> {
    stock.draw(segment).map(|Drawn { id, .. }| id)
}

/// Draws one id from the stock, beginning at the current segment.
pub(crate) fn draw_anew(stock: &Stock) -> Result<u64, ErrorKind> {
    draw(stock, &mut stock.current())
}

/// Draws all remaining ids.
pub(crate) fn drain(stock: &Stock) -> Vec<u64> {
    std::iter::from_fn(|| draw_anew(stock).ok()).collect()
}

/// Fails unless `ids` contains each id from `first` to `last` once.
pub(crate) fn assert_each_once(mut ids: Vec<u64>, first: u64, last: u64) {
    ids.sort_unstable();
    assert_eq!(ids, (first..=last).collect::<Vec<_>>(), "each id once");
}

pub(crate) fn settings(step: u64, watermark: u64, last: u64) -> Settings {
    Settings {
        order: Order::Process,
        sizing: Sizing::Fixed { step, watermark },
        bounds: Bounds::new(1, last).expect("not empty"),
        floor: 0,
        ceiling: u64::MAX,
        block: 2,
        // Without a fixed seed, the jitter would differ between interleavings.
        seed: Some(1),
    }
}

pub(crate) fn name() -> SequenceName {
    SequenceName::new("orders").expect("valid")
}

pub(crate) fn core(settings: Settings) -> Arc<Core> {
    Arc::new(Core::new(name(), Arc::new(settings)))
}

/// A core and its mailbox. A reserve requests at least `step` ids.
pub(crate) fn sequence(step: u64, watermark: u64, last: u64) -> (Arc<Core>, Arc<Mailbox>) {
    (core(settings(step, watermark, last)), Arc::new(Mailbox::new()))
}

/// Like `Allocator::next`: draws, or else waits for the actor.
pub(crate) fn next(core: &Arc<Core>, mailbox: &Mailbox) -> Result<u64, ErrorKind> {
    match core.draw(&mut core.stock.current(), mailbox) {
        Err(ErrorKind::Empty) => {
            wait(core, mailbox).map(|ids| ids.iter().next().expect("the reply has one id"))
        }
        outcome => outcome,
    }
}

/// Waits for one id from the actor.
pub(crate) fn wait(core: &Arc<Core>, mailbox: &Mailbox) -> Result<Ranges, ErrorKind> {
    block_on(mailbox.ask(core, Want::Ids(1), NEVER, None)?).map_err(|error| error.kind())
}

/// Asks for one id, and passes the request to `driver`.
pub(crate) fn asked(
    core: &Arc<Core>,
    mailbox: &Mailbox,
    driver: impl FnOnce(Request) -> Option<Reserve>,
) -> Reply {
    let pending = mailbox.ask(core, Want::Ids(1), NEVER, None).expect("open");
    let Some(Message::Request(request)) = mailbox.receive(0).messages.pop_front() else {
        panic!("the mailbox has no request")
    };
    assert!(driver(request).is_some(), "no ids in memory, so a reserve is needed");
    pending
}

/// The actor's use of its mailbox, without clock and store. As in the real actor, a reserve is in flight
/// from the end of a turn, and is answered after the messages that arrived meanwhile. The store is a counter.
/// The real actor adds timers and batches. Neither shares memory with callers.
pub(crate) struct Actor {
    mailbox: Arc<Mailbox>,
    core: Arc<Core>,
    driver: Driver,
    next: u64,
    /// The reserve in flight, and the stock's generation when it was sent.
    flight: Option<(Reserve, u64)>,
    pub(crate) reserves: usize,
    /// The granted ranges, and the stock's generation when each was requested.
    grants: Vec<(IdRange, u64)>,
    /// The ids that the actor would give back to the store after its end.
    pub(crate) left: Option<IdRange>,
}

impl Actor {
    pub(crate) fn new(core: &Arc<Core>, mailbox: &Arc<Mailbox>) -> Self {
        Self {
            mailbox: mailbox.clone(),
            core: core.clone(),
            driver: Driver::new(core.clone()),
            next: core.settings.bounds.start(),
            flight: None,
            reserves: 0,
            grants: Vec::new(),
            left: None,
        }
    }

    /// Does what `refill::actor::Actor::run` and the actor's drop do.
    pub(crate) fn run(mut self, mut refilled: impl FnMut()) -> Self {
        while !self.turn(&mut refilled) {
            if self.flight.is_none() {
                block_on(self.mailbox.woken());
            }
        }
        self.end();
        self
    }

    /// Processes all messages, at most one signal, and the answer of the store. Returns `true` once the
    /// mailbox is closed: the reserve in flight is then never answered.
    fn turn(&mut self, refilled: &mut impl FnMut()) -> bool {
        let Arrived { messages, low, ending } = self.mailbox.receive(MOST_SIGNALS);
        let answered = self.flight.take();
        let mut ordered = Vec::new();
        for message in messages {
            ordered.extend(self.driver.message(message, &self.mailbox, NOW));
        }
        for _core in low {
            ordered.extend(self.driver.low(NOW));
        }
        if ending.is_some() {
            return true;
        }
        if let Some((Reserve { count, .. }, generation)) = answered {
            assert!(ordered.is_empty(), "one reserve is in flight");
            let grant = self.grant(count, generation);
            ordered.extend(self.driver.answered(Ok(grant), NOW));
            refilled();
        }
        assert!(ordered.len() <= 1, "one reserve is in flight");
        self.flight = ordered.pop().map(|reserve| (reserve, self.core.stock.generation()));
        self.reserves += usize::from(self.flight.is_some());
        false
    }

    fn grant(&mut self, count: u64, generation: u64) -> Grant {
        let bounds = self.core.settings.bounds;
        let range = range(self.next, count.min(bounds.max() + 1 - self.next));
        self.next += range.len();
        self.grants.push((range, generation));
        Grant::new(range, identity(0), bounds)
    }

    /// Returns the stock's generation when this id was requested from the store.
    pub(crate) fn requested_under(&self, id: u64) -> u64 {
        let granted = self.grants.iter().find(|(range, _)| range.contains(id));
        granted.expect("the id was granted").1
    }

    /// Imitates the drop of the real actor.
    fn end(&mut self) {
        self.mailbox.close(Ending::Abandoned);
        for message in self.mailbox.receive(0).messages {
            // A resulting reserve is discarded.
            let _ = self.driver.message(message, &self.mailbox, NOW);
        }
        self.left = self.driver.close(NOW).map(|rest| rest.back().rest);
        self.core.close();
    }

    /// Number of ids granted so far.
    pub(crate) fn granted(&self) -> u64 {
        self.next - self.core.settings.bounds.start()
    }
}

pub(crate) fn identity(epoch: u64) -> Identity {
    Identity { incarnation: 1, epoch }
}

/// Replaces loom's `block_on`, which would also explore spurious wake-ups for each wait, and every change of
/// its wakers' reference counts.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
