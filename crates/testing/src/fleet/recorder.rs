//! Records every id that clients receive, in little memory, and compares them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Ids of one page of the set: 4 KiB of bits.
const PAGE: u64 = 1 << 15;
const WORDS: usize = (PAGE / 64) as usize;
/// Maximum number of draws that are kept, to report the first receiver of a duplicate.
const KEPT: usize = 200_000;
/// Maximum number of draws per server that are kept, to compare later draws with.
const COMPARED: usize = 4096;
/// Maximum number of faults that are kept.
const FAULTS: usize = 20;

/// Ids as bits: 9 MiB for an hour at 20,000 ids per second.
#[derive(Debug, Default)]
struct Ids(BTreeMap<u64, Box<[u64; WORDS]>>);

impl Ids {
    /// Returns whether the id was new.
    fn insert(&mut self, id: u64) -> bool {
        let page = self.0.entry(id / PAGE).or_insert_with(|| Box::new([0; WORDS]));
        let (word, bit) = ((id % PAGE / 64) as usize, 1 << (id % 64));
        let new = page[word] & bit == 0;
        page[word] |= bit;
        new
    }

    fn contains(&self, id: u64) -> bool {
        let word = (id % PAGE / 64) as usize;
        self.0.get(&(id / PAGE)).is_some_and(|page| page[word] & (1 << (id % 64)) != 0)
    }
}

/// A range that a client received, with its server, connection and times.
#[derive(Clone, Copy, Debug)]
struct Draw {
    server: u32,
    #[allow(dead_code)] // shown in the report of a duplicate
    connection: u32,
    first: u64,
    last: u64,
    /// Times since the recorder began: the request was sent after `before`, and the range arrived by
    /// `after`.
    before: Duration,
    after: Duration,
}

#[derive(Debug, Default)]
struct Seen {
    ids: Ids,
    count: u64,
    largest: u64,
    recent: VecDeque<Draw>,
    /// For each server, times with the largest id received by each time. Times and ids grow.
    done: HashMap<u32, VecDeque<(Duration, u64)>>,
    faults: Vec<String>,
}

impl Seen {
    fn fault(&mut self, text: impl FnOnce() -> String) {
        if self.faults.len() < FAULTS {
            self.faults.push(text());
        }
    }

    fn note(&mut self, draw: Draw) {
        for id in draw.first..=draw.last {
            if !self.ids.insert(id) {
                let earlier = self.recent.iter().find(|other| (other.first..=other.last).contains(&id));
                let earlier = earlier.copied();
                self.fault(|| format!("{id} was returned twice: {draw:?} after {earlier:?}"));
            }
        }
        self.compare(draw);
        self.count += draw.last - draw.first + 1;
        self.largest = self.largest.max(draw.last);
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(draw);
    }

    /// Ids that a server handed out before this request was sent must be smaller.
    fn compare(&mut self, draw: Draw) {
        let done = self.done.entry(draw.server).or_default();
        let earlier = done.partition_point(|(after, _)| *after < draw.before);
        let largest = earlier.checked_sub(1).map(|at| done[at].1);
        let by_now = done.back().map_or(draw.last, |(_, last)| draw.last.max(*last));
        done.push_back((draw.after, by_now));
        if done.len() > COMPARED {
            done.pop_front();
        }
        if largest.is_some_and(|largest| draw.first <= largest) {
            self.fault(|| {
                format!("{draw:?} is not above {largest:?}, which the same server had returned before")
            });
        }
    }
}

/// The ids that all clients of one sequence received.
#[derive(Debug)]
pub struct Recorder {
    begun: Instant,
    connections: AtomicU32,
    seen: Mutex<Seen>,
}

impl Recorder {
    #[allow(clippy::new_ret_no_self)] // clients of many tasks share it
    pub fn new() -> Arc<Self> {
        let (connections, seen) = (AtomicU32::new(0), Mutex::default());
        Arc::new(Self { begun: Instant::now(), connections, seen })
    }

    /// Registers a new connection to this server. Servers are identified by process.
    pub fn connection(self: &Arc<Self>, server: u32) -> Connection {
        // Relaxed: the numbers only identify connections.
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        Connection { recorder: self.clone(), server, number, last: None }
    }

    /// Number of ids that clients received.
    pub fn count(&self) -> u64 {
        self.seen.lock().count
    }

    pub fn largest(&self) -> u64 {
        self.seen.lock().largest
    }

    pub fn has(&self, id: u64) -> bool {
        self.seen.lock().ids.contains(id)
    }

    /// The faults found so far.
    pub fn faults(&self) -> Vec<String> {
        self.seen.lock().faults.clone()
    }

    /// Checks that no id is a duplicate, and that the ids of each connection grow. An id must also be larger
    /// than all ids of the same server that arrived before the request. Returns the number of ids.
    ///
    /// # Panics
    /// If a check fails.
    pub fn none_twice_and_in_order(&self) -> u64 {
        let faults = self.faults();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        self.count()
    }

    /// Number of ids from 1 up to, but not including, `next` that no client received.
    ///
    /// # Panics
    /// If a client received a larger id.
    pub fn missing(&self, next: u64) -> u64 {
        let seen = self.seen.lock();
        assert!(seen.largest < next, "{} was handed out, but next is {next}", seen.largest);
        next - 1 - seen.count
    }
}

/// One connection of a client, which records the ids it receives.
#[derive(Debug)]
pub struct Connection {
    recorder: Arc<Recorder>,
    server: u32,
    number: u32,
    last: Option<u64>,
}

impl Connection {
    /// Records a range that has arrived and was requested at this time.
    pub fn given(&mut self, first: u64, last: u64, asked: Instant) {
        assert!(first <= last, "{first} to {last}");
        let mut seen = self.recorder.seen.lock();
        // Read the time under the lock, so that draws are recorded in the order of their times.
        let after = self.recorder.begun.elapsed();
        let before = asked.saturating_duration_since(self.recorder.begun);
        let draw = Draw { server: self.server, connection: self.number, first, last, before, after };
        if self.last.is_some_and(|last| first <= last) {
            seen.fault(|| {
                format!("{draw:?} is not above the earlier {:?} of the same connection", self.last)
            });
        }
        self.last = Some(last);
        seen.note(draw);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(draws: &[(u32, u64, u64)]) -> Vec<String> {
        let recorder = Recorder::new();
        for (server, first, last) in draws {
            recorder.connection(*server).given(*first, *last, Instant::now());
        }
        recorder.faults()
    }

    #[test]
    fn duplicates_are_found_on_every_page() {
        assert_eq!(faults(&[(0, 1, 10), (1, 11, PAGE * 3), (0, PAGE * 3 + 1, PAGE * 3 + 1)]), [""; 0]);
        for id in [1, 63, 64, PAGE - 1, PAGE, PAGE * 2 + 77] {
            let found = faults(&[(0, 1, PAGE * 3), (1, id, id)]);
            assert!(
                matches!(&found[..], [one] if one.starts_with(&format!("{id} was returned twice"))),
                "{found:?}"
            );
        }
    }

    #[test]
    fn decreasing_id_is_found_per_server_and_per_connection() {
        assert_eq!(faults(&[(0, 10, 20), (1, 1, 9)]), [""; 0], "another server");
        assert!(faults(&[(0, 10, 20), (0, 1, 9)])[0].contains("the same server"));
        let recorder = Recorder::new();
        let (asked, mut connection) = (Instant::now(), recorder.connection(0));
        connection.given(10, 20, asked);
        connection.given(1, 9, asked);
        assert!(recorder.faults()[0].contains("the same connection"));
        assert_eq!((recorder.faults().len(), recorder.count(), recorder.missing(25)), (1, 20, 4));
    }
}
