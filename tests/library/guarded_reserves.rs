//! The cost of a guard, in calls: one read of the witness and one claim for each reserve or batch of
//! reserves, and none for a draw.
//!
//! `cargo test --release --test library guarded_reserves -- --nocapture` prints the table of
//! `benches/README.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idmill::store::{Bounds, MemoryStore, Page, Reserve, Store, StoreFuture};
use idmill::{Allocator, Result, SequenceName, Sequences};
use idmill_guard::{Guarded, Ledger, Ledgers, MemoryWitness, Witness, Write};

/// Number of ids: fewer in a debug build, to save time.
const IDS: u64 = if cfg!(debug_assertions) { 30_000 } else { 1_000_000 };
const STEPS: [u64; 4] = [100, 1_000, 10_000, 100_000];
const TIMEOUT: Duration = Duration::from_secs(60);

/// A witness that counts calls. A batch is one call.
#[derive(Debug, Default)]
struct Counting {
    witness: MemoryWitness,
    looks: AtomicU64,
    claims: AtomicU64,
}

impl Counting {
    /// Reads and claims so far.
    fn counts(&self) -> (u64, u64) {
        (self.looks.load(Ordering::Relaxed), self.claims.load(Ordering::Relaxed))
    }
}

impl Witness for Counting {
    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Ledger>>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.witness.read(name)
    }

    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Ledger>,
        wanted: &'a Ledger,
    ) -> StoreFuture<'a, Result<bool>> {
        self.claims.fetch_add(1, Ordering::Relaxed);
        self.witness.swap(name, seen, wanted)
    }

    fn read_many<'a>(&'a self, names: &'a [SequenceName]) -> StoreFuture<'a, Vec<Result<Option<Ledger>>>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.witness.read_many(names)
    }

    fn swap_many<'a>(&'a self, writes: &'a [Write]) -> StoreFuture<'a, Vec<Result<bool>>> {
        self.claims.fetch_add(1, Ordering::Relaxed);
        self.witness.swap_many(writes)
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Ledgers>> {
        self.witness.list(page)
    }
}

fn guarded() -> (MemoryStore, Arc<Counting>, Guarded) {
    let (store, witness) = (MemoryStore::new(), Arc::new(Counting::default()));
    (store.clone(), witness.clone(), Guarded::new(store, witness))
}

fn draw(ids: &Allocator<u64>, count: u64) {
    for _ in 0..count {
        ids.blocking().next().unwrap();
    }
}

#[test]
fn each_reserve_takes_one_read_and_one_claim_a_draw_none() {
    println!("{IDS} ids\n\n| step | watermark | reserves | looks at the witness | claims |");
    println!("|---:|---:|---:|---:|---:|");
    for step in STEPS {
        for watermark in [0, step / 4] {
            let (store, witness, guarded) = guarded();
            let sequences = Sequences::builder(guarded).own_thread().start().unwrap();
            let sequence = |name| sequences.sequence::<u64>(name).timeout(TIMEOUT);
            let ids = sequence("counted").step(step).watermark(watermark).open_blocking().unwrap();
            assert_eq!(witness.counts(), (0, 0), "opening does not use the witness");
            draw(&ids, IDS);
            // The same actor serves this sequence, and first handles all earlier signals of `counted`.
            draw(&sequence("last").step(1).watermark(0).open_blocking().unwrap(), 3);
            let reserves = ids.snapshot().reserves;
            assert_eq!(reserves, (IDS + watermark).div_ceil(step), "step {step}, watermark {watermark}");
            let all = reserves + 3;
            assert_eq!((store.reserves(), witness.counts()), (all, (all, all)), "step {step}");
            println!("| {step} | {watermark} | {reserves} | {reserves} | {reserves} |");
            let rest = u64::from(ids.snapshot().remaining > 0);
            sequences.blocking().close().unwrap();
            assert_eq!(
                witness.counts(),
                (all + rest, all + rest),
                "the witness is updated once for the give-back"
            );
        }
    }
}

#[tokio::test]
async fn a_batch_of_reserves_takes_as_many_calls_as_one() {
    let (store, witness, guarded) = guarded();
    let name = |number: u64| SequenceName::new(&format!("s{number}")).unwrap();
    let batch: Vec<_> =
        (0..256).map(|number| Reserve::new(name(number), 100).create(Bounds::of::<u64>())).collect();
    for round in 1..=2 {
        let granted = guarded.reserve_many(&batch).await;
        assert!(granted.iter().all(Result::is_ok), "{granted:?}");
        assert_eq!((store.reserves(), witness.counts()), (round, (round, round)));
    }
}
