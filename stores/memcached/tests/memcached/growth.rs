//! Tests that ids are unique and grow in real time through evictions and restarts, and that every reserved
//! id is accounted for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idmill::IdRange;
use idmill::store::{MemoryStore, Store};
use idmill_testing::engines::Engine;
use idmill_testing::{Wait, eventually};
use tokio::task::JoinSet;

use crate::bench::{Issued, Raw, Tier, draw, key, left, name, options, server, tier};

const BLOCK: u64 = 50;

/// Draws on all tiers concurrently. An id must be larger than any id that was returned, on any tier, before
/// it was requested.
struct Load {
    tiers: Vec<Arc<Tier>>,
    tasks: JoinSet<Vec<IdRange>>,
    progress: Arc<Progress>,
}

#[derive(Debug)]
struct Progress {
    /// The total number of draws of all tiers.
    all: u64,
    draws: AtomicU64,
    /// The largest returned id.
    returned: AtomicU64,
}

impl Progress {
    fn is_done(&self) -> bool {
        self.draws.load(Ordering::SeqCst) == self.all
    }

    /// Waits until `draws` more draws, or all draws, are served. So the test does not depend on the speed of
    /// the store.
    async fn after(&self, draws: u64) {
        let until = self.draws.load(Ordering::SeqCst) + draws;
        let wait = Wait::new("more draws are served");
        while self.draws.load(Ordering::SeqCst) < until && !self.is_done() {
            wait.again(&self.draws).await;
        }
    }
}

impl Load {
    fn start<S: Store + Clone + 'static>(server: &Engine, store: &S, tiers: u64, draws: u64) -> Self {
        let all = tiers * draws;
        let progress = Arc::new(Progress { all, draws: AtomicU64::new(0), returned: AtomicU64::new(0) });
        let tiers: Vec<_> = (0..tiers).map(|_| Arc::new(tier(store, options(server, BLOCK)))).collect();
        let mut tasks = JoinSet::new();
        for (n, tier) in (0..).zip(&tiers) {
            tasks.spawn(grow(tier.clone(), progress.clone(), draws, n));
        }
        Self { tiers, tasks, progress }
    }

    /// Waits until the load has ended. Returns all ids that were handed out, and the tiers.
    async fn end(mut self) -> (Issued, Vec<Arc<Tier>>) {
        let mut issued = Issued::default();
        while let Some(ranges) = self.tasks.join_next().await {
            ranges.unwrap().into_iter().for_each(|range| issued.add(range));
        }
        (issued, self.tiers)
    }
}

async fn grow(tier: Arc<Tier>, progress: Arc<Progress>, draws: u64, seed: u64) -> Vec<IdRange> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut ranges = Vec::new();
    for _ in 0..draws {
        let before = progress.returned.load(Ordering::SeqCst);
        let range = draw(&tier, random.u64(1..=5)).await;
        assert!(range.start() > before, "{range:?} was requested after {before} was returned");
        progress.returned.fetch_max(range.last().unwrap(), Ordering::SeqCst);
        progress.draws.fetch_add(1, Ordering::SeqCst);
        ranges.push(range);
    }
    ranges
}

/// Returns the number of ids that the store has granted so far.
async fn granted(store: &impl Store) -> u64 {
    let info = store.inspect(&name()).await.unwrap().unwrap();
    info.next.unwrap() - info.bounds.start()
}

#[tokio::test(flavor = "multi_thread")]
async fn eviction_skips_only_the_rest_of_a_block() {
    let times = evictions(&server!(), MemoryStore::new(), 400).await;
    assert!(times > 20, "{times} evictions");
}

/// Runs eight clients with `draws` draws each while the window is evicted. Returns the number of evictions.
pub(crate) async fn evictions(server: &Engine, store: impl Store + Clone + 'static, draws: u64) -> u32 {
    draw(&tier(&store, options(server, BLOCK)), 1).await;
    let (mut operator, key) = (Raw::open(server).await, key(&store).await);
    let load = Load::start(server, &store, 8, draws);
    let progress = load.progress.clone();
    let evictor = tokio::spawn(async move {
        let (mut evicted, mut times, mut random) = (0, 0_u32, fastrand::Rng::with_seed(7));
        while !progress.is_done() {
            if let Some(number) = operator.evict(&key).await {
                evicted += left(&number);
                times += 1;
            }
            progress.after(random.u64(0..8)).await;
            tokio::time::sleep(Duration::from_micros(random.u64(0..3_000))).await;
        }
        (evicted, times, operator, key)
    });
    let (issued, tiers) = load.end().await;
    let (evicted, times, mut operator, key) = evictor.await.unwrap();
    let sum = |of: fn(&Tier) -> u64| tiers.iter().map(|tier| of(tier)).sum::<u64>();
    let handed_out = issued.len() + 1;
    let mut rest = 0;
    // Retry, because the ids of an early refill in progress are not counted yet.
    let abandoned = eventually("each id is accounted for", async || {
        rest += operator.evict(&key).await.map_or(0, |number| left(&number));
        let abandoned = sum(|tier| tier.abandoned() + tier.window().stats().abandoned);
        let reserved = granted(&store).await;
        let equal = reserved == handed_out + evicted + abandoned + rest;
        if equal { Ok(abandoned) } else { Err((reserved, handed_out, evicted, abandoned, rest)) }
    })
    .await;
    let uncertain = sum(|tier| tier.uncertain() + tier.window().stats().uncertain);
    println!(
        "{times} evictions: {handed_out} handed out, {evicted} evicted, {abandoned} abandoned, {rest} left"
    );
    assert_eq!(uncertain, 0, "no connection was lost");
    times
}

#[tokio::test(flavor = "multi_thread")]
async fn server_restarts_repeat_no_id_and_keep_ids_growing() {
    let server = server!();
    let store = MemoryStore::new();
    let load = Load::start(&server, &store, 8, 1_500);
    let mut restarts = 0;
    while !load.tasks.is_empty() && restarts < 12 {
        tokio::time::sleep(Duration::from_millis(40)).await;
        server.kill();
        server.restart().await;
        restarts += 1;
    }
    let (issued, tiers) = load.end().await;
    let lost: u64 = tiers.iter().map(|tier| tier.window().stats().connections).sum::<u64>() - 8;
    println!("{restarts} restarts, {lost} connections made anew: {} handed out", issued.len());
    assert!(lost > 8, "the restarts were noticed {lost} times");
    assert!(issued.len() > 12_000);
}
