//! What the tests of several stores ask of the ranges that were granted.

pub mod reserving;

use idmill::IdRange;
use idmill::store::Grant;

/// Panics if an id is in two of the ranges; returns how many ids there are.
pub fn disjoint(grants: &[Grant]) -> u64 {
    let mut ranges: Vec<_> = grants.iter().map(|grant| grant.range).collect();
    ranges.sort_by_key(IdRange::start);
    for pair in ranges.windows(2) {
        assert!(!pair[0].overlaps(&pair[1]), "{pair:?}");
    }
    ranges.iter().map(IdRange::len).sum()
}
