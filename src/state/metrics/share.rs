//! Which sequences have series of their own: those in trouble, then the busiest. The others share one series
//! per metric.

use std::cmp::Ordering as By;
use std::time::Duration;

use metrics::SharedString;

use super::{Count, Levels, read, report, unreported};
use crate::state::core::Core;
use crate::state::snapshot::Health;
use crate::state::stats::COUNTS;
use crate::sync::{Arc, Ordering};

/// Maximum number of sequences with series of their own. With about 30 series each, more would take a scrape
/// of many megabytes.
const MOST: usize = 1000;
/// The label of all other sequences together.
const OTHERS: &str = "(others)";
/// A sequence replaces another one only if it is busier by this factor. Otherwise, equally busy sequences
/// would replace each other at each scrape, and a recorder keeps the series of all.
const BUSIER: f64 = 2.0;

/// Decides whether a new sequence has series of its own, by the number of sequences that are open before it.
pub(crate) fn opening(core: &Core, open: usize) {
    set(core, open < MOST);
}

pub(super) fn has_own(core: &Core) -> bool {
    // Relaxed: between two reports of a sequence, any of the two series is right.
    !core.among_others.load(Ordering::Relaxed)
}

fn set(core: &Core, own: bool) {
    core.among_others.store(!own, Ordering::Relaxed);
}

pub(super) fn label(core: &Core) -> SharedString {
    if has_own(core) { Arc::<str>::from(core.name.clone()).into() } else { OTHERS.into() }
}

/// Records the metrics of all open sequences, as of `now` by the actor's clock.
pub(crate) fn record_all(cores: &[Arc<Core>], now: Duration) {
    let mut ranked: Vec<_> = cores.iter().map(|core| (rank(core, now), core)).collect();
    if ranked.len() > MOST {
        ranked.select_nth_unstable_by(MOST - 1, |a, b| before(a.0, b.0));
    }
    let (own, others) = ranked.split_at(ranked.len().min(MOST));
    let had_others = own.iter().any(|(_, core)| !has_own(core));
    for (_, core) in own {
        set(core, true);
        report(core, now);
    }
    if !others.is_empty() {
        record_others(others.iter().map(|(_, core)| &***core), now);
    } else if had_others {
        Levels::NOTHING.set(&OTHERS.into());
    }
}

/// Whether the sequence is in trouble, and how busy it is.
type Rank = (bool, f64);

fn rank(core: &Core, now: Duration) -> Rank {
    let snapshot = crate::state::snapshot::Snapshot::of(core, now);
    (snapshot.health() != Health::Serving, busyness(snapshot.rate, has_own(core)))
}

fn busyness(rate: f64, has_own: bool) -> f64 {
    let inertia = if has_own { BUSIER } else { 1.0 };
    // The rate of an idle sequence is 0, and its own series are kept too.
    (rate + f64::MIN_POSITIVE) * inertia
}

/// Sequences in trouble come first, then the busiest.
fn before(a: Rank, b: Rank) -> By {
    b.0.cmp(&a.0).then(b.1.total_cmp(&a.1))
}

fn record_others<'a>(others: impl Iterator<Item = &'a Core>, now: Duration) {
    let (mut sums, mut levels) = ([(Count("", None), 0); COUNTS], Levels::NOTHING);
    for core in others {
        if has_own(core) {
            // Its last levels must not stay.
            Levels::NOTHING.set(&label(core));
            set(core, false);
        }
        let (counts, now) = read(core, now);
        for (at, (counter, count)) in counts.into_iter().enumerate() {
            sums[at] = (counter, sums[at].1 + unreported(core, at, count));
        }
        levels = levels.and(Levels::of(&now));
    }
    let label = OTHERS.into();
    for (counter, more) in sums {
        counter.increment(&label, more);
    }
    levels.set(&label);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_comes_before_any_rate() {
        let mut all = [(false, 5.0), (true, 0.0), (false, 9.0), (true, 1.0)];
        all.sort_by(|a, b| before(*a, *b));
        assert_eq!(all, [(true, 1.0), (true, 0.0), (false, 9.0), (false, 5.0)]);
    }

    #[test]
    fn series_go_to_a_sequence_that_is_twice_as_busy() {
        for (rate, owned, other) in [(5.0, 9.9, 10.1), (0.0, 0.0, 0.1)] {
            let own = busyness(rate, true);
            assert!(own > busyness(owned, false) && own < busyness(other, false), "{rate}");
        }
    }
}
