//! Ids skipped by a miss, callers that wait, and windows that cannot be used.

use std::sync::Arc;
use std::time::Duration;

use idmill::ErrorKind;
use idmill::store::Store;
use idmill_conformance::free_port;
use idmill_testing::engines::Engine;
use idmill_testing::faulty::{Faults, FaultyStore};
use idmill_testing::{eventually, holds};
use tokio::task::JoinSet;

use crate::bench::{Issued, Raw, draw, key, left, options, request, server, tier};

/// Returns the number of ids that the store has granted so far.
async fn granted(store: &FaultyStore) -> u64 {
    let info = store.inspect(&request(1).name).await.unwrap();
    info.map_or(0, |info| info.next.unwrap() - info.bounds.start())
}

/// With `-C` (no cas), no range can be installed safely, so each attempt would waste a block.
#[tokio::test]
async fn server_without_cas_is_reported_and_costs_no_id() {
    let Some(server) = Engine::set("memcached", free_port(), &["-C"]) else { return };
    server.restart().await;
    let store = FaultyStore::new();
    let tier = tier(&store, options(&server, 100));
    for _ in 0..3 {
        // The stub must be deleted: otherwise the next reserve would wait for it.
        let error = tier.reserve(&request(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("-C"), "{error}");
    }
    assert_eq!((granted(&store).await, store.reserves()), (0, 0));
}

/// The first refill arrives after its stub has expired, and returns an error that names the cause. The next
/// stub lives longer.
#[tokio::test]
async fn store_slower_than_the_stub_costs_one_reported_block() {
    let server = server!();
    let store = FaultyStore::with_faults(Faults::none().latency(Duration::from_secs(4)));
    let tier = tier(&store, options(&server, 1_000));
    let error = tier.reserve(&request(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(
        error.to_string().contains("stub") && error.to_string().contains("1000 ids became a gap"),
        "{error}"
    );
    assert_eq!((tier.abandoned(), tier.uncertain()), (1_000, 0));
    assert_eq!(tier.reserve(&request(1)).await.unwrap().range.start(), 1_001);
    assert_eq!(granted(&store).await, 1_001, "only the requested ids are reserved until a claim succeeds");
    assert_eq!(tier.reserve(&request(1)).await.unwrap().range.start(), 1_002);
    assert_eq!(granted(&store).await, 2_001);
}

/// Draws at most 40 ids a second while the window is evicted repeatedly.
#[tokio::test]
async fn miss_skips_about_max_skip_of_ids_not_a_block() {
    let server = server!();
    let store = FaultyStore::new();
    let options = options(&server, 1_000).max_skip(Duration::from_secs(2));
    let tier = tier(&store, options);
    let mut operator = Raw::open(&server).await;
    let (mut evicted, mut misses) = (Vec::new(), 0);
    for n in 1..=60 {
        draw(&tier, 1).await;
        tokio::time::sleep(Duration::from_millis(25)).await;
        if n % 15 == 0 {
            let number = operator.evict(&key(&store).await).await;
            evicted.push(number.map_or(0, |number| left(&number)));
            misses += 1;
        }
    }
    let skipped: u64 = evicted.iter().sum();
    println!("{misses} misses skipped {evicted:?} ids; with blocks of 1000 it would be up to 1000 each");
    assert!(evicted.iter().all(|ids| *ids <= 160), "{evicted:?}");
    // Wait, because the ids of an early refill in progress are not counted yet.
    eventually("each id is accounted for", async || {
        let (granted, counted) = (granted(&store).await, 60 + skipped + tier.abandoned());
        holds(granted == counted, (granted, counted))
    })
    .await;
}

/// Without preparation, all callers would wait for the store at the end of each range.
#[tokio::test(flavor = "multi_thread")]
async fn callers_do_not_wait_at_the_end_of_a_range() {
    let server = server!();
    let store = FaultyStore::with_faults(Faults::none().latency(Duration::from_millis(5)));
    let tiers: Vec<_> = (0..4).map(|_| Arc::new(tier(&store, options(&server, 1_000)))).collect();
    draw(&tiers[0], 1).await;
    let mut tasks = JoinSet::new();
    for tier in &tiers {
        let tier = tier.clone();
        tasks.spawn(async move {
            let mut ranges = Vec::new();
            for _ in 0..1_000 {
                ranges.push(draw(&tier, 1).await);
                // Draw slowly enough for early refills to finish in time on a busy machine.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            ranges
        });
    }
    let mut issued = Issued::default();
    for range in tasks.join_all().await.into_iter().flatten() {
        issued.add(range);
    }
    let stats: Vec<_> = tiers.iter().map(|tier| tier.window().stats()).collect();
    let sum = |of: fn(&idmill_memcached::MemcachedStats) -> u64| stats.iter().map(of).sum::<u64>();
    let (refills, ahead, waits) =
        (sum(|stats| stats.refills), sum(|stats| stats.ahead), sum(|stats| stats.waits));
    let abandoned: u64 = tiers.iter().map(|tier| tier.abandoned()).sum();
    println!(
        "{} ids: {refills} refills of an empty window, {ahead} ahead of need, {waits} waits, {abandoned} abandoned",
        issued.len()
    );
    assert_eq!((refills, waits, abandoned), (1, 0, 0), "the first only");
    assert!(ahead >= 3, "{ahead}");
}
