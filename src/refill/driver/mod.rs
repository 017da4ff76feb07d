//! Carries out the engine's decisions for one sequence: on its stock and its waiting callers.

use super::engine::Engine;
use super::engine::event::{Effect, Event, Output};
use super::engine::queue::Waiter;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::range::{IdRange, Ranges};
use crate::state::core::Core;
use crate::state::grant_history::GrantHistory;
use crate::state::mailbox::{Mailbox, Message, Question, Request};
use crate::state::metrics;
use crate::state::reply::Answer;
use crate::state::time::Time;
use crate::state::want::Want;
use crate::store::{Change, GiveBack, Grant, Identity, Reserve};
use crate::sync::Arc;

/// A generation that no stock has.
const NOTHING: u64 = u64::MAX;

impl Waiter for Answer {
    fn is_gone(&self) -> bool {
        self.is_closed()
    }
}

/// The actor's state of one sequence.
pub(crate) struct Driver {
    core: Arc<Core>,
    engine: Engine<Answer>,
    /// The stock's generation when the reserve in flight was sent.
    sent_under: u64,
    /// The stock's generation before the engine got the ids it holds; [`NOTHING`] if the engine holds none.
    /// The held ids are void if the stock's generation has changed since.
    held_under: u64,
    /// Whether the actor has the low-water permit: until it is given back, callers do not signal.
    has_permit: bool,
    /// The actor's timer that has not fired yet.
    armed: Option<Time>,
    /// Ids above the memory limit, or left in memory at close. Boxed, since there are seldom any.
    rest: Option<Box<PendingGiveBack>>,
    /// The change that raises the stored sequence's `next`. Boxed, likewise.
    raise: Option<Box<Change>>,
}

impl Driver {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        let engine = Engine::new(core.settings.clone(), core.sizing());
        Self {
            core,
            engine,
            sent_under: 0,
            held_under: NOTHING,
            has_permit: false,
            armed: None,
            rest: None,
            raise: None,
        }
    }

    /// Creates a driver with the history of the sequence from before its eviction.
    pub(crate) fn remembering(core: Arc<Core>, history: GrantHistory) -> Self {
        if history.identity().is_some() {
            core.stats.meet();
        }
        let mut driver = Self::new(core);
        driver.engine.remember(history);
        driver
    }

    /// Returns the history of the sequence.
    pub(crate) fn history(&self) -> &GrantHistory {
        self.engine.history()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// A draw crossed the watermark, or a caller found too few ids, and passed the permit to the actor.
    pub(crate) fn low(&mut self, now: Time) -> Option<Reserve> {
        self.has_permit = true;
        if !self.engine.is_low() {
            // Give the permit back before the level is read, so that a later draw signals again.
            self.give_permit_back();
        }
        self.measure(now);
        let wanted = self.core.stats.take_wanted();
        self.step(Event::Low { wanted }, now)
    }

    /// A message arrived for this sequence.
    pub(crate) fn message(&mut self, message: Message, mailbox: &Mailbox, now: Time) -> Option<Reserve> {
        match message {
            Message::Request(request) => self.request(request, mailbox, now),
            Message::Revoked(_) => self.revoked(now),
        }
    }

    /// A caller found too few ids in memory; memory may have been filled since. Then this draws for the
    /// caller, and may signal low water.
    pub(crate) fn request(&mut self, request: Request, mailbox: &Mailbox, now: Time) -> Option<Reserve> {
        let Request { question: Question { want, known }, deadline, reply, .. } = request;
        if reply.is_closed() {
            return None;
        }
        if self.core.stock.remaining() >= want.needs()
            && let Some(ids) = self.answer_of_memory(want, mailbox)
        {
            self.reply(reply, ids);
            return None;
        }
        let known = known.filter(|known| known.moves == self.core.stats.moves()).map(|known| known.ids);
        self.step(Event::Request { waiter: reply, want, known, deadline }, now)
    }

    /// Returns the answer for a caller once memory has been filled; `None` if others drew the last id. A
    /// caller of `take` gets no ids here and takes them itself: at this point, others could draw some of
    /// them at the same time.
    fn answer_of_memory(&self, want: Want, mailbox: &Mailbox) -> Option<Ranges> {
        if want != Want::Ids(1) {
            return Some(Ranges::none());
        }
        self.core.stats.unpublish(1);
        let ids = self.core.take(1, mailbox).ok();
        if ids.is_none() {
            self.core.stats.add_published(1);
        }
        ids
    }

    /// The store answered the reserve in flight.
    pub(crate) fn answered(&mut self, outcome: Result<Grant>, now: Time) -> Option<Reserve> {
        self.measure(now);
        self.core.stats.note_asked(None);
        let latency = now.saturating_sub(self.engine.asked().unwrap_or(now));
        metrics::answered(&self.core, latency, &outcome);
        let gap = outcome.as_ref().map_or_else(Error::gap, |grant| grant.gap);
        self.core.stats.add_granted(gap);
        self.core.stats.gap_abandoned(gap);
        match outcome {
            // The engine checks the grant before it is counted: rejected grants are not counted.
            Ok(grant) => {
                self.core.stats.note_latency(latency);
                self.step(Event::Reserved(grant), now)
            }
            Err(error) => {
                let error = self.not_gone(error).of(&self.core.name);
                self.note_failure(&error);
                self.stop_if_unused();
                self.step(Event::Failed(error), now)
            }
        }
    }

    /// Converts `NotFound` for a sequence that was seen before into the error for a lost sequence.
    fn not_gone(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::NotFound && self.core.stats.is_met() {
            return self.history().gone(&self.core.name, &error).during(Operation::Reserve);
        }
        error
    }

    /// All ids in memory were revoked.
    pub(crate) fn revoked(&mut self, now: Time) -> Option<Reserve> {
        self.core.revocation_seen();
        self.step(Event::Revoked, now)
    }

    /// The raise of the stored `next` has ended, with any outcome.
    pub(crate) fn raised(&mut self, now: Time) -> Option<Reserve> {
        self.step(Event::Raised, now)
    }

    /// The give-back of a range has ended, with any outcome.
    pub(crate) fn returned(&mut self, now: Time) -> Option<Reserve> {
        self.step(Event::Returned, now)
    }

    /// The timer fired.
    pub(crate) fn tick(&mut self, now: Time) -> Option<Reserve> {
        self.armed = self.armed.filter(|armed| *armed > now);
        self.stop_if_unused();
        self.step(Event::Tick, now)
    }

    /// Ends the refills; waiting callers get held ids or fail with `Closed`. Returns the rest of the ids that
    /// were granted last: they can no longer be drawn.
    pub(crate) fn close(&mut self, now: Time) -> Option<PendingGiveBack> {
        let _ = self.step(Event::Close, now);
        self.take_excess()
    }

    /// Ends the refills of an idle sequence without users. Returns the rest of the ids that were granted
    /// last, as [`close`](Self::close) does: the history no longer contains them, since they can be granted
    /// again.
    pub(crate) fn evict(&mut self, now: Time) -> Option<PendingGiveBack> {
        let rest = self.close(now)?;
        self.engine.forget_from(rest.back().rest.start());
        Some(rest)
    }

    /// Returns ids above the memory limit, for a store that takes them back.
    pub(crate) fn take_excess(&mut self) -> Option<PendingGiveBack> {
        self.rest.take().map(|rest| *rest)
    }

    /// Returns the change that raises the stored `next`; [`raised`](Self::raised) must follow.
    pub(crate) fn raise(&mut self) -> Option<Change> {
        self.raise.take().map(|change| *change)
    }

    /// Returns the old and the new time of the next [`tick`](Self::tick), if it has changed.
    pub(crate) fn rearm(&mut self) -> Option<(Option<Time>, Option<Time>)> {
        let (before, due) = (self.armed, self.engine.next_timer());
        self.armed = due;
        (before != due).then_some((before, due))
    }

    /// Returns the time of the timer that has not fired yet.
    pub(crate) fn armed(&self) -> Option<Time> {
        self.armed
    }

    /// Whether no caller waits, nothing is in flight and no reserve is due.
    pub(crate) fn is_idle(&self) -> bool {
        self.engine.is_idle()
    }

    /// Stops the attempts for a sequence without users: each lost reply makes a gap. A later caller that
    /// finds memory empty starts a new attempt.
    fn stop_if_unused(&mut self) {
        if !self.core.is_used() {
            self.engine.abandoned();
        }
    }

    fn measure(&mut self, now: Time) {
        // Wanted ids count as drawn: waiting callers draw nothing, so a heavy load would otherwise appear
        // light.
        let wanted = self.core.drawn().saturating_add(self.engine.demand());
        let policy = self.engine.policy();
        policy.drawn(wanted, now);
        // While the store fails, the rate does not fall: a process that is not ready gets few draws, its ids
        // would seem to last, and it would be ready again.
        let stats = &self.core.stats;
        let least = if stats.failing() > 0 { stats.rate() } else { 0.0 };
        stats.note_rate(policy.rate().max(least));
    }

    fn step(&mut self, event: Event<Answer>, now: Time) -> Option<Reserve> {
        let (reserve, has_published) = self.carry_out_all(event, now);
        if self.engine.is_low() {
            self.has_permit = self.has_permit || self.core.take_permit();
            return reserve;
        }
        if !self.has_permit {
            return reserve;
        }
        self.give_permit_back();
        // While the permit was taken, a draw that crossed the watermark did not signal, so check the level
        // here. No refill starts if memory is empty and nothing was published (the next draw signals), after
        // a failure (the next caller retries), or without users.
        let level = self.core.stock.remaining();
        let is_low = (level > 0 || has_published) && level < self.engine.policy().plan().watermark;
        if !is_low || self.core.stats.failing() > 0 || !self.core.is_used() {
            return reserve;
        }
        self.step(Event::Low { wanted: 0 }, now).or(reserve)
    }

    fn give_permit_back(&mut self) {
        self.has_permit = false;
        self.core.give_permit_back();
    }

    /// Returns the next reserve, and whether a range was published.
    fn carry_out_all(&mut self, event: Event<Answer>, now: Time) -> (Option<Reserve>, bool) {
        if self.engine.needs_memory(&event) {
            let stats = &self.core.stats;
            self.engine.take_in(self.core.stock.drain(|ids| stats.unpublish(ids)));
        }
        if self.held_under == NOTHING {
            self.held_under = self.sent_under;
        }
        let Output { reserve, effects } = self.engine.on(event, self.core.stock.remaining(), now);
        let has_published = effects.iter().any(|effect| matches!(effect, Effect::Publish { .. }));
        for effect in effects {
            self.carry_out(effect, now);
        }
        let reserve = reserve.map(|count| self.reserve(count, now));
        if !self.engine.holds() {
            self.held_under = NOTHING;
        }
        self.note_empty(now);
        (reserve, has_published)
    }

    fn reserve(&mut self, count: u64, now: Time) -> Reserve {
        self.sent_under = self.core.stock.generation();
        self.core.stats.add_reserves(1);
        self.core.stats.note_asked(Some(now));
        let settings = &self.core.settings;
        tracing::debug!(sequence = %self.core.name, count, "reserving");
        // Never create a known sequence again: a store that lost it would grant the same ids.
        let create = (!self.core.stats.is_met()).then_some(settings.bounds);
        Reserve { name: self.core.name.clone(), count, ceiling: settings.ceiling, create }
    }

    fn note_failure(&self, error: &Error) {
        let (name, kind) = (&self.core.name, error.kind().as_str());
        // Warns only about changes: a removed sequence fails at every draw.
        if self.core.note_failure(error) {
            tracing::warn!(sequence = %name, kind, %error, "reserve failed");
        } else {
            tracing::debug!(sequence = %name, kind, %error, "reserve failed again");
        }
    }

    fn carry_out(&mut self, effect: Effect<Answer>, now: Time) {
        let (stock, stats) = (&self.core.stock, &self.core.stats);
        match effect {
            Effect::Raise(change) => self.raise = Some(Box::new(change)),
            Effect::Accept(grant) => {
                let (failures, since) = (stats.failing(), stats.granted_at());
                stats.note_success(now);
                self.core.forget_error();
                if failures > 0 {
                    let since_grant = since.map(|since| format!("{:.1?}", now.saturating_sub(since)));
                    tracing::info!(sequence = %self.core.name, failures, since_grant, "the store grants ids again");
                }
                stats.add_granted(grant.range.len());
                stats.note_grant(&grant);
            }
            Effect::Void(ids) => {
                stats.add_granted(ids);
                stats.gap_abandoned(ids);
            }
            Effect::Distrust(error) => self.note_failure(&error),
            Effect::Discard => {
                let forgotten = self.engine.history().forgotten();
                tracing::warn!(sequence = %self.core.name, forgotten, "the sequence was reset, revoked or created again: dropping the ids in memory");
                self.core.revoke_stock(ErrorKind::Empty);
                self.core.give_up_thread_blocks();
                // Increment instead of reading the current generation: a concurrent revocation that is not
                // handled yet must still void the new range.
                self.sent_under += 1;
                self.held_under = self.sent_under;
            }
            Effect::Publish { range, watermark } => {
                if !stock.publish(range, watermark, self.held_under, |ids| stats.add_published(ids)) {
                    // The sequence was revoked while the range was in flight.
                    stats.gap_abandoned(range.len());
                }
            }
            Effect::ReturnExcess { rest, identity } => {
                self.rest = Some(Box::new(self.rest_of(rest, identity)));
            }
            Effect::Reply { waiter, ids } => self.reply(waiter, ids),
            // An error carries no ids, so none are lost if the caller is gone.
            Effect::Fail { waiter, error } => _ = waiter.send(Err(error.of(&self.core.name))),
            Effect::Finish(ErrorKind::Closed) => {
                let last = |lost: &Ranges| lost.ranges().last().copied().zip(self.engine.identity());
                let lost = stock.revoke(ErrorKind::Closed, |lost| {
                    let rest = last(lost).map_or(0, |(rest, _)| rest.len());
                    stats.unpublish(rest);
                    stats.gap_revoked(lost.len() - rest);
                });
                self.core.give_up_thread_blocks();
                self.rest = last(&lost).map(|(rest, identity)| Box::new(self.rest_of(rest, identity)));
            }
            Effect::Finish(reason) => {
                if self.core.note_error(&reason.into()) {
                    tracing::warn!(sequence = %self.core.name, "the sequence is exhausted");
                }
                let _ = stock.finish(reason, self.sent_under);
            }
            Effect::Reopen => drop(stock.finish(ErrorKind::Empty, self.sent_under)),
            Effect::Gap(ids) => stats.gap_abandoned(ids),
            Effect::Unknown(ids) => stats.gap_unknown(ids),
        }
    }

    fn rest_of(&self, rest: IdRange, identity: Identity) -> PendingGiveBack {
        PendingGiveBack::new(self.core.clone(), GiveBack { name: self.core.name.clone(), identity, rest })
    }

    fn reply(&self, waiter: Answer, ids: Ranges) {
        // Count the ids before the caller can read the counters.
        let len = ids.len();
        self.core.stats.add_replied(len);
        if !waiter.send(Ok(ids)) {
            // The caller has just given up.
            self.core.stats.gap_dropped(len);
        }
    }

    fn note_empty(&self, now: Time) {
        let stats = &self.core.stats;
        match (stats.empty_since(), self.engine.waiting() > 0) {
            (None, true) => stats.note_empty(Some(now)),
            (Some(since), false) => {
                stats.note_empty(None);
                let nanos = now.saturating_sub(since).as_nanos();
                stats.add_empty_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            }
            _ => {}
        }
    }
}

/// Ids that can no longer be drawn, while it is unknown whether the store takes them back. Until that is
/// known, they count neither as given back nor as a gap: neither count may decrease. On drop they become a
/// gap.
pub(crate) struct PendingGiveBack {
    core: Arc<Core>,
    back: GiveBack,
    is_back: bool,
}

impl PendingGiveBack {
    /// Creates a pending give-back. The core must not count these ids as published.
    pub(crate) fn new(core: Arc<Core>, back: GiveBack) -> Self {
        Self { core, back, is_back: false }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn back(&self) -> &GiveBack {
        &self.back
    }

    /// Counts the ids as given back: the next reserve gets them.
    pub(crate) fn returned(mut self) {
        self.is_back = true;
        self.core.stats.add_given_back(self.back.rest.len());
    }
}

impl Drop for PendingGiveBack {
    fn drop(&mut self) {
        if !self.is_back {
            // Count the ids as revoked before adding them to `published`, so that they never count as handed
            // out.
            self.core.stats.gap_revoked(self.back.rest.len());
            self.core.stats.add_published(self.back.rest.len());
        }
    }
}

// Not under loom, which compiles this file from another package.
#[cfg(all(test, not(idmill_loom)))]
mod tests;
