//! One process for a year.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idmill::store::{Capabilities, Grant, Reserve, Store, StoreFuture};
use idmill::{Allocator, ErrorKind, Order, SequenceName, Sequences};
use idmill_testing::faulty::{Faults, FaultyStore};
use idmill_testing::hooked::{Hooked, Hooks};
use tokio::time::{Instant, sleep_until};

use super::Bug;
use super::observer::Observer;

/// The time between two events of a day. A probe is due at every second one, a scrape at every third one.
const STEP: u64 = 5;
/// The length of the nightly outage, and the time that a process may need to notice its end, in seconds.
const OUTAGE: u64 = 600;
const NOTICED: u64 = 120;
/// Tenants, whose sequences are opened, drawn from once, and evicted: one every 21 minutes.
const TENANTS: u64 = 30;
const TENANT: u64 = 21 * 60;

/// Counts all calls.
#[derive(Debug, Default)]
struct Counting {
    store: FaultyStore,
    calls: AtomicU64,
}

impl Counting {
    fn counted(&self) -> &FaultyStore {
        self.calls.fetch_add(1, Ordering::Relaxed);
        &self.store
    }
}

impl Hooks for Counting {
    fn inner(&self) -> &dyn Store {
        self.counted()
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, idmill::Result<Grant>> {
        self.counted().reserve(request)
    }

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<idmill::Result<Grant>>> {
        self.counted().reserve_many(requests)
    }
}

pub(super) struct Life {
    store: Arc<Hooked<Counting>>,
    ids: Sequences,
    /// Drawn from every minute: one sequence of each order.
    busy: Vec<Allocator<u64>>,
    /// Exhausted, removed from the store, and never drawn from again.
    idle: Vec<Allocator<u64>>,
    began: Instant,
    /// The length of a day, in seconds.
    day: u64,
    days: u64,
    tenant: u64,
    bug: Bug,
    leak: Vec<u64>,
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Life {
    pub(super) async fn begin(day: u64, bug: Bug) -> Self {
        let store = Arc::new(Hooked(Counting::default()));
        let ids =
            Sequences::builder(store.clone()).seed(1).idle_eviction(seconds(600)).max_age(seconds(3600));
        let ids = ids.start().expect("a runtime");
        let mut busy = Vec::new();
        for order in [Order::Process, Order::Thread, Order::Global] {
            busy.push(ids.sequence(order.as_str()).order(order).timeout(seconds(1)).await.expect("a store"));
        }
        let mut idle = Vec::new();
        for name in ["exhausted", "removed", "unused"] {
            let sequence: Allocator<u64> = ids.sequence(name).max(3).await.expect("a store");
            sequence.next().await.expect("an id");
            idle.push(sequence);
        }
        assert_eq!(idle[0].take(2).await.expect("a store").len(), 2);
        assert!(
            store.store.remove(&SequenceName::new("removed").expect("valid"), None).await.expect("a store")
        );
        let began = Instant::now();
        Self { store, ids, busy, idle, began, day, days: 0, tenant: 0, bug, leak: Vec::new() }
    }

    /// Lives through one day. Returns the number of probes that were not ready, although the store answered.
    pub(super) async fn day(&mut self) -> u64 {
        let midnight = self.began + seconds(self.days * self.day);
        self.days += 1;
        let mut unready = 0;
        for second in (0..self.day / STEP).map(|step| step * STEP) {
            let (probes, scrapes) = (second % (2 * STEP) == 0, second % (3 * STEP) == 0);
            if !probes && !scrapes {
                continue;
            }
            sleep_until(midnight + seconds(second)).await;
            self.outage(second);
            if probes && !self.is_ready() && !self.is_unreachable(second, NOTICED) {
                unready += 1;
            }
            if scrapes {
                self.ids.record_metrics();
            }
            if second % 60 == 0 {
                self.draw(second).await;
            }
        }
        unready
    }

    fn is_ready(&mut self) -> bool {
        let report = self.ids.health();
        if self.bug == Bug::ProbesLeak {
            self.leak.push(0);
        }
        report.is_ready() || self.bug != Bug::None
    }

    /// The outage begins after an eighth of the day.
    fn is_unreachable(&self, second: u64, noticed: u64) -> bool {
        (self.day / 8..self.day / 8 + OUTAGE + noticed).contains(&second)
    }

    fn outage(&self, second: u64) {
        let faults = if self.is_unreachable(second, 0) { Faults::outage() } else { Faults::none() };
        self.store.store.set_faults(faults);
    }

    async fn draw(&mut self, second: u64) {
        let is_reachable = !self.is_unreachable(second, 0);
        for busy in &self.busy {
            let drawn = busy.next().await;
            assert!(drawn.is_ok() || !is_reachable, "{drawn:?}");
        }
        if second.is_multiple_of(TENANT) && is_reachable {
            let reused = if self.bug == Bug::NewNames { u64::MAX } else { TENANTS };
            let name = format!("tenant-{}", self.tenant % reused);
            self.tenant += 1;
            let tenant = self.ids.sequence::<u64>(name).lazy().expect("valid");
            tenant.next().await.expect("an id");
        }
        if second == self.day / 2 {
            let ended = self.idle[0].next().await.expect_err("it is exhausted");
            assert_eq!(ended.kind(), ErrorKind::Exhausted);
            self.idle[1].next().await.expect_err("it was removed");
            self.ids.admin().revoke(Order::Process.as_str()).await.expect("a store");
        }
    }

    /// Returns the number of calls to the store since the last time.
    pub(super) fn calls(&self) -> u64 {
        self.store.calls.swap(0, Ordering::Relaxed)
    }

    /// Every sequence is reported as served, also an evicted one. Sequences that ended are the exception.
    pub(super) fn reports_the_truth(observer: &Observer) -> Result<(), String> {
        for (sequence, health) in observer.gauge("idmill_health") {
            let ended = ["exhausted", "removed"].contains(&sequence.as_str());
            if (health == 0.0) != ended {
                return Err(format!("`idmill_health` of {sequence} is {health}"));
            }
        }
        Ok(())
    }

    pub(super) async fn end(self) {
        self.ids.close().await;
    }
}
