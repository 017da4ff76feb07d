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

/// The actor's use of its mailbox, without clock and store: reserves are granted immediately, from a counter.
/// The real actor adds timers, batches and reserves in flight. None of these share memory with callers.
pub(crate) struct Actor {
    mailbox: Arc<Mailbox>,
    core: Arc<Core>,
    driver: Driver,
    next: u64,
    pub(crate) reserves: usize,
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
            reserves: 0,
            left: None,
        }
    }

    /// Does what `refill::actor::Actor::run` and the actor's drop do.
    pub(crate) fn run(mut self, mut refilled: impl FnMut()) -> Self {
        while !self.turn(&mut refilled) {
            block_on(self.mailbox.woken());
        }
        self.end();
        self
    }

    /// Processes all messages, and at most one signal. Returns `true` once the mailbox is closed.
    fn turn(&mut self, refilled: &mut impl FnMut()) -> bool {
        let Arrived { messages, low, ending } = self.mailbox.receive(MOST_SIGNALS);
        // At most one event of a turn starts a reserve, since only one reserve can be in flight.
        let mut order = None;
        for message in messages {
            order = self.message(message).or(order);
        }
        for _core in low {
            order = self.driver.low(NOW).or(order);
        }
        if ending.is_none() {
            self.grant(order, refilled);
        }
        ending.is_some()
    }

    fn message(&mut self, message: Message) -> Option<Reserve> {
        match message {
            Message::Request(request) => self.driver.request(request, &self.mailbox, NOW),
            Message::Revoked(_) => self.driver.revoked(NOW),
        }
    }

    fn grant(&mut self, mut order: Option<Reserve>, refilled: &mut impl FnMut()) {
        while let Some(Reserve { count, .. }) = order {
            self.reserves += 1;
            let create = self.driver.core().settings.bounds;
            let left = create.max() + 1 - self.next;
            let range = range(self.next, count.min(left));
            self.next += range.len();
            order = self.driver.answered(Ok(Grant::new(range, identity(0), create)), NOW);
            refilled();
        }
    }

    /// Imitates the drop of the real actor.
    fn end(&mut self) {
        self.mailbox.close(Ending::Abandoned);
        for message in self.mailbox.receive(0).messages {
            // A resulting order is discarded.
            self.message(message);
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
