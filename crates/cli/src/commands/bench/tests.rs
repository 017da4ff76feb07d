use clap::Parser as _;
use idmill::store::{Capabilities, Grant, MemoryStore, Reserve, Store, StoreFuture};
use idmill::{Error, ErrorKind};
use idmill_testing::hooked::{Hooked, Hooks};

use super::*;
use crate::args::{Cli, Command};

/// Parses the arguments of `idmill bench` on a memory store.
fn parsed(args: &str) -> (Global, Bench) {
    let cli = Cli::parse_from(format!("idmill bench --store memory: {args}").trim().split(' '));
    let Command::Bench(bench) = cli.command else { unreachable!("the command is `bench`") };
    (Global { schemes: idmill_any::schemes().clone(), ..cli.global }, bench)
}

/// Measures transactions that succeed with a number of ids, or fail. Also returns the number of calls.
fn worked(count: u64, hold: Duration, outcome: impl Fn(u32) -> Result<u64>) -> (Result<Totals>, u32) {
    let mut calls = 0;
    let mut way: Way<'_> = Box::new(|given| {
        assert_eq!(given, hold);
        std::thread::sleep(given);
        calls += 1;
        outcome(calls)
    });
    let plan = Measurement::new(1, Some(count), Duration::ZERO);
    let seen = work(&plan, &mut way, hold, Instant::now());
    drop(way);
    (seen, calls)
}

#[test]
fn transaction_is_repeated_after_a_passing_error() {
    let kinds = [ErrorKind::Unavailable, ErrorKind::UnknownOutcome, ErrorKind::Overloaded];
    let outcome = |call: u32| match call {
        3 => Ok(4),
        5 => Ok(6),
        call => Err(Error::from(kinds[call as usize % 3])),
    };
    let (seen, calls) = worked(2, Duration::ZERO, outcome);
    let seen = seen.unwrap();
    assert_eq!((calls, seen.values, seen.retries), (5, 10, 3));
    assert_eq!((seen.times.len(), seen.corrected.len()), (2, 2));
}

#[test]
fn error_that_stays_ends_the_measurement() {
    let (seen, calls) = worked(2, Duration::ZERO, |_| Err(ErrorKind::Denied.into()));
    assert_eq!((seen.unwrap_err().kind(), calls), (ErrorKind::Denied, 1));
    let (seen, calls) = worked(2, Duration::ZERO, |_| Err(ErrorKind::Unavailable.into()));
    assert_eq!((seen.unwrap_err().kind(), calls), (ErrorKind::Unavailable, ENOUGH + 1));
    // A success ends the row of failures.
    let outcome =
        |call: u32| if call.is_multiple_of(ENOUGH) { Ok(1) } else { Err(ErrorKind::Unavailable.into()) };
    let (seen, calls) = worked(3, Duration::ZERO, outcome);
    let seen = seen.unwrap();
    assert_eq!((calls, seen.values, seen.retries), (3 * ENOUGH, 3, u64::from(3 * (ENOUGH - 1))));
}

/// A transaction should start every 2 ms, and the only one took as long as three of them.
#[test]
fn late_transaction_adds_the_times_of_those_it_delayed() {
    let outcome = |call: u32| if call == 3 { Ok(1) } else { Err(ErrorKind::Unavailable.into()) };
    let seen = worked(1, Duration::from_millis(2), outcome).0.unwrap();
    assert_eq!(seen.times.len(), 1);
    assert!(seen.corrected.len() >= 3, "{}", seen.corrected.len());
    assert_eq!(seen.corrected.max(), seen.times.max());
}

/// A store in which every third reserve fails.
#[derive(Debug, Default)]
struct Shaky {
    memory: MemoryStore,
    calls: parking_lot::Mutex<u64>,
}

impl Hooks for Shaky {
    fn inner(&self) -> &dyn Store {
        &self.memory
    }

    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities().batches(false)
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        let mut calls = self.calls.lock();
        *calls += 1;
        if calls.is_multiple_of(3) {
            return Box::pin(async { Err(ErrorKind::Unavailable.into()) });
        }
        self.memory.reserve(request)
    }
}

#[tokio::test]
async fn totals_add_up_all_threads() {
    let store = std::sync::Arc::new(Hooked(Shaky::default()));
    let mut measured = Measured::open(&parsed("").0, SEQUENCE).await.unwrap();
    measured.store = store;
    let subject = Subject::prepare(&measured, &parsed("").1, Mode::Async).await.unwrap();
    let plan = Measurement::new(2, Some(4), Duration::ZERO);
    let (seen, subject) = off_runtime(move || (measure(&plan, &subject, Duration::ZERO), subject)).await;
    let seen = seen.unwrap();
    // The calls 3, 6 and 9 of 11 failed.
    assert_eq!((seen.values, seen.retries), (8, 3));
    assert_eq!((seen.times.len(), seen.corrected.len()), (8, 8));
    assert!(seen.elapsed > Duration::ZERO);
    assert_eq!(subject.counts(8).cells(), ["11", "-", "-", "-"]);
}

#[tokio::test]
async fn modes_are_those_of_the_store_unless_chosen() {
    let (global, args) = parsed("");
    let mut store = Measured::open(&global, SEQUENCE).await.unwrap();
    let others = [Mode::Async, Mode::Global, Mode::Batch, Mode::AsyncBatch, Mode::Thread];
    assert_eq!(modes(&args, &store).unwrap(), others);
    let chosen = parsed("--mode thread,global").1;
    assert_eq!(modes(&chosen, &store).unwrap(), [Mode::Thread, Mode::Global]);
    for mode in ["in-transaction", "in-transaction-many"] {
        let refused = modes(&parsed(&format!("--mode async,{mode}")).1, &store).unwrap_err();
        assert_eq!(refused.message(), format!("mode `{mode}` is not supported for `memory:` stores"));
    }
    store.url = global.schemes.parse("sqlite:ids.db").unwrap();
    let all = [&[Mode::InTransaction, Mode::InTransactionMany][..], &others].concat();
    assert_eq!(modes(&args, &store).unwrap(), all);
}

/// Returns a row whose latencies are `ms`, and twice that at the maximum.
fn row(mode: Mode, threads: u16, values_per_second: f64, ms: f64) -> Row {
    let times = |ms: f64| -> BTreeMap<_, _> {
        QUANTILES.iter().map(|(name, at)| (*name, if *at < 1.0 { ms } else { 2.0 * ms })).collect()
    };
    Row {
        mode,
        threads,
        values: 40,
        seconds: 0.5,
        values_per_second,
        corrected_ms: times(ms),
        times_ms: times(ms / 2.0),
        counts: Counts { reserves: Some(5), waits: Some(6), gaps: None, left: Some(8) },
        retries: 9,
    }
}

#[test]
fn row_is_computed_from_the_totals_of_the_threads() {
    let mut seen = Totals { values: 7, retries: 2, elapsed: Duration::from_millis(500), ..Totals::new() };
    for nanos in 1..=1000 {
        seen.times.record(nanos).unwrap();
        seen.corrected.record(2 * nanos).unwrap();
    }
    let subject = Subject::InTransaction(Box::new(|_, _| Ok(())), 1);
    let row = Row::new(Mode::InTransaction, 3, &seen, &subject);
    let expected = serde_json::json!({
        "mode": "in-transaction", "threads": 3, "values": 7, "seconds": 0.5, "values_per_second": 14.0,
        "corrected_ms": {
            "p50": 0.001, "p75": 0.0015, "p90": 0.0018, "p99": 0.00198, "p99_9": 0.001_998, "max": 0.002,
        },
        "times_ms": {
            "p50": 0.0005, "p75": 0.00075, "p90": 0.0009, "p99": 0.00099, "p99_9": 0.000_999, "max": 0.001,
        },
        "reserves": 1000, "waits": null, "gaps": null, "left": null, "retries": 2,
    });
    assert_eq!(serde_json::to_value(&row).unwrap(), expected);
}

#[tokio::test]
async fn tables_have_every_figure_in_its_column() {
    let (global, args) = parsed("--transaction 2ms");
    let store = Measured::open(&global, SEQUENCE).await.unwrap();
    let report = Report::new(&store, &args, vec![row(Mode::AsyncBatch, 3, 1500.0, 12.5)]);
    assert_eq!(
        report.human(false),
        "\
Transaction times in ms, with 2.00 ms of work each, corrected for coordinated omission:
MODE         THREADS  VALUES/S   P50   P75   P90   P99  P99.9   MAX
async-batch        3    1.50 k  12.5  12.5  12.5  12.5   12.5  25.0

MODE         THREADS  VALUES  RESERVES  WAITED  GAPS  LEFT  RETRIES
async-batch        3      40         5       6     -     8        9
"
    );
    assert_eq!(
        report.human(true),
        "\
Transaction times in ms, with 2.00 ms of work each, corrected for coordinated omission:

| mode | threads | values/s | p50 | p75 | p90 | p99 | p99.9 | max |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
| async-batch | 3 | 1.50 k | 12.5 | 12.5 | 12.5 | 12.5 | 12.5 | 25.0 |

| mode | threads | values | reserves | waited | gaps | left | retries |
|---|---:|---:|---:|---:|---:|---:|---:|
| async-batch | 3 | 40 | 5 | 6 | - | 8 | 9 |
"
    );
}

/// Memory of 20 ids is filled before the start if the mode fetches ahead.
#[tokio::test]
async fn each_mode_is_prepared_with_its_settings() {
    let (global, args) = parsed("--step 20 --watermark 30 --values 7");
    let store = Measured::open(&global, SEQUENCE).await.unwrap();
    for (mode, is_shared, in_memory) in [
        (Mode::Global, false, 0),
        (Mode::Batch, false, 0),
        (Mode::AsyncBatch, false, 20),
        (Mode::Thread, true, 20),
    ] {
        let subject = Subject::prepare(&store, &args, mode).await.unwrap();
        let Subject::Ranges { allocator, shared, before, .. } = &subject else { panic!("{mode:?}") };
        let seen = allocator.snapshot();
        assert_eq!((*shared, seen.remaining, seen.waits), (is_shared, in_memory, *before), "{mode:?}");
        let (taken, subject) =
            off_runtime(move || (subject.way().and_then(|mut way| way(Duration::ZERO)), subject)).await;
        assert_eq!(taken.unwrap(), 1, "{mode:?}");
        assert_eq!(subject.counts(1).waits, Some(u64::from(in_memory == 0)), "{mode:?}");
        subject.close().await;
    }
    let file = Measured::open(&parsed("").0, SEQUENCE).await.unwrap();
    assert!(Subject::prepare(&file, &args, Mode::InTransaction).await.is_err(), "memory has no transactions");
}

#[tokio::test]
async fn transaction_takes_one_id_or_as_many_as_asked() {
    let directory = tempfile::tempdir().unwrap();
    let (mut global, args) = parsed("--values 7");
    global.store = Some(format!("sqlite:{}", directory.path().join("ids.db").display()));
    let store = Measured::open(&global, SEQUENCE).await.unwrap();
    for (mode, values) in [(Mode::InTransaction, 1), (Mode::InTransactionMany, 7)] {
        let subject = Subject::prepare(&store, &args, mode).await.unwrap();
        let taken = subject.way().unwrap()(Duration::ZERO).unwrap();
        assert_eq!((taken, subject.counts(9).cells()), (values, ["9", "-", "-", "-"].map(str::to_owned)));
    }
    let stored = store.store.inspect(&SEQUENCE.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(stored.next, Some(1 + 1 + 7));
}
