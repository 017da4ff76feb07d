//! Two servers behind one address that leads to one of them, as in `memcached/moves`.

use idmill_conformance::Proxy;
use idmill_testing::faulty::FaultyStore;
use idmill_testing::switch::{Process, back_and_forth};

use crate::server::start;
use crate::window::{Tier, tier_at};

#[tokio::test]
async fn window_serves_and_counts_moves_between_servers() {
    let (Some(one), Some(other)) = (start(&[]).await, start(&[]).await) else { return };
    let switch = Proxy::start(one.address()).await.unwrap();
    let store = FaultyStore::new();
    let process = async || Process::new(tier_at(&store, switch.address(), 0), "s").await;
    let mut processes = [process().await, process().await];
    let issued = back_and_forth(&switch, [one.address(), other.address()], &mut processes).await;
    assert_eq!(issued, 60, "both processes draw after each move");
    let sum = |of: fn(&Tier) -> u64| processes.iter().map(|process| of(&process.store)).sum::<u64>();
    let (moves, abandoned) = (sum(Tier::moves), sum(Tier::abandoned));
    println!("{moves} moves, {abandoned} abandoned");
    // After a move back, the window has ids below those of the other server.
    assert!(moves >= 4 && abandoned >= moves, "{moves} moves, {abandoned} abandoned: each is counted");
}
