//! Checks of granted ranges, shared by the tests of several stores.

pub mod reserving;

use idmill::IdRange;
use idmill::store::Grant;

/// Panics if an id is in two of the ranges. Returns the number of ids.
pub fn disjoint(grants: &[Grant]) -> u64 {
    let mut ranges: Vec<_> = grants.iter().map(|grant| grant.range).collect();
    ranges.sort_by_key(IdRange::start);
    for pair in ranges.windows(2) {
        assert!(!pair[0].overlaps(&pair[1]), "{pair:?}");
    }
    ranges.iter().map(IdRange::len).sum()
}
