//! Servers whose PostgreSQL is unreachable, or is restored from a backup. Every client records its ids, and
//! all records are compared.

#![cfg(unix)]

mod alerts;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod readiness;
mod signals;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::Place;
use idmill_conformance::Proxy;
use idmill_testing::engines::Engine;
use idmill_testing::fleet::{Fleet, Http, Load, Pace, Recorder, Resp, Server, Waits, Way};
use idmill_testing::restores::Backup;
use idmill_testing::{eventually_within, holds};
use tokio::time::{sleep, timeout};

/// A password that no log may contain, at any level.
const PASSWORD: &str = "hunter2";
/// Timeout after which a hanging test fails.
const LONG: Duration = Duration::from_secs(120);

struct Scene {
    place: Place,
    store: String,
    more: Vec<&'static str>,
}

impl Scene {
    /// Creates a store with the sequence `orders`. `more` are further arguments of the servers.
    fn new(address: std::net::SocketAddr, more: &[&'static str]) -> Self {
        let store = format!("postgres://postgres:{PASSWORD}@{address}/postgres?timeout=2s");
        let scene = Self { place: Place::new(), store, more: more.to_vec() };
        let guard = scene.more.iter().filter(|arg| arg.starts_with("--guard")).copied();
        let args: Vec<_> = ["create", "orders", "--store", &scene.store].into_iter().chain(guard).collect();
        let made = scene.place.run(&args);
        assert_eq!(made.code, 0, "{made:?}");
        scene
    }

    /// Starts a server that logs everything.
    fn start(&self) -> Server {
        let mut command = self.place.serve(&["-vv"]);
        command.args(["--timeout=500ms", "--store", &self.store]).args(&self.more);
        Server::try_start(&mut command, &[PASSWORD])
            .unwrap_or_else(|said| panic!("the server does not start: {said}"))
    }

    fn next(&self) -> u64 {
        let shown = self.place.json(&["show", "orders", "--json", "--store", &self.store]);
        shown["next"].as_u64().expect("not exhausted")
    }
}

async fn status(server: &Server, request: &str) -> (u16, String) {
    let (status, head, body) = Http::connect(server.http).await.unwrap().ask(request).await.unwrap();
    (status, head + &body)
}

/// Draws until memory is empty, and checks the errors of both protocols.
async fn draws_all(server: &Server, recorder: &Arc<Recorder>) {
    let mut connection = recorder.connection(server.number);
    let mut client = Resp::connect(server.resp).await.unwrap();
    let begun = Instant::now();
    let said = loop {
        if let Err(refused) = client.draw(Way::Take(100), "orders", &mut connection).await.unwrap() {
            break refused.0;
        }
        assert!(begun.elapsed() < LONG, "memory is not empty after {} ids", recorder.count());
    };
    assert!(said.starts_with("-TRYAGAIN") || said.starts_with("-UNKNOWN"), "{said}");
    assert!(!said.contains(PASSWORD), "{said}");
    // A failed take may leave a few ids in memory: draw them all.
    while client.draw(Way::Incr(1), "orders", &mut connection).await.unwrap().is_ok() {
        assert!(begun.elapsed() < LONG, "memory is not empty after {} ids", recorder.count());
    }
    let (code, text) = status(server, "POST /v1/sequences/orders/ids").await;
    assert!([503, 504].contains(&code) && !text.contains(PASSWORD), "{code} {text}");
    assert!(code == 504 || text.contains("retry-after: "), "{text}");
}

/// Asserts that the server serves from memory, then reports errors, and then recovers without a restart.
async fn suffers(server: &Server, recorder: &Arc<Recorder>, back: impl Future<Output = ()>) {
    let before = recorder.count();
    draws_all(server, recorder).await;
    assert!(recorder.count() > before, "nothing was served from memory");
    is_ready(server, false).await;
    assert_eq!(status(server, "GET /healthz").await.0, 200, "it runs");
    back.await;
    let mut connection = recorder.connection(server.number);
    let mut client = Resp::connect(server.resp).await.unwrap();
    eventually_within(LONG, "the server recovers by itself", async || {
        client.draw(Way::IncrBy(3), "orders", &mut connection).await.unwrap()
    })
    .await;
    is_ready(server, true).await;
}

/// Waits until `/readyz` reports this state: a silent store is detected only after its timeout.
async fn is_ready(server: &Server, ready: bool) {
    eventually_within(LONG, &format!("/readyz reports ready={ready}"), async || {
        let (code, text) = status(server, "GET /readyz").await;
        holds(code == if ready { 200 } else { 503 }, text)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_store_serves_memory_then_fails_and_recovers() {
    let Some(engine) = Engine::start("postgres").await else { return };
    let proxy = Proxy::start(engine.address()).await.unwrap();
    let scene = Scene::new(proxy.address(), &[]);
    let (server, recorder) = (scene.start(), Recorder::new());
    let mut connection = recorder.connection(server.number);
    let mut client = Resp::connect(server.resp).await.unwrap();
    client.draw(Way::Take(1), "orders", &mut connection).await.unwrap().unwrap();
    assert_eq!(status(&server, "GET /readyz").await.0, 200);
    // Connections are closed, and new connections are refused.
    proxy.refuse(true);
    suffers(&server, &recorder, async { proxy.refuse(false) }).await;
    // The engine is paused, and does not answer.
    engine.pause();
    suffers(&server, &recorder, async { engine.resume() }).await;
    // The engine is killed and restarted.
    engine.kill();
    suffers(&server, &recorder, engine.restart()).await;
    let ended = server.end_in_order();
    assert_eq!(recorder.none_twice_and_in_order(), ended.had(), "{ended:?}");
    recorder.missing(scene.next());
}

/// All services of a booting machine start at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_starts_before_its_store_waits_for_it() {
    for (name, url) in [
        ("postgres", "postgres://postgres:hunter2@{}/postgres?timeout=10s"),
        ("mariadb", "mysql://root@{}/ids?timeout=10s"),
        ("redis", "redis://{}?timeout=10s&durability=trust"),
        ("etcd", "etcd://{}?timeout=10s"),
    ] {
        let Some(engine) = Engine::start(name).await else { continue };
        let proxy = Proxy::start(engine.address()).await.unwrap();
        proxy.refuse(true);
        let (place, url) = (Place::new(), url.replace("{}", &proxy.address().to_string()));
        let starts = tokio::task::spawn_blocking(move || {
            let mut command = place.serve(&[]);
            let started = Server::try_start(command.args(["--store", &url]), &[PASSWORD]);
            (started, place)
        });
        sleep(Duration::from_secs(2)).await;
        assert!(!starts.is_finished(), "{name}: {:?}", starts.await.map(|(started, _)| started.err()));
        proxy.refuse(false);
        let (started, _place) = timeout(LONG, starts).await.unwrap().unwrap();
        let server = started.unwrap_or_else(|said| panic!("{name}: the server does not start: {said}"));
        is_ready(&server, true).await;
    }
}

fn relaxed(waits: &Waits) -> (u64, u64) {
    (waits.broken.load(Ordering::Relaxed), waits.refused.load(Ordering::Relaxed))
}

/// Three servers share one witness. Their store is restored to an old backup twice: under running servers,
/// and after all servers were killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_store_with_a_guard_hands_out_no_duplicates() {
    let Some(engine) = Engine::start("postgres").await else { return };
    let scene = Scene::new(engine.address(), &["--guard=file:ids.witness"]);
    let (recorder, fleet) = (Recorder::new(), Fleet::of([(); 3].map(|()| scene.start())));
    let load = Load::start(&recorder, &fleet, &Pace::default());
    let drawn = async |more: u64| {
        let enough = recorder.count() + more;
        eventually_within(LONG, "more ids are drawn", async || {
            holds(recorder.count() >= enough, (recorder.count(), enough))
        })
        .await;
    };
    drawn(2000).await;
    let backup = Backup::of_engine(&engine, &engine.dir().join("data")).await;
    drawn(50_000).await;
    backup.put_back_under(&engine).await;
    drawn(50_000).await;
    // New processes have no history, so only the witness detects the restore.
    (0..3).for_each(|at| drop(fleet.take(at).kill()));
    backup.put_back_under(&engine).await;
    (0..3).for_each(|at| fleet.put(at, scene.start()));
    drawn(50_000).await;
    let waits = load.end().await;
    recorder.none_twice_and_in_order();
    let said = waits.said.lock().clone();
    let odd = said.iter().find(|said| {
        let transient = ["-TRYAGAIN", "-UNKNOWN", "503", "504"];
        !transient.iter().any(|code| said.starts_with(code)) || said.contains(PASSWORD)
    });
    assert_eq!(odd, None, "of {:?}", relaxed(&waits));
    let logs: String = (0..3).filter_map(|at| fleet.at(at, |server| server.log())).collect();
    assert!(logs.contains("the store went back in time"), "the rewind was not logged");
    (0..3).for_each(|at| {
        fleet.take(at).end_in_order();
    });
    recorder.missing(scene.next());
}
