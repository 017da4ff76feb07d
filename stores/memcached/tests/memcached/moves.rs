//! Two servers behind one address, like a DNS name that moves to another machine and back.

use idmill::store::{MemoryStore, Store};
use idmill_conformance::Proxy;
use idmill_memcached::MemcachedOptions;
use idmill_testing::switch::{Process, back_and_forth};
use idmill_testing::{eventually, holds};

use crate::bench::{Raw, Tier, key, left, name, server, tier};

const BLOCK: u64 = 40;

#[tokio::test]
async fn window_serves_and_counts_moves_between_servers() {
    let (one, other) = (server!(), server!());
    let switch = Proxy::start(one.address()).await.unwrap();
    let store = MemoryStore::new();
    let process = async || {
        let options = MemcachedOptions::new(switch.address().to_string()).block(BLOCK).max_skip(None);
        Process::new(tier(&store, options), name().as_str()).await
    };
    let mut processes = [process().await, process().await];
    let issued = back_and_forth(&switch, [one.address(), other.address()], &mut processes).await;
    assert_eq!(issued, 60, "both processes draw after each move");
    let sum = |of: fn(&Tier) -> u64| processes.iter().map(|process| of(&process.store)).sum::<u64>();
    let key = key(&store).await;
    // Retry, because the ids of an early refill in progress are not counted yet.
    eventually("each id is accounted for", async || {
        let mut there = 0;
        for server in [&one, &other] {
            let (_, number) = Raw::open(server).await.ask(&format!("mg {key} v")).await;
            there += left(&number);
        }
        let (moves, abandoned) = (sum(Tier::moves), sum(Tier::abandoned));
        let uncertain = sum(|tier| tier.uncertain() + tier.window().stats().uncertain);
        let granted = store.inspect(&name()).await.unwrap().unwrap().next.unwrap() - 1;
        // A draw that was interrupted by a move may have been executed.
        let whole = (granted - uncertain..=granted).contains(&(60 + abandoned + there));
        let seen = format!(
            "{moves} moves: {granted} granted, 60 handed out, {abandoned} abandoned, {there} left, \
             {uncertain} uncertain"
        );
        holds(whole && moves >= 4 && abandoned >= moves, seen)
    })
    .await;
}
