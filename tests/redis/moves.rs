//! Two servers behind one address, which leads to one of them, as `memcached/moves` has it for memcached.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{MemoryStore, Store};
use idmill::tier::Tiered;
use idmill::tier::redis::{RedisWindow, RedisWindowOptions};
use idmill::{Allocator, Sequences};

use crate::server::start;
use crate::switch::Switch;

type Tier = Tiered<Arc<dyn Store>, RedisWindow>;

/// One process: its tier, its sequence, and what it drew last.
struct Process {
    tier: Arc<Tier>,
    _ids: Sequences,
    sequence: Allocator<u64>,
    last: u64,
}

impl Process {
    async fn new(store: &MemoryStore, switch: &Switch) -> Self {
        let options = RedisWindowOptions::new(&switch.address.to_string()).unwrap();
        let options = options.block(40).max_skip(None).stub(Duration::from_secs(2));
        let window = RedisWindow::new(options.timeout(Duration::from_secs(20))).unwrap();
        let tier = Arc::new(Tiered::new(Arc::new(store.clone()) as Arc<dyn Store>, window));
        let ids = Sequences::new(tier.clone() as Arc<dyn Store>).unwrap();
        let sequence = ids.sequence::<u64>("s").step(1).watermark(0).await.unwrap();
        Self { tier, _ids: ids, sequence, last: 0 }
    }

    async fn draw(&mut self, issued: &mut BTreeSet<u64>) {
        let id = self.sequence.next().await.unwrap();
        assert!(id > self.last, "{id} after {} in one process", self.last);
        assert!(issued.insert(id), "{id} was handed out twice");
        self.last = id;
    }
}

#[tokio::test]
async fn a_window_whose_address_leads_to_another_server_and_back_goes_on_and_says_so() {
    let (Some(one), Some(other)) = (start(&[]).await, start(&[]).await) else { return };
    let switch = Switch::to(one.address()).await;
    let (store, mut issued) = (MemoryStore::new(), BTreeSet::new());
    let mut processes = [Process::new(&store, &switch).await, Process::new(&store, &switch).await];
    for round in 0..6 {
        switch.move_to(if round % 2 == 0 { one.address() } else { other.address() });
        for _ in 0..5 {
            for process in &mut processes {
                process.draw(&mut issued).await;
            }
        }
    }
    assert_eq!(issued.len(), 60, "everybody goes on");
    let sum = |of: fn(&Tier) -> u64| processes.iter().map(|process| of(&process.tier)).sum::<u64>();
    let (moves, abandoned) = (sum(Tier::moves), sum(Tier::abandoned));
    println!("{moves} moves, {abandoned} abandoned");
    // Back at a server, its window has ids below those of the other.
    assert!(moves >= 4 && abandoned >= moves, "{moves} moves, {abandoned} abandoned: each is counted");
}
