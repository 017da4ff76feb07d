//! A ledger of granted ids, to detect duplicates and lost ids.

use idmill::store::Grant;
use idmill::{ErrorKind, IdRange, Result};

/// Granted ranges, and the number of ids whose reserve has an unknown outcome.
#[derive(Default)]
pub(crate) struct Ledger {
    ranges: Vec<IdRange>,
    pub(crate) doubtful: u64,
}

impl Ledger {
    pub(crate) fn note(&mut self, count: u64, reply: &Result<Grant>) {
        match reply {
            Ok(grant) => self.ranges.push(grant.range),
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => self.doubtful += count,
            Err(_) => {}
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.ranges.extend(other.ranges);
        self.doubtful += other.doubtful;
    }

    /// Asserts that no two ranges overlap. Returns the number of granted ids.
    pub(crate) fn disjoint(&mut self) -> u64 {
        self.ranges.sort_by_key(IdRange::start);
        for pair in self.ranges.windows(2) {
            assert!(!pair[0].overlaps(&pair[1]), "handed out twice: {pair:?}");
        }
        self.ranges.iter().map(IdRange::len).sum()
    }

    /// Returns whether this id was granted.
    pub(crate) fn reaches(&self, id: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(id))
    }

    /// Asserts that every id from 1 to `max` was granted once, except ids of reserves with an unknown
    /// outcome.
    pub(crate) fn accounts_for(&mut self, max: u64) {
        let granted = self.disjoint();
        assert!(self.ranges.iter().all(|range| range.start() >= 1 && range.end() <= u128::from(max) + 1));
        assert!(
            granted + self.doubtful >= max,
            "{granted} of {max} ids, and {} in doubt: ids were lost",
            self.doubtful
        );
    }
}
