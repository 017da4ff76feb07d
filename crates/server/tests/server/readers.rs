//! Readers of `/v1/events`, in paused time, over connections in memory.

use std::future::pending;
use std::time::Duration;

use idmill::Sequences;
use idmill_server::Server;
use idmill_testing::faulty::FaultyStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// The documented maximum.
const MOST: usize = 100;

async fn server() -> Server {
    Server::builder(Sequences::new(FaultyStore::new()).unwrap()).bind().await.unwrap()
}

/// Connects a reader. Returns its side of the connection, and a task that ends when the server has left.
async fn reader(server: &Server, buffer: usize) -> (DuplexStream, JoinHandle<()>) {
    let (mut client, served) = duplex(buffer);
    let serving = tokio::spawn(server.http_client(served));
    client.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    (client, serving)
}

/// Returns the first line of the answer.
async fn status(client: &mut DuplexStream) -> String {
    let mut answer = Vec::new();
    while !answer.contains(&b'\n') {
        assert_ne!(client.read_buf(&mut answer).await.unwrap(), 0, "the server left");
    }
    String::from_utf8_lossy(&answer).lines().next().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn reader_is_disconnected_after_a_minute() {
    let server = server().await;
    let (begun, mut all) = (Instant::now(), String::new());
    let (mut client, _) = reader(&server, 1 << 16).await;
    tokio::spawn(server.run(pending()));
    timeout(HOUR, client.read_to_string(&mut all)).await.expect("still connected").unwrap();
    assert!((MINUTE..MINUTE * 2).contains(&begun.elapsed()), "after {:?}", begun.elapsed());
    assert!(all.matches("event: look").count() > 50 && all.contains("connection: close"), "{all}");
}

/// The buffers of the connection hold more than the server sends in a minute, so the server cannot detect
/// by its writes that the client does not read.
#[tokio::test(start_paused = true)]
async fn reader_that_does_not_read_is_disconnected_too() {
    for buffer in [64, 1 << 20] {
        let server = server().await;
        let ((_client, serving), begun) = (reader(&server, buffer).await, Instant::now());
        tokio::spawn(server.run(pending()));
        timeout(HOUR, serving).await.expect("still connected").unwrap();
        assert!(begun.elapsed() < MINUTE + MINUTE / 6, "after {:?}", begun.elapsed());
    }
}

/// Each byte that the client reads restarts the timeout of writes.
#[tokio::test(start_paused = true)]
async fn slow_reader_is_disconnected_too() {
    let server = server().await;
    let ((mut client, serving), begun) = (reader(&server, 64).await, Instant::now());
    tokio::spawn(server.run(pending()));
    tokio::spawn(async move {
        while client.read_u8().await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    });
    timeout(HOUR, serving).await.expect("still connected").unwrap();
    assert!(begun.elapsed() < MINUTE + MINUTE / 6, "after {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn readers_beyond_the_maximum_are_refused() {
    let server = server().await;
    let mut readers = Vec::new();
    for _ in 0..MOST {
        let (mut client, _) = reader(&server, 1 << 16).await;
        assert_eq!(status(&mut client).await, "HTTP/1.1 200 OK");
        readers.push(client);
    }
    let (mut client, _) = reader(&server, 1 << 16).await;
    assert_eq!(status(&mut client).await, "HTTP/1.1 503 Service Unavailable");
    drop(readers);
    let mut again = String::new();
    for _ in 0..1000 {
        again = status(&mut reader(&server, 1 << 16).await.0).await;
        if again.ends_with("200 OK") {
            return;
        }
    }
    panic!("no place is free again: {again}");
}
