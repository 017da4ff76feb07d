//! A process has at most one reserve of a sequence in flight.

use super::{Case, Verdict};

pub(crate) fn check(case: &Case<'_>) -> Verdict {
    match case.history.crowded.first() {
        None => Ok(()),
        Some(tick) => Err(format!("two reserves under way at tick {tick}")),
    }
}
