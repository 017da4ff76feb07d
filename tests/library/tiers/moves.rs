//! A window that has been replaced, and a source that went back in time: distinguished by the claimed and
//! the drawn ids.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use idmill::store::{Bounds, Grant, Reserve, Store, StoreFuture};
use idmill::{ErrorKind, Result, SequenceName, Sequences};
use idmill_shared_cache::{Drawn, Installed, Tiered, Window};
use idmill_testing::faulty::FaultyStore;

use super::shelf::Shelf;

/// Two servers behind one name, which resolves to one of them.
#[derive(Clone, Debug)]
struct OneName {
    servers: [Shelf; 2],
    leads_to: Arc<AtomicUsize>,
}

impl OneName {
    fn new() -> Self {
        Self { servers: [Shelf::new(0, 0), Shelf::new(1, 0)], leads_to: Arc::default() }
    }

    fn move_to(&self, server: usize) {
        self.leads_to.store(server, Ordering::Relaxed);
    }

    fn server(&self) -> &Shelf {
        &self.servers[self.leads_to.load(Ordering::Relaxed)]
    }
}

impl Window for OneName {
    type Token = (usize, u64);

    fn draw<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Drawn<(usize, u64)>>> {
        Box::pin(async move {
            let number = self.leads_to.load(Ordering::Relaxed);
            Ok(match self.servers[number].draw(request).await? {
                Drawn::Ids { grant, .. } => Drawn::Ids { grant, low: None },
                Drawn::Empty(token) => Drawn::Empty((number, token)),
                Drawn::Busy(wait) => Drawn::Busy(wait),
                Drawn::UnknownSequence => Drawn::UnknownSequence,
            })
        })
    }

    fn refill_size(&self, _request: &Reserve, _token: &(usize, u64)) -> u64 {
        10
    }

    fn install<'a>(
        &'a self,
        request: &'a Reserve,
        (server, token): (usize, u64),
        grant: Grant,
    ) -> StoreFuture<'a, Result<Installed>> {
        self.servers[server].install(request, token, grant)
    }

    fn release<'a>(
        &'a self,
        request: &'a Reserve,
        (server, token): (usize, u64),
        lost: bool,
    ) -> StoreFuture<'a, ()> {
        self.servers[server].release(request, token, lost)
    }
}

fn tier(store: &FaultyStore, window: &OneName) -> Arc<Tiered<Arc<dyn Store>, OneName>> {
    Arc::new(Tiered::new(Arc::new(store.clone()) as Arc<dyn Store>, window.clone()))
}

#[tokio::test(start_paused = true)]
async fn window_serves_and_counts_moves_between_servers() {
    let (store, window) = (FaultyStore::new(), OneName::new());
    let tier = tier(&store, &window);
    let ids = Sequences::new(tier.clone()).unwrap();
    let s = ids.sequence::<u64>("s").step(1).watermark(0).await.unwrap();
    let mut drawn = Vec::new();
    for server in [0, 1, 0, 1, 0] {
        window.move_to(server);
        for _ in 0..3 {
            drawn.push(s.next().await.unwrap());
        }
    }
    // After a move back, ids below the largest drawn id are skipped, so ids grow across both servers.
    assert_eq!(drawn, [1, 2, 3, 11, 12, 13, 21, 22, 23, 31, 32, 33, 41, 42, 43]);
    assert_eq!(tier.abandoned(), 7 + 7 + 7);
    assert!(tier.moves() >= 3, "{}", tier.moves());
}

#[tokio::test(start_paused = true)]
async fn restored_source_is_raised_and_not_counted_as_a_move() {
    let (store, window) = (FaultyStore::new(), OneName::new());
    let name = SequenceName::new("s").unwrap();
    let request = |count| Reserve::new(name.clone(), count).create(Bounds::of::<u64>());
    let tier = tier(&store, &window);
    tier.reserve(&request(10)).await.unwrap();
    let backup = store.snapshot();
    for _ in 0..4 {
        tier.reserve(&request(10)).await.unwrap();
    }
    store.restore(&backup);
    window.server().with(super::shelf::Item::evict);
    let error = tier.reserve(&request(10)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
    assert!(error.to_string().contains("raised above 50"), "{error}");
    assert_eq!(store.inspect(&name).await.unwrap().unwrap().next, Some(51));
    assert_eq!((tier.moves(), tier.reserve(&request(1)).await.unwrap().range.start()), (0, 51));
}
