//! When a window is refilled, how often, and the fate of ranges that it does not accept.

use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Bounds, Change, Grant, Reserve, Store, StoreFuture};
use idmill::{ErrorKind, Result, SequenceName};
use idmill_shared_cache::{Claimed, Source, Tiered};
use idmill_testing::faulty::{Fault, Faults, FaultyStore};
use tokio::sync::Semaphore;

use super::shelf::{Item, Shelf};

fn request(count: u64) -> Reserve {
    let name = SequenceName::new("s").unwrap();
    Reserve::new(name, count).create(Bounds::of::<u64>())
}

fn tier(store: &FaultyStore, shelf: &Shelf) -> Tiered<Arc<dyn Store>, Shelf> {
    Tiered::new(Arc::new(store.clone()) as Arc<dyn Store>, shelf.clone())
}

#[tokio::test(start_paused = true)]
async fn a_low_window_is_refilled_ahead_of_need_and_once() {
    let store = FaultyStore::new();
    let shelf = Shelf { low: Some(9), ..Shelf::new(0, 0) };
    let tier = tier(&store, &shelf);
    tier.reserve(&request(1)).await.unwrap();
    store.set_faults(Faults::none().latency(Duration::from_secs(1)));
    // Each of these draws finds the window low while the refill that the first draw began is in flight.
    for _ in 0..5 {
        tier.reserve(&request(1)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(store.reserves(), 2, "preloaded once");
    assert_eq!(shelf.with(|item| item.left()), 14);
    // No caller waits any more at the end of the first range.
    store.set_faults(Faults::outage());
    for _ in 0..14 {
        tier.reserve(&request(1)).await.unwrap();
    }
    assert_eq!(tier.abandoned(), 0);
}

/// If a prefetch reserved the ids that a caller requests, a window would hold the largest step of any caller.
#[tokio::test(start_paused = true)]
async fn prefetch_of_a_window_reserves_its_own_range() {
    let store = FaultyStore::new();
    let shelf = Shelf { low: Some(9), stretches: true, ..Shelf::new(0, 0) };
    let tier = tier(&store, &shelf);
    assert_eq!(tier.reserve(&request(1)).await.unwrap().range.len(), 1);
    // This draw takes all remaining ids. No caller waits for the prefetch.
    assert_eq!(tier.reserve(&request(1000)).await.unwrap().range.len(), 9);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((store.reserves(), shelf.with(|item| item.left())), (2, 10));
    tier.reserve(&request(10)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    // A caller waits for this refill, so it reserves the requested number.
    for _ in 0..2 {
        shelf.with(Item::evict);
        assert_eq!(tier.reserve(&request(1000)).await.unwrap().range.len(), 1000);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refill_ahead_of_need_that_fails_is_tried_again() {
    let store = FaultyStore::new();
    let shelf = Shelf { low: Some(9), ..Shelf::new(0, 0) };
    let tier = tier(&store, &shelf);
    tier.reserve(&request(1)).await.unwrap();
    store.push_fault(Fault::LostRequest);
    for left in [8, 17] {
        tier.reserve(&request(1)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(shelf.with(|item| item.left()), left, "a failed prefetch did not reach the caller");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reserve_that_is_dropped_while_it_installs_is_counted() {
    let store = FaultyStore::with_faults(Faults::none().latency(Duration::from_secs(1)));
    let tier = tier(&store, &Shelf { hangs: true, ..Shelf::new(0, 0) });
    let dropped = tokio::time::timeout(Duration::from_secs(10), tier.reserve(&request(1))).await;
    assert!(dropped.is_err());
    assert_eq!((tier.abandoned(), tier.uncertain()), (0, 10));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_fails_gives_its_token_back() {
    let store = FaultyStore::with_faults(Faults::none().script([Fault::LostRequest]));
    let (first, second) = (tier(&store, &Shelf::new(0, 0)), Shelf::new(0, 0));
    let second = Tiered::new(Arc::new(store.clone()) as Arc<dyn Store>, second);
    let error = first.reserve(&request(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    // A leftover stub would block the first tier forever.
    assert_eq!(first.reserve(&request(1)).await.unwrap().range.start(), 1);
    assert_eq!(second.reserve(&request(1)).await.unwrap().range.start(), 11);
}

/// A source whose first claims are stale, and whose later claims are recorded.
#[derive(Debug)]
struct Remembering {
    store: FaultyStore,
    stale: Semaphore,
}

impl Source<u64> for Remembering {
    fn claim<'a>(&'a self, request: &'a Reserve, _token: &'a u64) -> StoreFuture<'a, Result<Claimed>> {
        Box::pin(async move {
            if let Ok(permit) = self.stale.try_acquire() {
                permit.forget();
                return Ok(Claimed::Stale);
            }
            assert_eq!(request.ceiling, u64::MAX, "the window's reserve has no ceiling");
            let grant: Grant = self.store.reserve(request).await?;
            Ok(Claimed::Range { grant, recorded: true })
        })
    }

    fn store(&self) -> &dyn Store {
        &self.store
    }
}

#[tokio::test(start_paused = true)]
async fn stale_claims_are_retried_and_recorded_ranges_not_lost() {
    let shelf = Shelf::new(3, 20);
    let source = Remembering { store: FaultyStore::new(), stale: Semaphore::new(3) };
    let tier = Tiered::new(source, shelf.clone());
    let mut drawn = 0;
    for _ in 0..1_000 {
        drawn += u32::from(drawn < 200 && tier.reserve(&request(1).ceiling(1 << 40)).await.is_ok());
    }
    assert_eq!(drawn, 200, "too few draws succeed");
    assert_eq!((tier.abandoned(), tier.uncertain()), (0, 0));
    assert_eq!(tier.source().stale.available_permits(), 0);
    assert!(!tier.capabilities().batches);
}

#[tokio::test(start_paused = true)]
async fn a_window_is_withdrawn_after_the_store_is_set() {
    let store = FaultyStore::new();
    let shelf = Shelf { behind: Some(store.clone()), ..Shelf::new(0, 0) };
    let tier = tier(&store, &shelf);
    tier.reserve(&request(1)).await.unwrap();
    tier.set(&request(1).name, Change::new().next(1000)).await.unwrap();
    // The window must be withdrawn last: otherwise it could be refilled with old ids.
    assert_eq!(shelf.with(|item| item.recalled), Some(1000));
    assert_eq!(tier.reserve(&request(1)).await.unwrap().range.start(), 1000);
}

#[tokio::test(start_paused = true)]
async fn ids_above_a_ceiling_are_counted_and_end_one_caller() {
    let tier = tier(&FaultyStore::new(), &Shelf::new(0, 0));
    let small = request(6).ceiling(4);
    assert_eq!(tier.reserve(&small).await.unwrap().range.iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(tier.reserve(&small).await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(tier.abandoned(), 2 + 4);
    assert_eq!(tier.reserve(&request(1)).await.unwrap().range.start(), 11);
}
