//! The decisions of the refill, without clock, I/O or runtime: events in, effects out.
//!
//! The engine's guarantees hold for every order of events; the oracle in `fuzz/engine/` checks them:
//!
//! - at most one reserve is in flight, and each is answered by one event;
//! - ids in memory stay there while callers wait for more, until a grant arrives that completes them;
//! - waiting callers then get the ids in memory and the head of the grant, in the order of their arrival. A
//!   caller that needs more waits for the next grant, and does not delay the others;
//! - the rest is published before callers are answered, so that an answered caller finds ids in memory;
//! - ids held for a caller that fails or gives up go to the callers after it, and then to memory, in
//!   ascending order; ids above the memory limit are returned to the store or become a gap;
//! - every waiting caller is answered: with ids, or with an error by its deadline;
//! - no id of a range is used twice, and unused ids are returned or counted as a gap;
//! - a range whose outcome is unknown is never used;
//! - with a watermark of 0, ids are only reserved for calls, including calls that never wait; under
//!   [`Order::Global`] a range serves only callers that were waiting before it was requested.

pub(crate) mod event;
mod grant;
pub(crate) mod policy;
pub(crate) mod queue;
mod retry;

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result, Status};
use crate::range::Ranges;
use crate::state::grant_history::GrantHistory;
use crate::state::segment::MAX_LEN;
use crate::state::settings::{Order, Settings, Sizing};
use crate::state::time::Time;
use crate::store::{Change, Grant, Identity};
use crate::sync::Arc;

use event::{Effect, Event, Output};
use policy::Policy;
use queue::{Queue, Waiter};
use retry::Retry;

/// How long an exhausted sequence fails without a new reserve. Then the next caller starts one, since the
/// sequence's max may have been raised. At this interval, callers in a loop put little load on the store.
pub(super) const END_STANDS: Duration = Duration::from_secs(30);

/// The reserve in flight.
struct InFlight {
    count: u64,
    asked: Time,
    /// Under `Order::Global` the grant serves only tickets before this one: callers that waited when the
    /// reserve was sent.
    before: u64,
    revoked: bool,
    /// Whether ids were on their way back when the reserve was sent: the store may handle the reserve first.
    overtakes: bool,
    /// The store's answer, kept while `next` is being raised.
    answer: Option<Result<Grant>>,
}

pub(crate) struct Engine<W> {
    settings: Arc<Settings>,
    /// The limit of the ids in memory that follows from the bounds of the stored sequence.
    cap: u64,
    policy: Policy,
    queue: Queue<W>,
    /// Boxed, since most sequences usually have none.
    flight: Option<Box<InFlight>>,
    /// How many ids are in memory, during an event.
    level: u64,
    /// Whether memory is low and no grant has followed yet.
    low: bool,
    /// How many ids calls that do not wait wanted since the last grant.
    wanted: u64,
    /// Whether the outcome of a reserve since the last grant is unknown. Then the next one is as small as
    /// possible, since its reply may be lost too.
    doubtful: bool,
    /// Why there are no more reserves: permanently, or until the time of the next attempt.
    ended: Option<ErrorKind>,
    retry: Retry,
    /// How many ranges are on their way back to the store.
    returning: u32,
    /// The identity and the history of the granted ids.
    history: GrantHistory,
}

impl<W: Waiter> Engine<W> {
    /// Creates an engine whose sequence has this sizing.
    pub(crate) fn new(settings: Arc<Settings>, sizing: Sizing) -> Self {
        Self {
            policy: Policy::new(&sizing),
            cap: sizing.most_in_memory(),
            queue: Queue::new(),
            flight: None,
            level: 0,
            low: false,
            wanted: 0,
            doubtful: false,
            ended: None,
            retry: Retry::new(),
            returning: 0,
            history: GrantHistory::default(),
            settings,
        }
    }

    /// Whether the ids in memory must be [taken in](Self::take_in) before an event. They are the oldest of
    /// the ids that waiting callers can get.
    pub(crate) fn needs_memory(&self, event: &Event<W>) -> bool {
        let is_grant = match event {
            Event::Reserved(grant) => self.history.raise(grant).is_none(),
            Event::Raised => true,
            _ => false,
        };
        self.queue.holds() || is_grant && self.awaits_ids()
    }

    /// Takes in all ids that were in memory.
    pub(crate) fn take_in(&mut self, drained: Ranges) {
        if !drained.is_empty() {
            self.queue.hold_first(drained);
        }
    }

    /// Handles an event. `level` ids are in memory.
    pub(crate) fn on(&mut self, event: Event<W>, level: u64, now: Time) -> Output<W> {
        let mut effects = Vec::new();
        self.level = level;
        self.handle(event, now, &mut effects);
        let reserve = self.reserve(now, &mut effects);
        self.queue.shrink(self.flight.is_some());
        Output { reserve, effects }
    }

    fn handle(&mut self, event: Event<W>, now: Time, out: &mut Vec<Effect<W>>) {
        match event {
            // Ignored after the end: a low signal would keep the sequence from ever being idle.
            Event::Low { .. } if self.ended.is_some() => {}
            // Empty memory counts as low even with a watermark of 0: at 0, only a caller that found too few
            // ids signals.
            Event::Low { wanted } => {
                let wanted = wanted.min(self.sizing().most_in_memory());
                if self.prefetches() && self.level < self.policy.plan().watermark.max(wanted).max(1) {
                    (self.low, self.wanted) = (true, self.wanted.max(wanted));
                }
            }
            Event::Request { waiter, want, known, deadline } => {
                match self.refusal(want.needs(), known, now) {
                    Some(error) => out.push(Effect::Fail { waiter, error }),
                    None => self.queue.push(waiter, want, deadline),
                }
            }
            Event::Reserved(grant) => match self.history.raise(&grant) {
                Some(change) => self.raise(Ok(grant), change, out),
                None => self.reserved(grant, now, out),
            },
            Event::Failed(error) => match self.noticed(&error) {
                Some(change) => self.raise(Err(error), change, out),
                None => self.failed(error, now, out),
            },
            Event::Raised => match self.flight.as_mut().and_then(|flight| flight.answer.take()) {
                Some(Ok(grant)) => self.reserved(grant, now, out),
                Some(Err(error)) => self.failed(error, now, out),
                None => {}
            },
            Event::Returned => self.returning = self.returning.saturating_sub(1),
            Event::Revoked => self.revoked(out),
            Event::Tick => {
                self.expire(now, out);
                self.doubt(now, out);
            }
            Event::Close => self.end(ErrorKind::Closed, &ErrorKind::Closed.into(), now, out),
        }
    }

    /// Returns the change to send if the store violated its contract: it may have gone back in time. A
    /// removed sequence has no `next` to raise.
    fn noticed(&self, error: &Error) -> Option<Change> {
        let is_violated = error.kind() == ErrorKind::StoreViolation && !error.is_of_one_sequence();
        if is_violated { self.history.raise_unseen() } else { None }
    }

    /// Keeps the answer until `next` has been raised.
    fn raise(&mut self, answer: Result<Grant>, change: Change, out: &mut Vec<Effect<W>>) {
        if let Some(flight) = &mut self.flight {
            flight.answer = Some(answer);
        }
        out.push(Effect::Raise(change));
    }

    /// Returns when to send the next [`Event::Tick`].
    pub(crate) fn next_timer(&self) -> Option<Time> {
        let is_due = self.ended.is_some() || (self.flight.is_none() && self.is_needed());
        let retry = self.retry.at().filter(|_| is_due);
        [self.queue.earliest(), retry].into_iter().flatten().min()
    }

    /// Returns the measurements and sizes.
    pub(crate) fn policy(&mut self) -> &mut Policy {
        &mut self.policy
    }

    /// Stops reserving ahead: the sequence has no users any more.
    pub(crate) fn abandoned(&mut self) {
        self.low = false;
    }

    /// Whether memory is already noted as low: a signal would change nothing.
    pub(crate) fn is_low(&self) -> bool {
        self.low
    }

    /// Returns the identity of the ids in memory.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.history.identity()
    }

    /// Returns the history of the sequence.
    pub(crate) fn history(&self) -> &GrantHistory {
        &self.history
    }

    /// Removes the last granted ids from the history: they may go back to the store.
    pub(crate) fn forget_from(&mut self, id: u64) {
        self.history.forget_from(id);
    }

    /// Continues with the history of an earlier engine.
    pub(crate) fn remember(&mut self, history: GrantHistory) {
        self.history = history;
    }

    /// Returns the number of waiting callers.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether no caller waits, nothing is in flight and no reserve is due.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.flight.is_none() && self.returning == 0 && !self.low
    }

    fn sizing(&self) -> Sizing {
        self.settings.sizing.capped(self.cap)
    }

    fn prefetches(&self) -> bool {
        self.settings.order != Order::Global
    }

    fn is_needed(&self) -> bool {
        self.low || !self.queue.is_empty()
    }

    /// Whether a grant now would serve waiting callers, together with the ids in memory.
    fn awaits_ids(&self) -> bool {
        let is_valid = self.flight.as_ref().is_some_and(|flight| !flight.revoked);
        is_valid && self.ended.is_none() && self.queue.is_of_use()
    }

    /// Returns why a caller gets no ids, if that is certain.
    fn refusal(&self, want: u64, known: Option<u64>, now: Time) -> Option<Error> {
        if let Some(reason) = self.ended {
            return Some(reason.into());
        }
        if let Some(error) = self.refused(now) {
            return Some(error.clone());
        }
        // While ids are in flight, neither in the store nor held, only a reserve shows whether enough are
        // left.
        let left = known.filter(|_| self.flight.is_none() && self.returning == 0)?;
        let left = left.saturating_add(self.queue.held()).saturating_add(self.level);
        let message = || {
            format!(
                "{want} ids requested, {left} left; take fewer, raise the max of the sequence, or use a \
                 wider id type"
            )
        };
        (left < want).then(|| Error::new(ErrorKind::Exhausted, message()))
    }

    /// Returns the lasting permanent error that callers get until the next attempt is due.
    pub(crate) fn refused(&self, now: Time) -> Option<&Error> {
        self.retry.refusal(now)
    }

    /// Reserves a range if one is needed, none is in flight, and no retry is pending.
    fn reserve(&mut self, now: Time, out: &mut Vec<Effect<W>>) -> Option<u64> {
        // Ids that are held for callers that have given up go to the next ones, and then to memory. This
        // works even while the store is unreachable.
        if self.queue.holds() {
            self.hand_out(None, out.len(), out);
        }
        if self.flight.is_some() || self.ended.is_some() || self.is_held(now) || self.awaits_return() {
            return None;
        }
        // Reserve nothing for callers that have given up.
        self.queue.forget_the_gone();
        if !self.is_needed() {
            return None;
        }
        self.retry.set(None);
        // Regardless of the ids in memory: others may draw them before the grant arrives.
        let demand = self.demand().saturating_add(self.queue.level());
        let count = demand.max(self.ahead()).clamp(1, MAX_LEN);
        let before = self.queue.next_ticket();
        let overtakes = self.returning > 0;
        let flight = InFlight { count, asked: now, before, revoked: false, overtakes, answer: None };
        self.flight = Some(Box::new(flight));
        Some(count)
    }

    /// Returns how many ids to reserve regardless of waiting callers.
    fn ahead(&self) -> u64 {
        if !self.prefetches() {
            0
        } else if self.doubtful {
            self.sizing().least_step().max(self.wanted)
        } else {
            self.policy.plan().step.max(self.wanted)
        }
    }

    /// Whether it is too early for the next attempt. After a failure that was returned to all callers, the
    /// next caller makes an attempt immediately, unless the error [stands](Self::refused). A signal does not
    /// trigger an attempt, since a caller of `try_next` may signal a million times a second.
    fn is_held(&self, now: Time) -> bool {
        let for_callers = || self.retry.was_reported() && self.queue.is_of_use();
        self.retry.at().is_some_and(|at| now < at) && !for_callers()
    }

    /// Whether the store had no ids left, and some are on their way back to it.
    fn awaits_return(&self) -> bool {
        self.returning > 0 && self.retry.error().is_some_and(|error| error.kind() == ErrorKind::Exhausted)
    }

    /// Returns how many ids callers wait for.
    pub(crate) fn demand(&self) -> u64 {
        self.queue.demand()
    }

    /// Returns when the reserve in flight was sent.
    pub(crate) fn asked(&self) -> Option<Time> {
        self.flight.as_ref().map(|flight| flight.asked)
    }

    /// Whether ids are held for waiting callers.
    pub(crate) fn holds(&self) -> bool {
        self.queue.holds()
    }

    fn failed(&mut self, error: Error, now: Time, out: &mut Vec<Effect<W>>) {
        let Some(flight) = self.flight.take() else { return };
        match (error.kind(), error.status()) {
            // The sequence has not ended: ids that are being returned can be reserved again.
            (ErrorKind::Exhausted, _) if flight.overtakes => self.retry.note(error, self.settings.seed),
            // After a revocation the end may have moved: the next caller tries again.
            (ErrorKind::Exhausted, _) if !flight.revoked => self.end(ErrorKind::Exhausted, &error, now, out),
            (_, Status::Permanent) => {
                self.give_up(&error, out);
                self.retry.hold(now);
            }
            (_, status) => {
                if status == Status::Unknown {
                    out.push(Effect::Unknown(flight.count));
                    self.doubtful = true;
                }
                if error.refuses_waiters() {
                    // Keep `low`, so that the retries continue without callers.
                    let low = self.low;
                    self.refuse_all(&error, out);
                    self.low = low;
                }
                self.retry.note(error, self.settings.seed);
                self.retry.hold(now);
            }
        }
    }

    /// Handles a permanent failure: callers for which too few ids are held fail, and a later caller starts
    /// the next attempt.
    fn give_up(&mut self, error: &Error, out: &mut Vec<Effect<W>>) {
        self.retry.note(error.clone(), self.settings.seed);
        self.refuse_all(error, out);
        (self.low, self.wanted) = (false, 0);
    }

    fn refuse_all(&mut self, error: &Error, out: &mut Vec<Effect<W>>) {
        self.hand_out(Some(error), out.len(), out);
        self.queue.refuse_all(error, out);
    }

    fn end(&mut self, reason: ErrorKind, error: &Error, now: Time, out: &mut Vec<Effect<W>>) {
        if self.ended == Some(ErrorKind::Closed) {
            return;
        }
        if let Some(flight) = self.flight.take() {
            // The outcome of this reserve will never be known.
            out.push(Effect::Unknown(flight.count));
        }
        self.ended = Some(reason);
        self.give_up(error, out);
        self.retry.set((reason == ErrorKind::Exhausted).then(|| now.saturating_add(END_STANDS)));
        out.push(Effect::Finish(reason));
    }

    /// Reopens an exhausted sequence, so that the next caller finds out whether its end has moved. It stays
    /// exhausted while ids are in memory: later ids must not overtake them.
    fn doubt(&mut self, now: Time, out: &mut Vec<Effect<W>>) {
        if self.ended.is_none() || self.retry.at().is_none_or(|at| now < at) {
            return;
        }
        if self.level > 0 {
            self.retry.set(Some(now.saturating_add(END_STANDS)));
            return;
        }
        self.retry.set(None);
        self.ended = None;
        out.push(Effect::Reopen);
    }

    fn revoked(&mut self, out: &mut Vec<Effect<W>>) {
        self.lose_held(out);
        if let Some(flight) = &mut self.flight {
            flight.revoked = true;
        }
        self.low = false;
        // The sequence may have been changed or created again: the next caller finds out.
        if self.ended == Some(ErrorKind::Exhausted) || self.retry.is_lasting() {
            self.retry.set(None);
        }
        self.ended = self.ended.filter(|reason| *reason == ErrorKind::Closed);
    }

    fn expire(&mut self, now: Time, out: &mut Vec<Effect<W>>) {
        let late = self.queue.expire(now);
        if late.is_empty() {
            return;
        }
        let position = out.len();
        let error = self.too_late();
        out.extend(late.into_iter().map(|waiter| Effect::Fail { waiter, error: error.clone() }));
        self.hand_out(None, position, out);
    }

    fn too_late(&self) -> Error {
        let Some(last) = self.retry.error() else { return ErrorKind::Deadline.into() };
        let message = format!("the deadline passed before the store granted ids; its last error: {last}");
        Error::new(ErrorKind::Deadline, message).because(last.clone())
    }
}
