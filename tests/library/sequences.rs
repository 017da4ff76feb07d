//! Many sequences of one store: opened by name, refilled together, failing separately, evicted when idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idmill::store::{Bounds, Capabilities, Grant, Reserve, Store, StoreFuture};
use idmill::{Error, ErrorKind, Order, Result, Sequences, SequencesBuilder};
use idmill_testing::faulty::{Faults, FaultyStore};
use idmill_testing::hooked::{Hooked, Hooks};
use idmill_testing::{eventually_blocking, holds};
use tokio::time::Instant;

fn builder(store: &FaultyStore) -> SequencesBuilder {
    Sequences::builder(store.clone())
}

#[tokio::test]
async fn refills_that_fall_due_together_share_a_round_trip() {
    let store = FaultyStore::with_faults(Faults::default().latency(Duration::from_millis(5)));
    let ids = builder(&store).start().unwrap();
    let calls: Vec<_> = (0..200)
        .map(|n| {
            let sequence = ids.sequence::<u64>(format!("tenant-{n}")).lazy().unwrap();
            tokio::spawn(async move { sequence.next().await.unwrap() })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), 1);
    }
    assert_eq!(store.requests(), 200);
    assert!(store.reserves() <= 3, "{} round trips for 200 sequences", store.reserves());
}

#[tokio::test(start_paused = true)]
async fn one_sequences_failure_is_its_own() {
    let store = FaultyStore::new();
    let ids = builder(&store).start().unwrap();
    store.fail_sequence("bad", ErrorKind::Unavailable);
    store.fail_sequence("worse", ErrorKind::Denied);
    let open =
        |name| ids.sequence::<u64>(name).step(1).watermark(0).timeout(Duration::from_secs(1)).lazy().unwrap();
    let (good, bad, worse) = (open("good"), open("bad"), open("worse"));
    let failing = tokio::spawn(async move { (bad.next().await, worse.next().await, bad) });
    for expected in 1..=50 {
        assert_eq!(good.next().await.unwrap(), expected);
    }
    assert_eq!(good.snapshot().failures, 0);
    let (bad_outcome, worse_outcome, bad) = failing.await.unwrap();
    assert_eq!(
        bad_outcome.unwrap_err().kind(),
        ErrorKind::Deadline,
        "an unavailable store is retried until the deadline"
    );
    assert_eq!(worse_outcome.unwrap_err().kind(), ErrorKind::Denied);
    store.heal_sequence("bad");
    assert_eq!(bad.next().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn idle_sequences_are_evicted_and_opened_again() {
    let store = FaultyStore::new();
    let ids = builder(&store).idle_eviction(Duration::from_secs(60)).start().unwrap();
    let kept = ids.sequence::<u64>("kept").step(10).await.unwrap();
    assert_eq!(kept.next().await.unwrap(), 1);
    for n in 0..100 {
        let passing = ids.sequence::<u64>(format!("passing-{n}")).step(10).lazy().unwrap();
        assert_eq!(passing.next().await.unwrap(), 1);
    }
    assert_eq!(ids.len(), 101);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(ids.len(), 1, "only the sequence in use remains");
    assert_eq!(kept.try_next().unwrap(), 2);
    let back = ids.sequence::<u64>("passing-7").step(10).lazy().unwrap();
    assert_eq!(back.next().await.unwrap(), 2, "the ids of the evicted sequence went back");
}

#[tokio::test]
async fn many_sequences_are_opened_in_few_calls() {
    let store = FaultyStore::new();
    let ids = builder(&store).start().unwrap();
    let name = |n: u64| format!("tenant-{n}");
    for n in 0..500 {
        let bounds = Bounds::new(n + 1, 1_000).unwrap();
        store.create(&name(n).parse().unwrap(), bounds).await.unwrap();
    }
    let before = store.requests();
    // The last one does not exist yet.
    let all = ids.open_all::<u64>((0..=500).map(name), |one| one.step(10)).await.unwrap();
    assert_eq!(all.len(), 501);
    assert!(store.requests() - before < 510, "{}", store.requests() - before);
    for (n, one) in (1..).zip(&all[..500]) {
        assert_eq!(one.next().await.unwrap(), n);
    }
    assert_eq!(all[500].next().await.unwrap(), 1);
    let error = ids.open_all::<u64>(["fine", "not fine\n"], |one| one).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let error = ids.open_all::<u64>([name(7)], |one| one.start(1).step(10)).await.unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::Conflict, Some("tenant-7")));
}

#[tokio::test]
async fn a_name_is_one_sequence_with_one_set_of_settings() {
    let store = FaultyStore::new();
    let ids = builder(&store).start().unwrap();
    let first = ids.sequence::<u32>("orders").step(10).await.unwrap();
    let again = ids.sequence::<u32>("orders").step(10).await.unwrap();
    assert_eq!((first.next().await.unwrap(), again.next().await.unwrap()), (1, 2));
    for other in [
        ids.sequence::<u32>("orders").step(11).await.map(drop),
        ids.sequence::<u32>("orders").step(10).order(Order::Thread).await.map(drop),
        ids.sequence::<i32>("orders").step(10).await.map(drop),
    ] {
        assert_eq!(other.unwrap_err().kind(), ErrorKind::Conflict);
    }
    assert_eq!(ids.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn allocators_of_a_sequence_have_limits_of_their_own() {
    let store = FaultyStore::new();
    let ids = builder(&store).start().unwrap();
    let patient = ids.sequence::<u32>("orders").step(10).watermark(0).await.unwrap();
    let hurried =
        ids.sequence::<u32>("orders").step(10).watermark(0).timeout(Duration::from_secs(1)).max_take(5);
    let hurried = hurried.await.unwrap();
    assert_eq!(hurried.take(6).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(patient.take(6).await.unwrap().len(), 6);
    store.set_faults(Faults::outage());
    let (begun, _) = (Instant::now(), patient.try_take(4).unwrap());
    assert_eq!(hurried.next().await.unwrap_err().kind(), ErrorKind::Deadline);
    assert_eq!(begun.elapsed().as_secs(), 1);
    assert_eq!(patient.next().await.unwrap_err().kind(), ErrorKind::Deadline);
    assert_eq!(begun.elapsed().as_secs(), 31);
}

#[tokio::test]
async fn conflicting_bounds_are_rejected() {
    let store = FaultyStore::new();
    let ids = builder(&store).start().unwrap();
    let _ = ids.sequence::<u32>("orders").start(100).max(1_000).await.unwrap();
    // Another process.
    let others = builder(&store).start().unwrap();
    let differs = others.sequence::<u32>("orders").start(101).await.unwrap_err();
    assert_eq!(differs.kind(), ErrorKind::Conflict);
    assert!(differs.to_string().contains("start 100"), "{differs}");
    assert_eq!(others.sequence::<u32>("orders").max(2_000).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(others.sequence::<u32>("orders").await.unwrap().next().await.unwrap(), 100);
}

#[tokio::test]
async fn settings_that_cannot_be_are_refused_by_name() {
    let ids = builder(&FaultyStore::new()).start().unwrap();
    let refused = [
        ("step of 0", ids.sequence::<u64>("x").step(0).lazy().unwrap_err()),
        ("above the step", ids.sequence::<u64>("x").step(10).watermark(11).lazy().unwrap_err()),
        ("needs `step`", ids.sequence::<u64>("x").watermark(11).lazy().unwrap_err()),
        ("`step` or the others", ids.sequence::<u64>("x").step(1).max_buffered(11).lazy().unwrap_err()),
        ("`max_buffered` 0", ids.sequence::<u64>("x").max_buffered(0).lazy().unwrap_err()),
        ("larger than max", ids.sequence::<u64>("x").start(2).max(1).lazy().unwrap_err()),
        ("do not fit", ids.sequence::<i32>("x").max(1 << 31).lazy().unwrap_err()),
        ("do not fit", ids.sequence::<std::num::NonZeroU32>("x").start(0).lazy().unwrap_err()),
        ("block of 0", ids.sequence::<u64>("x").block_size(0).lazy().unwrap_err()),
        ("is empty", ids.sequence::<u64>("").lazy().unwrap_err()),
        ("max_waiting", builder(&FaultyStore::new()).max_waiting(0).start().unwrap_err()),
    ];
    for (part, error) in refused {
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(part), "{error} lacks {part:?}");
    }
    assert_eq!(ids.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn callers_above_max_waiting_wait_then_get_overloaded() {
    let store = FaultyStore::with_faults(Faults::outage());
    let ids = builder(&store).max_waiting(3).start().unwrap();
    let orders = ids.sequence::<u64>("orders").timeout(Duration::from_secs(1)).lazy().unwrap();
    let call =
        |orders: idmill::Allocator<u64>| tokio::spawn(async move { orders.next().await.unwrap_err().kind() });
    let calls: Vec<_> = (0..8).map(|_| call(orders.clone())).collect();
    let mut kinds = Vec::new();
    for call in calls {
        kinds.push(call.await.unwrap());
    }
    assert_eq!(kinds.iter().filter(|kind| **kind == ErrorKind::Deadline).count(), 3);
    assert_eq!(kinds.iter().filter(|kind| **kind == ErrorKind::Overloaded).count(), 5);
    // The places are free again.
    store.set_faults(Faults::default());
    for expected in 1..=10 {
        assert_eq!(orders.next().await.unwrap(), expected);
    }
}

#[test]
fn runtime_shutdown_closes_all_callers_without_a_hang() {
    let store = FaultyStore::with_faults(Faults::outage());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (ids, orders) = runtime.block_on(async {
        // With one place, one caller waits for the actor, and the others wait for that place.
        let ids = builder(&store).max_waiting(1).start().unwrap();
        let orders = ids.sequence::<u64>("orders").lazy().unwrap();
        (ids, orders)
    });
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let orders = orders.clone();
            std::thread::spawn(move || orders.blocking().next().unwrap_err().kind())
        })
        .collect();
    eventually_blocking("a caller waits", || holds(orders.snapshot().waits > 0, "none"));
    // The sleep is usually long enough for the other callers to start waiting, too. If some are not waiting
    // yet, the outcome is the same.
    std::thread::sleep(Duration::from_millis(20));
    drop(runtime);
    for caller in waiting {
        assert_eq!(caller.join().unwrap(), ErrorKind::Closed);
    }
    assert_eq!(orders.try_next().unwrap_err().kind(), ErrorKind::Closed);
    ids.blocking().close().unwrap();
}

#[test]
fn the_last_one_out_ends_the_actor() {
    let store = FaultyStore::new();
    let held = Arc::new(store.clone()) as Arc<dyn Store>;
    let weak = Arc::downgrade(&held);
    let ids = Sequences::builder(held).own_thread().start().unwrap();
    let orders = ids.sequence::<u64>("orders").open_blocking().unwrap();
    drop(ids);
    assert_eq!(orders.blocking().next().unwrap(), 1);
    drop(orders);
    // The actor holds the store until it has ended.
    eventually_blocking("the actor ends", || holds(weak.strong_count() == 0, weak.strong_count()));
}

/// Rejects one sequence, as if another transaction locked it, and counts the round trips that contain the
/// sequence.
#[derive(Debug, Default)]
struct Held {
    store: FaultyStore,
    in_company: AtomicUsize,
    alone: AtomicUsize,
}

const REFUSALS: usize = 6;

impl Held {
    fn outcome<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(async move {
            let mut outcomes = self.store.reserve_many(requests).await;
            if let Some(place) = requests.iter().position(|request| request.name.as_str() == "held") {
                let times = if requests.len() > 1 { &self.in_company } else { &self.alone };
                times.fetch_add(1, Ordering::SeqCst);
                if self.alone.load(Ordering::SeqCst) < REFUSALS {
                    outcomes[place] = Err(Error::new(ErrorKind::Unavailable, "it is held"));
                }
            }
            outcomes
        })
    }
}

impl Hooks for Held {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move { self.outcome(std::slice::from_ref(request)).await.remove(0) })
    }

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        self.outcome(requests)
    }
}

/// Alone in its call, the locked sequence delays no other caller.
#[tokio::test]
async fn locked_sequence_is_retried_outside_the_batch() {
    let faults = Faults::default().latency(Duration::from_millis(1));
    let held = Arc::new(Hooked(Held { store: FaultyStore::with_faults(faults), ..Held::default() }));
    let ids = Sequences::builder(held.clone()).start().unwrap();
    let open = |name: String| ids.sequence::<u64>(name).step(1).watermark(0).lazy().unwrap();
    let waiting = open("held".to_owned());
    let waiting = tokio::spawn(async move { waiting.next().await });
    let others: Vec<_> = (0..20)
        .map(|n| {
            let other = open(format!("s{n}"));
            tokio::spawn(async move { while other.next().await.is_ok() {} })
        })
        .collect();
    waiting.await.unwrap().unwrap();
    let (company, alone) = (held.in_company.load(Ordering::SeqCst), held.alone.load(Ordering::SeqCst));
    assert!(company <= 1 && alone >= REFUSALS, "{company} times in a batch, {alone} times in its own call");
    others.iter().for_each(tokio::task::JoinHandle::abort);
}
