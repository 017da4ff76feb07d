//! The key of a sequence's window, and the bound on ids that other processes may have reserved.

use idmill::store::{Identity, SequenceInfo};

/// How many blocks others are assumed to have reserved since the last read of the store.
pub(super) const NEAR: u64 = 1_000;

/// The key of the hash. Incarnation and epoch distinguish it from every other sequence of this name. The
/// braces put all keys of a prefix into one cluster slot.
pub(super) fn key(prefix: &str, info: &SequenceInfo) -> String {
    let Identity { incarnation, epoch } = info.identity;
    format!("{{{prefix}}}:w:{incarnation:x}:{epoch}:{}", info.name)
}

#[cfg(test)]
mod tests {
    use idmill::SequenceName;
    use idmill::store::Bounds;
    use idmill_shared_cache::known::Known;

    use super::*;

    fn info(name: &str, next: Option<u64>) -> SequenceInfo {
        let (name, bounds) = (SequenceName::new(name).unwrap(), Bounds::new(1, 1_000_000).unwrap());
        SequenceInfo::stored(name, next, bounds, Identity { incarnation: 255, epoch: 2 })
    }

    #[test]
    fn key_contains_prefix_identity_and_name() {
        assert_eq!(key("idmill", &info("order s", None)), "{idmill}:w:ff:2:order s");
    }

    #[test]
    fn ceiling_is_near_if_other_processes_may_reach_it() {
        let known = |next| Known::of(&info("s", next), "k".to_owned(), None);
        let near = |next, ceiling| known(next).near(ceiling, 10 * NEAR);
        assert!(!near(Some(1), 1_000_000), "its own end");
        assert!(near(Some(1), 10_000) && !near(Some(1), 10_001));
        assert!(near(None, 10_001), "exhausted");
    }
}
