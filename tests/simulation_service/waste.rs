//! An orderly end of use costs no id: processes use a store one after the other, and each id below the next
//! one of the store was handed out.

use std::time::Duration;

use fastrand::Rng;
use idmill::store::Store;
use idmill::{Allocator, SequenceName, Sequences};
use idmill_testing::faulty::{Faults, FaultyStore};
use tokio::time::sleep;

const IDLE: Duration = Duration::from_secs(60);
const NAMES: [&str; 3] = ["s0", "s1", "s2"];
/// Step and watermark of each sequence.
const SIZES: [(u64, u64); NAMES.len()] = [(10, 0), (100, 50), (7, 7)];

/// How many ids of each sequence were handed out.
type Drawn = [u64; NAMES.len()];

/// A wrong end of use, which the check must find.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    None,
    /// The ids of an evicted sequence are discarded.
    EvictionDiscards,
    /// The ids of a closed process are discarded.
    CloseDiscards,
}

fn run(seed: u64, bug: Bug) -> Result<(), String> {
    crate::on_its_own_clock(async {
        let mut rng = Rng::with_seed(seed);
        let latency = Duration::from_millis(rng.u64(0..50));
        let store = FaultyStore::with_faults(Faults::none().latency(latency));
        let mut drawn = [0; NAMES.len()];
        for _ in 0..rng.usize(1..6) {
            process(&store, &mut rng, &mut drawn, bug).await?;
        }
        Ok(())
    })
}

/// Uses some sequences, and ends their use: by an eviction, by the end of the process, or by both.
async fn process(store: &FaultyStore, rng: &mut Rng, drawn: &mut Drawn, bug: Bug) -> Result<(), String> {
    let ids = Sequences::builder(store.clone()).idle_eviction(IDLE).start().expect("a runtime");
    for _ in 0..rng.usize(1..10) {
        let number = rng.usize(..NAMES.len());
        let sequence = open(&ids, number);
        for _ in 0..rng.usize(0..20) {
            drawn[number] += draw(&sequence, rng).await;
        }
        // Longer than an eviction, or only until no reserve is in flight.
        let is_evicted = rng.bool();
        if bug == if is_evicted { Bug::EvictionDiscards } else { Bug::CloseDiscards } {
            sequence.discard();
        }
        drop(sequence);
        sleep(if is_evicted { IDLE * 3 } else { Duration::from_secs(1) }).await;
        if is_evicted {
            nothing_is_lost(store, drawn, "evicted").await?;
        }
    }
    ids.close().await;
    nothing_is_lost(store, drawn, "closed").await
}

fn open(ids: &Sequences, number: usize) -> Allocator<u64> {
    let (step, watermark) = SIZES[number];
    ids.sequence::<u64>(NAMES[number]).step(step).watermark(watermark).lazy().expect("valid settings")
}

async fn draw(sequence: &Allocator<u64>, rng: &mut Rng) -> u64 {
    let count = if rng.u32(0..4) == 0 { rng.u64(0..150) } else { 1 };
    let ids = sequence.take(count).await.expect("the store answers");
    sleep(Duration::from_millis(rng.u64(0..100))).await;
    ids.len()
}

async fn nothing_is_lost(store: &FaultyStore, drawn: &Drawn, ended: &str) -> Result<(), String> {
    for (name, drawn) in NAMES.iter().zip(drawn) {
        let stored = store.inspect(&SequenceName::new(name).expect("valid")).await.expect("a store");
        let next = stored.and_then(|stored| stored.next).unwrap_or(1);
        if next != drawn + 1 {
            return Err(format!("{drawn} ids of {name} were drawn, and {ended}; the next is {next}"));
        }
    }
    Ok(())
}

#[test]
fn an_orderly_end_of_use_wastes_no_id() {
    crate::every_world_holds(|seed| run(seed, Bug::None));
}

#[test]
fn ends_of_use_that_discard_ids_are_found() {
    for (bug, fault) in [(Bug::EvictionDiscards, "evicted"), (Bug::CloseDiscards, "closed")] {
        crate::found(&bug, fault, |seed| run(seed, bug));
    }
}
