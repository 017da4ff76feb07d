//! What a window knows of a sequence that it serves.

use std::sync::Arc;

use idmill::store::{Bounds, Identity, SequenceInfo};
use idmill_shared_cache::pace::Pace;

/// One sequence, as the store behind last told of it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) key: Arc<str>,
    pub(super) identity: Identity,
    pub(super) bounds: Bounds,
    /// What the store will grant next, or less: others reserve too.
    next: Option<u64>,
    /// What draws and refills showed.
    pub(super) pace: Pace,
}

impl Known {
    pub(super) fn of(info: &SequenceInfo, prefix: &str, before: Option<&Self>) -> Self {
        let before = before.filter(|known| known.identity == info.identity);
        Self {
            key: key(prefix, info).into(),
            identity: info.identity,
            bounds: info.bounds,
            next: info.next,
            pace: before.map(|known| known.pace).unwrap_or_default(),
        }
    }

    /// Whether the store's next id may be above this ceiling, which is not the sequence's own end.
    pub(super) fn near(&self, ceiling: u64, block: u64) -> bool {
        let next = self.next.map(|next| next.saturating_add(block.saturating_mul(NEAR)));
        ceiling < self.bounds.max() && next.is_none_or(|next| next > ceiling)
    }
}

/// How many blocks may have been reserved since the store was last asked.
const NEAR: u64 = 1_000;

/// The hash's key. Incarnation and epoch tell it from every other sequence of this name; the braces have a
/// cluster keep all of a prefix in one slot.
fn key(prefix: &str, info: &SequenceInfo) -> String {
    let Identity { incarnation, epoch } = info.identity;
    format!("{{{prefix}}}:w:{incarnation:x}:{epoch}:{}", info.name)
}

#[cfg(test)]
mod tests {
    use idmill::SequenceName;

    use super::*;

    fn info(name: &str, next: Option<u64>) -> SequenceInfo {
        let (name, bounds) = (SequenceName::new(name).unwrap(), Bounds::new(1, 1_000_000).unwrap());
        SequenceInfo::stored(name, next, bounds, Identity { incarnation: 255, epoch: 2 })
    }

    #[test]
    fn a_key_tells_what_it_is_of() {
        assert_eq!(key("idmill", &info("order s", None)), "{idmill}:w:ff:2:order s");
    }

    #[test]
    fn a_ceiling_is_near_where_others_may_have_come_to_it() {
        let known = Known::of(&info("s", Some(1)), "p", None);
        assert!(!known.near(1_000_000, 10), "its own end");
        assert!(known.near(10_000, 10) && !known.near(10_001, 10));
        assert!(Known::of(&info("s", None), "p", None).near(10_001, 10), "exhausted");
    }
}
