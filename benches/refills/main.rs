//! The cost of a refill, by criterion: a reserve over the memory store and over SQLite, the engine's
//! decision about a grant, and the promotion of the next segment.
//!
//! `cargo bench -p idmill-bench --bench refills`. The engine and the segments are private to the library. So
//! the library's files are compiled here again, at the root of this crate, so that their `crate::` paths
//! resolve.

#![allow(missing_docs)] // a benchmark has no public interface
#![allow(unexpected_cfgs)] // features of the library

macro_rules! library {
    ($($path:literal $name:ident),* $(,)?) => {$(
        #[path = $path]
        #[allow(
            clippy::all,
            clippy::pedantic,
            clippy::disallowed_types,
            dead_code,
            unexpected_cfgs,
            unreachable_pub,
            unused_imports,
            unused_macros,
            missing_docs,
            missing_debug_implementations,
            reason = "the library's own lint run checks these modules; only part of each is used here"
        )]
        pub(crate) mod $name;
    )*};
}

library! {
    "../../src/error.rs" error,
    "../../src/id.rs" id,
    "../../src/name.rs" name,
    "../../src/range.rs" range,
    "../../src/sync.rs" sync,
}

/// Needed by the macro `string_enum`.
pub(crate) use error::Error;

mod refill;
mod state;
/// The same part of `store` that the models use.
#[path = "../../loom-tests/src/store.rs"]
#[allow(unexpected_cfgs, unused_imports, reason = "only part of the module is used here")]
mod store;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use refill::engine::Engine;
use refill::engine::event::{Effect, Event};
use refill::engine::queue::Waiter;
use state::settings::{Settings, Sizing};
use state::stock::Stock;

/// The cost of a reserve does not depend on the number of ids, so the number is small.
const STEP: u64 = 100;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .without_plots()
        .configure_from_args();
    reserves(&mut criterion);
    engine(&mut criterion);
    promotion(&mut criterion);
    criterion.final_summary();
}

/// One reserve after another, each answered before the next.
fn reserves(criterion: &mut Criterion) {
    use idmill::store::{Bounds, MemoryStore, Reserve, Store};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("ids.db");
    let sqlite = runtime.block_on(idmill_sqlite::SqliteStore::open(&file)).expect("an SQLite file opens");
    let stores: [(&str, Arc<dyn Store>); 2] =
        [("memory", Arc::new(MemoryStore::new())), ("sqlite", Arc::new(sqlite))];
    let mut group = criterion.benchmark_group("reserve");
    group.throughput(Throughput::Elements(1));
    for (name, store) in stores {
        let orders = idmill::SequenceName::new("orders").expect("a name");
        let request = Reserve::new(orders, STEP).create(Bounds::of::<u64>());
        group.bench_function(name, |bencher| {
            bencher.iter(|| black_box(runtime.block_on(store.reserve(&request)).expect("the store grants")));
        });
    }
    group.finish();
}

/// A waiter that is never created: memory is low, and no caller waits.
struct Nobody;

impl Waiter for Nobody {
    fn is_gone(&self) -> bool {
        false
    }
}

/// The watermark is crossed. The engine requests a range, gets it, and has it published.
fn engine(criterion: &mut Criterion) {
    let sizing = Sizing::Fixed { step: STEP, watermark: STEP / 2 };
    let settings = Settings { sizing, ..Settings::of::<u64>() };
    let mut engine = Engine::<Nobody>::new(sync::Arc::new(settings), sizing);
    let mut start = 1;
    let mut group = criterion.benchmark_group("engine");
    group.throughput(Throughput::Elements(1));
    group.bench_function("low, reserved, published", |bencher| {
        bencher.iter(|| {
            assert_eq!(engine.on(Event::Low { wanted: 0 }, 0, Duration::ZERO).reserve, Some(STEP));
            let effects = engine.on(Event::Reserved(grant(start)), 0, Duration::ZERO).effects;
            assert!(effects.iter().any(|effect| matches!(effect, Effect::Publish { .. })));
            start += STEP;
        });
    });
    group.finish();
}

fn grant(start: u64) -> store::Grant {
    let range = range::IdRange::new(start, STEP).expect("fits");
    let identity = store::Identity { incarnation: 1, epoch: 0 };
    store::Grant::new(range, identity, store::Bounds::of::<u64>())
}

/// Each draw finds its segment empty and moves to the next, which is already linked.
fn promotion(criterion: &mut Criterion) {
    const LINKED: u64 = 1_000;
    let mut group = criterion.benchmark_group("promotion");
    group.throughput(Throughput::Elements(1));
    group.bench_function("to the next segment", |bencher| {
        bencher.iter_custom(|draws| {
            let (stock, mut spent, mut start) = (Stock::new(), Duration::ZERO, 1);
            let mut segment = stock.current();
            while start <= draws {
                let end = start + LINKED.min(draws - start + 1);
                for id in start..end {
                    assert!(stock.publish(range::IdRange::new(id, 1).expect("fits"), 0, 0, |_| ()));
                }
                let begun = Instant::now();
                for _ in start..end {
                    assert!(black_box(stock.draw(&mut segment)).is_ok());
                }
                spent += begun.elapsed();
                start = end;
            }
            spent
        });
    });
    group.finish();
}
