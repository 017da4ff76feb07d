//! Measures the round trips per id.

use std::sync::Arc;

use idmill::store::MemoryStore;
use idmill::{Order, Sequences};
use tokio::task::JoinSet;

use crate::bench::{Issued, Tier, draw, options, server, tier};

/// Draws `draws` ids one by one on each tier, with all tiers concurrently. Returns the ids and the total
/// round trips, except waits for another caller's refill: the number of these waits depends on timing.
async fn each(tiers: &[Arc<Tier>], draws: u64) -> (Issued, u64) {
    let mut tasks = JoinSet::new();
    for tier in tiers {
        let tier = tier.clone();
        tasks.spawn(async move {
            let mut ranges = Vec::new();
            for _ in 0..draws {
                ranges.push(draw(&tier, 1).await);
            }
            ranges
        });
    }
    let mut issued = Issued::default();
    for range in tasks.join_all().await.into_iter().flatten() {
        issued.add(range);
    }
    let stats = tiers.iter().map(|tier| tier.window().stats());
    (issued, stats.map(|stats| stats.round_trips - stats.waits).sum())
}

#[tokio::test(flavor = "multi_thread")]
async fn id_needs_about_one_round_trip() {
    let server = server!();
    for (clients, most) in [(1, 1.1), (4, 1.5), (16, 1.5)] {
        let store = MemoryStore::new();
        let tiers: Vec<_> = (0..clients).map(|_| Arc::new(tier(&store, options(&server, 1_000)))).collect();
        let (issued, round_trips) = each(&tiers, 6_400 / clients).await;
        assert_eq!(issued.len(), 6_400);
        let ratio = round_trips as f64 / issued.len() as f64;
        println!("{clients} clients: {ratio:.3} round trips an id, {} reserves", store.reserves());
        assert!(ratio <= most, "{ratio} round trips an id for {clients} clients");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_callers_share_a_round_trip() {
    let server = server!();
    let store = Arc::new(tier(&MemoryStore::new(), options(&server, 1_000)));
    let ids = Sequences::builder(store.clone()).start().unwrap();
    let orders = ids.sequence::<u64>("orders").order(Order::Global).await.unwrap();
    // The first draw reads the sequence and fills the window.
    orders.next().await.unwrap();
    let before = store.window().stats().round_trips;
    let mut calls = JoinSet::new();
    for _ in 0..500 {
        let orders = orders.clone();
        calls.spawn(async move { orders.next().await.unwrap() });
    }
    let issued: std::collections::BTreeSet<_> = calls.join_all().await.into_iter().collect();
    let round_trips = store.window().stats().round_trips - before;
    println!("500 callers at once: {round_trips} round trips");
    assert_eq!(issued.len(), 500);
    assert!(round_trips <= 100, "{round_trips} round trips for 500 callers at once");
}
