//! If the watermark covers the store's latency, no caller ever waits.

use super::{Case, Verdict};

pub(crate) fn check(case: &Case<'_>) -> Verdict {
    if !case.world.plan.calm {
        return Ok(());
    }
    // The first call must wait: it fills memory before the callers begin.
    let waited = case.history.left.iter().find(|left| left.snapshot.waits > 1);
    waited.map_or(Ok(()), |left| Err(format!("a caller waited: {:?}", left.snapshot)))
}
