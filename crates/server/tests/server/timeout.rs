//! Slow clients, in paused time, which jumps to the next timer when no task can run.

use std::time::Duration;

use idmill_server::{Access, Pattern, Rights, Secret, Token};
use idmill_testing::faulty::FaultyStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::common::Running;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Returns the bytes until the server disconnects, and the time that passed.
async fn until_it_leaves(stream: &mut TcpStream) -> (Vec<u8>, Duration) {
    let (begun, mut answer) = (Instant::now(), Vec::new());
    // Ignore the error: unread bytes turn the end of the connection into a reset.
    let _ = stream.read_to_end(&mut answer).await;
    (answer, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn incomplete_command_times_out_after_a_minute() {
    let server = Running::over(FaultyStore::new()).await;
    for half in ["*2\r\n$4\r\nINCR\r\n$6\r\nord", "INCR ord", "PING\r\nPING\r\n*1"] {
        let mut client = server.client().await.0.into_stream();
        client.write_all(half.as_bytes()).await.unwrap();
        let (answer, after) = until_it_leaves(&mut client).await;
        assert_eq!(answer, b"+PONG\r\n".repeat(half.matches("PING").count()));
        assert!((MINUTE..MINUTE * 2).contains(&after), "{half:?} after {after:?}");
    }
}

/// The minute limits the whole command, not each piece.
#[tokio::test(start_paused = true)]
async fn slowly_sent_command_times_out_after_a_minute() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await.0.into_stream();
    client.set_nodelay(true).unwrap();
    let begun = Instant::now();
    for byte in b"*1\r\n$4\r\nPI".iter().cycle() {
        if client.write_all(&[*byte]).await.is_err() {
            break;
        }
        assert!(begun.elapsed() < HOUR, "the connection was never closed");
        sleep(MINUTE / 4).await;
    }
    assert!(begun.elapsed() < MINUTE * 3, "after {:?}", begun.elapsed());
}

/// Starts a server that requires a token.
async fn with_token() -> (Running, Secret) {
    let secret = Secret::fresh().unwrap();
    let token = Token::new("shop", secret.hash(), Rights::ALL, vec![Pattern::any()]);
    let access = Access::by([token]);
    (Running::with(FaultyStore::new(), |server| server.access(access)).await, secret)
}

#[tokio::test(start_paused = true)]
async fn client_without_a_token_is_left_after_seconds() {
    let (server, secret) = with_token().await;
    for says in ["", "PING\r\n", "RESET\r\n", "*2\r\n"] {
        let (mut client, begun) = (server.client().await.0.into_stream(), Instant::now());
        // Further bytes from the client do not extend the deadline.
        for at in 0.. {
            let said = if at == 0 || !says.starts_with('*') { says } else { "" };
            let is_left = client.write_all(said.as_bytes()).await.is_err();
            sleep(MINUTE / 60).await;
            if is_left || client.try_read(&mut [0; 64]).is_ok_and(|read| read == 0) {
                break;
            }
            assert!(begun.elapsed() < MINUTE, "the server still waits after {says:?}");
        }
        assert!(begun.elapsed() >= MINUTE / 10, "{says:?} after {:?}", begun.elapsed());
    }
    let mut client = server.client().await;
    client.send(format!("AUTH {}\r\n", secret.reveal())).await;
    let mut answer = [0; 5];
    client.0.stream().read_exact(&mut answer).await.unwrap();
    sleep(HOUR).await;
    client.send("PING\r\n").await;
    client.0.stream().read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"+PONG");
}

#[tokio::test(start_paused = true)]
async fn open_transaction_ends_after_a_minute() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await.0.into_stream();
    client.write_all(b"MULTI\r\nINCR s\r\n").await.unwrap();
    let (answer, after) = until_it_leaves(&mut client).await;
    assert_eq!(answer, b"+OK\r\n+QUEUED\r\n");
    assert!((MINUTE..MINUTE * 2).contains(&after), "after {after:?}");
}

#[tokio::test(start_paused = true)]
async fn client_may_be_idle_between_commands_for_an_hour() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    assert_eq!(client.ask("INCR s").await, ":1");
    sleep(HOUR).await;
    client.send("INCR s\r\n").await;
    let mut answer = [0; 4];
    client.0.stream().read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b":2\r\n");
}

/// The timeout is per command: this client completes a command every half minute, and begins the next
/// command.
#[tokio::test(start_paused = true)]
async fn slow_client_is_served_while_it_makes_progress() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await.0.into_stream();
    client.write_all(b"INC").await.unwrap();
    for id in 1..20 {
        sleep(MINUTE / 2).await;
        client.write_all(b"R s\r\nINC").await.unwrap();
        let mut answer = vec![0; format!(":{id}\r\n").len()];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, format!(":{id}\r\n").as_bytes());
    }
}

#[tokio::test(start_paused = true)]
async fn unread_replies_time_out_after_a_minute() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await.0.into_stream();
    let (begun, commands) = (Instant::now(), "INCR s\r\n".repeat(4096));
    while client.write_all(commands.as_bytes()).await.is_ok() {}
    let after = begun.elapsed();
    assert!((MINUTE..MINUTE * 3).contains(&after), "after {after:?}");
}

#[tokio::test(start_paused = true)]
async fn incomplete_request_times_out_after_a_minute() {
    let server = Running::over(FaultyStore::new()).await;
    for (half, status) in [
        ("POST /v1/sequences/s/ids HTTP/1.1\r\nHo", ""),
        ("", ""),
        (
            "PUT /v1/sequences/s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
            "HTTP/1.1 408",
        ),
    ] {
        let mut client = TcpStream::connect(server.http).await.unwrap();
        client.write_all(half.as_bytes()).await.unwrap();
        let (answer, after) = until_it_leaves(&mut client).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(status), "{half:?}: {answer}");
        assert!(status.is_empty() || answer.contains("\"outcome\":\"unknown\""), "{answer}");
        assert!((MINUTE..MINUTE * 3).contains(&after), "{half:?} after {after:?}");
    }
}
