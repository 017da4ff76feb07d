//! The permitted and forbidden effects of an event.

use std::time::Duration;

use super::{Asked, Caller, Cause, Flight, Judged, Oracle};
use crate::error::{Error, ErrorKind, Status};
use crate::range::{IdRange, Ranges};
use crate::refill::engine::END_STANDS;
use crate::refill::engine::event::{Effect, Event, Output};
use crate::state::segment::MAX_LEN;
use crate::state::settings::Order;
use crate::store::{GiveBack, Grant, Identity};

/// The shortest delay before a retry of a reserve.
const SHORTEST_RETRY: Duration = Duration::from_millis(10);
/// The longest delay: 5 s, 5 s of jitter, a margin.
pub(super) const LONGEST_RETRY: Duration = Duration::from_secs(11);

impl Oracle {
    pub(super) fn granted(&mut self, grant: Grant) {
        let flight = self.flight.take();
        self.doubtful &= flight.is_none();
        let mut cause = Cause { error: Some(ErrorKind::StoreViolation), ..Cause::default() };
        let last = grant.bounds.max().min(self.settings.ceiling);
        match &flight {
            None => cause.error = None,
            Some(flight) if flight.revoked => {
                self.granted += u128::from(grant.range.len());
                cause.error = None;
                cause.deserves = Some(Judged::Void);
            }
            Some(flight) if self.is_sane(&grant, flight.count) => {
                if self.origin != Some(grant.identity) {
                    self.asked_for.clear();
                }
                self.asked_for.push((grant.range, flight.callers));
                self.take_over(&grant);
                self.granted += u128::from(grant.range.len());
                let at_end = grant.range.end() > u128::from(last);
                cause.error = at_end.then_some(ErrorKind::Exhausted);
                cause.grant = Some(grant.range);
                cause.deserves = Some(Judged::Sound);
            }
            Some(_) => {
                cause.deserves = Some(Judged::Mad);
                (self.failed_at, self.failed_for_all) = (Some(self.now), true);
            }
        }
        self.on(Event::Reserved(grant), cause);
    }

    fn is_sane(&self, grant: &Grant, count: u64) -> bool {
        let (range, last) = (grant.range, grant.bounds.max().min(self.settings.ceiling));
        let again = self.origin == Some(grant.identity) && u128::from(range.start()) < self.kept_to();
        let inside = range.start() >= grant.bounds.start().max(self.settings.floor)
            && range.end() <= u128::from(last) + 1;
        (1..=count).contains(&range.len()) && inside && !again
    }

    fn take_over(&mut self, grant: &Grant) {
        if self.origin.is_some_and(|origin| origin != grant.identity) {
            self.kept.clear();
        }
        self.origin = self.origin.or(Some(grant.identity));
        self.kept.push(grant.range);
        self.sizing = self.settings.sizing.within(grant.bounds);
        self.stored.next = u64::try_from(grant.range.end()).ok().filter(|next| *next <= grant.bounds.max());
    }

    pub(super) fn failed(&mut self, error: Error) {
        if let Some(flight) = self.flight.take() {
            // The reserve may have reached the store before the give-back of excess ids.
            let no_end = error.kind() == ErrorKind::Exhausted && flight.overtakes;
            let for_all = error.refuses_waiters() && !no_end;
            (self.failed_at, self.failed_for_all) = ((!no_end).then_some(self.now), for_all);
            self.doubtful |= error.status() == Status::Unknown;
            self.on(
                Event::Failed(error.clone()),
                Cause { error: for_all.then(|| error.kind()), ..Cause::default() },
            );
            assert!(!for_all || self.waiting().count() == 0, "the failure is reported to all callers");
            assert!(!no_end || self.ended.is_none(), "a sequence does not end during a give-back");
            if self.ended.is_some() {
                self.failed_at = None;
            }
        } else {
            self.on(Event::Failed(error), Cause::default());
        }
    }

    /// Passes an event to the engine, with all ids in memory if the engine needs them. Returns its output.
    fn passed(&mut self, event: Event<Caller>, level: u64) -> Output<Caller> {
        if !self.engine.needs_memory(&event) {
            return self.engine.on(event, level, self.now);
        }
        assert!(
            !self.held.is_empty() || self.waiting().next().is_some(),
            "memory is drained only for waiting callers"
        );
        let mut drained = Ranges::none();
        self.take(u64::MAX, |range| drained.push(range));
        self.engine.take_in(drained.clone());
        drained.extend(std::mem::replace(&mut self.held, Ranges::none()));
        self.held = drained;
        self.engine.on(event, 0, self.now)
    }

    /// Handles one event, and checks all its effects.
    pub(super) fn on(&mut self, event: Event<Caller>, cause: Cause) {
        self.on_at(event, self.level(), cause);
    }

    /// Does the same as [`on`](Self::on), with a level that may differ from that of the memory.
    pub(super) fn on_at(&mut self, event: Event<Caller>, level: u64, cause: Cause) {
        self.cause = cause;
        // A grant of another identity voids all earlier grants.
        let identity = match &event {
            Event::Reserved(grant) if self.cause.grant.is_some() => Some(grant.identity),
            _ => None,
        };
        let other = identity.filter(|identity| self.origin != Some(*identity));
        let Output { mut reserve, mut effects } = self.passed(event, level);
        if let Some(Effect::Raise(change)) = effects.first() {
            assert_eq!(reserve, None, "a raise precedes the next reserve");
            let is_above = change.next.is_some_and(|next| u128::from(next) >= self.kept_to());
            assert!(is_above, "next is raised above every granted id");
            for effect in effects.into_iter().skip(1) {
                let is_of_answer =
                    matches!(effect, Effect::Fail { .. } | Effect::Accept(_) | Effect::Raise(_));
                assert!(!is_of_answer, "the answer is handled after the raise");
                self.check(effect);
            }
            Output { reserve, effects } = self.passed(Event::Raised, self.level());
        }
        assert_eq!(
            other.is_some(),
            effects.iter().any(|c| matches!(c, Effect::Discard)),
            "another identity discards memory"
        );
        if other.is_some() {
            (self.origin, self.handed_to) = (other, 0);
        }
        for effect in effects {
            self.check(effect);
        }
        if let Some(count) = reserve {
            self.reserve(count);
        }
        assert_eq!(self.cause.judged, self.cause.deserves, "the grant gets the expected verdict");
        self.check_between_events();
    }

    fn check(&mut self, effect: Effect<Caller>) {
        match effect {
            Effect::Raise(_) => panic!("a raise comes with no other effect"),
            Effect::Accept(grant) => {
                assert_eq!(Some(grant.range), self.cause.grant, "the accepted range is the granted one");
                (self.tried, self.wanted) = (false, 0);
                self.held.push(grant.range);
                self.judge(Judged::Sound);
            }
            Effect::Void(ids) => {
                self.lost += u128::from(ids);
                self.judge(Judged::Void);
            }
            Effect::Distrust(error) => {
                assert_eq!(
                    Some(error.kind()),
                    self.cause.error,
                    "the grant is rejected with the expected error"
                );
                self.judge(Judged::Mad);
            }
            Effect::Discard => {
                self.lost += u128::from(self.level());
                self.memory.clear();
            }
            Effect::ReturnExcess { rest, identity } => self.return_excess(rest, identity),
            Effect::Publish { range, watermark } => self.publish(range, watermark),
            Effect::Reply { waiter, ids } => self.reply(waiter.number, &ids),
            Effect::Fail { waiter, error } => self.refused(waiter.number, error.kind()),
            Effect::Finish(reason) => self.finish(reason),
            Effect::Reopen => self.reopen(),
            Effect::Gap(ids) => self.gap(ids),
            Effect::Unknown(_) => {}
        }
    }

    fn finish(&mut self, reason: ErrorKind) {
        (self.ended, self.ended_at) = (Some(reason), self.now);
        if reason == ErrorKind::Closed {
            self.lost += u128::from(self.level());
            self.memory.clear();
        }
    }

    fn reopen(&mut self) {
        assert_eq!(self.ended.take(), Some(ErrorKind::Exhausted), "only an exhausted sequence reopens");
        assert!(self.now >= self.ended_at + END_STANDS, "an exhausted sequence reopens after END_STANDS");
        assert_eq!(self.level(), 0, "a sequence reopens with no ids in memory");
    }

    fn judge(&mut self, judged: Judged) {
        assert_eq!(self.cause.judged.replace(judged), None, "a grant gets one verdict");
    }

    fn reserve(&mut self, count: u64) {
        assert!(self.flight.is_none(), "at most one reserve in flight");
        assert!(self.ended.is_none(), "nothing is reserved after the end");
        assert!((1..=MAX_LEN).contains(&count), "a reserve of {count} ids does not fit a segment");
        let at_once = self.failed_for_all && self.waiting().next().is_some();
        let waited = at_once || self.failed_at.is_none_or(|at| self.now >= at + SHORTEST_RETRY);
        assert!(waited, "a failed reserve is retried too early");
        let plan = self.engine.policy().plan();
        let prefetches = self.prefetches() && (plan.watermark > 0 || self.tried);
        assert!(
            prefetches || self.waiting().next().is_some(),
            "a reserve is a prefetch or has a waiting caller"
        );
        let wanted: u128 = self.waiting().map(|asked| u128::from(asked.want.gets())).sum();
        let level = self.waiting().map(|asked| asked.want.needs() - asked.want.gets()).max();
        let missing = wanted.saturating_sub(self.held.len().into()) + u128::from(level.unwrap_or_default());
        let step = if self.doubtful { self.sizing.least_step() } else { plan.step };
        let most = if self.prefetches() { missing.max(step.max(self.wanted).into()) } else { missing.max(1) };
        assert!(u128::from(count) <= most, "a reserve of {count} ids exceeds the {most} needed");
        self.failed_at = None;
        let (callers, overtakes) = (self.callers.len(), self.returning > 0);
        self.flight = Some(Flight { count, callers, revoked: false, overtakes });
    }

    fn publish(&mut self, range: IdRange, watermark: u64) {
        assert!(self.prefetches(), "`Order::Global` publishes no ids");
        assert!(watermark <= self.engine.policy().plan().step, "one refill reaches the watermark");
        assert!(!self.cause.answered, "ids are published before the replies");
        assert!(u128::from(range.start()) >= self.handed_to, "ids grow");
        self.leave(range);
        self.memory.push(range);
    }

    fn return_excess(&mut self, rest: IdRange, identity: Identity) {
        assert_eq!(
            (Some(identity), rest.end()),
            (self.origin, self.kept_to()),
            "only the last granted ids are returned"
        );
        assert!(self.flight.is_none(), "ids are returned only without a reserve in flight");
        let most = self.sizing.most_in_memory();
        assert_eq!(self.level(), most, "memory stays full after a return");
        self.leave(rest);
        self.returning += 1;
        self.lost += u128::from(rest.len());
        for range in &mut self.kept {
            *range = range.take_front(rest.start().saturating_sub(range.start()));
        }
        self.kept.retain(|range| !range.is_empty());
        // The give-back reaches the store, or is lost.
        if rest.len() % 2 == 0 {
            let name = self.stored.name.clone();
            let taken = self.stored.take_back(&GiveBack { name, identity, rest });
            // Other processes give back the ids from `kept_to` to `rest`.
            if taken && rest.len() % 4 == 0 {
                let first = u64::try_from(self.kept_to()).expect("before the rest");
                self.stored.next = Some(first.max(self.stored.bounds.start()));
            }
        }
    }

    /// One past the largest id that was granted and not given back.
    fn kept_to(&self) -> u128 {
        self.kept.last().map_or(0, IdRange::end)
    }

    /// Removes ids that no caller waits for from the held ids.
    fn leave(&mut self, range: IdRange) {
        let held = std::mem::replace(&mut self.held, Ranges::none());
        let before = held.len();
        for mut part in held.ranges().iter().copied() {
            let start = part.start();
            self.held.push(part.take_front(range.start().saturating_sub(start)));
            let (ids, left) =
                (u128::from(part.len()), part.end().saturating_sub(range.end()).min(part.len().into()));
            let _ = part.take_front(u64::try_from(ids - left).expect("the front is at most the whole part"));
            self.held.push(part);
        }
        assert_eq!(before - self.held.len(), range.len(), "published and returned ids were held");
    }

    fn gap(&mut self, ids: u64) {
        assert_eq!(self.held.take_front(ids).len(), ids, "only held ids can become a gap");
        self.lost += u128::from(ids);
    }

    fn reply(&mut self, number: usize, ids: &Ranges) {
        let held = self.held.len();
        let mut before = self.callers[..number].iter().filter(|asked| asked.waits());
        let is_next = before.all(|asked| asked.want.needs() > held);
        assert!(is_next, "first in, first out, except for callers that need more");
        assert_eq!(ids.len(), self.callers[number].want.gets(), "a reply has the requested number of ids");
        let overlaps = |range: &IdRange| ids.ranges().iter().any(|part| part.overlaps(range));
        let late = self.asked_for.iter().any(|(range, before)| number >= *before && overlaps(range));
        assert!(self.prefetches() || !late, "`Global` serves only callers that waited before the reserve");
        assert_eq!(*ids, self.held.take_front(ids.len()), "the reply has the first held ids, in order");
        ids.ranges().iter().for_each(|range| self.hand_out(*range));
        self.callers[number].answered = true;
        self.cause.answered = true;
    }

    pub(super) fn hand_out(&mut self, range: IdRange) {
        if range.is_empty() {
            return;
        }
        assert!(u128::from(range.start()) >= self.handed_to, "ids grow without duplicates: {range:?}");
        self.handed_to = range.end();
        self.handed += u128::from(range.len());
    }

    fn refused(&mut self, number: usize, kind: ErrorKind) {
        let asked = &mut self.callers[number];
        assert!(!asked.answered, "answered once");
        asked.answered = true;
        assert_eq!(self.cause.error, Some(kind), "the caller fails with the expected error");
        assert!(
            !self.cause.tick || asked.deadline <= self.now,
            "no timer fails a caller before the caller's deadline"
        );
    }

    fn check_between_events(&mut self) {
        let (level, held) = (self.level(), self.held.len());
        let known = self.handed + self.lost + u128::from(level) + u128::from(held);
        assert_eq!(self.granted, known, "granted ids are accounted for");
        let is_full = !self.prefetches() || level == self.sizing.most_in_memory();
        assert!(
            held == 0 || self.engine.waiting() > 0 && is_full,
            "ids are held only above the memory limit, and for waiting callers"
        );
        assert!(
            !self.prefetches() || self.waiting().all(|asked| asked.want.needs() > level + held),
            "no caller waits for ids that are there"
        );
        assert!(level <= self.sizing.most_in_memory(), "memory exceeds its limit");
        let doubted = self.engine.next_timer().is_some_and(|due| due <= self.now + END_STANDS);
        assert!(
            self.ended != Some(ErrorKind::Exhausted) || doubted,
            "an exhausted sequence is retried within END_STANDS"
        );
        let Some(deadline) = self.waiting().map(|asked| asked.deadline).min() else { return };
        let timer = self.engine.next_timer();
        assert!(timer.is_some_and(|timer| timer <= deadline), "the timer is due by the first deadline");
        let retries = timer.is_some_and(|timer| timer <= self.now + LONGEST_RETRY);
        assert!(
            self.flight.is_some() || retries || self.returning > 0,
            "a waiting caller needs a reserve, a retry or a give-back"
        );
    }

    pub(super) fn prefetches(&self) -> bool {
        self.settings.order != Order::Global
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &Asked> {
        self.callers.iter().filter(|asked| asked.waits())
    }

    pub(super) fn level(&self) -> u64 {
        self.memory.iter().map(IdRange::len).sum()
    }

    pub(super) fn take(&mut self, mut n: u64, mut each: impl FnMut(IdRange)) {
        while n > 0 && !self.memory.is_empty() {
            let taken = self.memory[0].take_front(n);
            n -= taken.len();
            each(taken);
            self.memory.retain(|range| !range.is_empty());
        }
    }
}
