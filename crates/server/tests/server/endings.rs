//! Server shutdown, and an unreachable store.

use std::time::Duration;

use idmill::store::{Reserve, Store};
use idmill_remote::protocol::Ask;
use idmill_testing::faulty::{Fault, Faults, FaultyStore};
use idmill_testing::{eventually, holds};
use reqwest::StatusCode;

use crate::common::{Running, with_orders};

#[tokio::test]
async fn shutdown_keeps_granted_ids_and_gives_back_the_rest() {
    let store = with_orders().await;
    let server = Running::over(store.clone()).await;
    let mut client = server.client().await;
    assert_eq!(client.ask("INCRBY orders 7").await, ":7");
    let (idle, address) = (server.client().await, server.resp);
    server.end().await.unwrap();
    assert_eq!(client.rest().await, "");
    drop(idle);
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    let info = store.inspect(&"orders".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(info.next, Some(8));
}

/// Commands that were sent before the end are answered, and no answer is cut off.
#[tokio::test]
async fn running_pipeline_is_answered_to_its_last_whole_command() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    let (mut read, mut write) =
        std::mem::replace(&mut client.0, server.client().await.0).into_stream().into_split();
    let writer = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        let commands = "*2\r\n$4\r\nINCR\r\n$1\r\ns\r\n".repeat(1000);
        while write.write_all(commands.as_bytes()).await.is_ok() {}
    });
    let (begun, begins) = tokio::sync::oneshot::channel();
    let reader = tokio::spawn(async move {
        use tokio::io::AsyncReadExt;
        let mut answers = vec![0; 100_000];
        read.read_exact(&mut answers).await.unwrap();
        begun.send(()).unwrap();
        let _ = read.read_to_end(&mut answers).await;
        answers
    });
    begins.await.unwrap();
    let ended = server.end();
    let answers = String::from_utf8(reader.await.unwrap()).unwrap();
    // Stop the writer: the server reads as long as the client sends.
    writer.abort();
    ended.await.unwrap();
    let (whole, cut) = answers.rsplit_once("\r\n").unwrap();
    assert_eq!(cut, "");
    let ids: Vec<u64> = whole.split("\r\n").map(|line| line[1..].parse().unwrap()).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn unreachable_store_serves_memory_then_tryagain() {
    let store = with_orders().await;
    let server = Running::with(store.clone(), |server| server.timeout(Duration::from_millis(200))).await;
    let mut client = server.client().await;
    assert_eq!(client.until_drawn("INCR orders").await, 1);
    store.set_faults(Faults::outage());
    let last = client.id("INCR orders").await;
    let told = client.until_refused("INCR orders").await;
    assert!(told.starts_with("-TRYAGAIN"), "{told}");
    let ready = reqwest::get(server.url("/readyz")).await.unwrap();
    assert_eq!(ready.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(ready.text().await.unwrap().contains("orders"));
    let http = reqwest::Client::new().post(server.url("/v1/sequences/orders/ids")).send().await.unwrap();
    assert_eq!(http.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(http.headers()["retry-after"], "1");
    store.set_faults(Faults::none());
    // A transient error means that a retry will succeed at some point.
    let next = client.until_drawn("INCR orders").await;
    assert!(next > last, "{next} after {last}");
}

/// The client keeps its connection open for later requests. The shutdown must not wait for these.
#[tokio::test]
async fn idle_http_client_does_not_delay_shutdown() {
    let hour = Duration::from_secs(3600);
    let server = Running::with(with_orders().await, |server| server.shutdown_timeout(hour)).await;
    let http = reqwest::Client::new();
    let drawn = http.post(server.url("/v1/sequences/orders/ids")).send().await.unwrap();
    assert_eq!(drawn.status(), StatusCode::OK);
    drawn.bytes().await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), server.end()).await;
    assert!(ended.is_ok(), "it waited for the shutdown timeout of an hour");
    drop(http);
}

/// The server ends only after all requests have ended or their clients are gone.
#[tokio::test]
async fn waiting_client_that_disconnects_is_noticed() {
    let (store, hour) = (with_orders().await, Duration::from_secs(3600));
    let server = Running::with(store.clone(), |server| server.timeout(hour).shutdown_timeout(hour)).await;
    store.set_faults(Faults::none().random(Fault::HangBefore, 1.0));
    let reserve = Ask::Reserve(vec![Reserve::new("orders".parse().unwrap(), 5)]);
    let mut clients = [server.client().await, server.client().await];
    let before = store.requests();
    clients[0].send("INCR orders\r\n").await;
    clients[1].send_store(reserve).await;
    eventually("both clients wait", async || {
        let asked = store.requests() - before;
        holds(asked == 2, asked)
    })
    .await;
    drop(clients);
    let ended = tokio::time::timeout(Duration::from_secs(60), server.end()).await;
    ended.expect("the server still waits for the clients").unwrap();
}

/// Bytes that arrive while an answer is awaited are commands too, and a client may close its side first.
#[tokio::test]
async fn commands_sent_during_a_wait_are_answered_in_order() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let store = with_orders().await;
    let server = Running::over(store.clone()).await;
    store.set_faults(Faults::none().always(Fault::Latency(Duration::from_millis(50))));
    let mut client = server.client().await.0.into_stream();
    client.set_nodelay(true).unwrap();
    for part in ["INCR orders\r\nEC", "HO one\r\nINCR or", "ders\r\nPING\r\n"] {
        client.write_all(part.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    client.shutdown().await.unwrap();
    let mut answers = String::new();
    client.read_to_string(&mut answers).await.unwrap();
    assert_eq!(answers, ":1\r\n$3\r\none\r\n:2\r\n+PONG\r\n");
}
