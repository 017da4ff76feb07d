//! Pipelines while the store is unreachable, in paused time, over connections in memory.

use std::time::Duration;

use idmill::store::{Bounds, Store};
use idmill::{Order, Sequences};
use idmill_server::{Server, ServerBuilder};
use idmill_testing::faulty::{Fault, Faults, FaultyStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{Instant, sleep};

/// The server's timeout and, for calls to the store that were begun, the store's timeout of 10 s.
const ONCE: Duration = Duration::from_secs(16);

/// Returns a server with the sequence `s`, of which memory has no ids, and its store.
async fn without_ids(faults: Faults) -> (Server, FaultyStore) {
    let store = FaultyStore::new();
    store.create(&"s".parse().unwrap(), Bounds::new(1, u64::MAX).unwrap()).await.unwrap();
    let server = over(&store, |server| server).await;
    let mut client = redis(&server);
    asked(&mut client, "GET s\r\nINCR s\r\n", 2).await;
    store.set_faults(faults);
    while asked(&mut client, "INCR s\r\n", 1).await.0[0].starts_with(':') {}
    (server, store)
}

async fn over(store: &FaultyStore, options: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Server {
    let server = Server::builder(Sequences::new(store.clone()).unwrap());
    options(server).bind().await.unwrap()
}

fn redis(server: &Server) -> DuplexStream {
    let (client, served) = duplex(1 << 20);
    tokio::spawn(server.resp_client(served));
    client
}

/// Sends commands together. Returns the lines of the answer, and the time until the last of them.
async fn asked(client: &mut DuplexStream, commands: &str, lines: usize) -> (Vec<String>, Duration) {
    let begun = Instant::now();
    client.write_all(commands.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while ended(&answer) < lines {
        assert_ne!(client.read_buf(&mut answer).await.unwrap(), 0, "the server left");
    }
    let answer = String::from_utf8(answer).unwrap();
    (answer.lines().map(ToOwned::to_owned).collect(), begun.elapsed())
}

/// Returns the number of complete lines.
fn ended(answer: &[u8]) -> usize {
    answer.split(|byte| *byte == b'\n').count() - 1
}

fn all_refused(lines: &[String]) {
    assert!(lines.iter().all(|line| line.starts_with("-TRYAGAIN")), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn pipeline_in_an_outage_waits_once() {
    let (server, store) = without_ids(Faults::outage()).await;
    let mut client = redis(&server);
    let (lines, after) = asked(&mut client, &"INCR s\r\nINCRBY s 2\r\n".repeat(32), 64).await;
    all_refused(&lines);
    assert!((Server::TIMEOUT..ONCE).contains(&after), "64 commands took {after:?}");
    // The next commands have their own time.
    let (lines, after) = asked(&mut client, "INCR s\r\n", 1).await;
    all_refused(&lines);
    assert!((Server::TIMEOUT..ONCE).contains(&after), "the next command took {after:?}");
    store.set_faults(Faults::none());
    while asked(&mut client, "INCR s\r\n", 1).await.0[0].starts_with('-') {}
    let (lines, _) = asked(&mut client, &"INCR s\r\n".repeat(64), 64).await;
    assert!(lines.iter().all(|line| line.starts_with(':')), "{lines:?}");
}

/// The rest of the pipeline arrives while the server waits for the first command.
#[tokio::test(start_paused = true)]
async fn pipeline_in_pieces_waits_once() {
    let (server, _) = without_ids(Faults::outage()).await;
    let (mut read, mut write) = tokio::io::split(redis(&server));
    let begun = Instant::now();
    let sending = async {
        for _ in 0..8 {
            write.write_all(b"INCR s\r\n").await.unwrap();
            sleep(Duration::from_millis(100)).await;
        }
    };
    let receiving = async {
        let mut answer = Vec::new();
        while ended(&answer) < 8 {
            read.read_buf(&mut answer).await.unwrap();
        }
    };
    tokio::join!(sending, receiving);
    assert!(begun.elapsed() < ONCE, "8 commands took {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn transaction_in_an_outage_waits_once() {
    let (server, _) = without_ids(Faults::outage()).await;
    let commands = format!("MULTI\r\n{}EXEC\r\n", "INCR s\r\n".repeat(8));
    let (lines, after) = asked(&mut redis(&server), &commands, 18).await;
    assert_eq!(lines[9], "*8");
    all_refused(&lines[10..]);
    assert!((Server::TIMEOUT..ONCE).contains(&after), "8 commands took {after:?}");
}

/// No call to the store begins after the deadline.
#[tokio::test(start_paused = true)]
async fn calls_to_a_hanging_store_wait_once() {
    let (server, _) = without_ids(Faults::none().always(Fault::HangBefore)).await;
    for command in ["EXISTS s", "EXISTS a b c d e f g h", "INCR new-#", "IDMILL.TAKE other-# 5"] {
        let commands: Vec<_> = (0..8).map(|n| command.replace('#', &n.to_string()) + "\r\n").collect();
        let (lines, after) = asked(&mut redis(&server), &commands.concat(), 8).await;
        all_refused(&lines);
        assert!(after < ONCE, "8 times {command:?} took {after:?}");
    }
}

/// Each of these draws needs a call to the store, and together they take longer than the timeout.
#[tokio::test(start_paused = true)]
async fn pipeline_over_a_slow_store_succeeds() {
    let store = FaultyStore::with_faults(Faults::none().latency(Duration::from_secs(1)));
    let global = |server: ServerBuilder| server.configure(|_, builder| builder.order(Order::Global));
    let server = over(&store, global).await;
    let (lines, after) = asked(&mut redis(&server), &"INCR s\r\n".repeat(12), 12).await;
    assert!(lines.iter().all(|line| line.starts_with(':')), "{lines:?}");
    assert!(after > 2 * Server::TIMEOUT, "the store was too fast for this test: {after:?}");
}

#[tokio::test(start_paused = true)]
async fn pipelined_http_draws_in_an_outage_wait_once() {
    let (server, _) = without_ids(Faults::outage()).await;
    let (mut client, served) = duplex(1 << 20);
    tokio::spawn(server.http_client(served));
    let request = |last: bool| {
        let end = if last { "Connection: close\r\n" } else { "" };
        format!("POST /v1/sequences/s/ids HTTP/1.1\r\nHost: localhost\r\n{end}\r\n")
    };
    let requests: String = (0..8).map(|n| request(n == 7)).collect();
    let (begun, mut answer) = (Instant::now(), String::new());
    client.write_all(requests.as_bytes()).await.unwrap();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer.matches("HTTP/1.1 503").count(), 8, "{answer}");
    let after = begun.elapsed();
    assert!((Server::TIMEOUT..ONCE).contains(&after), "8 requests took {after:?}");
}
