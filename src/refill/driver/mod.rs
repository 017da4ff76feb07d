//! Carries out the engine's decisions for one sequence: on its stock, and on the callers that wait for it.

use std::fmt;

use super::engine::Engine;
use super::event::{Effect, Event, Output};
use super::queue::Waiter;
use super::rest::Rest;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::range::{IdRange, Ranges};
use crate::sequence::answer::Answer;
use crate::sequence::metrics;
use crate::sequence::parts::{Core, Part, Question, Request};
use crate::sequence::seen::Seen;
use crate::sequence::time::Time;
use crate::store::{Change, GiveBack, Grant, Identity, Reserve};
use crate::sync::Arc;

/// A generation that no stock has.
const NOTHING: u64 = u64::MAX;

/// A caller that waits.
struct Caller {
    answer: Answer,
    /// Ids that it has already, and that are older than others in memory: its own or nobody's.
    part: Option<Part>,
}

impl Caller {
    /// Adds ids that follow those of the part.
    fn keep(&mut self, ids: Ranges, core: &Arc<Core>, generation: u64) {
        if ids.is_empty() {
            return;
        }
        match &mut self.part {
            Some(part) => part.extend(ids),
            None => self.part = Some(Part::new(core.clone(), ids, generation)),
        }
    }
}

impl Waiter for Caller {
    fn is_gone(&self) -> bool {
        self.answer.is_closed()
    }
}

/// All ids of memory, which are too few.
struct Short {
    /// Nobody can have drawn larger ones.
    newest: Ranges,
    older: Ranges,
}

/// One sequence as the actor has it.
pub(crate) struct Driver {
    core: Arc<Core>,
    engine: Engine<Caller>,
    /// The stock's generation when the reserve in flight was sent.
    sent_under: u64,
    /// The stock's generation before the engine got what it holds, which is void if another stands now;
    /// [`NOTHING`] where it holds nothing.
    held_under: u64,
    /// Whether the permit of low water is the actor's: callers do not signal what the engine knows.
    has_permit: bool,
    /// The timer that the actor was asked for and that has not come yet.
    armed: Option<Time>,
    /// What is more than memory may hold, or was left in it when it was closed. Boxed, since there is seldom
    /// any.
    rest: Option<Box<Rest>>,
    /// What the store is to be raised by. Boxed likewise.
    raise: Option<Box<Change>>,
}

impl Driver {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        let engine = Engine::new(core.settings.clone());
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

    /// One that takes up what was seen of the sequence before it was evicted.
    pub(crate) fn remembering(core: Arc<Core>, seen: Seen) -> Self {
        if seen.identity().is_some() {
            core.stats.meet();
        }
        let mut driver = Self::new(core);
        driver.engine.remember(seen);
        driver
    }

    /// What was seen of the sequence.
    pub(crate) fn seen(&self) -> &Seen {
        self.engine.seen()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// A draw crossed the watermark, and left the actor the permit.
    pub(crate) fn low(&mut self, now: Time) -> Option<Reserve> {
        self.has_permit = true;
        if !self.engine.is_low() {
            // Before the look at the level: a draw after that signals again.
            self.give_permit_back();
        }
        self.measure(now);
        self.step(Event::Low { level: self.core.stock.remaining() }, now)
    }

    /// A caller found nothing in memory; but memory may have been filled since.
    pub(crate) fn request(&mut self, request: Request, now: Time) -> Option<Reserve> {
        let Request { question: Question { mut want, part, known }, deadline, reply, .. } = request;
        if reply.is_closed() && part.is_none() {
            return None;
        }
        let (mut taken, part) = self.brought_back(part);
        let mut waiter = Caller { answer: reply, part };
        if waiter.is_gone() && taken.is_empty() {
            return None;
        }
        want -= waiter.part.as_ref().map_or(0, |part| part.ids().len());
        // Callers who wait already come first. Without any, memory may serve this one.
        if self.engine.waiting() == 0 && taken.is_empty() {
            let generation = if want > 1 { self.core.stock.generation() } else { NOTHING };
            match self.take_from_memory(want) {
                Ok(ids) => {
                    self.reply(waiter, ids);
                    return None;
                }
                Err(Short { newest, older }) => {
                    (taken, self.held_under) = (newest, generation);
                    want -= older.len();
                    waiter.keep(older, &self.core, generation);
                }
            }
        }
        let known = known.filter(|known| known.moves == self.core.stats.moves());
        let known = known.map(|known| known.unreserved);
        self.step(Event::Request { waiter, want, taken, known, deadline }, now)
    }

    /// Splits the ids that a `take` already has: the first may serve others, because no larger ones were handed
    /// out, and the second only this caller.
    fn brought_back(&mut self, part: Option<Part>) -> (Ranges, Option<Part>) {
        let (stock, stats) = (&self.core.stock, &self.core.stats);
        let mut newest = Ranges::none();
        // Revoked since, they are a gap.
        let Some(mut part) = part.filter(|part| stock.stands(part.generation())) else {
            return (newest, None);
        };
        let last = part.ids().as_slice().last().and_then(IdRange::last);
        if last != stats.reached() || stock.remaining() > 0 || self.engine.holds() {
            return (newest, Some(part));
        }
        self.held_under = part.generation();
        // Between two ranges others may have drawn.
        if let Some(range) = part.pop() {
            stats.unpublish(range.len());
            newest.push(range);
        }
        (newest, Some(part).filter(|part| !part.ids().is_empty()))
    }

    /// What a caller wants, or the part of it that there is.
    fn take_from_memory(&self, want: u64) -> Result<Ranges, Short> {
        if want == 0 {
            return if self.core.stock.remaining() > 0 {
                Ok(Ranges::none())
            } else {
                Err(Short { newest: Ranges::none(), older: Ranges::none() })
            };
        }
        // Nobody else adds any: there are no more than that.
        let most = want.min(self.core.stock.remaining());
        self.core.stats.unpublish(most);
        let ids = self.core.take(want);
        let (Ok(taken) | Err(taken)) = &ids;
        let len = taken.len();
        self.core.stats.add_published(most - len);
        ids.map_err(|mut newest| {
            let mut older = Ranges::none();
            if len < most {
                // Others drew meanwhile, perhaps from the last range. As if this caller had drawn those before it.
                let last = newest.pop();
                older = std::mem::replace(&mut newest, Ranges::none());
                if let Some(last) = last {
                    newest.push(last);
                }
                self.core.stats.add_published(older.len());
            }
            Short { newest, older }
        })
    }

    /// The store answered the reserve in flight.
    pub(crate) fn answered(&mut self, outcome: Result<Grant>, now: Time) -> Option<Reserve> {
        self.measure(now);
        let latency = now.saturating_sub(self.engine.asked().unwrap_or(now));
        metrics::harmless(&self.core, || metrics::answered(&self.core, latency, &outcome));
        match outcome {
            // Counted once the engine has judged it: what a mad store says is nobody's statistics.
            Ok(grant) => {
                self.core.stats.note_latency(latency);
                if self.held_under == NOTHING {
                    self.held_under = self.sent_under;
                }
                self.step(Event::Reserved { grant, level: self.core.stock.remaining() }, now)
            }
            Err(error) => {
                let error = self.not_gone(error).of(&self.core.name);
                self.note_failure(&error);
                self.stop_if_unused();
                self.step(Event::Failed(error), now)
            }
        }
    }

    /// A sequence that was seen before and is not found has been lost: what the store said of it is not all
    /// that is to be said.
    fn not_gone(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::NotFound && self.core.stats.is_met() {
            return self.seen().gone(&self.core.name, &error).during(Operation::Reserve);
        }
        error
    }

    /// Everything in memory was revoked.
    pub(crate) fn revoked(&mut self, now: Time) -> Option<Reserve> {
        self.core.revocation_seen();
        self.step(Event::Revoked, now)
    }

    /// The store was asked to raise the sequence, whatever came of it.
    pub(crate) fn raised(&mut self, now: Time) -> Option<Reserve> {
        self.step(Event::Raised { level: self.core.stock.remaining() }, now)
    }

    /// A range that was shed has reached the store, or is lost.
    pub(crate) fn returned(&mut self, now: Time) -> Option<Reserve> {
        self.step(Event::Returned, now)
    }

    /// A timer that was asked for has come.
    pub(crate) fn tick(&mut self, now: Time) -> Option<Reserve> {
        self.armed = self.armed.filter(|armed| *armed > now);
        self.stop_if_unused();
        self.step(Event::Tick { level: self.core.stock.remaining() }, now)
    }

    /// No more refills; callers hear that it is closed. What is left of the ids that were granted last is
    /// returned: nobody can draw it any more.
    pub(crate) fn close(&mut self, now: Time) -> Option<Rest> {
        let _ = self.step(Event::Close, now);
        self.surplus()
    }

    /// Ids that are more than memory may hold, for a store that takes them back.
    pub(crate) fn surplus(&mut self) -> Option<Rest> {
        self.rest.take().map(|rest| *rest)
    }

    /// By what the store is to be raised, before [`raised`](Self::raised).
    pub(crate) fn raise(&mut self) -> Option<Change> {
        self.raise.take().map(|change| *change)
    }

    /// When [`tick`](Self::tick) was due and when it is, where that is another time now.
    pub(crate) fn rearm(&mut self) -> Option<(Option<Time>, Option<Time>)> {
        let (before, due) = (self.armed, self.engine.next_timer());
        self.armed = due;
        (before != due).then_some((before, due))
    }

    /// The time of the one timer that has been asked for and has not come yet.
    pub(crate) fn armed(&self) -> Option<Time> {
        self.armed
    }

    /// Whether nothing waits or is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.engine.is_idle()
    }

    /// Ends attempts that nobody is there to profit from: each whose reply is lost makes a gap. Who comes
    /// later and finds nothing in memory asks.
    fn stop_if_unused(&mut self) {
        if !self.core.is_used() {
            self.engine.abandoned();
        }
    }

    fn measure(&mut self, now: Time) {
        // What callers wait for counts as drawn: while they wait they draw nothing, and the load would look
        // light just when it is heavy.
        let wanted = self.core.drawn().saturating_add(self.engine.demand());
        let policy = self.engine.policy();
        policy.drawn(wanted, now);
        self.core.stats.note_rate(policy.rate());
    }

    fn step(&mut self, event: Event<Caller>, now: Time) -> Option<Reserve> {
        let (reserve, has_published) = self.carry_out_all(event, now);
        if self.engine.is_low() {
            self.has_permit = self.has_permit || self.core.low_is_known();
            return reserve;
        }
        if !self.has_permit {
            return reserve;
        }
        self.give_permit_back();
        // A draw that crossed the watermark before that has not signalled. Where nothing is left that was not just
        // published, the next draw does; after a failure the next caller makes the next attempt; and for nobody
        // nothing is reserved.
        let level = self.core.stock.remaining();
        let is_low = (level > 0 || has_published) && level < self.engine.policy().plan().watermark;
        if !is_low || self.core.stats.failing() > 0 || !self.core.is_used() {
            return reserve;
        }
        self.step(Event::Low { level }, now).or(reserve)
    }

    fn give_permit_back(&mut self) {
        self.has_permit = false;
        self.core.low_is_over();
    }

    /// What is to be reserved, and whether a range was published.
    fn carry_out_all(&mut self, event: Event<Caller>, now: Time) -> (Option<Reserve>, bool) {
        let Output { reserve, effects } = self.engine.on(event, now);
        let has_published = effects.iter().any(|effect| matches!(effect, Effect::Publish { .. }));
        for effect in effects {
            self.carry_out(effect, now);
        }
        let reserve = reserve.map(|count| self.reserve(count));
        if !self.engine.holds() {
            self.held_under = NOTHING;
        }
        self.note_dry(now);
        (reserve, has_published)
    }

    fn reserve(&mut self, count: u64) -> Reserve {
        self.sent_under = self.core.stock.generation();
        self.core.stats.add_reserves(1);
        let settings = &self.core.settings;
        tracing::debug!(sequence = %self.core.name, count, "reserving");
        // Not anew: a store that has lost it would grant again what it granted before.
        let create = (!self.core.stats.is_met()).then_some(settings.bounds);
        Reserve { name: self.core.name.clone(), count, ceiling: settings.ceiling, create }
    }

    fn note_failure(&self, error: &Error) {
        let (name, kind) = (&self.core.name, error.kind().as_str());
        // Only changes: a sequence that was removed fails as often as somebody draws from it.
        if self.core.note_failure(error) {
            tracing::warn!(sequence = %name, kind, %error, "reserve failed");
        } else {
            tracing::debug!(sequence = %name, kind, %error, "reserve failed again");
        }
    }

    fn carry_out(&mut self, effect: Effect<Caller>, now: Time) {
        let (stock, stats) = (&self.core.stock, &self.core.stats);
        match effect {
            Effect::Raise(change) => self.raise = Some(Box::new(change)),
            Effect::Accept(grant) => {
                let (failures, since) = (stats.failing(), stats.granted_at());
                stats.note_success(now);
                self.core.forget_error();
                if failures > 0 {
                    let since_grant = since.map(|since| now.saturating_sub(since));
                    tracing::info!(sequence = %self.core.name, failures, ?since_grant, "the store is back");
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
                let forgotten = self.engine.seen().forgotten();
                tracing::warn!(sequence = %self.core.name, forgotten, "reset or created again: dropping the ids in memory");
                self.core.revoke_stock(ErrorKind::Dry);
                self.core.give_up_stripes();
                // One further, and not as far as it is: a revocation by somebody else, not heard of yet, goes
                // on to void the range that comes.
                self.sent_under += 1;
                self.held_under = self.sent_under;
            }
            Effect::Publish { range, watermark } => {
                let under = if self.held_under == NOTHING { self.sent_under } else { self.held_under };
                if stock.publish(range, watermark, under) {
                    stats.add_published(range.len());
                } else {
                    // Revoked while it was under way.
                    stats.gap_abandoned(range.len());
                }
            }
            Effect::Shed { rest, identity } => {
                self.rest = Some(Box::new(self.rest_of(rest, identity)));
            }
            Effect::Reply { waiter, ids } => self.reply(waiter, ids),
            // Nobody is there to hear it: nothing is lost by that.
            Effect::Fail { waiter, error } => _ = waiter.answer.send(Err(error.of(&self.core.name))),
            Effect::Finish(ErrorKind::Closed) => {
                let last = |lost: &Ranges| lost.as_slice().last().copied().zip(self.engine.identity());
                let lost = stock.revoke(ErrorKind::Closed, |lost| {
                    let rest = last(lost).map_or(0, |(rest, _)| rest.len());
                    stats.unpublish(rest);
                    stats.gap_revoked(lost.len() - rest);
                });
                self.core.give_up_stripes();
                self.rest = last(&lost).map(|(rest, identity)| Box::new(self.rest_of(rest, identity)));
            }
            Effect::Finish(reason) => {
                if self.core.note_error(&reason.into()) {
                    tracing::warn!(sequence = %self.core.name, "the sequence is exhausted");
                }
                let _ = stock.finish(reason, self.sent_under);
            }
            Effect::Reopen => drop(stock.finish(ErrorKind::Dry, self.sent_under)),
            Effect::Gap(ids) => stats.gap_abandoned(ids),
            Effect::Unknown(ids) => stats.gap_unknown(ids),
        }
    }

    fn rest_of(&self, rest: IdRange, identity: Identity) -> Rest {
        Rest::new(self.core.clone(), GiveBack { name: self.core.name.clone(), identity, rest })
    }

    fn reply(&self, waiter: Caller, ids: Ranges) {
        // Counted before the caller can look.
        self.core.stats.add_replied(ids.len());
        let ids = match waiter.part {
            None => ids,
            Some(part) => self.joined(part, ids),
        };
        let len = ids.len();
        if !waiter.answer.send(Ok(ids)) {
            // It gave up in this very moment.
            self.core.stats.gap_dropped(len);
        }
    }

    /// Joins both parts of a `take`. Empty if the first was revoked or reset meanwhile: the rest may be of another
    /// identity, and contain the same numbers.
    fn joined(&self, part: Part, rest: Ranges) -> Ranges {
        if !self.core.stock.stands(part.generation()) {
            self.core.stats.gap_dropped(rest.len());
            return Ranges::none();
        }
        let mut all = part.into_ids();
        all.extend(rest);
        all
    }

    fn note_dry(&self, now: Time) {
        let stats = &self.core.stats;
        match (stats.dry_since(), self.engine.waiting() > 0) {
            (None, true) => stats.note_dry(Some(now)),
            (Some(since), false) => {
                stats.note_dry(None);
                let nanos = now.saturating_sub(since).as_nanos();
                stats.add_dry_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            }
            _ => {}
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("core", &self.core).finish_non_exhaustive()
    }
}

// Not under loom, where this file lies elsewhere.
#[cfg(all(test, not(idmill_loom)))]
mod tests;
