//! Server shutdown, and an unreachable store.

use std::time::Duration;

use idmill::store::Store;
use idmill_testing::faulty::{Faults, FaultyStore};
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
    let (mut read, mut write) = std::mem::replace(&mut client.0, server.client().await.0).into_split();
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
