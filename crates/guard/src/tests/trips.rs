//! The cost of a reserve: round trips to the witness, and gaps.

use std::sync::atomic::AtomicU32;

use super::*;

/// Counts the calls of a witness.
#[derive(Debug, Default)]
struct Counting {
    witness: MemoryWitness,
    reads: AtomicU32,
    writes: AtomicU32,
}

impl Counting {
    /// Returns the reads and writes since the last call.
    fn trips(&self) -> (u32, u32) {
        (self.reads.swap(0, Ordering::Relaxed), self.writes.swap(0, Ordering::Relaxed))
    }
}

impl Witness for Counting {
    fn read<'a>(&'a self, of: &'a SequenceName) -> StoreFuture<'a, Result<Option<Ledger>>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.witness.read(of)
    }

    fn swap<'a>(
        &'a self,
        of: &'a SequenceName,
        seen: Option<&'a Ledger>,
        wanted: &'a Ledger,
    ) -> StoreFuture<'a, Result<bool>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.witness.swap(of, seen, wanted)
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Ledgers>> {
        self.witness.list(page)
    }
}

#[tokio::test]
async fn reserve_reads_and_writes_the_witness_once() {
    let witness = Arc::new(Counting::default());
    let guarded = Guarded::new(MemoryStore::new(), witness.clone());
    for _ in 0..2 {
        guarded.reserve(&orders(10)).await.unwrap();
        assert_eq!(witness.trips(), (1, 1));
    }
    let users = Reserve::new(SequenceName::new("users").unwrap(), 5).create(Bounds::of::<u64>());
    let many = guarded.reserve_many(&[orders(1), users]).await;
    assert!(many.iter().all(Result::is_ok), "{many:?}");
    assert_eq!(witness.trips(), (2, 2));
}

#[tokio::test]
async fn doubt_about_the_witness_ends_with_one_write() {
    let witness = Arc::new(Counting::default());
    let guarded = Guarded::new(MemoryStore::new(), witness.clone());
    assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
    witness.witness.set_read_only(true);
    starts(&guarded, 10).await.unwrap_err();
    witness.witness.set_read_only(false);
    witness.trips();
    let mut trips = Vec::new();
    for start in [11, 21, 31] {
        assert_eq!(starts(&guarded, 10).await.unwrap(), start);
        trips.push(witness.trips());
    }
    assert_eq!(trips, [(2, 2), (1, 1), (1, 1)]);
}

/// A store that grants the same range again and again.
#[derive(Debug)]
struct Repeating(MemoryStore, Grant);

impl Store for Repeating {
    fn reserve<'a>(&'a self, _: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async { Ok(self.1) })
    }

    idmill::store_calls!(|this| this.0 => capabilities give_back create inspect list set remove);
}

#[tokio::test]
async fn repeated_ids_are_never_used_and_end_in_an_error() {
    let (store, witness, guarded) = guarded();
    let grant = guarded.reserve(&orders(10)).await.unwrap();
    let repeating = Guarded::new(Repeating(store.clone(), grant), witness);
    // The last range goes back to the store, unless more ids were granted since.
    for (gap, next) in [(0, 1), (10, 21)] {
        let error = repeating.reserve(&orders(10)).await.unwrap_err();
        assert_eq!((error.kind(), error.gap()), (ErrorKind::Unavailable, gap));
        assert_eq!(
            idmill_kit::chain(&error),
            "reserve `orders`: each granted range was already claimed; use larger steps, or find the \
             other writer of this sequence: the store granted ids from 1 on, but ids below \
             11 were already claimed; the grant was not used"
        );
        assert_eq!(store.inspect(&name()).await.unwrap().unwrap().next, Some(next));
        store.reserve(&orders(20)).await.unwrap();
    }
}

#[tokio::test]
async fn failed_repair_of_a_restored_store_is_reported() {
    for kind in [ErrorKind::Denied, ErrorKind::Unavailable] {
        let (store, witness, guarded) = guarded();
        assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
        let backup = store.snapshot();
        assert_eq!(starts(&guarded, 10).await.unwrap(), 11);
        store.restore(&backup);
        let stubborn = Guarded::new(Stubborn { store, kind }, witness);
        let error = stubborn.reserve(&orders(4)).await.unwrap_err();
        assert_eq!((error.kind(), error.gap(), stubborn.healed()), (kind, 4, 0));
    }
}

#[tokio::test]
async fn restored_and_recreated_stores_leave_no_gap() {
    let (store, _, guarded) = guarded();
    assert_eq!(starts(&guarded, 10).await.unwrap(), 1);
    let backup = store.snapshot();
    assert_eq!(starts(&guarded, 10).await.unwrap(), 11);
    store.restore(&backup);
    let restored = guarded.reserve(&orders(10)).await.unwrap();
    assert_eq!((restored.range.start(), restored.gap, guarded.healed()), (21, 0, 1));
    assert!(guarded.remove(&name(), None).await.unwrap());
    let recreated = guarded.reserve(&orders(10)).await.unwrap();
    assert_eq!((recreated.range.start(), recreated.gap, guarded.healed()), (31, 0, 1));
}

#[test]
fn long_place_loses_its_middle() {
    let parts = |middle: usize| ["a".repeat(40), "b".repeat(middle), "c".repeat(57)].concat();
    assert_eq!(shortened(&parts(3)), parts(3), "100 characters");
    for middle in [4, 500] {
        assert_eq!(shortened(&parts(middle)), parts(0).replacen("ac", "a...c", 1));
    }
    let wide = "\u{e9}".repeat(101);
    assert_eq!(shortened(&wide).chars().count(), 100);
}
