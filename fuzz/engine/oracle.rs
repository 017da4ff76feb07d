//! An oracle for the engine. It feeds the engine arbitrary events, and checks every effect against the
//! engine's promises. It reads only the engine's sizes, timer, queue length and
//! standing error.
//!
//! The oracle replaces the driver, the stock, the callers, the clock, and the store, whose grants can be
//! correct, short, reset, faulty or broken. It panics with the name of a broken promise.

mod promises;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::bytes::Bytes;
use crate::error::{Error, ErrorKind, Status};
use crate::name::SequenceName;
use crate::range::{IdRange, Ranges};
use crate::refill::engine::Engine;
use crate::refill::engine::event::Event;
use crate::refill::engine::queue::Waiter;
use crate::state::segment::MAX_LEN;
use crate::state::settings::{Adaptive, Order, Settings, Sizing};
use crate::state::time::Time;
use crate::state::want::Want;
use crate::store::{Bounds, Change, Grant, Identity, SequenceInfo};
use crate::sync::Arc;

use promises::LONGEST_RETRY;

struct Caller {
    number: usize,
    gone: Rc<Cell<bool>>,
}

impl Waiter for Caller {
    fn is_gone(&self) -> bool {
        self.gone.get()
    }
}

/// The oracle's record of a caller.
struct Asked {
    want: Want,
    deadline: Time,
    gone: Rc<Cell<bool>>,
    answered: bool,
}

impl Asked {
    fn waits(&self) -> bool {
        !self.answered && !self.gone.get()
    }
}

struct Flight {
    count: u64,
    /// Number of callers before the reserve was sent.
    callers: usize,
    revoked: bool,
    /// Whether the reserve was sent during a give-back.
    overtakes: bool,
}

/// How a grant must be handled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Judged {
    Sound,
    Void,
    Mad,
}

/// The current event, which determines the permitted effects.
#[derive(Default)]
struct Cause {
    /// The error that a failed caller may get.
    error: Option<ErrorKind>,
    /// The grant, if it may be used.
    grant: Option<IdRange>,
    /// Whether a caller was already answered.
    answered: bool,
    tick: bool,
    /// How the current grant must be handled, and how it was handled.
    deserves: Option<Judged>,
    judged: Option<Judged>,
}

pub(crate) struct Oracle {
    engine: Engine<Caller>,
    settings: Settings,
    /// As in the settings, for the bounds of the last valid grant.
    sizing: Sizing,
    now: Time,
    callers: Vec<Asked>,
    flight: Option<Flight>,
    /// Number of ranges that are being given back to the store.
    returning: u32,
    stored: SequenceInfo,
    /// The ids in memory, in the order in which they are drawn, and the ids that the engine holds for
    /// waiting callers.
    memory: Vec<IdRange>,
    held: Ranges,
    /// Under `Order::Global`: each grant, and the first caller that was too late for it.
    asked_for: Vec<(IdRange, usize)>,
    /// One past the last id under `origin` that a caller got. Later ids must be at least this large.
    handed_to: u128,
    origin: Option<Identity>,
    /// The ids under `origin` that were granted and not given back.
    kept: Vec<IdRange>,
    ended: Option<ErrorKind>,
    ended_at: Time,
    failed_at: Option<Time>,
    /// Whether a reserve since the last grant has an unknown outcome.
    doubtful: bool,
    /// Whether all callers got the last failure, so that the next caller need not wait for the retry.
    failed_for_all: bool,
    /// Whether a caller has found memory empty since the last grant.
    tried: bool,
    /// How many ids calls that do not wait wanted since the last grant.
    wanted: u64,
    cause: Cause,
    granted: u128,
    handed: u128,
    lost: u128,
}

/// Runs the engine on the events in `data`. Panics on the first broken promise.
pub(crate) fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let mut oracle = Oracle::new(&mut bytes);
    while !bytes.is_empty() {
        oracle.step(&mut bytes);
    }
    oracle.end();
}

impl Oracle {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let settings = settings(bytes);
        let name = SequenceName::new("s").expect("a name");
        let identity = Identity { incarnation: 1, epoch: 0 };
        let next = Some(settings.bounds.start());
        Self {
            engine: Engine::new(Arc::new(settings), settings.sizing),
            sizing: settings.sizing,
            now: Duration::ZERO,
            callers: Vec::new(),
            flight: None,
            returning: 0,
            stored: SequenceInfo { name, next, bounds: settings.bounds, identity },
            memory: Vec::new(),
            held: Ranges::none(),
            asked_for: Vec::new(),
            handed_to: 0,
            origin: None,
            kept: Vec::new(),
            ended: None,
            ended_at: Duration::ZERO,
            failed_at: None,
            doubtful: false,
            failed_for_all: false,
            tried: false,
            wanted: 0,
            cause: Cause::default(),
            granted: 0,
            handed: 0,
            lost: 0,
            settings,
        }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.below(16) {
            0..=3 => self.request(bytes),
            4 => self.cancel(bytes),
            5 => self.low(bytes.below(4) == 0, bytes),
            6..=9 => self.answer(bytes),
            10 | 11 => self.pass_time(bytes),
            12 | 13 => self.draw(bytes.number()),
            14 => match bytes.below(8) {
                0..=2 => self.revoke(),
                3 => self.close(),
                4 => self.abandoned(),
                5 | 6 => self.returned(),
                _ => self.measure(bytes),
            },
            _ if bytes.below(4) == 0 => self.raise(bytes),
            _ => self.reset(bytes),
        }
    }

    /// Serves a request as the driver does: from memory if it has enough ids.
    fn request(&mut self, bytes: &mut Bytes<'_>) {
        let (count, timeout) = (bytes.number().max(1), Duration::from_millis(bytes.number() >> 20 | 1));
        let want = if self.prefetches() && bytes.below(8) == 0 {
            Want::Level(count.min(self.sizing.most_in_memory()))
        } else {
            Want::Ids(count)
        };
        let level = self.level();
        if level >= want.needs() {
            return self.draw(want.gets());
        }
        let (number, gone) = (self.callers.len(), Rc::new(Cell::new(false)));
        let deadline = self.now.saturating_add(timeout);
        self.callers.push(Asked { want, deadline, gone: gone.clone(), answered: false });
        let known = (bytes.below(4) == 0).then(|| self.unreserved());
        let is_certain = self.flight.is_none() && self.returning == 0;
        let here = self.held.len().saturating_add(level);
        let left = known.filter(|_| is_certain).map(|left| left.saturating_add(here));
        let short = left.filter(|left| *left < want.needs()).map(|_| ErrorKind::Exhausted);
        let error = self.ended.or_else(|| self.stands()).or(short);
        self.on(
            Event::Request { waiter: Caller { number, gone }, want, known, deadline },
            Cause { error, ..Cause::default() },
        );
        assert!(
            error.is_none() || self.callers[number].answered,
            "a request that cannot succeed fails immediately"
        );
    }

    /// The permanent error that callers get until the next attempt is due.
    fn stands(&self) -> Option<ErrorKind> {
        let kind = self.engine.refused(self.now)?.kind();
        assert_eq!(kind.status(), Status::Permanent, "only a permanent error stands");
        let is_due = self.failed_at.is_none_or(|at| self.now >= at + LONGEST_RETRY);
        assert!(!is_due, "a permanent error stands until the next attempt is due");
        Some(kind)
    }

    /// Number of ids that the store has left.
    fn unreserved(&self) -> u64 {
        let last = self.stored.bounds.max().min(self.settings.ceiling);
        let left = |next| last.checked_sub(next).map_or(0, |more| more.saturating_add(1));
        self.stored.next.map_or(0, left)
    }

    fn returned(&mut self) {
        if self.returning > 0 {
            self.returning -= 1;
            self.on(Event::Returned, Cause::default());
        }
    }

    fn cancel(&mut self, bytes: &mut Bytes<'_>) {
        let number = usize::from(bytes.byte()) % self.callers.len().max(1);
        // Cancel one of the last callers, which may still be waiting.
        if let Some(asked) = self.callers.iter().rev().nth(number / 8) {
            asked.gone.set(true);
        }
    }

    fn low(&mut self, any: bool, bytes: &mut Bytes<'_>) {
        let level = if any { bytes.number() >> 4 } else { self.level() };
        let watermark = self.engine.policy().plan().watermark;
        let wanted = if bytes.below(8) == 0 { bytes.number() } else { 0 };
        let possible = wanted.min(self.sizing.most_in_memory());
        self.wanted = self.wanted.max(possible);
        self.tried |= level == 0 || level < wanted;
        let low = self.prefetches() && level < watermark.max(possible).max(1);
        self.on_at(Event::Low { wanted }, level, Cause::default());
        let delayed = self.ended.is_some() || self.failed_at.is_some() || self.returning > 0;
        assert!(!low || delayed || self.flight.is_some(), "a level below the watermark starts a reserve");
    }

    fn answer(&mut self, bytes: &mut Bytes<'_>) {
        // After the end, answer even if no request is in flight.
        let asked = self.flight.as_ref().map(|flight| flight.count);
        let (Some(count), kind) = (asked.or(self.ended.map(|_| 1)), bytes.below(16)) else { return };
        match kind {
            0..=8 => self.honest(count, 0),
            9 => self.honest(count, bytes.number()),
            10 => self.honest((u64::from(bytes.byte()) + 1).min(count), 0),
            11 | 12 => self.nonsense(count, bytes),
            _ => self.fail(bytes),
        }
    }

    /// Answers like a correct store, after others were granted `skip` ids.
    fn honest(&mut self, count: u64, skip: u64) {
        let ceiling = self.settings.ceiling;
        if skip > 0 {
            let _ = self.stored.grant(skip, ceiling);
        }
        match self.stored.grant(count, ceiling) {
            Ok(grant) => self.granted(grant),
            Err(error) => self.failed(error),
        }
    }

    fn nonsense(&mut self, count: u64, bytes: &mut Bytes<'_>) {
        let (identity, bounds) = (self.stored.identity, self.stored.bounds);
        let range = match bytes.below(4) {
            0 => IdRange::new(bounds.start(), 0),
            1 => IdRange::new(bounds.start(), count + 1),
            2 => bounds.max().min(self.settings.ceiling).checked_add(1).and_then(|id| IdRange::new(id, 1)),
            _ => IdRange::new(bytes.number(), bytes.number()),
        };
        if let Some(range) = range {
            self.granted(Grant::new(range, identity, bounds));
        }
    }

    fn fail(&mut self, bytes: &mut Bytes<'_>) {
        use ErrorKind::{Conflict, Denied, Exhausted, Unavailable, UnknownOutcome};
        let kinds = [Unavailable, Unavailable, UnknownOutcome, UnknownOutcome, Denied, Conflict, Exhausted];
        let error = Error::from(kinds[usize::from(bytes.below(7))]);
        self.failed(if bytes.below(4) == 0 { error.refusing_waiters() } else { error });
    }

    fn pass_time(&mut self, bytes: &mut Bytes<'_>) {
        let kind = bytes.below(4);
        self.now = match self.engine.next_timer() {
            Some(due) if kind > 0 => self.now.max(due),
            _ => self.now.saturating_add(Duration::from_micros(bytes.number() >> 16)),
        };
        self.tick();
    }

    fn tick(&mut self) {
        self.on(Event::Tick, Cause { tick: true, error: Some(ErrorKind::Deadline), ..Cause::default() });
        let now = self.now;
        assert!(!self.waiting().any(|asked| asked.deadline <= now), "no caller waits beyond its deadline");
        assert!(self.engine.next_timer().is_none_or(|due| due > now), "the next timer is in the future");
    }

    /// A caller draws from memory.
    fn draw(&mut self, n: u64) {
        let before = self.level();
        let mut drawn = Vec::new();
        self.take(n, |range| drawn.push(range));
        for range in drawn {
            self.hand_out(range);
        }
        let watermark = self.engine.policy().plan().watermark;
        if before >= watermark && self.level() < watermark {
            self.low(false, &mut Bytes::new(&[]));
        }
    }

    fn revoke(&mut self) {
        self.lost += u128::from(self.level());
        self.memory.clear();
        if let Some(flight) = &mut self.flight {
            flight.revoked = true;
        }
        self.ended = self.ended.filter(|reason| *reason == ErrorKind::Closed);
        if self.engine.refused(self.now).is_some() {
            self.failed_at = None;
        }
        self.on(Event::Revoked, Cause::default());
        assert!(self.held.is_empty(), "a revocation drops the held ids");
    }

    fn close(&mut self) {
        self.flight = None;
        self.on(Event::Close, Cause { error: Some(ErrorKind::Closed), ..Cause::default() });
        assert_eq!(self.ended, Some(ErrorKind::Closed), "`Close` ends the sequence with `Closed`");
        assert_eq!(self.waiting().count(), 0, "no caller waits after the close");
        assert!(
            self.engine.next_timer().is_none() && self.engine.waiting() == 0,
            "no timer and no request remain after the close"
        );
    }

    fn abandoned(&mut self) {
        self.engine.abandoned();
        let waits = self.engine.waiting() > 0 || self.returning > 0;
        assert!(
            waits || self.flight.is_some() || self.engine.is_idle(),
            "an engine with no caller, reserve or give-back is idle"
        );
    }

    fn measure(&mut self, bytes: &mut Bytes<'_>) {
        let total = self.handed.try_into().unwrap_or(u64::MAX);
        self.engine.policy().drawn(total, self.now);
        self.now += Duration::from_micros(u64::from(bytes.byte()));
    }

    /// An administrator resets the sequence to any id, in the next epoch.
    fn reset(&mut self, bytes: &mut Bytes<'_>) {
        self.stored.identity.epoch += 1;
        let bounds = self.stored.bounds;
        self.stored.next = Some(bounds.start().saturating_add(bytes.number()).min(bounds.max()));
    }

    /// An administrator raises the end of the sequence.
    fn raise(&mut self, bytes: &mut Bytes<'_>) {
        let max = self.stored.bounds.max().saturating_add(bytes.number());
        let change = Change::new().max(max);
        self.stored.apply(&change).expect("raising max is allowed");
    }

    fn end(&mut self) {
        if let Some(due) = self.engine.next_timer() {
            self.now = self.now.max(due);
            self.tick();
        }
        self.close();
        assert!(self.held.is_empty(), "no ids are held after the close");
    }
}

fn settings(bytes: &mut Bytes<'_>) -> Settings {
    let order = [Order::Global, Order::Process, Order::Thread][usize::from(bytes.below(3))];
    let start = bytes.number();
    let max = start.saturating_add(bytes.number() << bytes.below(8));
    let bounds = Bounds::new(start, max).expect("start comes before max");
    let step = bytes.number().clamp(1, MAX_LEN);
    let sizing = match bytes.below(3) {
        0 => Sizing::Fixed { step, watermark: 0 },
        1 => Sizing::Fixed { step, watermark: bytes.number().min(step) },
        _ => {
            let max_buffered = bytes.number().clamp(1, MAX_LEN);
            let outage_budget = Duration::from_millis(bytes.number() >> 20);
            let by_bounds = bytes.below(4) == 0;
            Sizing::Adaptive(if by_bounds {
                Adaptive { by_bounds, ..Adaptive::of(outage_budget, max_buffered) }
            } else {
                Adaptive { outage_budget, max_buffered, min_step: step.min(max_buffered), by_bounds }
            })
        }
    };
    sizing.check().expect("the sizing is valid");
    let ceiling = if bytes.below(4) == 0 { start.saturating_add(bytes.number()) } else { u64::MAX };
    Settings { order, sizing, bounds, ceiling, seed: Some(bytes.number()), ..Settings::of::<u64>() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

        #[test]
        fn the_engine_keeps_its_promises(data in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..100),
            prop::collection::vec(any::<u8>(), 0..1000),
            prop::collection::vec(0..17_u8, 0..1000),
        ]) {
            super::run(&data);
        }
    }
}
