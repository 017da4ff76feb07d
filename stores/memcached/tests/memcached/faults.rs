//! Tests single faults between a window and its server.

use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Grant, Reserve, Store, StoreFuture};
use idmill::{ErrorKind, Result, SequenceName};
use idmill_memcached::{MemcachedOptions, MemcachedWindow};
use idmill_shared_cache::Tiered;
use idmill_testing::engines::Engine;
use idmill_testing::faulty::{Faults, FaultyStore};
use idmill_testing::hooked::{Hooked, Hooks};
use idmill_testing::{eventually, holds};
use tokio::sync::Semaphore;

use crate::bench::{Raw, draw, gated, key, name, options, request, server, tier};
use crate::gate::Gate;

async fn kind(tier: &crate::bench::Tier) -> ErrorKind {
    tier.reserve(&request(1)).await.unwrap_err().kind()
}

#[tokio::test]
async fn draw_with_a_lost_reply_is_unknown_and_leaves_a_gap() {
    let server = server!();
    let mut gate = Gate::before(server.address()).await;
    let tier = Arc::new(tier(&FaultyStore::new(), gated(&gate, 100)));
    let (first, drawing) = (tier.clone(), tier.clone());
    let first = tokio::spawn(async move { draw(&first, 1).await });
    for command in ["ma", "mg", "ms"] {
        gate.pass(command).await;
    }
    assert_eq!(first.await.unwrap().start(), 1);
    let lost = tokio::spawn(async move { kind(&drawing).await });
    gate.expect("ma").await.cut_after();
    assert_eq!(lost.await.unwrap(), ErrorKind::UnknownOutcome);
    // The client cannot detect that the server never received the draw, so the outcome is unknown again.
    let drawing = tier.clone();
    let lost = tokio::spawn(async move { kind(&drawing).await });
    gate.expect("ma").await.cut_before();
    assert_eq!(lost.await.unwrap(), ErrorKind::UnknownOutcome);
    gate.open();
    assert_eq!(draw(&tier, 1).await.start(), 3, "2 is a gap");
    assert_eq!((tier.window().stats().uncertain, tier.abandoned()), (2, 0));
}

#[tokio::test]
async fn install_with_a_lost_reply_returns_no_own_id() {
    let server = server!();
    let store = FaultyStore::new();
    let mut gate = Gate::before(server.address()).await;
    let tier = Arc::new(tier(&store, gated(&gate, 100)));
    let drawing = tier.clone();
    let drawing = tokio::spawn(async move { draw(&drawing, 3).await });
    gate.pass("ma").await;
    gate.pass("mg").await;
    gate.expect("ms").await.cut_after();
    gate.pass("ma").await;
    assert_eq!(drawing.await.unwrap().start(), 4, "the winner's three ids are not in the block");
    assert_eq!((tier.abandoned(), tier.uncertain(), store.reserves()), (0, 100, 1));
}

#[tokio::test]
async fn lost_install_costs_one_block_and_one_stub_lifetime() {
    let server = server!();
    let store = FaultyStore::new();
    let mut gate = Gate::before(server.address()).await;
    let tier = Arc::new(tier(&store, gated(&gate, 100).stub(Duration::from_secs(2))));
    let drawing = tier.clone();
    let drawing = tokio::spawn(async move { draw(&drawing, 3).await });
    gate.pass("ma").await;
    gate.pass("mg").await;
    let install = gate.expect("ms").await;
    gate.open();
    install.cut_before();
    assert_eq!(drawing.await.unwrap().start(), 101);
    assert_eq!((tier.uncertain(), store.reserves()), (100, 2));
}

#[tokio::test]
async fn empty_window_is_cleared_and_refilled_once() {
    let server = server!();
    let store = FaultyStore::new();
    let (gate0, mut gate1) = (Gate::before(server.address()).await, Gate::before(server.address()).await);
    let (p0, p1) = (Arc::new(tier(&store, gated(&gate0, 2))), Arc::new(tier(&store, gated(&gate1, 2))));
    gate0.open();
    // The window has only two ids, too few to prepare the next range.
    assert_eq!((draw(&p0, 1).await.start(), draw(&p0, 1).await.start()), (1, 2));
    let drawing = p1.clone();
    let drawing = tokio::spawn(async move { draw(&drawing, 1).await });
    gate1.pass("ma").await;
    let clear = gate1.expect("md").await;
    // P0 also finds the window empty, clears it, and refills it. P1's late clear then fails, because the
    // cas has changed, and leaves the new block unchanged.
    assert_eq!(draw(&p0, 1).await.start(), 3);
    clear.pass();
    gate1.pass("ma").await;
    assert_eq!((drawing.await.unwrap().start(), store.reserves()), (4, 2));
}

#[tokio::test]
async fn draw_discards_its_cas_with_its_connection() {
    let server = server!();
    let store = FaultyStore::new();
    let p0 = tier(&store, options(&server, 2));
    assert_eq!((draw(&p0, 1).await.start(), draw(&p0, 1).await.start()), (1, 2));
    let mut gate = Gate::before(server.address()).await;
    let p1 = Arc::new(tier(&store, gated(&gate, 2)));
    let drawing = p1.clone();
    let drawing = tokio::spawn(async move { draw(&drawing, 1).await });
    // P1 receives the cas of the empty window, but loses its connection before it uses the cas. P1 must
    // then draw again.
    gate.expect("ma").await.pass_and_cut();
    gate.pass("ma").await;
    gate.open();
    assert_eq!((drawing.await.unwrap().start(), store.reserves()), (3, 2));
}

/// A store in which the reserves of one sequence wait for a permit.
#[derive(Debug)]
struct Paused {
    inner: FaultyStore,
    arrived: Semaphore,
    permits: Semaphore,
}

impl Paused {
    fn new(inner: &FaultyStore) -> Arc<Hooked<Self>> {
        let paused = Self { inner: inner.clone(), arrived: Semaphore::new(0), permits: Semaphore::new(0) };
        Arc::new(Hooked(paused))
    }

    async fn arrival(&self) {
        self.arrived.acquire().await.unwrap().forget();
    }
}

impl Hooks for Paused {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            if request.name == name() {
                self.arrived.add_permits(1);
                self.permits.acquire().await.unwrap().forget();
            }
            self.inner.reserve(request).await
        })
    }
}

type PausedTier = Arc<Tiered<Arc<dyn Store>, MemcachedWindow>>;

fn paused_tier(store: &Arc<Hooked<Paused>>, options: MemcachedOptions) -> PausedTier {
    Arc::new(Tiered::new(store.clone() as Arc<dyn Store>, MemcachedWindow::new(options).unwrap()))
}

/// Draws one id in the background.
fn begin(tier: &PausedTier) -> tokio::task::JoinHandle<u64> {
    let tier = tier.clone();
    tokio::spawn(async move { draw(&tier, 1).await.start() })
}

/// A restarted server counts its cas from the beginning, so an old cas that is sent on a new connection
/// could match.
#[tokio::test]
async fn cas_is_never_used_on_another_connection() {
    let server = server!();
    let store = FaultyStore::new();
    let (store0, store1) = (Paused::new(&store), Paused::new(&store));
    let options = options(&server, 100).stub(Duration::from_secs(60));
    let (p0, p1) = (paused_tier(&store0, options.clone()), paused_tier(&store1, options));
    // P0 creates the first stub on this server, and is paused in its reserve.
    let late = begin(&p0);
    store0.arrival().await;
    server.kill();
    server.restart().await;
    // P1 does the same on the restarted server, so its stub has the same cas as P0's stub.
    let early = begin(&p1);
    store1.arrival().await;
    // Draw from another sequence, so that P0 already has a new connection.
    let mut other = request(1);
    other.name = SequenceName::new("other").unwrap();
    eventually("P0 has a new connection", async || {
        let granted = p0.reserve(&other).await;
        if let Err(error) = &granted {
            assert!(crate::bench::passes(error), "{error}");
        }
        granted
    })
    .await;
    store0.permits.add_permits(10);
    // P0 must abandon its block and wait for P1's block. Let P0 look at the item before P1 continues.
    eventually("P0 abandons its block", async || {
        assert!(!late.is_finished(), "P0 put its block in the place of a stub that is not its own");
        holds(p0.abandoned() > 0, "no abandoned ids")
    })
    .await;
    store1.permits.add_permits(10);
    let (early, late) = (early.await.unwrap(), late.await.unwrap());
    assert_eq!((p0.abandoned(), p1.abandoned()), (100, 0));
    assert_eq!((early, late), (101, 102));
}

#[tokio::test]
async fn only_the_stub_winner_reserves_from_the_store() {
    let server = server!();
    let store = FaultyStore::new();
    let (store0, store1) = (Paused::new(&store), Paused::new(&store));
    let options = options(&server, 100).stub(Duration::from_secs(60));
    let (p0, p1) = (paused_tier(&store0, options.clone()), paused_tier(&store1, options));
    store1.permits.add_permits(100);
    let first = begin(&p0);
    store0.arrival().await;
    let waiter = begin(&p1);
    // Wait until P1 has looked several times and found the stub.
    eventually("P1 has looked several times", async || {
        assert!(!waiter.is_finished(), "the waiter called the store");
        let stats = p1.window().stats();
        holds(stats.round_trips >= 6, stats)
    })
    .await;
    assert_eq!((waiter.is_finished(), store.reserves()), (false, 0));
    store0.permits.add_permits(1);
    assert_eq!((first.await.unwrap(), waiter.await.unwrap(), store.reserves()), (1, 2, 1));
}

#[tokio::test]
async fn dead_winner_costs_one_stub_lifetime() {
    let server = server!();
    let store = FaultyStore::new();
    let paused = Paused::new(&store);
    let dying = paused_tier(&paused, options(&server, 100));
    let winner = begin(&dying);
    paused.arrival().await;
    winner.abort();
    assert_eq!(draw(&tier(&store, options(&server, 100)), 1).await.start(), 1);
}

#[tokio::test]
async fn failed_reserve_deletes_its_stub_immediately() {
    let server = server!();
    let store = FaultyStore::new();
    let failing = tier(&store, options(&server, 100));
    draw(&failing, 100).await;
    store.fail_sequence(name().as_str(), ErrorKind::Unavailable);
    assert_eq!(kind(&failing).await, ErrorKind::Unavailable);
    let (mut operator, key) = (Raw::open(&server).await, key(&store).await);
    assert_eq!(operator.ask(&format!("mg {key} v")).await.0, "EN", "the stub was left to expire");
    store.heal_sequence(name().as_str());
    assert_eq!(draw(&failing, 1).await.start(), 101);
    store.set_faults(Faults::outage());
    assert_eq!(draw(&failing, 1).await.start(), 102, "the window does not need the store");
}

#[tokio::test]
async fn unreachable_cache_is_an_error_without_a_store_reserve() {
    let Some(server) = Engine::down("memcached") else { return };
    let store = FaultyStore::new();
    let tier = tier(&store, options(&server, 100));
    let error = tier.reserve(&request(1)).await.unwrap_err();
    assert_eq!((error.kind(), store.reserves()), (ErrorKind::Unavailable, 0));
    let text = error.to_string();
    assert!(text.contains(&server.address().to_string()) && text.contains("efused"), "{text}");
    server.restart().await;
    assert_eq!(draw(&tier, 1).await.start(), 1);
    server.kill();
    // The closed connection may be detected before or during the draw.
    let kinds = [ErrorKind::Unavailable, ErrorKind::UnknownOutcome];
    assert!(kinds.contains(&kind(&tier).await));
    assert_eq!((kind(&tier).await, store.reserves()), (ErrorKind::Unavailable, 1));
}

#[tokio::test]
async fn hanging_server_receives_only_one_draw() {
    let server = server!();
    let tier = tier(&FaultyStore::new(), options(&server, 100).timeout(Duration::from_secs(2)));
    assert_eq!(draw(&tier, 1).await.start(), 1);
    server.pause();
    assert_eq!(kind(&tier).await, ErrorKind::UnknownOutcome);
    for _ in 0..3 {
        assert_eq!(
            kind(&tier).await,
            ErrorKind::Unavailable,
            "nothing is drawn over a connection that never answered"
        );
    }
    server.resume();
    assert_eq!(draw(&tier, 1).await.start(), 3, "the abandoned draw was executed");
    assert_eq!(tier.window().stats().uncertain, 1);
}

/// Callers must share one connection attempt. Otherwise each caller would wait for its own attempt to time
/// out.
#[tokio::test(start_paused = true)]
async fn callers_wait_one_timeout_for_a_silent_server() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let timeout = Duration::from_secs(10);
    let address = silent.local_addr().unwrap().to_string();
    let tier = tier(&FaultyStore::new(), MemcachedOptions::new(address).timeout(timeout));
    let began = tokio::time::Instant::now();
    let kinds = tokio::join!(kind(&tier), kind(&tier), kind(&tier));
    assert_eq!(kinds, (ErrorKind::Unavailable, ErrorKind::Unavailable, ErrorKind::Unavailable));
    assert!(began.elapsed() < timeout * 3 / 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn server_without_meta_commands_is_reported() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        let (mut client, _) = listener.accept().await.unwrap();
        client.write_all(b"ERROR\r\n").await.unwrap();
    });
    let tier = tier(&FaultyStore::new(), MemcachedOptions::new(address.to_string()));
    let error = tier.reserve(&request(1)).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("meta commands"), "{error}");
}
