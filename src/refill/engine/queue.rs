//! The callers that wait for ids of one sequence, in order, and the ids that are held for them.

use std::collections::VecDeque;

use super::event::Effect;
use crate::error::Error;
use crate::range::{IdRange, Ranges};
use crate::state::time::Time;
use crate::state::want::Want;

/// The engine's view of a waiting caller.
pub(crate) trait Waiter {
    /// Whether the caller has given up: ids sent to it would be lost.
    fn is_gone(&self) -> bool;
}

struct Waiting<W> {
    /// Numbers the callers in the order of their arrival.
    ticket: u64,
    waiter: W,
    want: Want,
    deadline: Time,
}

/// Boxed, since most sequences usually have no waiting callers.
pub(super) struct Queue<W>(Option<Box<Filled<W>>>);

struct Filled<W> {
    callers: VecDeque<Waiting<W>>,
    next_ticket: u64,
    /// No deadline is earlier than this.
    earliest: Option<Time>,
    /// Newer than all drawn ids, older than all later grants. Only non-empty while callers wait and memory is
    /// empty.
    held: Ranges,
    /// How many held ids are older than the newest range.
    older: u64,
    /// The older ids serve only tickets before this one, and the newest range only tickets before
    /// `newest_before`.
    held_before: u64,
    newest_before: u64,
}

impl<W> Default for Filled<W> {
    fn default() -> Self {
        Self {
            callers: VecDeque::new(),
            next_ticket: 0,
            earliest: None,
            held: Ranges::none(),
            older: 0,
            held_before: u64::MAX,
            newest_before: u64::MAX,
        }
    }
}

impl<W: Waiter> Filled<W> {
    /// Returns the next caller that the held ids may serve. Skips callers that have given up.
    fn next(&mut self) -> Option<Waiting<W>> {
        while self.callers.front().is_some_and(|first| first.ticket < self.held_before) {
            let first = self.callers.pop_front()?;
            if !first.waiter.is_gone() {
                return Some(first);
            }
        }
        None
    }

    fn take_held(&mut self, n: u64) -> Ranges {
        self.older = self.older.saturating_sub(n);
        if self.older == 0 {
            self.held_before = self.newest_before;
        }
        self.held.take_front(n)
    }
}

impl<W: Waiter> Queue<W> {
    pub(super) fn new() -> Self {
        Self(None)
    }

    /// Returns the number of waiting callers.
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |filled| filled.callers.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether any waiting caller has not given up.
    pub(super) fn is_of_use(&self) -> bool {
        self.0.as_ref().is_some_and(|filled| filled.callers.iter().any(|waiting| !waiting.waiter.is_gone()))
    }

    /// Returns how many ids memory must have once all callers have been served.
    pub(super) fn level(&self) -> u64 {
        let Some(filled) = &self.0 else { return 0 };
        let level = |waiting: &Waiting<W>| waiting.want.needs() - waiting.want.gets();
        filled.callers.iter().map(level).max().unwrap_or_default()
    }

    /// Returns how many ids callers get in addition to the held ones.
    pub(super) fn demand(&self) -> u64 {
        let Some(filled) = &self.0 else { return 0 };
        let add = |sum: u64, waiting: &Waiting<W>| sum.saturating_add(waiting.want.gets());
        filled.callers.iter().fold(0, add).saturating_sub(filled.held.len())
    }

    /// Whether ids are held.
    pub(super) fn holds(&self) -> bool {
        self.0.as_ref().is_some_and(|filled| !filled.held.is_empty())
    }

    /// Returns the number of held ids.
    pub(super) fn held(&self) -> u64 {
        self.0.as_ref().map_or(0, |filled| filled.held.len())
    }

    /// Returns a lower bound of all deadlines.
    pub(super) fn earliest(&self) -> Option<Time> {
        self.0.as_ref().filter(|filled| !filled.callers.is_empty())?.earliest
    }

    /// Returns the ticket that the next caller to arrive will get.
    pub(super) fn next_ticket(&self) -> u64 {
        self.0.as_ref().map_or(0, |filled| filled.next_ticket)
    }

    /// Adds a caller.
    pub(super) fn push(&mut self, waiter: W, want: Want, deadline: Time) {
        let filled = self.0.get_or_insert_default();
        filled.earliest = Some(filled.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
        if filled.callers.len() == filled.callers.capacity() {
            // Before the queue grows, remove the callers that gave up. Then reserve additional room of at
            // least the queue's length, so that the amortized cost per caller is constant.
            filled.callers.retain(|waiting| !waiting.waiter.is_gone());
            filled.callers.reserve(filled.callers.len() + 1);
        }
        let ticket = filled.next_ticket;
        filled.next_ticket += 1;
        filled.callers.push_back(Waiting { ticket, waiter, want, deadline });
    }

    /// Removes callers that have given up.
    pub(super) fn forget_the_gone(&mut self) {
        if let Some(filled) = &mut self.0 {
            filled.callers.retain(|waiting| !waiting.waiter.is_gone());
        }
    }

    /// Removes and returns the callers whose deadline has passed.
    pub(super) fn expire(&mut self, now: Time) -> Vec<W> {
        let Some(filled) = &mut self.0 else { return Vec::new() };
        if filled.earliest.is_none_or(|earliest| now < earliest) {
            return Vec::new();
        }
        let (late, waiting): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut filled.callers).into_iter().partition(|waiting| waiting.deadline <= now);
        filled.earliest = waiting.iter().map(|waiting| waiting.deadline).min();
        filled.callers = waiting;
        late.into_iter().map(|waiting| waiting.waiter).collect()
    }

    /// Fails all callers.
    pub(super) fn refuse_all(&mut self, error: &Error, out: &mut Vec<Effect<W>>) {
        let Some(filled) = &mut self.0 else { return };
        let all = std::mem::take(&mut filled.callers).into_iter();
        out.extend(all.map(|waiting| Effect::Fail { waiter: waiting.waiter, error: error.clone() }));
        filled.earliest = None;
    }

    /// Holds a range for callers with tickets before `before`.
    pub(super) fn hold(&mut self, range: IdRange, before: u64) {
        let filled = self.0.get_or_insert_default();
        if filled.held.is_empty() {
            filled.held_before = before;
        }
        (filled.older, filled.newest_before) = (filled.held.len(), before);
        filled.held.push(range);
    }

    /// Holds ids that were in memory, which are older than the held ones.
    pub(super) fn hold_first(&mut self, mut drained: Ranges) {
        let filled = self.0.get_or_insert_default();
        if filled.held.is_empty() {
            (filled.held_before, filled.newest_before) = (u64::MAX, u64::MAX);
        }
        filled.older += drained.len();
        drained.extend(std::mem::replace(&mut filled.held, Ranges::none()));
        filled.held = drained;
    }

    /// Hands out the held ids in order. A caller that needs more than is held keeps waiting, or fails with
    /// `refusal`. It does not delay the callers after it.
    pub(super) fn hand_out(&mut self, refusal: Option<&Error>, out: &mut Vec<Effect<W>>) {
        let Some(filled) = &mut self.0 else { return };
        let mut waiting = VecDeque::new();
        while let Some(first) = filled.next() {
            if filled.held.len() >= first.want.needs() {
                let ids = filled.take_held(first.want.gets());
                out.push(Effect::Reply { waiter: first.waiter, ids });
            } else if let Some(refusal) = refusal {
                out.push(Effect::Fail { waiter: first.waiter, error: refusal.clone() });
            } else {
                waiting.push_back(first);
            }
        }
        waiting.append(&mut filled.callers);
        filled.callers = waiting;
    }

    /// Whether the held ids may serve a waiting caller.
    pub(super) fn awaits_held(&self) -> bool {
        let may_serve = |filled: &Filled<W>, waiting: &Waiting<W>| {
            waiting.ticket < filled.held_before && !waiting.waiter.is_gone()
        };
        self.0.as_ref().is_some_and(|filled| filled.callers.iter().any(|waiting| may_serve(filled, waiting)))
    }

    /// Removes and returns up to `n` held ids, oldest first.
    pub(super) fn take_held(&mut self, n: u64) -> Ranges {
        self.0.as_mut().map_or(Ranges::none(), |filled| filled.take_held(n))
    }

    /// Removes and returns the last held range.
    pub(super) fn pop_held(&mut self) -> Option<IdRange> {
        self.0.as_mut()?.held.pop()
    }

    /// Frees the queue's memory when the queue is empty, since most sequences are idle. Tickets are not reset
    /// while a reserve is in flight, because it serves only earlier tickets.
    pub(super) fn shrink(&mut self, in_flight: bool) {
        let Some(filled) = self.0.as_mut().filter(|filled| filled.callers.is_empty()) else { return };
        if in_flight || !filled.held.is_empty() {
            filled.callers.shrink_to_fit();
        } else {
            self.0 = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the caller has given up.
    struct Caller(bool);

    impl Waiter for Caller {
        fn is_gone(&self) -> bool {
            self.0
        }
    }

    fn replies(out: &[Effect<Caller>]) -> Vec<Vec<u64>> {
        let ids = |command: &Effect<_>| match command {
            Effect::Reply { ids, .. } => Some(ids.iter().collect()),
            _ => None,
        };
        out.iter().filter_map(ids).collect()
    }

    /// The first caller requests more ids than each grant has, and gives up when the third grant arrives.
    #[test]
    fn ranges_requested_before_a_caller_do_not_serve_it() {
        let range = |start| IdRange::new(start, 3).unwrap();
        let (mut queue, mut out, never) = (Queue::new(), Vec::new(), Time::MAX);
        queue.push(Caller(false), Want::Ids(10), never);
        queue.push(Caller(false), Want::Ids(1), never);
        queue.hold(range(1), queue.next_ticket());
        assert_eq!(queue.held(), 3);
        queue.hand_out(None, &mut out);
        assert!(queue.awaits_held());
        queue.push(Caller(false), Want::Ids(1), never);
        queue.hold(range(101), queue.next_ticket());
        queue.hand_out(None, &mut out);
        assert!(queue.awaits_held());
        queue.0.as_mut().unwrap().callers[0].waiter.0 = true;
        queue.hold(range(201), queue.next_ticket());
        queue.hand_out(None, &mut out);
        assert!(!queue.awaits_held(), "it serves nobody else");
        assert_eq!((replies(&out), queue.len()), (vec![vec![1]], 1));
    }

    #[test]
    fn empty_queue_keeps_its_tickets_only_during_a_flight() {
        let mut queue = Queue::new();
        queue.push(Caller(false), Want::Ids(1), Time::MAX);
        queue.refuse_all(&crate::ErrorKind::Denied.into(), &mut Vec::new());
        queue.shrink(true);
        assert_eq!(queue.next_ticket(), 1);
        queue.shrink(false);
        assert!(queue.0.is_none());
    }
}
