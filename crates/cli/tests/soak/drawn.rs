//! The ids that were drawn from a store, and the ids that a raise skipped.

use std::collections::BTreeSet;
use std::ops::Range;

use idmill_guard::Ledger;

pub(crate) struct Drawn {
    name: &'static str,
    ids: BTreeSet<u64>,
    /// The ids that were drawn without the guard.
    unguarded: BTreeSet<u64>,
    raises: Vec<Raise>,
}

/// A raise that the store has confirmed.
struct Raise {
    /// No id of this range was reserved at the last look before the raise.
    skipped: Range<u64>,
    /// The processes that may have reserved ids of the range between the look and the raise.
    earlier: BTreeSet<u32>,
}

impl Drawn {
    pub(crate) fn of(name: &'static str) -> Self {
        Self { name, ids: BTreeSet::new(), unguarded: BTreeSet::new(), raises: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns the first id above all drawn and skipped ids.
    pub(crate) fn top(&self) -> u64 {
        let skipped = self.raises.iter().map(|raise| raise.skipped.end);
        skipped.chain(self.ids.last().map(|last| last + 1)).max().unwrap_or(1)
    }

    /// Notes that these ids are in use elsewhere. Only the processes in `earlier` may still draw them, until
    /// each has drawn a higher id.
    pub(crate) fn skip(&mut self, skipped: Range<u64>, earlier: BTreeSet<u32>) {
        self.raises.push(Raise { skipped, earlier });
    }

    /// Adds an id, drawn by the process with this number, or by a command.
    ///
    /// # Panics
    /// If the id is a duplicate, or was skipped.
    pub(crate) fn add(&mut self, process: Option<u32>, id: u64) {
        let name = self.name;
        assert!(self.ids.insert(id), "{name}: {id} was handed out twice, at last by {process:?}");
        for Raise { skipped, earlier } in &mut self.raises {
            let may = process.is_some_and(|process| earlier.contains(&process));
            assert!(
                may || !skipped.contains(&id),
                "{name}: {process:?} drew {id}, but a raise skipped {skipped:?}"
            );
            // A process draws its ids in ascending order.
            if may && id >= skipped.end {
                earlier.retain(|earlier| Some(*earlier) != process);
            }
        }
    }

    /// Adds an id that was drawn without the guard.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    pub(crate) fn add_unguarded(&mut self, id: u64) {
        self.add(None, id);
        self.unguarded.insert(id);
    }

    /// Asserts that the witness has a claim of each id that was drawn with the guard.
    pub(crate) fn are_claimed(&self, ledger: &Ledger) {
        let Ok(floor) = u64::try_from(ledger.floor) else { return };
        let is_claimed =
            |id: u64| ledger.claims.iter().any(|claim| claim.start() <= id && u128::from(id) < claim.end());
        let lost = self.ids.range(floor..).find(|id| !self.unguarded.contains(id) && !is_claimed(**id));
        assert_eq!(lost, None, "{}: the witness has no claim of a drawn id: {ledger:?}", self.name);
    }
}
