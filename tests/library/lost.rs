//! A store that has lost committed data: a process detects repeated grants, and hands out none of their ids.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use idmill::store::{
    Bounds, Capabilities, Change, Identity, MemoryStore, SequenceInfo, Snapshot, Store, StoreFuture,
};
use idmill::{Allocator, ErrorKind, SequenceName, Sequences};
use idmill_testing::eventually;
use idmill_testing::hooked::{Hooked, Hooks};
use tokio::time::{Instant, sleep};

fn name() -> SequenceName {
    SequenceName::new("s").unwrap()
}

fn process(store: &MemoryStore) -> Sequences {
    Sequences::new(store.clone()).unwrap()
}

/// Opens the sequence: ten ids per reserve, and no prefetch.
async fn open(ids: &Sequences) -> idmill::Result<Allocator<u64>> {
    ids.sequence::<u64>("s").step(10).watermark(0).await
}

async fn draw(ids: &Allocator<u64>, count: usize) -> Vec<u64> {
    let mut drawn = Vec::new();
    for _ in 0..count {
        drawn.push(ids.next().await.unwrap());
    }
    drawn
}

/// An empty store.
fn nothing() -> Snapshot {
    MemoryStore::new().snapshot()
}

/// An administrator recreates the sequence on purpose, as another incarnation.
async fn make_anew(store: &MemoryStore) {
    store.remove(&name(), None).await.unwrap();
    store.create(&name(), Bounds::of::<u64>()).await.unwrap();
}

async fn refuses(ids: &Allocator<u64>, words: &str) {
    let error = ids.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[tokio::test]
async fn missing_sequence_is_not_recreated_after_grants() {
    let store = MemoryStore::new();
    let ids = process(&store);
    let s = open(&ids).await.unwrap();
    draw(&s, 20).await;
    let Identity { incarnation, epoch } = s.snapshot().identity.unwrap();
    store.restore(&nothing());
    let seen = format!("its ids up to 20 were granted (incarnation {incarnation:x}, epoch {epoch})");
    for _ in 0..3 {
        refuses(&s, &seen).await;
    }
    let error = open(&ids).await.unwrap_err();
    assert!(error.to_string().contains("idmill create s --start N"), "opened once more: {error}");
    assert!(store.inspect(&name()).await.unwrap().is_none());
    // An administrator recreates the sequence above all ids in use.
    store.create(&name(), Bounds::new(21, 1000).unwrap()).await.unwrap();
    assert_eq!(eventually("the error expires", async || s.next().await).await, 21);
}

#[tokio::test]
async fn missing_sequence_is_not_recreated_after_an_open() {
    let store = MemoryStore::new();
    let (first, second) = (process(&store), process(&store));
    draw(&open(&first).await.unwrap(), 20).await;
    let s = open(&second).await.unwrap();
    store.restore(&nothing());
    refuses(&s, "this process has opened it before").await;
    assert!(store.inspect(&name()).await.unwrap().is_none());
}

/// A new process has no record of the sequence. The others take its sequence for one created on purpose.
#[tokio::test]
async fn new_process_creates_a_lost_sequence_at_its_start() {
    let store = MemoryStore::new();
    let s = open(&process(&store)).await.unwrap();
    draw(&s, 20).await;
    store.restore(&nothing());
    let newcomer = process(&store).sequence::<u64>("s").start(5).step(10).watermark(0).await.unwrap();
    assert_eq!(draw(&newcomer, 1).await, [5]);
    assert_eq!(draw(&s, 1).await, [15]);
}

#[tokio::test]
async fn sequence_removed_by_this_process_is_created_again() {
    let ids = Sequences::new(MemoryStore::new()).unwrap();
    let orders = ids.sequence::<u64>("orders").await.unwrap();
    assert_eq!(orders.next().await.unwrap(), 1);
    assert!(ids.admin().remove("orders").await.unwrap());
    let again = ids.sequence::<u64>("orders").await.unwrap();
    assert_eq!(again.next().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn missing_sequence_is_not_recreated_after_eviction() {
    let store = MemoryStore::new();
    let idle = Duration::from_secs(1);
    let ids = Sequences::builder(store.clone()).idle_eviction(idle).start();
    let ids = ids.unwrap();
    draw(&open(&ids).await.unwrap(), 20).await;
    tokio::time::sleep(10 * idle).await;
    assert!(ids.is_empty(), "evicted");
    let backup = store.snapshot();
    store.restore(&nothing());
    let error = open(&ids).await.unwrap_err();
    assert!(error.to_string().contains("its ids up to 20 were granted"), "{error}");
    let lazy = ids.sequence::<u64>("s").step(10).watermark(0).lazy().unwrap();
    refuses(&lazy, "its ids up to 20 were granted").await;
    store.restore(&backup);
    assert_eq!(draw(&lazy, 1).await, [21]);
}

#[tokio::test]
async fn recreated_sequence_is_accepted() {
    let store = MemoryStore::new();
    let s = open(&process(&store)).await.unwrap();
    let first = draw(&s, 10).await;
    make_anew(&store).await;
    assert_eq!(draw(&s, 10).await, first);
}

#[tokio::test]
async fn superseded_incarnation_is_rejected() {
    let store = MemoryStore::new();
    let s = open(&process(&store)).await.unwrap();
    let mut first: BTreeSet<u64> = draw(&s, 10).await.into_iter().collect();
    let backup = store.snapshot();
    first.extend(draw(&s, 10).await);
    make_anew(&store).await;
    draw(&s, 10).await;
    store.restore(&backup);
    refuses(&s, "of an incarnation that was already replaced").await;
    refuses(&s, "of an incarnation that was already replaced").await;
    // A new process has no history, and still gets no duplicate.
    let newcomer = open(&process(&store)).await.unwrap();
    let after = draw(&newcomer, 1).await[0];
    assert!(!first.contains(&after) && after > 20, "{after} was handed out under this identity");
}

#[tokio::test]
async fn detected_restore_raises_the_store_for_other_processes() {
    let store = MemoryStore::new();
    let (knows, other) = (process(&store), process(&store));
    let (knows, other) = (open(&knows).await.unwrap(), open(&other).await.unwrap());
    let mut all = draw(&other, 10).await;
    let backup = store.snapshot();
    all.extend(draw(&knows, 100).await);
    store.restore(&backup);
    refuses(&knows, "but 110 was granted before: it went back in time; next must be above 110").await;
    all.extend(draw(&other, 50).await);
    all.extend(draw(&knows, 50).await);
    let count = all.len();
    let different: BTreeSet<u64> = all.into_iter().collect();
    assert_eq!(different.len(), count, "handed out twice");
}

#[tokio::test]
async fn deliberate_step_back_is_accepted() {
    let store = MemoryStore::new();
    let s = open(&process(&store)).await.unwrap();
    draw(&s, 20).await;
    let back = Change::new().next(5).backwards(true);
    store.set(&name(), back).await.unwrap();
    assert_eq!(draw(&s, 3).await, [5, 6, 7]);
}

/// Takes a second for each `set`.
#[derive(Debug)]
struct SlowToSet(MemoryStore);

impl Hooks for SlowToSet {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn set<'a>(
        &'a self,
        name: &'a SequenceName,
        change: Change,
    ) -> StoreFuture<'a, idmill::Result<SequenceInfo>> {
        Box::pin(async move {
            sleep(Duration::from_secs(1)).await;
            self.0.set(name, change).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn batch_is_answered_before_its_repairs_end() {
    let store = MemoryStore::new();
    let ids = Sequences::new(Hooked(SlowToSet(store.clone()))).unwrap();
    let sequence = async |n: usize| ids.sequence::<u64>(format!("s{n}")).step(10).watermark(0).await;
    let all = join_all((0..21).map(sequence)).await.into_iter().collect::<Result<Vec<_>, _>>().unwrap();
    join_all(all.iter().map(|s| draw(s, 10))).await;
    let backup = store.snapshot();
    // Each sequence but the first loses ten ids.
    join_all(all[1..].iter().map(|s| draw(s, 10))).await;
    store.restore(&backup);
    let (began, round_trips) = (Instant::now(), store.reserves());
    let answers = join_all(all.iter().map(async |s| (s.next().await, began.elapsed()))).await;
    assert_eq!(store.reserves(), round_trips + 1, "one batch");
    let (healthy, repaired) = answers.split_first().unwrap();
    assert!(matches!(healthy, (Ok(11), after) if *after < Duration::from_secs(1)), "{healthy:?}");
    for (outcome, after) in repaired {
        assert_eq!(outcome.as_ref().unwrap_err().kind(), ErrorKind::StoreViolation);
        assert!((1..2).contains(&after.as_secs()), "a caller waits only for its own repair: {after:?}");
    }
    assert_eq!(draw(&all[20], 1).await, [21]);
}
