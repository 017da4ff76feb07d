//! The results of a soak.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use idmill_testing::fleet::{Fleet, Recorder, Totals, Waits};

use crate::plan::Fault;

/// The memory of each server over time, in KiB.
#[derive(Debug)]
pub(crate) struct Memory(Vec<Vec<u64>>);

impl Memory {
    pub(crate) fn of(servers: usize) -> Self {
        Self(vec![Vec::new(); servers])
    }

    pub(crate) fn look(&mut self, fleet: &Fleet) {
        for (at, seen) in self.0.iter_mut().enumerate() {
            // A server that was just killed has no memory to record.
            seen.extend(fleet.at(at, |server| server.rss()).filter(|rss| *rss > 0));
        }
    }

    /// Returns the maximum of each third of the time.
    fn thirds(&self, at: usize) -> [u64; 3] {
        let seen = &self.0[at];
        let third = seen.len().div_ceil(3).max(1);
        let mut largest = seen.chunks(third).map(|part| part.iter().copied().max().unwrap_or(0));
        std::array::from_fn(|_| largest.next().unwrap_or(0))
    }
}

pub(crate) struct Figures {
    pub(crate) name: &'static str,
    pub(crate) lasted: Duration,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) next: u64,
    /// The sums over servers that had an orderly end.
    pub(crate) ended: Totals,
    pub(crate) waits: Arc<Waits>,
    pub(crate) befell: [u32; Fault::NAMES.len()],
    pub(crate) memory: Memory,
}

impl Figures {
    /// Prints the figures.
    ///
    /// # Panics
    /// If a guarantee was violated.
    pub(crate) fn hold(&self) {
        let count = self.recorder.none_twice_and_in_order();
        let missing = self.recorder.missing(self.next);
        let waits = &self.waits;
        let read = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Relaxed);
        println!(
            "{}: {count} ids in {:.0?}, {:.0}/s, none twice; next is {}, so {missing} are gaps ({:.2} %)",
            self.name,
            self.lasted,
            count as f64 / self.lasted.as_secs_f64(),
            self.next,
            missing as f64 * 100.0 / self.next as f64,
        );
        println!(
            "  {} requests, {:.4} % answered within 1 s, the longest wait {} ms; {} refused, {} connections broken",
            read(&waits.requests),
            waits.availability() * 100.0,
            read(&waits.worst),
            read(&waits.refused),
            read(&waits.broken),
        );
        let befell = Fault::NAMES.iter().zip(self.befell).map(|(name, times)| format!("{times} {name}"));
        println!("  {}", befell.collect::<Vec<_>>().join(", "));
        println!("  of the servers that ended in order: {:?}", self.ended);
        for at in 0..self.memory.0.len() {
            let [first, second, third] = self.memory.thirds(at).map(|kib| kib / 1024);
            println!("  server {at}: at most {first} MiB in the first third, then {second} and {third}");
        }
        let other: Vec<_> =
            waits.said.lock().iter().filter(|said| !is_transient(said)).take(5).cloned().collect();
        assert!(other.is_empty(), "{}: permanent errors: {other:#?}", self.name);
        let [first, _, third] = self.memory.thirds(0);
        assert!(third <= first * 3 / 2 + 16 * 1024, "memory grew from {first} to {third} KiB");
        assert!(count > 1000, "a test of nothing");
    }
}

/// Returns whether the same request may succeed later, or its outcome is unknown.
fn is_transient(said: &str) -> bool {
    ["-TRYAGAIN", "-UNKNOWN", "-CLOSED", "-ERR max number", "503", "504"]
        .iter()
        .any(|code| said.starts_with(code))
}
