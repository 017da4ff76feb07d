//! What a window knows of a sequence that it serves.

use std::fmt::Write as _;
use std::sync::Arc;

use idmill::store::{Bounds, Identity, SequenceInfo};
use idmill_shared_cache::cache::Layout;
use idmill_shared_cache::pace::Pace;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::Instant;

/// The layout of the item. Another layout gets another number, and thereby other keys.
const FORMAT: u32 = 2;
/// memcached takes no longer key.
pub(super) const LONGEST_KEY: usize = 250;
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
/// How many times in a row a sequence is found busy before its item is looked at:
/// it may not be a stub at all.
const LOOK_AT: u32 = 32;

/// One sequence, as the store behind last told of it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) key: Arc<str>,
    pub(super) layout: Layout,
    pub(super) identity: Identity,
    pub(super) bounds: Bounds,
    /// What the store will grant next, or less: others reserve too.
    pub(super) next: Option<u64>,
    /// What draws and refills showed.
    pub(super) pace: Pace,
    /// Others seem to reserve from the store directly: how many more times no range is prepared.
    pub(super) apart: u32,
    /// Where the window ended when it was found used up, and when that was first.
    pub(super) dry: Option<(u64, Instant)>,
    busy: u32,
}

impl Known {
    /// What was read now, which may be older than what this process reserved meanwhile, and knew `before`.
    pub(super) fn of(info: &SequenceInfo, prefix: &str, before: Option<&Self>) -> Self {
        let before = before.filter(|known| known.identity == info.identity);
        let next = info.next.map(|next| next.max(before.and_then(|known| known.next).unwrap_or(0)));
        Self {
            key: key(prefix, info).into(),
            layout: Layout::new(info.bounds.start()),
            identity: info.identity,
            bounds: info.bounds,
            next,
            pace: before.map(|known| known.pace).unwrap_or_default(),
            apart: before.map_or(0, |known| known.apart),
            dry: before.and_then(|known| known.dry),
            busy: 0,
        }
    }

    /// The store has granted everything before this id, of the sequence that this is.
    pub(super) fn advance(&mut self, identity: Identity, next: Option<u64>) {
        if self.identity == identity {
            (self.busy, self.dry) = (0, None);
            self.next = self.next.zip(next).map(|(known, next)| known.max(next));
        }
    }

    /// The window that ends there is used up; since when.
    pub(super) fn found_dry(&mut self, end: u64, now: Instant) -> Instant {
        let (_, since) = self.dry.filter(|(known, _)| *known == end).unwrap_or((end, now));
        self.dry = Some((end, since));
        since
    }

    /// Somebody else holds its stub.
    pub(super) fn found_busy(&mut self) {
        self.busy = self.busy.wrapping_add(1);
    }

    /// Whether a draw may lead above this ceiling, which is not the sequence's own end.
    pub(super) fn near(&self, ceiling: u64) -> bool {
        ceiling < self.bounds.max() && self.next.is_none_or(|next| next > ceiling)
    }

    /// Whether this draw should look before it adds.
    pub(super) fn looks_stuck(&self) -> bool {
        self.busy % LOOK_AT == LOOK_AT - 1
    }
}

/// The item's key. Incarnation and epoch tell it from every other; the name is there for people, as far as
/// there is room.
fn key(prefix: &str, info: &SequenceInfo) -> String {
    let Identity { incarnation, epoch } = info.identity;
    let mut key = format!("{prefix}:{FORMAT}:{incarnation:x}:{epoch}:");
    let _ = write!(key, "{}", utf8_percent_encode(info.name.as_str(), PLAIN));
    // All of it is ASCII.
    key.truncate(LONGEST_KEY);
    key
}

#[cfg(test)]
mod tests {
    use idmill::SequenceName;
    use proptest::prelude::*;

    use super::*;

    fn info(name: &str, incarnation: u64, epoch: u64, next: Option<u64>) -> SequenceInfo {
        let (name, bounds) = (SequenceName::new(name).unwrap(), Bounds::new(1, 1_000).unwrap());
        SequenceInfo::stored(name, next, bounds, Identity { incarnation, epoch })
    }

    #[test]
    fn a_key_tells_what_it_is_of() {
        assert_eq!(key("idmill", &info("order s", 255, 2, None)), "idmill:2:ff:2:order%20s");
    }

    #[test]
    fn what_is_known_never_steps_back_while_the_sequence_is_the_same() {
        let heard = |info, before: &Known| Known::of(&info, "p", Some(before));
        let mut known = Known::of(&info("s", 1, 0, Some(1)), "p", None);
        known.advance(known.identity, Some(31));
        known = heard(info("s", 1, 0, Some(21)), &known);
        assert_eq!(known.next, Some(31), "the reading was the older one");
        known.advance(Identity { incarnation: 9, epoch: 0 }, Some(41));
        assert_eq!(known.next, Some(31), "another sequence's");
        known = heard(info("s", 1, 1, Some(1)), &known);
        assert_eq!(known.next, Some(1), "it was reset");
        assert_eq!(heard(info("s", 1, 1, None), &known).next, None, "exhausted");
    }

    #[test]
    fn one_that_is_found_busy_again_and_again_is_looked_at() {
        let mut known = Known::of(&info("s", 1, 0, Some(1)), "p", None);
        for _ in 1..LOOK_AT {
            assert!(!known.looks_stuck());
            known.found_busy();
        }
        assert!(known.looks_stuck());
        known.advance(known.identity, Some(11));
        assert!(!known.looks_stuck());
    }

    proptest! {
        #[test]
        fn keys_are_what_memcached_takes_and_distinct(
            name in "\\PC{1,60}", prefix in "[A-Za-z0-9_.:-]{1,64}", a in any::<(u64, u64)>(), b in any::<(u64, u64)>(),
        ) {
            prop_assume!(SequenceName::new(name.as_str()).is_ok());
            let (first, second) = (info(&name, a.0, a.1, None), info(&name, b.0, b.1, None));
            let (first, second) = (key(&prefix, &first), key(&prefix, &second));
            prop_assert!(first.len() <= LONGEST_KEY && first.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(first == second, a == b);
        }
    }
}
