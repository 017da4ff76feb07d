//! An orderly end of use costs no id: processes use a store one after the other, and each id below the next one
//! of the store was handed out.

use std::time::Duration;

use fastrand::Rng;
use idmill::store::Store;
use idmill::{Allocator, SequenceName, Sequences};
use idmill_testing::faulty::{Faults, FaultyStore};
use tokio::time::sleep;

const IDLE: Duration = Duration::from_secs(60);
const NAMES: [&str; 3] = ["s0", "s1", "s2"];

fn run(seed: u64) -> Result<(), String> {
    crate::on_its_own_clock(async {
        let mut rng = Rng::with_seed(seed);
        let latency = Duration::from_millis(rng.u64(0..50));
        let store = FaultyStore::with_faults(Faults::none().latency(latency));
        let mut drawn = [0; NAMES.len()];
        for _ in 0..rng.usize(1..6) {
            process(&store, &mut rng, &mut drawn).await?;
        }
        Ok(())
    })
}

/// Uses some sequences, and ends their use: by an eviction, by the end of the process, or by both.
async fn process(store: &FaultyStore, rng: &mut Rng, drawn: &mut [u64; NAMES.len()]) -> Result<(), String> {
    let ids = Sequences::builder(store.clone()).idle_eviction(IDLE).start().expect("a runtime");
    for _ in 0..rng.usize(1..10) {
        let number = rng.usize(..NAMES.len());
        let sequence = open(&ids, NAMES[number], rng);
        for _ in 0..rng.usize(0..20) {
            drawn[number] += draw(&sequence, rng).await;
        }
        drop(sequence);
        // Longer than an eviction, or only until no reserve is in flight.
        let is_evicted = rng.bool();
        sleep(if is_evicted { IDLE * 3 } else { Duration::from_secs(1) }).await;
        if is_evicted {
            nothing_is_lost(store, drawn, "evicted").await?;
        }
    }
    ids.close().await;
    nothing_is_lost(store, drawn, "closed").await
}

fn open(ids: &Sequences, name: &str, rng: &mut Rng) -> Allocator<u64> {
    // The settings depend on the name: the sequence may still be open.
    let (step, watermark) = [(10, 0), (100, 50), (7, 7)][usize::from(name.as_bytes()[1] - b'0')];
    let _ = rng;
    ids.sequence::<u64>(name).step(step).watermark(watermark).lazy().expect("valid settings")
}

async fn draw(sequence: &Allocator<u64>, rng: &mut Rng) -> u64 {
    let count = if rng.u32(0..4) == 0 { rng.u64(0..150) } else { 1 };
    let ids = sequence.take(count).await.expect("the store answers");
    sleep(Duration::from_millis(rng.u64(0..100))).await;
    ids.len()
}

async fn nothing_is_lost(store: &FaultyStore, drawn: &[u64; NAMES.len()], ended: &str) -> Result<(), String> {
    for (name, drawn) in NAMES.iter().zip(drawn) {
        let stored = store.inspect(&SequenceName::new(name).expect("valid")).await.expect("a store");
        let next = stored.and_then(|stored| stored.next).unwrap_or(1);
        if next != drawn + 1 {
            return Err(format!("waste: {drawn} ids of {name} were drawn, and {ended}; the next is {next}"));
        }
    }
    Ok(())
}

#[test]
fn an_orderly_end_of_use_wastes_no_id() {
    crate::every_world_holds(run);
}
