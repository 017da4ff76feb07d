//! Lost requests and answers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Bounds, GiveBack, Grant, Identity, Store};
use idmill::{ErrorKind, IdRange};
use idmill_conformance::Proxy;
use idmill_conformance::proxy::{Fault, Gate};
use idmill_etcd::{EtcdOptions, EtcdStore};

use super::{TIMEOUT, inspect, name, open, request, reserve, shared};
use idmill_testing::engines::Engine;
use idmill_testing::{eventually, holds};

/// A proxy, and the engine behind it. The struct keeps the engine alive.
struct Between {
    proxy: Proxy,
    _engine: Arc<Engine>,
}

impl Between {
    async fn start(engine: Arc<Engine>) -> Self {
        Self { proxy: Proxy::start(engine.address()).await.unwrap(), _engine: engine }
    }

    /// Holds back the store's requests from the next write on, until the gate is opened.
    fn hold_writes(&self) -> Gate {
        let gate = Gate::new();
        self.proxy.arm(Fault::Hold(gate.clone()), is_write);
        gate
    }

    /// Withholds etcd's answers on all connections from the next write on, forever.
    fn lose_answers(&self) {
        let mut begun = false;
        self.proxy.arm(Fault::Withhold(Gate::new()), move |piece| {
            begun |= is_write(piece);
            begun
        });
    }

    /// Cuts all current connections of the store, and holds nothing back on later ones. Requests that
    /// reached etcd are unaffected.
    fn cut(&self) {
        assert!(self.proxy.disarm() > 0, "no fault was triggered: nothing was tested");
        self.proxy.cut();
    }
}

/// Only writes contain a claim.
fn is_write(piece: &[u8]) -> bool {
    piece.windows(5).any(|word| word == b"claim")
}

/// A store that reaches etcd through a proxy, one that does not, and the proxy.
async fn behind(place: &str) -> Option<(EtcdStore, EtcdStore, Between)> {
    let engine = shared().await?;
    let proxy = Between::start(engine.clone()).await;
    let direct = open(&engine, place).await;
    let options = EtcdOptions::new([proxy.proxy.address().to_string()]).timeout(TIMEOUT);
    let behind = EtcdStore::open_with(options.prefix(format!("/{place}/"))).await.unwrap();
    Some((behind, direct, proxy))
}

/// Waits until the sequence's next id is this one.
async fn next_is(store: &EtcdStore, sequence: &str, next: u64) {
    eventually("the next id is reached", async || {
        let info = store.inspect(&name(sequence)).await.unwrap();
        holds(info.as_ref().is_some_and(|info| info.next == Some(next)), info)
    })
    .await;
}

#[tokio::test]
async fn a_lost_answer_is_found_out_and_costs_nothing() {
    let Some((store, direct, proxy)) = behind("lost_answer").await else { return };
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    proxy.lose_answers();
    let reserving = tokio::spawn({
        let store = store.clone();
        async move { reserve(&store, "s", 10).await }
    });
    next_is(&direct, "s", 21).await;
    proxy.cut();
    assert_eq!(reserving.await.unwrap().unwrap(), (11, 10), "the range that was reserved");
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (21, 10), "the range was reserved once");
}

#[tokio::test]
async fn a_lost_request_is_sent_again() {
    let Some((store, direct, proxy)) = behind("lost_request").await else { return };
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    let held = proxy.hold_writes();
    let reserving = tokio::spawn({
        let store = store.clone();
        async move { reserve(&store, "s", 10).await }
    });
    held.caught().await;
    proxy.cut();
    assert_eq!(reserving.await.unwrap().unwrap(), (11, 10));
    // The first copy arrives late: its condition no longer holds.
    held.open();
    held.passed().await;
    assert_eq!(reserve(&direct, "s", 10).await.unwrap(), (21, 10));
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (31, 10));
}

#[tokio::test]
async fn lost_reply_followed_by_other_writes_is_unknown() {
    let Some((store, direct, proxy)) = behind("overtaken").await else { return };
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    proxy.lose_answers();
    let reserving = tokio::spawn({
        let store = store.clone();
        async move { reserve(&store, "s", 10).await }
    });
    next_is(&direct, "s", 21).await;
    assert_eq!(reserve(&direct, "s", 10).await.unwrap(), (21, 10));
    proxy.cut();
    let error = reserving.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    assert!(error.to_string().contains("its key has changed since"), "{error}");
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (31, 10));
}

#[tokio::test]
async fn a_lost_answer_to_a_creation_is_found_out() {
    let Some((store, direct, proxy)) = behind("lost_creation").await else { return };
    proxy.lose_answers();
    let reserving = tokio::spawn({
        let store = store.clone();
        async move { store.reserve(&request("a", 10)).await }
    });
    next_is(&direct, "a", 11).await;
    proxy.cut();
    let grant = reserving.await.unwrap().unwrap();
    assert_eq!((grant.range.start(), grant.identity), (1, inspect(&direct, "a").await.identity));
    proxy.lose_answers();
    let creating = tokio::spawn({
        let store = store.clone();
        async move { store.create(&name("b"), Bounds::of::<u64>()).await }
    });
    next_is(&direct, "b", 1).await;
    proxy.cut();
    assert_eq!(creating.await.unwrap().unwrap(), inspect(&direct, "b").await);
}

/// A late copy of a create would restore a removed sequence with its old identity.
#[tokio::test]
async fn a_creation_that_arrives_late_makes_no_id_twice() {
    let Some((store, direct, proxy)) = behind("late_creation").await else { return };
    assert_eq!(reserve(&store, "other", 1).await.unwrap(), (1, 1));
    let mut seen = BTreeSet::new();
    let mut note = |grant: Grant| {
        let identity = (grant.identity.incarnation, grant.identity.epoch);
        assert!(seen.insert((identity, grant.range.start())), "granted twice: {grant:?}");
    };
    let held = proxy.hold_writes();
    let reserving = tokio::spawn({
        let store = store.clone();
        async move { store.reserve(&request("s", 10)).await }
    });
    held.caught().await;
    proxy.cut();
    match reserving.await.unwrap() {
        Ok(grant) => note(grant),
        Err(error) => assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}"),
    }
    for _ in 0..3 {
        note(direct.reserve(&request("s", 10)).await.unwrap());
    }
    assert!(direct.remove(&name("s"), None).await.unwrap());
    held.open();
    held.passed().await;
    // Wait until the late create has been applied.
    next_is(&direct, "s", 11).await;
    for _ in 0..3 {
        note(direct.reserve(&request("s", 10)).await.unwrap());
    }
}

#[tokio::test]
async fn a_rest_is_given_back_once() {
    let Some((store, direct, proxy)) = behind("given_back").await else { return };
    let grant = store.reserve(&request("s", 10)).await.unwrap();
    let back = |start, len| GiveBack::new(name("s"), grant.identity, IdRange::new(start, len).unwrap());
    assert!(store.give_back(&back(6, 5)).await.unwrap());
    assert!(!store.give_back(&back(6, 5)).await.unwrap(), "the range is no longer the last");
    assert_eq!(reserve(&direct, "s", 5).await.unwrap(), (6, 5));
    // The store's cache is stale: its last reserved ids are 1 to 5.
    assert_eq!(reserve(&direct, "s", 5).await.unwrap(), (11, 5));
    assert!(!store.give_back(&back(1, 5)).await.unwrap());
    assert!(!store.give_back(&back(6, 5)).await.unwrap());
    assert_eq!(inspect(&direct, "s").await.next, Some(16));
    let stranger = GiveBack::new(name("s"), Identity::fresh(), back(11, 5).rest);
    assert!(!store.give_back(&stranger).await.unwrap());
    let nowhere = GiveBack::new(name("nowhere"), grant.identity, back(11, 5).rest);
    assert!(!store.give_back(&nowhere).await.unwrap());
    // Hold the give-back: it is not resent, so this is the only copy.
    let held = proxy.hold_writes();
    let giving = tokio::spawn({
        let (store, back) = (store.clone(), back(11, 5));
        async move { store.give_back(&back).await }
    });
    held.caught().await;
    proxy.cut();
    assert_eq!(giving.await.unwrap().unwrap_err().kind(), ErrorKind::UnknownOutcome);
    assert_eq!(inspect(&direct, "s").await.next, Some(16));
    held.open();
    held.passed().await;
    next_is(&direct, "s", 11).await;
}

#[tokio::test]
async fn silence_ends_with_the_timeout() {
    let Some(engine) = shared().await else { return };
    let proxy = Between::start(engine.clone()).await;
    let direct = open(&engine, "silence").await;
    let options = EtcdOptions::new([proxy.proxy.address().to_string()]).prefix("/silence/");
    let store = EtcdStore::open_with(options.timeout(Duration::from_secs(5))).await.unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    proxy.lose_answers();
    let error = reserve(&store, "s", 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    assert_eq!(
        store.inspect(&name("s")).await.unwrap_err().kind(),
        ErrorKind::Unavailable,
        "a read reserves nothing"
    );
    assert_eq!(inspect(&direct, "s").await.next, Some(21), "only one reserve was applied");
    proxy.proxy.disarm();
    // The unresponsive connection is replaced.
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (21, 10));
}
