//! Two servers behind one address, which leads to one of them: as a name does that was moved
//! to another machine, and back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idmill::store::{MemoryStore, Store};
use idmill::tier::memcached::MemcachedOptions;
use idmill::{Allocator, Sequences};

use crate::bench::{Issued, Raw, Tier, key, left, name, server, tier};
use crate::switch::Switch;

const BLOCK: u64 = 40;

/// One process: its tier, its sequence, and what it drew last.
struct Process {
    tier: Arc<Tier>,
    _ids: Sequences,
    sequence: Allocator<u64>,
    last: u64,
}

impl Process {
    async fn new(store: &MemoryStore, switch: &Switch) -> Self {
        let options = MemcachedOptions::new(switch.address.to_string()).block(BLOCK).max_skip(None);
        let tier = Arc::new(tier(store, options));
        let ids = Sequences::new(tier.clone() as Arc<dyn Store>).unwrap();
        let sequence = ids.sequence::<u64>(name().as_str()).step(1).watermark(0).await.unwrap();
        Self { tier, _ids: ids, sequence, last: 0 }
    }

    async fn draw(&mut self, issued: &mut Issued) {
        let id = self.sequence.next().await.unwrap();
        assert!(id > self.last, "{id} after {} in one process", self.last);
        assert!(issued.0.insert(id), "{id} was handed out twice");
        self.last = id;
    }
}

#[tokio::test]
async fn a_window_whose_address_leads_to_another_server_and_back_goes_on_and_says_so() {
    let (one, other) = (server!(), server!());
    let switch = Switch::to(one.address()).await;
    let (store, mut issued) = (MemoryStore::new(), Issued::default());
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
    let (key, began) = (key(&store).await, Instant::now());
    // A refill ahead of need may be under way: its ids are nowhere yet.
    loop {
        let mut there = 0;
        for server in [&one, &other] {
            let (_, number) = Raw::open(server).await.ask(&format!("mg {key} v")).await;
            there += left(&number);
        }
        let (moves, abandoned) = (sum(Tier::moves), sum(Tier::abandoned));
        let uncertain = sum(|tier| tier.uncertain() + tier.window().stats().uncertain);
        let granted = store.inspect(&name()).await.unwrap().unwrap().next.unwrap() - 1;
        // A draw that a move cut off may have been carried out.
        let whole = (granted - uncertain..=granted).contains(&(60 + abandoned + there));
        if whole || began.elapsed() > Duration::from_secs(30) {
            println!(
                "{moves} moves: {granted} granted, 60 handed out, {abandoned} abandoned, {there} left, \
                 {uncertain} uncertain"
            );
            assert!(moves >= 4 && abandoned >= moves, "each return is counted, and what it costs");
            assert!(whole, "each id is accounted for");
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
