//! What the windows on caches count. Nothing is decided by it.

use std::time::Duration;

use std::sync::atomic::{AtomicU64, Ordering};

/// The work of a window on a cache since it was made, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowStats<N = u64> {
    /// Connections opened; 0 where they are not counted.
    pub connections: N,
    /// Commands or scripts sent. Those that are sent together count once.
    pub round_trips: N,
    /// Ranges put into an empty window, which others waited for, or handed out past it.
    pub refills: N,
    /// Ranges put into a window before it was empty, so nobody waited.
    pub ahead: N,
    /// Draws that waited for another client's refill.
    pub waits: N,
    /// Ids that were reserved for a refill but fit neither the window nor its caller: a gap. This happens
    /// only at the end of a sequence, or if another client reserves from the store directly, sets the
    /// sequence, or raises its max.
    pub abandoned: N,
    /// Ids that may have been drawn for a caller that got no answer: a gap, or handed out to another caller.
    pub uncertain: N,
}

/// The same as they are counted.
pub type Counts = WindowStats<Count>;

impl Counts {
    /// As they are now.
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
    /// Adds so many, and returns how many there were.
    // Relaxed, and so is the reading: a count orders nothing, and pairs with nothing.
    pub fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::Relaxed)
    }

    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Ids under way to a caller, counted if it stops waiting or never hears.
    pub fn doubt(&self, ids: u64) -> Doubt<'_> {
        Doubt { count: self, ids }
    }
}

/// See [`Count::doubt`].
#[derive(Debug)]
pub struct Doubt<'a> {
    count: &'a Count,
    /// None, once it is known that nothing was drawn, or that the caller has it.
    pub ids: u64,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.count.add(self.ids);
    }
}

/// That a refill came after its claim, which is called `claim`, had expired, and would do so again and again.
pub fn late(claim: &str, took: Duration, lives: Duration, ids: u64) -> String {
    let reason = format!(
        "the store behind took {took:.1?} for a refill, and the {claim} lives for {lives:?}: {ids} ids are a gap. \
         The next one lives longer than that; set the option `stub` above what the store takes"
    );
    tracing::warn!(reason, "a window was refilled too late");
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_whose_caller_never_hears_are_counted() {
        let count = Count::default();
        drop(count.doubt(3));
        count.doubt(4).ids = 0;
        assert_eq!(count.read(), 3);
    }
}
