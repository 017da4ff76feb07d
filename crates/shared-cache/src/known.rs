//! What the windows on caches know of a sequence that they serve.

use std::sync::Arc;

use idmill::store::{Bounds, Grant, Identity, SequenceInfo};
use idmill::{IdRange, SequenceName};
use tokio::time::Instant;

use super::acquainted::Acquainted;
use super::cache::Layout;
use super::pace::Pace;

/// How many times in a row a sequence is found busy before its item is looked at:
/// it may not be a stub at all.
const LOOK_AT: u32 = 32;

/// One sequence, as the store behind last told of it.
#[derive(Clone, Debug)]
pub struct Known {
    /// Of its entry in the cache.
    pub key: Arc<str>,
    pub identity: Identity,
    pub bounds: Bounds,
    /// What the store will grant next, or less: others reserve too.
    pub next: Option<u64>,
    /// What draws and refills showed.
    pub pace: Pace,
    /// Others seem to reserve from the store directly: how many more times no range is prepared.
    pub apart: u32,
    /// Where the window ended when it was found used up, and when that was first.
    pub dry: Option<(u64, Instant)>,
    busy: u32,
}

impl Known {
    /// What was read now, which may be older than what this process reserved meanwhile, and knew `before`.
    pub fn of(info: &SequenceInfo, key: String, before: Option<&Self>) -> Self {
        let before = before.filter(|known| known.identity == info.identity);
        let next = info.next.map(|next| next.max(before.and_then(|known| known.next).unwrap_or(0)));
        Self {
            key: key.into(),
            identity: info.identity,
            bounds: info.bounds,
            next,
            pace: before.map(|known| known.pace).unwrap_or_default(),
            apart: before.map_or(0, |known| known.apart),
            dry: before.and_then(|known| known.dry),
            busy: 0,
        }
    }

    /// How a number in a cache represents its ids.
    pub fn layout(&self) -> Layout {
        Layout::new(self.bounds.start())
    }

    /// The store has granted everything before this id, of the sequence that this is.
    pub fn advance(&mut self, identity: Identity, next: Option<u64>) {
        if self.identity == identity {
            (self.busy, self.dry) = (0, None);
            self.next = self.next.zip(next).map(|(known, next)| known.max(next));
        }
    }

    /// The window that ends there is used up; since when.
    pub fn found_dry(&mut self, end: u64, now: Instant) -> Instant {
        let (_, since) = self.dry.filter(|(known, _)| *known == end).unwrap_or((end, now));
        self.dry = Some((end, since));
        since
    }

    /// Somebody else holds its stub.
    pub fn found_busy(&mut self) {
        self.busy = self.busy.wrapping_add(1);
    }

    /// Whether a draw may lead above this ceiling, which is not the sequence's own end, if others reserved so
    /// many ids since the store was last asked.
    pub fn near(&self, ceiling: u64, reserved: u64) -> bool {
        let next = self.next.map(|next| next.saturating_add(reserved));
        ceiling < self.bounds.max() && next.is_none_or(|next| next > ceiling)
    }

    /// Whether this draw should look before it adds.
    pub fn looks_stuck(&self) -> bool {
        self.busy % LOOK_AT == LOOK_AT - 1
    }
}

impl Acquainted<Known> {
    /// Stores what the store says now of a sequence, whose entry in the cache has this key.
    pub fn hear(&self, sequence: &SequenceInfo, key: String) {
        self.introduce(&sequence.name, |before| Known::of(sequence, key, before));
    }

    /// The grant of a range that was drawn from the window.
    pub fn granted(&self, name: &SequenceName, range: IdRange, known: &Known) -> Grant {
        Grant::new(range, known.identity, self.bounds_after(name, range, known.bounds))
    }

    /// A refill that was begun then claimed nothing; with `lost`, nobody knows.
    pub fn released(&self, name: &SequenceName, begun: Instant, lost: bool) {
        self.update(name, |latest| {
            if !lost {
                latest.pace.was_refused();
            }
            latest.pace.took(begun.elapsed());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(incarnation: u64, epoch: u64, next: Option<u64>) -> SequenceInfo {
        let (name, bounds) = (SequenceName::new("s").unwrap(), Bounds::new(1, 1_000).unwrap());
        SequenceInfo::stored(name, next, bounds, Identity { incarnation, epoch })
    }

    #[test]
    fn what_is_known_never_steps_back_while_the_sequence_is_the_same() {
        let heard = |info, before: &Known| Known::of(&info, "k".to_owned(), Some(before));
        let mut known = Known::of(&info(1, 0, Some(1)), "k".to_owned(), None);
        known.advance(known.identity, Some(31));
        known = heard(info(1, 0, Some(21)), &known);
        assert_eq!(known.next, Some(31), "the reading was the older one");
        known.advance(Identity { incarnation: 9, epoch: 0 }, Some(41));
        assert_eq!(known.next, Some(31), "another sequence's");
        known = heard(info(1, 1, Some(1)), &known);
        assert_eq!(known.next, Some(1), "it was reset");
        assert_eq!(heard(info(1, 1, None), &known).next, None, "exhausted");
    }

    #[test]
    fn one_that_is_found_busy_again_and_again_is_looked_at() {
        let mut known = Known::of(&info(1, 0, Some(1)), "k".to_owned(), None);
        for _ in 1..LOOK_AT {
            assert!(!known.looks_stuck());
            known.found_busy();
        }
        assert!(known.looks_stuck());
        known.advance(known.identity, Some(11));
        assert!(!known.looks_stuck());
    }
}
