//! Statistics of the windows on caches. No decision depends on them.

use std::time::Duration;

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a window on a cache, for this process and since the window was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowStats<N = u64> {
    /// Attempts to connect; 0 if they are not counted.
    pub connections: N,
    /// Commands or scripts sent. A pipelined batch counts once.
    pub round_trips: N,
    /// Ranges installed into an empty window while others waited, or handed out without the window.
    pub refills: N,
    /// Ranges whose refill began before the window was empty, so that callers waited less.
    pub ahead: N,
    /// How many times a draw waited for another client's refill.
    pub waits: N,
    /// Reserved ids that fit neither the window nor its caller: a gap. This happens at the end of a sequence,
    /// or if another client reserves only the ids that it needs, reserves from the store directly, sets the
    /// sequence, or raises its max.
    pub abandoned: N,
    /// Ids that may have been drawn for a caller that got no reply; they are a gap, or another caller has
    /// them.
    pub uncertain: N,
}

/// The live counters of [`WindowStats`].
pub type Counts = WindowStats<Count>;

impl Counts {
    /// Returns the current values.
    pub fn stats(&self) -> WindowStats {
        WindowStats {
            connections: self.connections.read(),
            round_trips: self.round_trips.read(),
            refills: self.refills.read(),
            ahead: self.ahead.read(),
            waits: self.waits.read(),
            abandoned: self.abandoned.read(),
            uncertain: self.uncertain.read(),
        }
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `n` and returns the previous value.
    // Relaxed, as in `read`: no other data depends on a statistic.
    pub fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::Relaxed)
    }

    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Tracks ids on their way to a caller. They are counted if the caller stops waiting or gets no reply.
    pub fn doubt(&self, ids: u64) -> Doubt<'_> {
        Doubt { count: self, ids }
    }
}

/// See [`Count::doubt`].
#[derive(Debug)]
pub struct Doubt<'a> {
    count: &'a Count,
    /// 0 once it is known that nothing was drawn, or that the caller has the ids.
    pub ids: u64,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.count.add(self.ids);
    }
}

/// Reports a refill that arrived after its `claim` had expired. This process's next claim lives longer, up to
/// 10 minutes.
pub fn late(claim: &str, took: Duration, lives: Duration, ids: u64) -> String {
    let reason = format!(
        "a refill took {took:.1?}, longer than the {claim} ({lives:?}): {ids} ids became a gap; set a \
         longer `stub`"
    );
    tracing::warn!(reason, "a window was refilled too late");
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_dropped_callers_are_counted_as_gaps() {
        let count = Count::default();
        drop(count.doubt(3));
        count.doubt(4).ids = 0;
        assert_eq!(count.read(), 3);
    }
}
