//! A server's memory, with clients that send without end and do not read.

use std::net::SocketAddr;
use std::time::Duration;

use idmill_testing::fleet::{Http, Resp, Server};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::Place;
use crate::{started, with_orders};

const CLIENTS: usize = 20;
/// A client is blocked if the server reads nothing from it for this time.
const STALLED: Duration = Duration::from_secs(2);
/// Far more than a client can send before it is blocked.
const MOST_SENT: usize = 256 << 20;
/// Maximum memory for all clients: each has 64 KiB of answers and a command of 256 KiB, in buffers that grow
/// by doubling.
const MOST_HELD: u64 = 32 << 10; // KiB

/// Starts clients that send these bytes repeatedly, and read nothing. Returns the number of blocked clients,
/// and the streams of all clients. The clients that were not blocked were disconnected.
async fn pour(address: SocketAddr, bytes: Vec<u8>) -> (usize, Vec<TcpStream>) {
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let bytes = bytes.clone();
        clients.spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let mut sent = 0;
            loop {
                match timeout(STALLED, stream.write_all(&bytes)).await {
                    Ok(Ok(())) => sent += bytes.len(),
                    Ok(Err(_)) => break (false, stream),
                    Err(_) => break (true, stream),
                }
                assert!(sent < MOST_SENT, "the server neither delays nor disconnects the client");
            }
        });
    }
    let (mut stalled, mut streams) = (0, Vec::new());
    while let Some(client) = clients.join_next().await {
        let (is_stalled, stream) = client.unwrap();
        stalled += usize::from(is_stalled);
        streams.push(stream);
    }
    (stalled, streams)
}

struct Scene {
    place: Place,
    server: Server,
    before: u64,
}

impl Scene {
    /// Starts a server with many sequences, so that some answers are long.
    async fn new() -> Self {
        let place = with_orders();
        let server = started(&place, &["--create"]);
        let mut client = Resp::connect(server.resp).await.unwrap();
        for at in 0..100 {
            assert_eq!(client.ask(&format!("INCR sequence{at}")).await.unwrap(), ":1");
        }
        let before = server.peak();
        assert!(before > 0, "the system does not say");
        Self { place, server, before }
    }

    async fn held_little(self, what: &str) {
        self.server.rests();
        let peak = self.server.peak();
        println!("{what}: {} KiB for {CLIENTS} clients", peak - self.before);
        assert!(peak <= self.before + MOST_HELD, "{what}: from {} to {peak} KiB", self.before);
        assert_eq!(Resp::connect(self.server.resp).await.unwrap().ask("PING").await.unwrap(), "+PONG");
        assert_eq!(Http::connect(self.server.http).await.unwrap().ask("GET /healthz").await.unwrap().0, 200);
        // Kill the server: a graceful shutdown would wait for these clients until its timeout expires.
        self.server.kill();
        drop(self.place);
    }
}

/// The 10,000 commands of a client request tens of megabytes; a read of 16 KiB has a thousand of these
/// commands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_pipeline_replies_are_not_buffered() {
    let scene = Scene::new().await;
    let (stalled, _clients) = pour(scene.server.resp, b"INFO sequences\r\n".repeat(10_000)).await;
    assert_eq!(stalled, CLIENTS);
    scene.held_little("a pipeline").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_transaction_replies_are_not_buffered() {
    let scene = Scene::new().await;
    let commands = [b"MULTI\r\n".to_vec(), b"INFO sequences\r\n".repeat(3000), b"EXEC\r\n".to_vec()].concat();
    let (stalled, _clients) = pour(scene.server.resp, commands).await;
    assert_eq!(stalled, CLIENTS);
    scene.held_little("a transaction").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_http_responses_are_not_buffered() {
    let scene = Scene::new().await;
    let request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    let (stalled, _clients) = pour(scene.server.http, request).await;
    assert_eq!(stalled, CLIENTS);
    let request = b"POST /v1/sequences/orders/ids?n=1000000 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    let (stalled, _others) = pour(scene.server.http, request).await;
    assert_eq!(stalled, CLIENTS);
    scene.held_little("requests").await;
}

/// Each input is sent until the server disconnects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_requests_are_not_buffered() {
    let scene = Scene::new().await;
    let (resp, http) = (scene.server.resp, scene.server.http);
    let gigabyte = b"PUT /v1/sequences/s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1073741824\r\n\r\n ";
    for (address, begin) in [
        (resp, &b""[..]),
        (resp, b"*2\r\n$4\r\nINCR\r\n$262100\r\n"),
        (resp, b"*4096\r\n"),
        (resp, b"*1\r\n$"),
        (http, b""),
        (http, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "),
        (http, gigabyte),
    ] {
        let (stalled, _) = pour(address, [begin, &b"1".repeat(65536)].concat()).await;
        assert_eq!(stalled, 0, "{}", begin.escape_ascii());
    }
    scene.held_little("endless").await;
}
