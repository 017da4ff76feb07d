//! What happens to a granted range: it is checked, handed out to waiting callers, published, or returned.

use super::Engine;
use super::event::Effect;
use super::queue::Waiter;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::state::segment::MAX_LEN;
use crate::state::time::Time;
use crate::store::Grant;

impl<W: Waiter> Engine<W> {
    pub(super) fn reserved(&mut self, grant: Grant, now: Time, out: &mut Vec<Effect<W>>) {
        let Some(flight) = self.flight.take() else { return };
        self.doubtful = false;
        self.policy.note_latency(now.saturating_sub(flight.asked));
        if flight.revoked || self.ended.is_some() {
            // The store may have reserved the range before the event for which the caller revoked the ids.
            out.push(Effect::Void(grant.range.len()));
            return;
        }
        if let Err(error) = self.check(&grant, flight.count) {
            out.push(Effect::Distrust(error.clone()));
            self.give_up(&error, out);
            self.retry.hold(now);
            return;
        }
        // Drop the old ids before `Accept` notes the new identity: ids in memory must never belong to an
        // older identity than the noted one.
        if self.take_over(&grant, out) {
            self.level = 0;
        }
        out.push(Effect::Accept(grant));
        let before = if self.prefetches() { u64::MAX } else { flight.before };
        self.serve(&grant, before, now, out);
    }

    /// Rejects grants that violate the store's contract.
    fn check(&self, grant: &Grant, asked: u64) -> Result<()> {
        let range = grant.range;
        let (first, last) = (grant.bounds.start().max(self.settings.floor), self.last_allowed(grant));
        let fault = if range.is_empty() || range.len() > asked {
            format!("granted {} ids, but {asked} were requested", range.len())
        } else if range.start() < first || range.end() > last + 1 {
            format!("granted {range:?}, outside {first}..={last}")
        } else if let Some(fault) = self.history.gone_back(grant) {
            fault
        } else {
            return Ok(());
        };
        let message =
            format!("the store {fault}; the answer was rejected; check the store before you continue");
        Err(Error::new(ErrorKind::StoreViolation, message).during(Operation::Reserve))
    }

    fn last_allowed(&self, grant: &Grant) -> u128 {
        u128::from(grant.bounds.max().min(self.settings.ceiling))
    }

    /// Notes the identity of the grant. Ids in memory of another identity are discarded, since other
    /// processes may get the same ids. Returns whether the identity has changed.
    fn take_over(&mut self, grant: &Grant, out: &mut Vec<Effect<W>>) -> bool {
        let other = self.history.note(grant);
        if other {
            out.push(Effect::Discard);
            // Mixed with the new ids, the held ids could be duplicates or out of order.
            self.lose_held(out);
        }
        self.retry.clear();
        self.cap = self.settings.sizing.within(grant.bounds).most_in_memory();
        self.policy.adapt(&self.sizing());
        other
    }

    /// Turns the held ids into a gap.
    pub(super) fn lose_held(&mut self, out: &mut Vec<Effect<W>>) {
        let lost = self.queue.take_held(u64::MAX).len();
        if lost > 0 {
            out.push(Effect::Gap(lost));
        }
    }

    /// Hands out a range: first to waiting callers, then to memory.
    fn serve(&mut self, grant: &Grant, before: u64, now: Time, out: &mut Vec<Effect<W>>) {
        let position = out.len();
        self.queue.hold(grant.range, before);
        self.wanted = 0;
        self.low = self.prefetches() && self.level < self.policy.plan().watermark;
        if grant.range.end() < self.last_allowed(grant) + 1 {
            self.hand_out(None, position, out);
            return;
        }
        let exhausted = ErrorKind::Exhausted.into();
        self.hand_out(Some(&exhausted), position, out);
        // Not the end if ids are being returned: they can be reserved again.
        if !out[position..].iter().any(|effect| matches!(effect, Effect::ReturnExcess { .. })) {
            self.end(ErrorKind::Exhausted, &exhausted, now, out);
        }
    }

    /// Hands out the held ids to waiting callers in order, and publishes the rest before the first of them is
    /// answered. `refusal` is the error for callers that need more than is held; without it they keep
    /// waiting.
    pub(super) fn hand_out(&mut self, refusal: Option<&Error>, position: usize, out: &mut Vec<Effect<W>>) {
        self.queue.hand_out(refusal, out);
        let is_over = refusal.is_some() || self.ended.is_some();
        let watermark = if is_over { 0 } else { self.policy.plan().watermark };
        self.put_down(watermark, position, out);
    }

    /// Publishes the held ids behind those in memory, up to the memory limit. The rest stays for callers that
    /// need more than there is so far.
    fn put_down(&mut self, watermark: u64, position: usize, out: &mut Vec<Effect<W>>) {
        if !self.queue.holds() {
            return;
        }
        if self.prefetches() {
            // On close, publish all held ids: they are then handled like the ids in memory.
            let closed = self.ended == Some(ErrorKind::Closed);
            let most = if closed { MAX_LEN } else { self.sizing().most_in_memory() };
            let kept = self.queue.take_held(most.saturating_sub(self.level));
            self.level += kept.len();
            self.low = self.level < watermark;
            let publish = kept.ranges().iter().map(|range| Effect::Publish { range: *range, watermark });
            out.splice(position..position, publish);
        }
        if !self.queue.awaits_held() {
            self.return_excess(out);
        }
    }

    /// Returns the last held range to the store, which can then grant it again. Other held ids become a gap.
    fn return_excess(&mut self, out: &mut Vec<Effect<W>>) {
        // Return nothing while a reserve is in flight: the reserve could fail with `Exhausted` before the ids
        // are back, which would end the sequence. Under `Order::Global` the ids become a gap: they were
        // reserved before later callers started to wait.
        if self.flight.is_none()
            && self.prefetches()
            && self.ended != Some(ErrorKind::Closed)
            && let (Some(mut rest), Some(identity)) = (self.queue.pop_held(), self.history.identity())
        {
            // Id 0 is not returned: the history needs an id before the rest.
            self.queue.hold(rest.take_front(u64::from(rest.start() == 0)), u64::MAX);
            if !rest.is_empty() {
                self.history.forget_from(rest.start());
                self.returning += 1;
                out.push(Effect::ReturnExcess { rest, identity });
            }
        }
        self.lose_held(out);
    }
}
