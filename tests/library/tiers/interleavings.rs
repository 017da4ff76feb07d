//! Several processes on one window: random orders of their steps, with every fault.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Bounds, Reserve, Store};
use idmill::{SequenceName, Status};
use idmill_shared_cache::Tiered;
use idmill_testing::faulty::{Fault, Faults, FaultyStore};
use tokio::task::LocalSet;

use super::shelf::Shelf;

type Tier = Tiered<Arc<dyn Store>, Shelf>;

/// The ids that a run handed out, and the locations of all others.
struct Outcome {
    issued: BTreeSet<u64>,
    granted: u64,
    elsewhere: u64,
    /// Ids with unknown outcome: issued or lost.
    uncertain: u64,
}

/// One process. Each id is larger than all that were returned before the call, and none is a duplicate.
async fn process(tier: Rc<Tier>, request: Reserve, issued: Rc<Cell<BTreeSet<u64>>>, largest: Rc<Cell<u64>>) {
    for _ in 0..20 {
        let before = largest.get();
        let grant = match tier.reserve(&request).await {
            Ok(grant) => grant,
            Err(error) => {
                assert_ne!(error.status(), Status::Permanent, "{error}");
                continue;
            }
        };
        assert!(grant.range.start() > before, "{grant:?} was requested after {before} was returned");
        let mut all = issued.take();
        grant.range.iter().for_each(|id| assert!(all.insert(id), "{id} was handed out twice"));
        issued.set(all);
        largest.set(largest.get().max(grant.range.last().unwrap()));
    }
}

fn run(seed: u64, faults: u32, evictions: u32, processes: usize) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let chance = f64::from(faults) / 100.0;
    let latency = Duration::from_micros(500);
    let refusals =
        Faults::none().seed(seed).random(Fault::LostRequest, chance).random(Fault::LostReply, chance);
    let store = FaultyStore::with_faults(refusals.latency_between(Duration::ZERO, latency)).recording();
    let shelf = Shelf { evictions, ..Shelf::new(seed, faults) };
    let name = SequenceName::new("s").unwrap();
    let request = Reserve::new(name, 1 + seed % 4).create(Bounds::of::<u64>());
    let (issued, largest) = (Rc::default(), Rc::default());
    let tiers: Vec<_> = (0..processes)
        .map(|_| Rc::new(Tiered::new(Arc::new(store.clone()) as Arc<dyn Store>, shelf.clone())))
        .collect();
    let local = LocalSet::new();
    for tier in &tiers {
        local.spawn_local(process(tier.clone(), request.clone(), Rc::clone(&issued), Rc::clone(&largest)));
    }
    runtime.block_on(local);
    let granted: u64 = store.granted("s").iter().map(|grant| grant.range.len()).sum();
    let (abandoned, uncertain) = tiers.iter().fold((0, 0), |(abandoned, uncertain), tier| {
        (abandoned + tier.abandoned(), uncertain + tier.uncertain())
    });
    let elsewhere = abandoned + shelf.with(|item| item.evicted + item.lost + item.left());
    Outcome { issued: issued.take(), granted, elsewhere, uncertain }
}

#[test]
fn no_interleaving_repeats_an_id_or_steps_back() {
    let mut issued = 0;
    for seed in 0..1_500 {
        let faults = [0, 1, 5, 15][usize::try_from(seed % 4).unwrap()];
        let outcome = run(seed, faults, faults, 2 + usize::try_from(seed % 5).unwrap());
        let known = outcome.issued.len() as u64 + outcome.elsewhere;
        // If the source loses replies too, it counts grants that no caller received.
        assert!(known <= outcome.granted, "seed {seed}");
        issued += outcome.issued.len();
    }
    assert!(issued > 50_000, "only {issued} ids were drawn");
}

#[test]
fn without_lost_replies_every_id_is_accounted_for() {
    let mut elsewhere = 0;
    for seed in 0..200 {
        let outcome = run(seed, 0, 10, 4);
        assert_eq!(outcome.uncertain, 0);
        assert_eq!(outcome.granted, outcome.issued.len() as u64 + outcome.elsewhere, "seed {seed}");
        elsewhere += outcome.elsewhere;
    }
    assert!(elsewhere > 2_000, "only {elsewhere} ids were evicted");
}
