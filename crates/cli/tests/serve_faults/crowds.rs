//! Many idle clients, and more clients than the limit of open files or `--max-connections` allows.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use idmill_testing::fleet::{Fleet, Http, Load, Pace, Recorder, Resp, Server};
use idmill_testing::{eventually, holds, skip};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::interval;

use crate::common::Place;
use crate::{command, started, with_orders};

const CROWD: usize = 10_000;
/// Maximum memory per idle client.
const EACH: u64 = 32; // KiB
/// Maximum memory for everything else: active clients, and the allocator's overhead.
const BESIDES: u64 = 16 << 10; // KiB

/// Starts a server with this limit of open files.
fn with_files(place: &Place, files: &str) -> Server {
    Server::start(&mut place.limited(&format!("ulimit -n {files}"), &command(place, &[])))
}

/// Returns this process's limit of open files, raised as far as possible.
fn files() -> usize {
    let pid = std::process::id().to_string();
    // If prlimit(1) is missing, the limit stays as it is.
    let _ = Command::new("sh")
        .args(["-c", "prlimit --pid $1 --nofile=$(ulimit -Hn):$(ulimit -Hn)", "sh", &pid])
        .status();
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(1024)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_clients_cost_little_memory() {
    if files() < CROWD + 1000 {
        return skip("the hard limit of open files is below 11,000: `ulimit -Hn`");
    }
    let place = with_orders();
    let server = with_files(&place, "$(ulimit -Hn)");
    let (resp, http, before) = (server.resp, server.http, server.rss());
    let (recorder, fleet) = (Recorder::new(), Fleet::of([server]));
    let load = Load::start(&recorder, &fleet, &Pace::default());
    let mut idle = Vec::with_capacity(CROWD);
    for at in 0..CROWD {
        if at % 10 == 0 {
            let mut client = Http::connect(http).await.unwrap();
            assert_eq!(client.ask("GET /healthz").await.unwrap().0, 200);
            idle.push(client.into_stream());
        } else {
            let mut client = Resp::connect(resp).await.unwrap();
            assert_eq!(client.ask("PING").await.unwrap(), "+PONG");
            idle.push(client.into_stream());
        }
    }
    // Two hundred clients per second connect and disconnect.
    let (mut ticks, drawn) = (interval(Duration::from_millis(5)), recorder.count());
    for _ in 0..600 {
        ticks.tick().await;
        assert_eq!(Resp::connect(resp).await.unwrap().ask("PING").await.unwrap(), "+PONG");
    }
    let used = fleet.at(0, |server| server.rss()).unwrap() - before;
    println!("{CROWD} idle clients: {used} KiB, {:.1} each", used as f64 / CROWD as f64);
    assert!(used <= CROWD as u64 * EACH + BESIDES, "{used} KiB for {CROWD} clients");
    assert!(recorder.count() > drawn, "no id was drawn under the load");
    let waits = load.end().await;
    assert_eq!((waits.broken.load(Ordering::Relaxed), waits.refused.load(Ordering::Relaxed)), (0, 0));
    drop(idle);
    let drawn = recorder.none_twice_and_in_order();
    assert_eq!(fleet.take(0).end_in_order().had(), drawn);
}

/// Waits until the server accepts another client.
async fn recovers(resp: SocketAddr) {
    eventually("the server accepts connections again", async || {
        let answer = Resp::connect(resp).await.unwrap().ask("PING").await;
        holds(answer.as_ref().is_ok_and(|answer| answer == "+PONG"), answer)
    })
    .await;
}

/// The limit of open files suffices for only a few clients, which are served. Other clients are rejected
/// until some of the served clients have disconnected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_limit_rejects_new_clients_and_keeps_connected_ones() {
    let place = with_orders();
    let server = with_files(&place, "64");
    let mut first = Resp::connect(server.resp).await.unwrap();
    let mut web = Http::connect(server.http).await.unwrap();
    assert_eq!(first.ask("INCR orders").await.unwrap(), ":1");
    assert_eq!(web.ask("GET /healthz").await.unwrap().0, 200);
    let mut crowd = Vec::new();
    for _ in 0..100 {
        crowd.push(TcpStream::connect(server.resp).await.unwrap());
    }
    let mut answer = Vec::new();
    let _ = crowd.last_mut().unwrap().read_to_end(&mut answer).await;
    assert_eq!(answer.escape_ascii().to_string(), r"-ERR max number of clients reached\r\n");
    for id in 2..100 {
        assert_eq!(first.ask("INCR orders").await.unwrap(), format!(":{id}"));
        assert_eq!(web.ask("GET /healthz").await.unwrap().0, 200);
    }
    drop(crowd);
    recovers(server.resp).await;
    let mut late = Resp::connect(server.resp).await.unwrap();
    assert_eq!(late.ask("INCR orders").await.unwrap(), ":100");
    let mut late = Http::connect(server.http).await.unwrap();
    assert_eq!(late.ask("GET /healthz").await.unwrap().0, 200);
    drop((first, web));
    assert_eq!(server.end_in_order().had(), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_connections_rejects_new_and_keeps_connected_clients() {
    let place = with_orders();
    let server = started(&place, &["--max-connections=40"]);
    let (resp, http) = (server.resp, server.http);
    let (recorder, fleet) = (Recorder::new(), Fleet::of([server]));
    // Each client keeps a RESP and an HTTP connection open.
    let load = Load::start(&recorder, &fleet, &Pace { clients: 5, ..Pace::default() });
    eventually("1,000 ids are drawn", async || holds(recorder.count() >= 1000, recorder.count())).await;
    let mut crowd = Vec::new();
    let mut turned_away = 0;
    for at in 0..60 {
        let mut client = Resp::connect(resp).await.unwrap();
        // The server may have closed the connection already.
        match client.ask("PING").await {
            Ok(said) if said == "+PONG" => crowd.push(client),
            Ok(said) => {
                assert_eq!(said, "-ERR max number of clients reached", "client {at}");
                turned_away += 1;
            }
            Err(_) => turned_away += 1,
        }
    }
    assert!(crowd.len() <= 40 && turned_away >= 20, "{} served, {turned_away} turned away", crowd.len());
    let (status, head, _) = Http::connect(http).await.unwrap().ask("GET /v1/sequences").await.unwrap();
    assert!(status == 503 && head.to_lowercase().contains("retry-after"), "{status} {head}");
    assert_eq!(Http::connect(http).await.unwrap().ask("GET /healthz").await.unwrap().0, 200);
    drop(crowd);
    recovers(resp).await;
    let waits = load.end().await;
    assert_eq!((waits.broken.load(Ordering::Relaxed), waits.refused.load(Ordering::Relaxed)), (0, 0));
    let drawn = recorder.none_twice_and_in_order();
    assert_eq!(fleet.take(0).end_in_order().had(), drawn);
}

/// TCP keepalive detects a client whose machine has disappeared. Linux shows which connections have keepalive
/// enabled.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keepalive_is_enabled_for_client_connections() {
    let place = with_orders();
    let server = started(&place, &[]);
    let mut client = Resp::connect(server.resp).await.unwrap();
    assert_eq!(client.ask("PING").await.unwrap(), "+PONG");
    let mut web = Http::connect(server.http).await.unwrap();
    assert_eq!(web.ask("GET /healthz").await.unwrap().0, 200);
    let (client, web) = (client.into_stream(), web.into_stream());
    for (server, client) in [(server.resp, &client), (server.http, &web)] {
        let ends =
            format!("0100007F:{:04X} 0100007F:{:04X} 01", server.port(), client.local_addr().unwrap().port());
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let line = table.lines().find(|line| line.contains(&ends)).expect("the connection");
        let timer = line.split_whitespace().nth(5).unwrap();
        assert!(timer.starts_with("02:"), "no probe is due: {line}");
    }
}
