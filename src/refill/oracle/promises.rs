//! What may come of an event, and what may not.

use std::time::Duration;

use super::{Asked, Caller, Cause, Flight, Judged, Oracle};
use crate::error::{Error, ErrorKind, Status};
use crate::range::{Range, Ranges};
use crate::refill::engine::{Command, END_STANDS, Event};
use crate::segment::MAX_LEN;
use crate::settings::Order;
use crate::store::Grant;

/// The shortest delay before a reserve is tried again.
const SHORTEST_RETRY: Duration = Duration::from_millis(10);
/// And the longest: 5 s, and jitter.
const LONGEST_RETRY: Duration = Duration::from_secs(11);

impl Oracle {
    pub(super) fn granted(&mut self, grant: Grant) {
        let flight = self.flight.take();
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
                self.take_over(&grant);
                self.granted += u128::from(grant.range.len());
                let at_end = grant.range.end() > u128::from(last);
                cause.error = at_end.then_some(ErrorKind::Exhausted);
                (cause.rest, cause.before) = (Some(grant.range), flight.callers);
                cause.deserves = Some(Judged::Sound);
            }
            Some(_) => cause.deserves = Some(Judged::Mad),
        }
        let level = self.level();
        self.on(Event::Reserved { grant, level }, cause);
    }

    fn is_sane(&self, grant: &Grant, count: u64) -> bool {
        let (range, last) = (grant.range, grant.bounds.max().min(self.settings.ceiling));
        let again = self.origin == Some(grant.identity) && u128::from(range.start()) < self.reached;
        let inside = range.start() >= grant.bounds.start().max(self.settings.floor)
            && range.end() <= u128::from(last) + 1;
        (1..=count).contains(&range.len()) && inside && !again
    }

    fn take_over(&mut self, grant: &Grant) {
        self.origin = self.origin.or(Some(grant.identity));
        self.reached = grant.range.end();
        self.stored.next = u64::try_from(grant.range.end()).ok().filter(|next| *next <= grant.bounds.max());
    }

    pub(super) fn failed(&mut self, error: Error) {
        if self.flight.take().is_some() {
            let permanent = error.status() == Status::Permanent;
            self.failed_at = (!permanent).then_some(self.now);
            self.on(
                Event::Failed(error.clone()),
                Cause { error: permanent.then(|| error.kind()), ..Cause::default() },
            );
            assert!(!permanent || self.waiting().count() == 0, "a permanent failure is told to all");
        } else {
            self.on(Event::Failed(error), Cause::default());
        }
    }

    /// One event, and every command that comes of it.
    pub(super) fn on(&mut self, event: Event<Caller>, cause: Cause) {
        let mut commands = Vec::new();
        self.cause = cause;
        // A store's grant of another identity voids what was granted before.
        let identity = match &event {
            Event::Reserved { grant, .. } if self.cause.rest.is_some() => Some(grant.identity),
            _ => None,
        };
        let other = identity.filter(|identity| self.origin != Some(*identity));
        self.engine.on(event, self.now, &mut commands);
        assert_eq!(other.is_some(), commands.iter().any(|c| matches!(c, Command::Discard)), "discards");
        self.origin = other.or(self.origin);
        for command in commands {
            self.check(command);
        }
        assert_eq!(self.cause.judged, self.cause.deserves, "a grant is judged, and rightly");
        assert!(!self.cause.published || self.waiting().count() == 0, "those who wait come first");
        self.check_between_events();
    }

    fn check(&mut self, command: Command<Caller>) {
        match command {
            Command::Reserve { count } => self.reserve(count),
            Command::Accept(grant) => {
                assert_eq!(Some(grant.range), self.cause.rest, "accepted before anything is done with it");
                self.judge(Judged::Sound);
            }
            Command::Void(ids) => {
                self.lost += u128::from(ids);
                self.judge(Judged::Void);
            }
            Command::Distrust(error) => {
                assert_eq!(Some(error.kind()), self.cause.error, "distrusted for what happened");
                self.judge(Judged::Mad);
            }
            Command::Discard => {
                self.lost += u128::from(self.level());
                self.memory.clear();
            }
            Command::Publish { range, watermark } => self.publish(range, watermark),
            Command::Reply { waiter, ids } => self.reply(waiter.number, &ids),
            Command::Fail { waiter, error } => self.refused(waiter.number, error.kind()),
            Command::Finish(reason) => (self.ended, self.ended_at) = (Some(reason), self.now),
            Command::Reopen => self.reopen(),
            Command::Gap(ids) => self.lost += u128::from(ids),
            Command::Unknown(_) => {}
        }
    }

    fn reopen(&mut self) {
        assert_eq!(self.ended.take(), Some(ErrorKind::Exhausted), "nothing else ends for a while");
        assert!(self.now >= self.ended_at + END_STANDS, "the end stands for a while");
        assert_eq!(self.level(), 0, "nothing overtakes what is in memory");
    }

    fn judge(&mut self, judged: Judged) {
        assert_eq!(self.cause.judged.replace(judged), None, "judged once");
    }

    fn reserve(&mut self, count: u64) {
        assert!(self.flight.is_none(), "at most one reserve in flight");
        assert!(self.ended.is_none(), "nothing is reserved after the end");
        assert!((1..=MAX_LEN).contains(&count), "{count} ids fit a segment");
        let waited = self.failed_at.is_none_or(|at| self.now >= at + SHORTEST_RETRY);
        assert!(waited, "a reserve that failed is not repeated at once");
        let plan = self.engine.policy().plan();
        let prefetches = self.prefetches() && plan.watermark > 0;
        assert!(prefetches || self.waiting().next().is_some(), "nothing is reserved that nobody asked for");
        let wanted: u128 = self.waiting().map(|asked| u128::from(asked.want)).sum();
        // What those have who left without being noticed yet is not told apart from what the others have.
        let all_wait = self.callers.iter().all(|asked| asked.answered || asked.waits());
        let missing = if all_wait { wanted - self.held() } else { wanted };
        let most = if self.prefetches() { missing.max(plan.step.into()) } else { missing.max(1) };
        assert!(u128::from(count) <= most, "reserves {count}, more than the {most} that are of use");
        self.failed_at = None;
        self.flight = Some(Flight { count, callers: self.callers.len(), revoked: false });
    }

    fn publish(&mut self, range: Range, watermark: u64) {
        assert!(self.prefetches(), "Global publishes nothing");
        assert!(watermark <= self.engine.policy().plan().step, "one refill leads above the watermark");
        let rest = self.cause.rest.expect("ids come of a sound grant");
        assert_eq!(range.end(), rest.end(), "those who wait get the head of the range");
        // It comes before the replies, so that whoever has one finds ids in memory.
        self.cause.rest = Some(rest).map(|mut rest| rest.take_front(rest.len() - range.len()));
        self.cause.published = true;
        self.memory.push(range);
    }

    /// The next ids of the grant are these.
    fn draw_rest(&mut self, range: Range) {
        let rest = self.cause.rest.as_mut().expect("ids come of a sound grant");
        assert_eq!(rest.take_front(range.len()), range, "in order, from the head of the range");
    }

    fn reply(&mut self, number: usize, ids: &Ranges) {
        let first = self.callers.iter().position(Asked::waits);
        assert_eq!(first, Some(number), "first in, first out");
        assert_eq!(ids.len(), self.callers[number].want, "as many as were wanted");
        assert!(self.prefetches() || number < self.cause.before, "Global: only who waited before it");
        let head = self.cause.rest.expect("ids come of a sound grant").start();
        for range in ids.as_slice() {
            // What it had before the grant came from memory or from an earlier one.
            let mut new = *range;
            let old = new.take_front(head.saturating_sub(range.start()));
            if !new.is_empty() {
                self.draw_rest(new);
            }
            self.hand_out(old);
            self.hand_out(new);
        }
        self.callers[number].answered = true;
    }

    pub(super) fn hand_out(&mut self, range: Range) {
        if range.is_empty() {
            return;
        }
        let epoch = self.origin.expect("ids come of a grant").epoch;
        let before = self.used.range(..(epoch, range.start())).next_back();
        let clash = before.is_some_and(|(key, end)| key.0 == epoch && *end > u128::from(range.start()));
        let after = self.used.range((epoch, range.start())..).next();
        let clash = clash || after.is_some_and(|(key, _)| key.0 == epoch && u128::from(key.1) < range.end());
        assert!(!clash, "no id twice: {range:?}");
        self.used.insert((epoch, range.start()), range.end());
        self.handed += u128::from(range.len());
    }

    fn refused(&mut self, number: usize, kind: ErrorKind) {
        let asked = &mut self.callers[number];
        assert!(!asked.answered, "answered once");
        asked.answered = true;
        assert_eq!(self.cause.error, Some(kind), "refused for what happened");
        assert!(!self.cause.tick || asked.deadline <= self.now, "not before the deadline");
    }

    fn check_between_events(&mut self) {
        let most: u128 = self.callers.iter().filter(|a| !a.answered).map(|a| u128::from(a.want)).sum();
        assert!((0..=most).contains(&self.held()), "granted ids are accounted for");
        let doubted = self.engine.next_timer().is_some_and(|due| due <= self.now + END_STANDS);
        assert!(self.ended != Some(ErrorKind::Exhausted) || doubted, "an end is doubted after a while");
        let Some(deadline) = self.waiting().map(|asked| asked.deadline).min() else { return };
        let timer = self.engine.next_timer();
        assert!(timer.is_some_and(|timer| timer <= deadline), "a timer for each deadline");
        let retries = timer.is_some_and(|timer| timer <= self.now + LONGEST_RETRY);
        assert!(self.flight.is_some() || retries, "where somebody waits, something is under way");
    }

    pub(super) fn prefetches(&self) -> bool {
        self.settings.order != Order::Global
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &Asked> {
        self.callers.iter().filter(|asked| asked.waits())
    }

    pub(super) fn level(&self) -> u64 {
        self.memory.iter().map(Range::len).sum()
    }

    /// Granted ids that are with callers who wait for more.
    pub(super) fn held(&self) -> u128 {
        let known = self.handed + self.lost + u128::from(self.level());
        self.granted.checked_sub(known).expect("not more ids than were granted")
    }

    pub(super) fn take(&mut self, mut n: u64, mut each: impl FnMut(Range)) {
        while n > 0 && !self.memory.is_empty() {
            let taken = self.memory[0].take_front(n);
            n -= taken.len();
            each(taken);
            self.memory.retain(|range| !range.is_empty());
        }
    }
}
