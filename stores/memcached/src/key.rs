//! The key of a sequence's item in the cache.

use std::fmt::Write as _;

use idmill::store::{Identity, SequenceInfo};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The layout version of the item. It is part of the key, so another version uses other keys.
const FORMAT: u32 = 2;
/// memcached's limit for keys.
pub(super) const LONGEST_KEY: usize = 250;
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// Returns the key of the item. Incarnation and epoch make it unique; the name is only for readability, and
/// may be truncated.
pub(super) fn key(prefix: &str, info: &SequenceInfo) -> String {
    let Identity { incarnation, epoch } = info.identity;
    let mut key = format!("{prefix}:{FORMAT}:{incarnation:x}:{epoch}:");
    let _ = write!(key, "{}", utf8_percent_encode(info.name.as_str(), PLAIN));
    // This cannot panic, because the key is ASCII.
    key.truncate(LONGEST_KEY);
    key
}

#[cfg(test)]
mod tests {
    use idmill::SequenceName;
    use idmill::store::Bounds;
    use proptest::prelude::*;

    use super::*;

    fn info(name: &str, incarnation: u64, epoch: u64, next: Option<u64>) -> SequenceInfo {
        let (name, bounds) = (SequenceName::new(name).unwrap(), Bounds::new(1, 1_000).unwrap());
        SequenceInfo::stored(name, next, bounds, Identity { incarnation, epoch })
    }

    #[test]
    fn key_contains_prefix_identity_and_name() {
        assert_eq!(key("idmill", &info("order s", 255, 2, None)), "idmill:2:ff:2:order%20s");
    }

    proptest! {
        #[test]
        fn keys_are_valid_and_distinct(
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
