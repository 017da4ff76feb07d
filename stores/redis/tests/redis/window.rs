//! The window on Redis, with faults of its server.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Bounds, Change, Reserve, Store};
use idmill::{ErrorKind, Result, SequenceName};
use idmill_conformance::free_port;
use idmill_kit::WindowView as _;
use idmill_redis::window::{RedisWindow, RedisWindowOptions};
use idmill_shared_cache::Tiered;
use idmill_testing::engines::Engine;
use idmill_testing::faulty::{Faults, FaultyStore};

use crate::server::{ask, cut_off, follow, info, pair, promote, start, until};

pub(crate) type Tier = Tiered<Arc<dyn Store>, RedisWindow>;

const BLOCK: u64 = 100;
const KEYS: &str = "{idmill}:w:*";

fn tier(store: &FaultyStore, engine: &Engine, replicas: u32) -> Tier {
    tier_at(store, engine.address(), replicas)
}

pub(crate) fn tier_at(store: &FaultyStore, address: SocketAddr, replicas: u32) -> Tier {
    let options = RedisWindowOptions::new(&address.to_string()).unwrap();
    let options = options.block(BLOCK).max_skip(None).replicas(replicas);
    // A draw reaches the timeout only if a required replica is gone, so keep it short.
    let timeout = if replicas > 0 { 10 } else { 20 };
    let options = options.stub(Duration::from_secs(2)).timeout(Duration::from_secs(timeout));
    Tiered::new(Arc::new(store.clone()), RedisWindow::new(options).unwrap())
}

fn request(count: u64) -> Reserve {
    let name = SequenceName::new("s").unwrap();
    Reserve::new(name, count).create(Bounds::new(1, u64::MAX).unwrap())
}

async fn draw(tier: &Tier) -> Result<u64> {
    tier.reserve(&request(1)).await.map(|grant| grant.range.start())
}

/// Ids that were handed out, without duplicates.
#[derive(Default)]
struct Seen(BTreeSet<u64>);

impl Seen {
    async fn draw(&mut self, tier: &Tier, times: usize) {
        for _ in 0..times {
            // The first draw on a broken connection may have an unknown outcome.
            if let Ok(id) = draw(tier).await {
                assert!(self.0.insert(id), "{id} was handed out before");
            }
        }
    }
}

/// The window ends with its last installed range, even if this range is only prepared.
#[tokio::test]
async fn window_end_includes_prepared_range_of_this_server_only() {
    let Some(engine) = start(&[]).await else { return };
    let store = FaultyStore::new();
    let tier = tier(&store, &engine, 0);
    let mut prepared = 0;
    for _ in 0..3 * BLOCK {
        let id = draw(&tier).await.unwrap();
        let stored = store.inspect(&request(1).name).await.unwrap().unwrap();
        let end = tier.window().end(&stored).await.unwrap().expect("it has ids");
        let reached = store.inspect(&stored.name).await.unwrap().unwrap().reached();
        assert!(
            end > u128::from(id) && end <= reached,
            "expected id {id} < window end {end} <= stored {reached}"
        );
        let key = ask(&engine, &["KEYS", KEYS]);
        let following = ask(&engine, &["HMGET", &key, "nbase", "nlen"]);
        if let Some((base, len)) = following.split_once('\n').filter(|(base, _)| !base.starts_with('$')) {
            let [base, len] = [base, len].map(|number| number.parse::<u128>().unwrap());
            assert_eq!(tier.window().end(&stored).await.unwrap(), Some(base + len));
            prepared += 1;
        }
    }
    assert!(prepared > 0, "a range was prepared");
    let stored = store.inspect(&request(1).name).await.unwrap().unwrap();
    ask(&engine, &["HSET", &ask(&engine, &["KEYS", KEYS]), "fence", "another"]);
    assert_eq!(tier.window().end(&stored).await.unwrap(), None);
}

/// The replica's window is older than the draws from its master.
#[tokio::test]
async fn a_stale_replica_that_is_promoted_repeats_nothing() {
    let Some((master, replica)) = pair().await else { return };
    let (store, mut seen) = (FaultyStore::new(), Seen::default());
    let old = tier(&store, &master, 0);
    seen.draw(&old, 10).await;
    until("the window is replicated", &ask(&master, &["KEYS", KEYS]), || ask(&replica, &["KEYS", KEYS]));
    cut_off(&replica);
    let key = ask(&replica, &["KEYS", KEYS]);
    let used = ask(&replica, &["HGET", &key, "used"]);
    seen.draw(&old, 10).await;
    promote(&replica);
    assert_eq!(ask(&replica, &["HGET", &key, "used"]), used, "the replica's window is stale");
    let new = tier(&store, &replica, 0);
    // No id is repeated while the old master continues.
    for _ in 0..30 {
        seen.draw(&new, 5).await;
        seen.draw(&old, 5).await;
    }
    assert_eq!(seen.0.len(), 320);
}

/// The old master has the same run id as before, but its window is older than later draws.
#[tokio::test]
async fn a_master_that_was_a_replica_meanwhile_repeats_nothing() {
    let Some((master, replica)) = pair().await else { return };
    let (store, mut seen) = (FaultyStore::new(), Seen::default());
    let first = tier(&store, &master, 0);
    seen.draw(&first, 10).await;
    until("the window is replicated", &ask(&master, &["KEYS", KEYS]), || ask(&replica, &["KEYS", KEYS]));
    cut_off(&replica);
    let key = ask(&replica, &["KEYS", KEYS]);
    let (run, stale) = (info(&master, "run_id"), ask(&replica, &["HGET", &key, "used"]));
    seen.draw(&first, 10).await;
    promote(&replica);
    follow(&master, &replica);
    promote(&master);
    assert_eq!(info(&master, "run_id"), run);
    assert_eq!(ask(&master, &["HGET", &key, "used"]), stale, "the window is older than the last draw");
    let again = tier(&store, &master, 0);
    seen.draw(&again, 200).await;
    seen.draw(&first, 200).await;
    assert!(seen.0.len() >= 419, "{}", seen.0.len());
}

/// The server restarts with an old snapshot.
#[tokio::test]
async fn server_restarted_on_an_old_snapshot_repeats_no_id() {
    let Some(engine) = start(&["--appendonly", "no"]).await else { return };
    let (store, mut seen) = (FaultyStore::new(), Seen::default());
    let tier = tier(&store, &engine, 0);
    seen.draw(&tier, 10).await;
    assert_eq!(ask(&engine, &["SAVE"]), "+OK");
    seen.draw(&tier, 10).await;
    engine.kill();
    engine.restart().await;
    until("it is loaded", "0", || info(&engine, "loading"));
    assert!(ask(&engine, &["KEYS", KEYS]).contains("{idmill}:w:"), "the old window is there");
    seen.draw(&tier, 200).await;
    assert!(seen.0.len() >= 219);
}

#[tokio::test]
async fn ids_grow_across_processes_and_a_replicated_failover() {
    let Some((master, replica)) = pair().await else { return };
    let store = FaultyStore::new();
    let tiers = [tier(&store, &master, 1), tier(&store, &master, 1)];
    let mut last = 0;
    for n in 0..250 {
        let id = draw(&tiers[n % 2]).await.unwrap();
        assert!(id > last, "{id} after {last}");
        last = id;
    }
    cut_off(&replica);
    until("the master lost the replica", "0", || info(&master, "connected_slaves"));
    let error = draw(&tiers[0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    promote(&replica);
    let id = draw(&tier(&store, &replica, 0)).await.unwrap();
    assert!(id > last, "{id} after {last}");
}

#[tokio::test]
async fn a_claimant_that_died_costs_one_claims_life() {
    let Some(engine) = start(&["--appendonly", "no"]).await else { return };
    let store = FaultyStore::new();
    let tier = tier(&store, &engine, 0);
    assert_eq!(draw(&tier).await.unwrap(), 1);
    let key = ask(&engine, &["KEYS", KEYS]);
    // Simulate the claim of a process that has ended.
    let fence = format!("{}:{}", info(&engine, "run_id"), info(&engine, "master_replid"));
    ask(&engine, &["DEL", &key]);
    ask(&engine, &["HSET", &key, "fence", &fence, "token", "7"]);
    ask(&engine, &["PEXPIRE", &key, "500"]);
    assert_eq!(draw(&tier).await.unwrap(), BLOCK + 1, "the ids of the deleted window are a gap");
    assert_eq!(ask(&engine, &["HGET", &key, "token"]), "$-1");
    let life = ask(&engine, &["TTL", &key]);
    assert!(life.trim_start_matches(':').parse::<u64>().unwrap() > 3600, "{life}");
}

/// The first refill arrives after its claim has expired, and returns an error that names the cause. The next
/// claim lives longer.
#[tokio::test]
async fn store_slower_than_a_claim_costs_one_reported_block() {
    let Some(engine) = start(&["--appendonly", "no"]).await else { return };
    let store = FaultyStore::with_faults(Faults::none().latency(Duration::from_secs(4)));
    let tier = tier(&store, &engine, 0);
    let error = draw(&tier).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let message = error.to_string();
    assert!(message.contains("`stub`") && message.contains("100 ids became a gap"), "{message}");
    assert_eq!((tier.abandoned(), tier.uncertain()), (BLOCK, 0));
    assert_eq!(draw(&tier).await.unwrap(), BLOCK + 1);
    assert_eq!(store.reserves(), 2, "the second claim outlived its refill");
    let granted = store.inspect(&request(1).name).await.unwrap().unwrap().next;
    assert_eq!(granted, Some(BLOCK + 2), "only the requested ids are reserved until a claim succeeds");
}

#[tokio::test]
async fn set_empties_the_window() {
    let Some(engine) = start(&["--appendonly", "no"]).await else { return };
    let store = FaultyStore::new();
    let tiers = [tier(&store, &engine, 0), tier(&store, &engine, 0)];
    assert_eq!(draw(&tiers[0]).await.unwrap(), 1);
    assert_eq!(draw(&tiers[1]).await.unwrap(), 2);
    let change = Change::new().next(5000);
    tiers[0].set(&request(1).name, change).await.unwrap();
    assert_eq!(draw(&tiers[1]).await.unwrap(), 5000);
    engine.kill();
    let error = tiers[0].set(&request(1).name, change.next(6000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    assert!(error.to_string().contains("repeat the change"), "{error}");
}

#[tokio::test]
async fn unreachable_window_is_unavailable_and_reserves_nothing() {
    let store = FaultyStore::new();
    let Some(engine) = Engine::set("redis", free_port(), &[]) else { return };
    let tier = tier(&store, &engine, 0);
    assert_eq!(draw(&tier).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(store.inspect(&request(1).name).await.unwrap().unwrap().next, Some(1));
}

/// All reserved ids are handed out, including the last ones, and ids above one caller's ceiling go to
/// others.
#[tokio::test]
async fn nothing_is_lost_at_the_end_nor_at_a_ceiling() {
    let Some(engine) = start(&["--appendonly", "no"]).await else { return };
    let tier = tier(&FaultyStore::new(), &engine, 0);
    let low = request(7).ceiling(120).create(Bounds::new(1, 250).unwrap());
    let high = low.clone().ceiling(u64::MAX);
    let mut ids = BTreeSet::new();
    for request in [&low, &high] {
        let error = loop {
            match tier.reserve(request).await {
                Ok(grant) => assert!(grant.range.iter().all(|id| ids.insert(id))),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    }
    assert_eq!(ids, (1..=250).collect());
}
