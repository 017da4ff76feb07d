//! The published scheme, kept for comparison. It puts the durable count into the cache after a miss, and
//! repeats an id under the schedule of these tests. The window repeats no id under the same schedule.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use idmill::store::{MemoryStore, Store};
use idmill_testing::engines::Engine;

use crate::bench::{Issued, Raw, draw, gated, key, request, server, tier};
use crate::gate::Gate;

/// A process of the published scheme. Other processes may act between any two calls of its methods.
struct Published {
    cache: Raw,
    /// Represents the row in the durable store. Every call increments it in a transaction before it draws,
    /// so the count is never below the ids that were handed out.
    durable: Arc<AtomicU64>,
}

impl Published {
    async fn new(server: &Engine, durable: &Arc<AtomicU64>) -> Self {
        Self { cache: Raw::open(server).await, durable: durable.clone() }
    }

    fn count_durably(&self) {
        self.durable.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns an id, or `None` if the count is missing in the cache.
    async fn increment(&mut self) -> Option<u64> {
        let (line, value) = self.cache.ask("ma published D1 v").await;
        (line != "NF").then(|| value.parse().unwrap())
    }

    fn read_durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    /// Puts the count into the cache if it is missing there. Returns whether the count was missing.
    async fn add_if_absent(&mut self, count: u64) -> bool {
        let count = count.to_string();
        let (line, _) = self.cache.ask(&format!("ms published {} ME\r\n{count}", count.len())).await;
        line == "HD"
    }

    async fn evict(&mut self) {
        assert_eq!(self.cache.ask("md published").await.0, "HD");
    }
}

#[tokio::test]
async fn published_scheme_repeats_an_id() {
    let server = server!();
    let durable = Arc::new(AtomicU64::new(0));
    let mut p0 = Published::new(&server, &durable).await;
    let mut p1 = Published::new(&server, &durable).await;
    // Both processes begin while the cache is cold.
    p0.count_durably();
    assert_eq!(p0.increment().await, None);
    p1.count_durably();
    let read_by_p0 = p0.read_durable();
    assert_eq!(p1.increment().await, None);
    assert!(p0.add_if_absent(read_by_p0).await);
    // P1 reads the count, and is paused before it uses the count.
    let read_by_p1 = p1.read_durable();
    assert_eq!((read_by_p0, read_by_p1), (2, 2));
    let first = p0.increment().await;
    // P0 begins another call. The count is evicted, and P1 puts its outdated count into the cache.
    p0.count_durably();
    p0.evict().await;
    assert!(p1.add_if_absent(read_by_p1).await);
    let second = p0.increment().await;
    assert_eq!((first, second), (Some(3), Some(3)), "the hole in the published scheme");
}

/// The same schedule with the window: a cold cache, evictions, and two callers, one of them paused before
/// its put.
#[tokio::test]
async fn window_repeats_no_id_where_the_published_scheme_does() {
    leaves_ours_unharmed(&server!(), MemoryStore::new()).await;
}

/// Runs the schedule over any store.
pub(crate) async fn leaves_ours_unharmed(server: &Engine, store: impl Store + Clone + 'static) {
    let (mut gate0, mut gate1) = (Gate::before(server.address()).await, Gate::before(server.address()).await);
    let through = |gate: &Gate| Arc::new(tier(&store, gated(gate, 100)));
    let (p0, p1) = (through(&gate0), through(&gate1));
    let (a, b) = (p0.clone(), p1.clone());
    let mut issued = Issued::default();
    // Both processes draw while the cache is cold, and both miss.
    let first = tokio::spawn(async move { draw(&a, 1).await });
    gate0.pass("ma").await;
    let paused = tokio::spawn(async move { draw(&b, 1).await });
    gate1.pass("ma").await;
    let look_of_p1 = gate1.expect("mg").await;
    // P0 puts its stub first, reserves, and draws its first id.
    gate0.pass("mg").await;
    gate0.pass("ms").await;
    let first = first.await.unwrap();
    issued.add(first);
    // After an eviction, P1 wins, reserves, and is paused before it installs its block.
    let mut operator = Raw::open(server).await;
    let key = key(&store).await;
    operator.evict(&key).await.unwrap();
    look_of_p1.pass();
    let install_of_p1 = gate1.expect("ms").await;
    // P1's stub is evicted. P0 calls again, wins, and draws.
    operator.evict(&key).await.unwrap();
    gate0.open();
    let second = draw(&p0, 1).await;
    issued.add(second);
    // P1 continues: its put is rejected, and it draws from the current window.
    gate1.open();
    install_of_p1.pass();
    let late = paused.await.unwrap();
    issued.add(late);
    let third = draw(&p0, 1).await;
    issued.add(third);
    assert!(first.start() < second.start() && second.start() < late.start() && late.start() < third.start());
    assert_eq!((second.start(), p1.abandoned()), (201, 100), "P1's block is a gap, and counted");
    // After one more eviction, P1 still draws a larger id.
    operator.evict(&key).await.unwrap();
    let after = p1.reserve(&request(1)).await.unwrap().range;
    assert!(after.start() > third.start());
}
