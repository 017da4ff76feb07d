//! Readiness probes, and the orderly end of a server.

use std::time::Duration;

use idmill::ErrorKind;
use idmill::store::{Bounds, Store};
use idmill_testing::faulty::{Faults, FaultyStore};
use idmill_testing::{eventually, holds};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::audit;
use crate::common::{Running, Watched, with_orders};

/// Returns whether the server is ready, and the text.
async fn ready(server: &Running) -> (bool, String) {
    let answer = reqwest::get(server.url("/readyz")).await.unwrap();
    (answer.status() == 200, answer.text().await.unwrap())
}

/// Returns the reason.
async fn until_unready(server: &Running) -> String {
    eventually("the server is not ready", async || match ready(server).await {
        (true, text) => Err(text),
        (false, text) => Ok(text),
    })
    .await
}

pub(crate) async fn until_ready(server: &Running) {
    eventually("the server is ready", async || match ready(server).await {
        (true, _) => Ok(()),
        (false, text) => Err(text),
    })
    .await;
}

#[tokio::test]
async fn server_is_not_ready_before_its_store_has_answered() {
    let store = with_orders().await;
    store.set_faults(Faults::outage());
    let server = Running::over(store.clone()).await;
    let (is_ready, text) = ready(&server).await;
    assert!(!is_ready && text.contains("the store has not answered yet"), "{text}");
    store.set_faults(Faults::none());
    until_ready(&server).await;
}

/// A hanging store counts as unreachable.
#[tokio::test]
async fn server_is_not_ready_while_its_store_hangs() {
    let store = with_orders().await;
    store.set_faults(Faults::none().always(idmill_testing::faulty::Fault::HangBefore));
    let server = Running::over(store).await;
    let (is_ready, text) = ready(&server).await;
    assert!(!is_ready && text.contains("the store has not answered yet"), "{text}");
}

#[tokio::test]
async fn server_is_unready_before_its_memory_runs_empty() {
    let store = with_orders().await;
    let server = Running::over(store.clone()).await;
    let mut client = server.client().await;
    // Draw enough ids to measure a rate.
    for _ in 0..150 {
        client.id("INCR orders").await;
        sleep(Duration::from_millis(20)).await;
    }
    assert!(ready(&server).await.0);
    store.set_faults(Faults::outage());
    let mut was_ready_without = false;
    let text = eventually("the server is not ready", async || {
        assert!(
            client.ask("INCR orders").await.starts_with(':'),
            "the server was ready until its memory was empty"
        );
        let (is_ready, text) = ready(&server).await;
        was_ready_without |= is_ready && text.contains("`orders` is failing");
        if is_ready { Err(text) } else { Ok(text) }
    })
    .await;
    assert!(text.contains("the store grants no ids") && text.contains("`orders` is failing"), "{text}");
    assert!(was_ready_without, "the server was not ready as soon as the store was unreachable");
    assert!(client.ask("INCR orders").await.starts_with(':'));
    // Without draws, the remaining ids last forever, which must not make the server ready again.
    sleep(Duration::from_secs(4)).await;
    let (is_ready, text) = ready(&server).await;
    assert!(!is_ready, "{text}");
    store.set_faults(Faults::none());
    until_ready(&server).await;
}

#[tokio::test]
async fn server_is_not_ready_while_sequences_cannot_be_opened() {
    let ((log, _guard), store) = (audit::begin(), with_orders().await);
    let server = Running::with(store.clone(), |server| server.timeout(Duration::from_millis(200))).await;
    until_ready(&server).await;
    store.set_faults(Faults::outage());
    assert!(server.client().await.ask("INCR orders").await.starts_with("-TRYAGAIN"));
    let text = until_unready(&server).await;
    assert!(text.contains("the store does not answer"), "{text}");
    eventually("the log advises to use another server", async || {
        let line = "the store does not answer; send clients to another server";
        holds(log.text().contains(line) && !log.text().contains("the store cannot be used"), log.text())
    })
    .await;
    store.set_faults(Faults::none());
    until_ready(&server).await;
    assert!(log.text().contains("the store answers again"));
}

/// The store returns a permanent error that concerns all sequences, as for a replaced file.
#[tokio::test]
async fn server_is_not_ready_while_its_store_refuses_everything() {
    let ((log, _guard), store) = (audit::begin(), Watched::default());
    let server = Running::over(store.clone()).await;
    let mut client = server.client().await;
    client.id("INCR orders").await;
    until_ready(&server).await;
    store.break_all(true);
    for name in ["orders", "others"] {
        client.until_refused(&format!("INCR {name}")).await;
    }
    let text = until_unready(&server).await;
    let reasons = ["the store cannot be used", "the store grants no ids"];
    assert!(reasons.iter().any(|reason| text.contains(reason)), "{text}");
    eventually("the log advises to use another server", async || {
        let line = "the store cannot be used; send clients to another server";
        holds(log.text().matches(line).count() == 1, log.text())
    })
    .await;
    store.break_all(false);
    until_ready(&server).await;
}

/// A removed sequence also fails with a `StoreViolation`, but other sequences are served.
#[tokio::test]
async fn removed_sequence_does_not_make_the_server_unready() {
    let store = with_orders().await;
    let server = Running::over(store.clone()).await;
    let mut client = server.client().await;
    client.id("INCR orders").await;
    store.remove(&"orders".parse().unwrap(), None).await.unwrap();
    client.until_refused("INCR orders").await;
    eventually("the sequence is in trouble", async || {
        let (is_ready, text) = ready(&server).await;
        assert!(is_ready, "{text}");
        holds(text.contains("1 in trouble"), text)
    })
    .await;
    for _ in 0..30 {
        let (is_ready, text) = ready(&server).await;
        assert!(is_ready && text.contains("1 in trouble"), "{text}");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn sequence_ending_soon_is_listed_with_its_days() {
    let recorder = DebuggingRecorder::new();
    let (_recording, seen) = (metrics::set_default_local_recorder(&recorder), recorder.snapshotter());
    let store = with_orders().await;
    store.create(&"short".parse().unwrap(), Bounds::new(1, 5_000_000).unwrap()).await.unwrap();
    let server = Running::with(store, |server| server.metrics(String::new)).await;
    let mut client = server.client().await;
    let text = eventually("a sequence is listed as ending", async || {
        client.id("INCRBY orders 100").await;
        client.id("INCRBY short 100").await;
        let (is_ready, text) = ready(&server).await;
        assert!(is_ready, "{text}");
        if text.contains("ends in") { Ok(text) } else { Err(text) }
    })
    .await;
    assert!(text.contains("2 sequences, 0 in trouble; `short` ends in "), "{text}");
    assert!(text.contains("at its current rate") && !text.contains("`orders`"), "{text}");
    reqwest::get(server.url("/metrics")).await.unwrap();
    let ending = seen.snapshot().into_vec().into_iter().find_map(|(key, _, _, value)| {
        (key.key().name() == "idmill_server_ending_soon_sequences").then_some(value)
    });
    assert_eq!(ending, Some(DebugValue::Gauge(1.0.into())));
}

/// A query for the increase of a counter misses the event with which the counter begins.
#[tokio::test]
async fn server_counters_begin_at_zero() {
    let recorder = DebuggingRecorder::new();
    let (_recording, seen) = (metrics::set_default_local_recorder(&recorder), recorder.snapshotter());
    let server = Running::with(with_orders().await, |server| server.metrics(String::new)).await;
    reqwest::get(server.url("/metrics")).await.unwrap();
    let all = seen.snapshot().into_vec();
    let expiry = all.iter().find(|(key, ..)| key.key().name().ends_with("_expiry_timestamp_seconds"));
    assert!(expiry.is_none(), "the server has no certificate: {expiry:?}");
    let counters = all.into_iter().filter_map(|(key, _, _, value)| {
        let is_own = key.key().name().starts_with("idmill_server_");
        assert!(!is_own || key.key().labels().all(|label| label.key() == "reason"), "{key:?}");
        let labels = key.key().labels().map(metrics::Label::value);
        let words: Vec<_> = [key.key().name()].into_iter().chain(labels).collect();
        (value == DebugValue::Counter(0)).then(|| words.join(" "))
    });
    let counters: Vec<_> = counters.collect();
    let page = include_str!("../../../../docs/guide/metrics.md");
    let reasons = page.lines().find(|line| line.contains("| `idmill_server_refused_total` |")).unwrap();
    let reasons =
        reasons.split('`').skip(5).step_by(2).map(|reason| format!("idmill_server_refused_total {reason}"));
    for counter in reasons.chain(["idmill_server_unread_ids_total".to_owned()]) {
        assert!(counters.contains(&counter), "{counter} is not 0: {counters:?}");
    }
}

#[tokio::test]
async fn empty_server_is_ready_after_recovery_without_draws() {
    let store = with_orders().await;
    let server = Running::with(store.clone(), |server| server.timeout(Duration::from_millis(200))).await;
    let mut client = server.client().await;
    client.until_drawn("INCR orders").await;
    store.set_faults(Faults::outage());
    client.until_refused("INCR orders").await;
    let text = until_unready(&server).await;
    assert!(text.contains("`orders` is empty"), "{text}");
    store.set_faults(Faults::none());
    until_ready(&server).await;
}

/// No other server could serve the exhausted sequence either, and other sequences are served.
#[tokio::test]
async fn exhausted_sequence_keeps_the_server_ready() {
    let store = with_orders().await;
    store.create(&"short".parse().unwrap(), Bounds::new(1, 2).unwrap()).await.unwrap();
    let server = Running::over(store).await;
    let mut client = server.client().await;
    assert_eq!(client.ask("INCRBY short 2").await, ":2");
    assert!(client.ask("INCR short").await.starts_with("-EXHAUSTED"));
    let (is_ready, text) = ready(&server).await;
    assert!(is_ready && text.contains("`short` is ended"), "{text}");
}

#[tokio::test]
async fn ending_server_serves_unready_during_the_shutdown_delay() {
    let server =
        Running::with(FaultyStore::new(), |server| server.shutdown_delay(Duration::from_secs(3600))).await;
    until_ready(&server).await;
    let (resp, url) = (server.resp, server.url("/readyz"));
    let task = server.end();
    let text = eventually("the server reports its end", async || {
        let answer = reqwest::get(&url).await.unwrap();
        if answer.status() == 503 { Ok(answer.text().await.unwrap()) } else { Err(answer.status()) }
    })
    .await;
    assert!(text.contains("the server is ending"), "{text}");
    let mut client = crate::common::Client::to(resp).await;
    assert_eq!(client.ask("INCR s").await, ":1", "a request during the shutdown delay is served");
    task.abort();
}

#[tokio::test]
async fn server_ends_after_the_shutdown_delay() {
    let store = with_orders().await;
    let server =
        Running::with(store.clone(), |server| server.shutdown_delay(Duration::from_millis(300))).await;
    let mut client = server.client().await;
    assert_eq!(client.ask("INCR orders").await, ":1");
    let address = server.resp;
    server.end().await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
    let info = store.inspect(&"orders".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(info.next, Some(2));
}

#[tokio::test]
async fn open_listeners_are_taken_over() {
    let open = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (resp, http) = (open(), open());
    let addresses = (resp.local_addr().unwrap(), http.local_addr().unwrap());
    // Clients that connect before the server runs wait in the listener's backlog.
    let mut client = crate::common::Client::to(addresses.0).await;
    let ids = idmill::Sequences::new(FaultyStore::new()).unwrap();
    let server =
        idmill_server::Server::builder(ids).resp_listener(resp).http_listener(http).bind().await.unwrap();
    assert_eq!((server.resp_address(), server.http_address()), (Some(addresses.0), Some(addresses.1)));
    let figures = server.figures();
    let task = tokio::spawn(server.run(std::future::pending()));
    assert_eq!(client.ask("INCR s").await, ":1");
    assert_eq!((figures.sequences(), figures.clients()), (1, 1));
    let alive = reqwest::get(format!("http://{}/healthz", addresses.1)).await.unwrap();
    assert_eq!(alive.status(), 200);
    task.abort();
}

/// Another session has locked the row of `locked`, for example.
#[tokio::test]
async fn unavailable_sequence_keeps_the_server_ready() {
    let store = with_orders().await;
    store.create(&"locked".parse().unwrap(), Bounds::new(1, 1000).unwrap()).await.unwrap();
    let server = Running::with(store.clone(), |server| server.timeout(Duration::from_millis(200))).await;
    let mut client = server.client().await;
    client.id("INCR orders").await;
    client.id("INCR locked").await;
    store.fail_sequence("locked", ErrorKind::Unavailable);
    client.until_refused("INCR locked").await;
    for _ in 0..30 {
        let (is_ready, text) = ready(&server).await;
        assert!(is_ready, "{text}");
        sleep(Duration::from_millis(100)).await;
    }
    assert!(ready(&server).await.1.contains("`locked` is empty"));
}

/// The store still answers reads: it is read-only, or the user has lost the right to write.
#[tokio::test]
async fn denied_reserves_make_the_server_unready() {
    let store = with_orders().await;
    let server = Running::over(store.clone()).await;
    let mut client = server.client().await;
    client.id("INCR orders").await;
    until_ready(&server).await;
    store.fail_sequence("orders", ErrorKind::Denied);
    client.until_refused("INCR orders").await;
    let text = until_unready(&server).await;
    assert!(text.contains("the store grants no ids"), "{text}");
    store.heal_sequence("orders");
    until_ready(&server).await;
}

/// Many names fail: a probe costs the same.
#[tokio::test]
async fn readiness_answer_is_kept_and_bounded() {
    let store = with_orders().await;
    let server = Running::over(store.clone()).await;
    let mut client = server.client().await;
    for n in 0..100 {
        store.create(&format!("short-{n}").parse().unwrap(), Bounds::new(1, 1).unwrap()).await.unwrap();
        assert_eq!(client.ask(&format!("INCR short-{n}")).await, ":1");
        assert!(client.ask(&format!("INCR short-{n}")).await.starts_with("-EXHAUSTED"));
    }
    let text = eventually("all sequences are in trouble", async || {
        let (_, text) = ready(&server).await;
        if text.contains("100 in trouble") { Ok(text) } else { Err(text) }
    })
    .await;
    assert!(text.contains("; and 80 more") && text.len() < 5000, "{} bytes", text.len());
}
