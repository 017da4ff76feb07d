//! Writes to a window that arrive late, after another client has set the sequence and refilled the window.
//!
//! No such write may be applied: its era is outdated, although all other parts of its condition may hold
//! again.

use std::time::Duration;

use idmill::store::{Change, Grant, Store};
use idmill_cassandra::CassandraStore;
use idmill_conformance::proxy::Gate;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::ledger::Ledger;
use crate::statements::Between;
use crate::{insist, name, request};

const TAKE: &str = "SET next = ?, until = ? WHERE";
const SWITCH: &str = "SET next = ?, until = ?, preloaded_next = null";
const INSTALL: &str = "SET preloaded_next = ?";
const RESET: &str = "SET incarnation = ?";

/// Two stores with separate state, like two processes, behind a proxy in front of the node. The tests delay
/// writes of `late`.
struct Two {
    proxy: Between,
    late: CassandraStore,
    prompt: CassandraStore,
}

impl Two {
    async fn over(cluster: &Cluster) -> Self {
        let proxy = Between::to(cluster.address(0)).await;
        // A write times out after a quarter of the timeout below. `prompt` must finish before the held write
        // times out.
        let options = cluster.behind(&proxy, "stale").create_keyspace([("dc1", 1)]).geo("dc1", 150);
        let options = options.timeout(Duration::from_secs(160)).check_every(Duration::ZERO);
        let [late, prompt] = [Cluster::open(&options).await, Cluster::open(&options).await];
        Self { proxy, late, prompt }
    }

    /// Starts a reserve, and holds back its first write that matches.
    async fn reserve_until(
        &self,
        store: &CassandraStore,
        write: &str,
        text: &'static str,
    ) -> (Gate, JoinHandle<Grant>) {
        let (held, store) = (self.proxy.hold(write, text), store.clone());
        let reserving = tokio::spawn(async move { store.reserve(&request(text, 5)).await.unwrap() });
        held.caught().await;
        (held, reserving)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_of_an_earlier_era_is_refused() {
    let Some(cluster) = Cluster::start("ids").await else { return };
    let two = Two::over(&cluster).await;
    a_take_after_the_same_number_came_again(&two).await;
    one_that_empties_the_window(&two).await;
    for (write, text) in [(SWITCH, "stale_switch"), (INSTALL, "stale_install")] {
        one_that_fills_the_window(&two, write, text).await;
    }
}

/// After the sequence is set back, the window's `next` equals the value in the condition of the held `TAKE`
/// statement.
async fn a_take_after_the_same_number_came_again(two: &Two) {
    let s = request("stale_take", 5);
    let before = insist(&two.late, &s, &mut Ledger::default()).await;
    let (take, late) = two.reserve_until(&two.late, TAKE, "stale_take").await;
    let back = Change::new().next(1).backwards(true);
    two.prompt.set(&s.name, back).await.unwrap();
    let mut ledger = Ledger::default();
    let first = insist(&two.prompt, &s, &mut ledger).await;
    assert_eq!(
        first.range, before.range,
        "the window is not at the position that the take expects: nothing was tested"
    );
    take.open();
    let late = late.await.unwrap();
    assert_eq!(late.identity, first.identity, "ids of the era before: {late:?}");
    ledger.note(5, &Ok(late));
    insist(&two.prompt, &s, &mut ledger).await;
    assert_eq!(ledger.disjoint(), 15);
}

/// Both processes detect that the sequence was set. The prompt process resets the window, refills it and
/// draws before the late process's reset arrives.
async fn one_that_empties_the_window(two: &Two) {
    let s = request("stale_reset", 5);
    insist(&two.late, &s, &mut Ledger::default()).await;
    set_to_a_thousand(two, "stale_reset").await;
    let (reset, late) = two.reserve_until(&two.late, RESET, "stale_reset").await;
    let mut ledger = Ledger::default();
    insist(&two.prompt, &s, &mut ledger).await;
    reset.open();
    ledger.note(5, &Ok(late.await.unwrap()));
    insist(&two.prompt, &s, &mut ledger).await;
    assert!(ledger.disjoint() == 15 && !ledger.reaches(6), "ids of the era before");
}

/// Releases a stale write to a window that was emptied in the meantime. Only the era in the write's condition
/// distinguishes the emptied window from a new one, so the write must be rejected.
async fn one_that_fills_the_window(two: &Two, write: &str, text: &'static str) {
    let (stale, late) = two.reserve_until(&two.late, write, text).await;
    set_to_a_thousand(two, text).await;
    let (write, prompt) = two.reserve_until(&two.prompt, write, text).await;
    stale.open();
    let mut ledger = Ledger::default();
    for (released, reserving) in [(None, late), (Some(write), prompt)] {
        if let Some(write) = released {
            write.open();
        }
        let grant = reserving.await.unwrap();
        assert!(grant.range.start() >= 1_000, "{text}: ids of the era before: {grant:?}");
        ledger.note(5, &Ok(grant));
    }
    insist(&two.late, &request(text, 5), &mut ledger).await;
    assert_eq!(ledger.disjoint(), 15);
}

async fn set_to_a_thousand(two: &Two, text: &str) {
    let forwards = Change::new().next(1_000);
    two.prompt.set(&name(text), forwards).await.unwrap();
}
