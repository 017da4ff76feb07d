//! The callers that wait for ids of one sequence, in turn, and the ids that are held for them.

use std::collections::VecDeque;

use super::event::Effect;
use crate::error::Error;
use crate::range::{IdRange, Ranges};
use crate::sequence::time::Time;

/// A caller that waits, as far as the engine knows it.
pub(crate) trait Waiter {
    /// Whether it has given up, so that ids would be lost on it.
    fn is_gone(&self) -> bool;
}

struct Waiting<W> {
    /// Counts the callers in the order of their arrival.
    ticket: u64,
    waiter: W,
    want: u64,
    deadline: Time,
}

/// Boxed, as most sequences have none at most times.
pub(super) struct Queue<W>(Option<Box<Filled<W>>>);

struct Filled<W> {
    callers: VecDeque<Waiting<W>>,
    next_ticket: u64,
    /// No deadline is earlier than this.
    earliest: Option<Time>,
    /// Newer than all that was drawn, older than all that will be granted. Empty unless somebody waits, and
    /// then nothing is in memory.
    held: Ranges,
    /// How many of them were held before the newest range came.
    older: u64,
    /// Those serve only tickets before this one, and the newest range only tickets before `newest_before`.
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
    /// The next whom what is held may serve. Those who gave up are passed over.
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

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |filled| filled.callers.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether somebody waits who has not given up.
    pub(super) fn is_of_use(&self) -> bool {
        self.0.as_ref().is_some_and(|filled| filled.callers.iter().any(|waiting| !waiting.waiter.is_gone()))
    }

    /// How many ids are waited for, besides those that are held.
    pub(super) fn demand(&self) -> u64 {
        let Some(filled) = &self.0 else { return 0 };
        let wanted = filled.callers.iter().fold(0_u64, |sum, waiting| sum.saturating_add(waiting.want));
        wanted.saturating_sub(filled.held.len())
    }

    /// Whether ids are held.
    pub(super) fn holds(&self) -> bool {
        self.0.as_ref().is_some_and(|filled| !filled.held.is_empty())
    }

    /// How many ids are held.
    pub(super) fn held(&self) -> u64 {
        self.0.as_ref().map_or(0, |filled| filled.held.len())
    }

    /// No deadline is earlier than this.
    pub(super) fn earliest(&self) -> Option<Time> {
        self.0.as_ref().filter(|filled| !filled.callers.is_empty())?.earliest
    }

    /// The ticket of the next who comes.
    pub(super) fn next_ticket(&self) -> u64 {
        self.0.as_ref().map_or(0, |filled| filled.next_ticket)
    }

    /// Whether the first has given up: what was held for it is to serve those behind.
    pub(super) fn first_is_gone(&self) -> bool {
        let first = self.0.as_ref().and_then(|filled| filled.callers.front());
        first.is_some_and(|first| first.waiter.is_gone())
    }

    /// A caller queues up.
    pub(super) fn push(&mut self, waiter: W, want: u64, deadline: Time) {
        let filled = self.0.get_or_insert_default();
        filled.earliest = Some(filled.earliest.map_or(deadline, |earliest| earliest.min(deadline)));
        if filled.callers.len() == filled.callers.capacity() {
            // Those who gave up leave before the queue grows; as much room again is made where it has to, so
            // that not every caller looks at all others.
            filled.callers.retain(|waiting| !waiting.waiter.is_gone());
            filled.callers.reserve(filled.callers.len() + 1);
        }
        let ticket = filled.next_ticket;
        filled.next_ticket += 1;
        filled.callers.push_back(Waiting { ticket, waiter, want, deadline });
    }

    /// Those who gave up leave.
    pub(super) fn forget_the_gone(&mut self) {
        if let Some(filled) = &mut self.0 {
            filled.callers.retain(|waiting| !waiting.waiter.is_gone());
        }
    }

    /// Takes out those whose deadline has come.
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

    /// Everybody hears that there is nothing for them.
    pub(super) fn refuse_all(&mut self, error: &Error, out: &mut Vec<Effect<W>>) {
        let Some(filled) = &mut self.0 else { return };
        let all = std::mem::take(&mut filled.callers).into_iter();
        out.extend(all.map(|waiting| Effect::Fail { waiter: waiting.waiter, error: error.clone() }));
        filled.earliest = None;
    }

    /// Holds a range for those whose tickets come before `before`.
    pub(super) fn hold(&mut self, range: IdRange, before: u64) {
        let filled = self.0.get_or_insert_default();
        if filled.held.is_empty() {
            filled.held_before = before;
        }
        (filled.older, filled.newest_before) = (filled.held.len(), before);
        filled.held.push(range);
    }

    /// Hands out what is held, in turn. `refusal` is what those hear for whom it is too little; without one
    /// they wait on. Whether nobody is left whom it may serve is returned.
    pub(super) fn hand_out(&mut self, refusal: Option<&Error>, out: &mut Vec<Effect<W>>) -> bool {
        let Some(filled) = &mut self.0 else { return true };
        while let Some(first) = filled.next() {
            if filled.held.len() >= first.want.max(1) {
                out.push(Effect::Reply { waiter: first.waiter, ids: filled.take_held(first.want) });
            } else if let Some(refusal) = refusal {
                // What is left stays for those who want less.
                out.push(Effect::Fail { waiter: first.waiter, error: refusal.clone() });
            } else {
                filled.callers.push_front(first);
                return false;
            }
        }
        true
    }

    /// Takes out up to `n` of the ids that are held, from the oldest on.
    pub(super) fn take_held(&mut self, n: u64) -> Ranges {
        self.0.as_mut().map_or(Ranges::none(), |filled| filled.take_held(n))
    }

    /// Takes out the last range that is held.
    pub(super) fn pop_held(&mut self) -> Option<IdRange> {
        self.0.as_mut()?.held.pop()
    }

    /// Gives back its memory where it is empty: idle sequences are many. Its tickets count on while a reserve
    /// is in flight, which serves those before it was asked for.
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

    /// Whether it is gone.
    struct Caller(bool);

    impl Waiter for Caller {
        fn is_gone(&self) -> bool {
            self.0
        }
    }

    fn replies(out: &[Effect<Caller>]) -> Vec<Vec<u64>> {
        let ids = |command: &Effect<_>| match command {
            Effect::Reply { ids, .. } => Some(ids.ids().collect()),
            _ => None,
        };
        out.iter().filter_map(ids).collect()
    }

    /// The first wants more than each grant brings, and gives up when the third comes.
    #[test]
    fn what_was_asked_for_before_a_caller_came_does_not_serve_it_when_newer_ids_are_held_too() {
        let range = |start| IdRange::new(start, 3).unwrap();
        let (mut queue, mut out, never) = (Queue::new(), Vec::new(), Time::MAX);
        queue.push(Caller(false), 10, never);
        queue.push(Caller(false), 1, never);
        queue.hold(range(1), queue.next_ticket());
        assert!(!queue.hand_out(None, &mut out));
        queue.push(Caller(false), 1, never);
        queue.hold(range(101), queue.next_ticket());
        assert!(!queue.hand_out(None, &mut out));
        queue.0.as_mut().unwrap().callers[0].waiter.0 = true;
        queue.hold(range(201), queue.next_ticket());
        assert!(queue.hand_out(None, &mut out), "it serves nobody else");
        assert_eq!((replies(&out), queue.len()), (vec![vec![1]], 1));
    }

    #[test]
    fn nothing_is_kept_for_nobody_and_tickets_count_on_during_a_flight() {
        let mut queue = Queue::new();
        queue.push(Caller(false), 1, Time::MAX);
        queue.refuse_all(&crate::ErrorKind::Denied.into(), &mut Vec::new());
        queue.shrink(true);
        assert_eq!(queue.next_ticket(), 1);
        queue.shrink(false);
        assert!(queue.0.is_none());
    }
}
