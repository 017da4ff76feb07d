//! Snapshots of the sequences for the page: one per second while it has readers.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use idmill::{Gaps, Health, HealthReport, Snapshot};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{self, sleep, timeout};

use crate::readiness::{Readiness, Standing};
use crate::sequences::{Open, OpenSequence, OpenSequences, is_soon};

/// Interval of snapshots while the page has readers.
const EVERY: Duration = Duration::from_secs(1);
/// Interval at which troubles are recorded while the page has no readers.
const UNREAD: Duration = Duration::from_secs(10);
/// Maximum number of rows: sequences in trouble first, then by name.
pub(crate) const MOST: usize = 5000;
/// How long snapshots continue after the last request.
const UNWATCHED: Duration = Duration::from_secs(60);
/// Number of snapshots over which a rate is measured.
const LOOKS: usize = 6;
/// Number of latencies that are kept per sequence.
const LATENCIES: usize = 100;
/// The largest possible id.
const CEILING: u64 = i64::MAX.unsigned_abs();

/// The last snapshot, and the history for the next one.
#[derive(Debug)]
pub(crate) struct ServerStatus {
    pub(crate) about: About,
    /// The sequences in trouble, each with the time at which the trouble was first seen.
    troubles: Mutex<HashMap<String, SystemTime>>,
    histories: Mutex<HashMap<String, History>>,
    latest: watch::Sender<Arc<Look>>,
    /// When the page was last requested.
    asked: Mutex<Option<time::Instant>>,
    /// Notified when the first reader arrives.
    came: Notify,
}

/// Facts that do not change while the server runs.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) started: Instant,
    /// The host name and the HTTP port, as far as they are known. Operators distinguish servers by this
    /// name.
    pub(crate) name: String,
    /// The store's URL, without secrets.
    pub(crate) store: Option<String>,
    /// Free places for clients, out of `most`.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) most: usize,
}

/// A snapshot of the server.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) at: SystemTime,
    /// Why the server is not ready, as `/readyz` reports it.
    pub(crate) fault: Option<&'static str>,
    /// Number of open sequences. At most [`MOST`] of them have a row.
    pub(crate) open: usize,
    pub(crate) rows: Vec<Row>,
}

/// A snapshot of one sequence.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) health: Health,
    /// Why the sequence is in trouble; `None` if it is not.
    pub(crate) reason: Option<String>,
    /// When the current failure was first detected.
    pub(crate) since: Option<SystemTime>,
    /// Reserves that failed since the last grant.
    pub(crate) failures: u64,
    /// Failed draws per second; `None` in the first snapshot.
    pub(crate) failing: Option<f64>,
    pub(crate) last: Option<u64>,
    /// Ids per second; `None` in the first snapshot.
    pub(crate) rate: Option<f64>,
    pub(crate) remaining: u64,
    pub(crate) reached: Option<u64>,
    pub(crate) waiting: usize,
    pub(crate) to_empty: Option<Duration>,
    /// The median and the 99th percentile of sampled durations of recent reserves.
    pub(crate) latency: Option<[Duration; 2]>,
    pub(crate) gaps: Gaps,
    /// The reserved part of the sequence, 0 to 1.
    pub(crate) used: Option<f64>,
    pub(crate) to_exhaustion: Option<Duration>,
}

impl Row {
    /// Returns whether the sequence is served, and ends soon.
    pub(crate) fn ends_soon(&self) -> bool {
        self.health > Health::Empty && self.to_exhaustion.is_some_and(is_soon)
    }
}

impl ServerStatus {
    pub(crate) fn new(about: About) -> Self {
        let nothing = Look { at: SystemTime::now(), fault: None, open: 0, rows: Vec::new() };
        let latest = watch::Sender::new(Arc::new(nothing));
        let (troubles, histories, asked, came) = Default::default();
        Self { about, troubles, histories, latest, asked, came }
    }

    #[cfg(test)]
    pub(crate) fn of_nothing() -> Self {
        let places = Arc::new(Semaphore::new(1));
        Self::new(About { started: Instant::now(), name: String::new(), store: None, places, most: 1 })
    }

    /// Returns the last snapshot, or takes one if the page had no readers.
    pub(crate) fn latest(&self, draws: &OpenSequences, readiness: &Readiness) -> Arc<Look> {
        let before = self.asked.lock().replace(time::Instant::now());
        if before.is_none_or(|before| before.elapsed() > UNWATCHED) && self.latest.receiver_count() == 0 {
            self.look(draws, readiness);
            self.came.notify_one();
        }
        self.latest.borrow().clone()
    }

    /// Returns a receiver of snapshots. A slow reader gets only the latest snapshot.
    pub(crate) fn watch(&self, draws: &OpenSequences, readiness: &Readiness) -> watch::Receiver<Arc<Look>> {
        self.latest(draws, readiness);
        self.latest.subscribe()
    }

    fn is_watched(&self) -> bool {
        let lately = |asked: time::Instant| asked.elapsed() <= UNWATCHED;
        self.latest.receiver_count() > 0 || self.asked.lock().is_some_and(lately)
    }

    /// Takes a snapshot every second while the page has readers. Troubles are recorded even without
    /// readers.
    pub(crate) async fn keep(&self, draws: &OpenSequences, readiness: &Readiness) {
        // Give the store time for its first answer, which the first snapshot shows.
        readiness.standing(&draws.sequences).await;
        loop {
            if self.is_watched() {
                self.look(draws, readiness);
            } else {
                self.histories.lock().clear();
                self.note(&draws.sequences.health(), SystemTime::now());
                if timeout(UNREAD, self.came.notified()).await.is_err() {
                    continue;
                }
            }
            // The first reader has just taken a snapshot, and a rate needs some time between two
            // snapshots.
            sleep(EVERY).await;
        }
    }

    /// Notes the troubles of a report.
    fn note(&self, report: &HealthReport, now: SystemTime) {
        let mut known = self.troubles.lock();
        let mut before = std::mem::take(&mut *known);
        known.extend(report.troubles.iter().map(|trouble| {
            let name = trouble.name.to_string();
            let since = before.remove(&name).unwrap_or(now);
            (name, since)
        }));
    }

    fn look(&self, draws: &OpenSequences, readiness: &Readiness) {
        let Standing { fault, report } = readiness.standing_now(&draws.sequences);
        self.note(&report, SystemTime::now());
        let mut troubles: BTreeMap<_, _> =
            report.troubles.iter().map(|trouble| (trouble.name.as_str(), trouble)).collect();
        let (open, served) = {
            let open = draws.open.read();
            (open.len(), shown(&open, &troubles))
        };
        let (mut before, now) = (std::mem::take(&mut *self.histories.lock()), Instant::now());
        let (rows, histories) = served
            .iter()
            .map(|served| {
                let name = served.allocator.name();
                let mut history = before.remove(name).unwrap_or_default();
                let mut row = history.row(served, now);
                if let Some(trouble) = troubles.remove(name) {
                    (row.health, row.reason) = (trouble.health, Some(trouble.error.to_string()));
                    row.since = self.troubles.lock().get(name).copied();
                }
                (row, (name.to_owned(), history))
            })
            .unzip();
        *self.histories.lock() = histories;
        let look = Look { at: SystemTime::now(), fault, open, rows };
        self.latest.send_replace(Arc::new(look));
    }
}

/// Returns the sequences of a snapshot: sequences in trouble, then the other sequences, each group ordered
/// by name.
fn shown<T>(open: &Open, troubles: &BTreeMap<&str, T>) -> Vec<Arc<OpenSequence>> {
    let first = troubles.keys().filter_map(|name| open.get(*name));
    let others = open.iter().filter(|(name, _)| !troubles.contains_key(name.as_str()));
    first.chain(others.map(|(_, served)| served)).take(MOST).cloned().collect()
}

/// Returns open sequences that match the search but are not in the snapshot. Their rates are unknown,
/// because a rate needs several snapshots.
pub(crate) fn left_out(draws: &OpenSequences, look: &Look, search: &str) -> Vec<Row> {
    if look.open <= look.rows.len() || search.is_empty() {
        return Vec::new();
    }
    let (now, shown) = (Instant::now(), look.rows.iter().map(|row| &*row.name).collect::<HashSet<_>>());
    let is_found = |name: &str| !shown.contains(name) && name.to_lowercase().contains(search);
    let open = draws.open.read();
    let found = open.iter().filter(|(name, _)| is_found(name)).take(MOST);
    found.map(|(_, served)| History::default().row(served, now)).collect()
}

/// Earlier figures of one sequence.
#[derive(Debug, Default)]
struct History {
    drawn: VecDeque<(Instant, u64)>,
    failed: VecDeque<(Instant, u64)>,
    reserves: u64,
    latencies: VecDeque<Duration>,
}

impl History {
    fn row(&mut self, served: &OpenSequence, now: Instant) -> Row {
        let snapshot = served.allocator.snapshot();
        self.note(&snapshot, now);
        push(&mut self.failed, (now, served.failed()), LOOKS);
        let rate = rate(&self.drawn);
        let lasts = |ids: u64| Duration::try_from_secs_f64(ids as f64 / rate?).ok();
        let bounds = snapshot.bounds.zip(snapshot.reached);
        let bounds = bounds.map(|(bounds, reached)| (bounds.start(), bounds.max().min(CEILING), reached));
        Row {
            name: served.allocator.name().to_owned(),
            health: snapshot.health(),
            reason: None,
            since: None,
            failures: snapshot.failures_in_a_row,
            failing: self::rate(&self.failed),
            last: served.last().map(i64::unsigned_abs),
            rate,
            remaining: snapshot.remaining,
            reached: snapshot.reached,
            waiting: served.waiting(),
            to_empty: lasts(snapshot.remaining),
            latency: self.latency(),
            gaps: snapshot.gaps,
            used: bounds.map(|(start, max, reached)| share(start, reached, max)),
            to_exhaustion: bounds.and_then(|(_, max, reached)| {
                lasts(max.saturating_sub(reached).saturating_add(snapshot.remaining))
            }),
        }
    }

    fn note(&mut self, snapshot: &Snapshot, now: Instant) {
        // The count is smaller if the sequence was evicted and reopened.
        if self.drawn.back().is_some_and(|(_, drawn)| *drawn > snapshot.drawn) {
            *self = Self::default();
        }
        push(&mut self.drawn, (now, snapshot.drawn), LOOKS);
        if snapshot.reserves != self.reserves {
            self.reserves = snapshot.reserves;
            if let Some(latency) = snapshot.latency {
                push(&mut self.latencies, latency, LATENCIES);
            }
        }
    }

    fn latency(&self) -> Option<[Duration; 2]> {
        let mut sorted: Vec<_> = self.latencies.iter().copied().collect();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        Some([sorted[last / 2], sorted[last * 99 / 100]])
    }
}

/// Returns the growth of a count per second.
fn rate(counts: &VecDeque<(Instant, u64)>) -> Option<f64> {
    let ((from, before), (to, now)) = (counts.front()?, counts.back()?);
    let seconds = to.duration_since(*from).as_secs_f64();
    // A reopened sequence counts from 0.
    (seconds > 0.0).then(|| now.saturating_sub(*before) as f64 / seconds)
}

fn push<T>(queue: &mut VecDeque<T>, value: T, most: usize) {
    if queue.len() == most {
        queue.pop_front();
    }
    queue.push_back(value);
}

/// Returns the reserved part of `start..=max`, where `reached` is the last reserved id.
fn share(start: u64, reached: u64, max: u64) -> f64 {
    let length = |to: u64| to.saturating_sub(start) as f64 + 1.0;
    (length(reached) / length(max)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_covers_the_recent_samples_and_falls_to_zero() {
        let (mut history, start) = (History::default(), Instant::now());
        let mut at = |second: u64, drawn| {
            push(&mut history.drawn, (start + Duration::from_secs(second), drawn), LOOKS);
            rate(&history.drawn)
        };
        assert_eq!(at(0, 0), None);
        assert_eq!(at(1, 100), Some(100.0));
        assert_eq!(at(2, 300), Some(150.0));
        for second in 3..8 {
            at(second, 300);
        }
        assert_eq!(at(8, 300), Some(0.0));
        assert_eq!(at(9, 0), Some(0.0), "opened again");
    }

    #[tokio::test(start_paused = true)]
    async fn status_is_sampled_only_while_watched() {
        let state = crate::state::ServerState::of_memory(crate::access::Access::open());
        let orders = state.draws.find("orders").await.unwrap();
        orders.next(time::Instant::now() + UNWATCHED).await.unwrap();
        let seconds = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        let (status, rows) = (&state.status, || state.status.latest.borrow().rows.len());
        let observing = status.keep(&state.draws, &state.readiness);
        tokio::select! {
            () = observing => {}
            () = async {
                seconds(10).await;
                assert_eq!(rows(), 0, "nobody watches");
                assert_eq!(state.status.latest(&state.draws, &state.readiness).rows.len(), 1, "the first request takes a snapshot");
                state.draws.find("users").await.unwrap();
                seconds(5).await;
                assert_eq!(rows(), 2);
                let watches = state.status.watch(&state.draws, &state.readiness);
                state.draws.find("more").await.unwrap();
                seconds(100).await;
                assert_eq!(rows(), 3);
                drop(watches);
                seconds(100).await;
                state.draws.find("last").await.unwrap();
                seconds(10).await;
                assert_eq!(rows(), 3, "nobody watches any more");
            } => {}
        }
    }

    /// A snapshot has no rows for sequences that were opened later or are beyond the maximum.
    #[tokio::test(start_paused = true)]
    async fn search_finds_sequences_without_a_row() {
        let state = crate::state::ServerState::of_memory(crate::access::Access::open());
        state.draws.find("alpha").await.unwrap();
        let mut look = Arc::unwrap_or_clone(state.status.latest(&state.draws, &state.readiness));
        for name in ["Beta", "alphabet"] {
            state.draws.find(name).await.unwrap();
        }
        let names = |look: &Look, search: &str| {
            let found = left_out(&state.draws, look, search).into_iter();
            found.map(|row| row.name).collect::<Vec<_>>()
        };
        assert!(names(&look, "bet").is_empty(), "the snapshot has all sequences");
        look.open = 3;
        assert_eq!(names(&look, "alpha"), ["alphabet"]);
        assert_eq!(names(&look, "bet"), ["Beta", "alphabet"]);
        assert!(names(&look, "").is_empty() && names(&look, "gamma").is_empty());
    }

    #[test]
    fn latency_is_the_median_and_the_99th_percentile() {
        let mut history = History::default();
        assert_eq!(history.latency(), None);
        for millis in 1..=150 {
            push(&mut history.latencies, Duration::from_millis(millis), LATENCIES);
        }
        let [half, most] = history.latency().unwrap().map(|latency| latency.as_millis());
        assert_eq!((half, most), (100, 149), "of 51 to 150");
    }

    #[test]
    fn used_share_counts_from_the_start_of_the_sequence() {
        assert!((share(1, 50, 100) - 0.5).abs() < 1e-9);
        assert!((share(1001, 1010, 1100) - 0.1).abs() < 1e-9);
        assert!((share(0, u64::MAX, CEILING) - 1.0).abs() < 1e-9);
    }

    #[tokio::test]
    async fn row_estimates_how_long_ids_last() {
        let state = crate::state::ServerState::of_memory(crate::access::Access::open());
        let served = state.draws.find("s").await.unwrap();
        let (mut history, start) = (History::default(), Instant::now());
        assert_eq!(history.row(&served, start).to_empty, None);
        let _ids = served.take(100, time::Instant::now() + UNWATCHED).await.unwrap();
        let row = history.row(&served, start + Duration::from_secs(10));
        assert_eq!(row.rate, Some(10.0));
        assert_eq!(row.to_empty, Some(Duration::from_secs_f64(row.remaining as f64 / 10.0)));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_served_sequence_ends_soon() {
        let state = crate::state::ServerState::of_memory(crate::access::Access::open());
        state.draws.find("s").await.unwrap();
        let mut row = state.status.latest(&state.draws, &state.readiness).rows[0].clone();
        assert!(!row.ends_soon(), "it lasts");
        row.to_exhaustion = Some(Duration::from_secs(60));
        for (health, ends) in
            [(Health::Serving, true), (Health::Failing, true), (Health::Empty, false), (Health::Ended, false)]
        {
            row.health = health;
            assert_eq!(row.ends_soon(), ends, "{health}");
        }
    }
}
