//! Hostile and broken clients.

use std::time::Duration;

use idmill_server::{Access, Pattern, Rights, Secret, Token};
use idmill_testing::faulty::FaultyStore;
use idmill_testing::{eventually, holds};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::common::{Client, Running};

#[tokio::test]
async fn invalid_command_closes_only_its_own_connection() {
    let server = Running::over(FaultyStore::new()).await;
    let mut other = server.client().await;
    assert_eq!(other.ask("INCR s").await, ":1");
    for (bytes, word) in [
        (&b"*-1\r\n"[..], "multibulk"),
        (b"*1\r\n$99999999\r\n", "bulk length"),
        (b"*1\r\n:1\r\n", "expected '$'"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", "unknown command"),
        (b"GET /v1/sequences HTTP/1.1\r\nHost: localhost\r\n\r\n", "send HTTP requests to the HTTP port"),
        (b"POST /x HTTP/1.1\r\n\r\nINCR s\r\n", "send HTTP requests to the HTTP port"),
    ] {
        let mut client = server.client().await;
        client.send(bytes).await;
        client.0.stream().shutdown().await.unwrap();
        let answer = client.rest().await;
        assert!(answer.contains(word), "{}: {answer}", bytes.escape_ascii());
    }
    assert_eq!(other.ask("INCR s").await, ":2");
}

/// Starts a server that requires a token.
async fn with_token() -> (Running, Secret) {
    let secret = Secret::fresh().unwrap();
    let token = Token::new("shop", secret.hash(), Rights::ALL, vec![Pattern::any()]);
    let access = Access::by([token]);
    (Running::with(FaultyStore::new(), |server| server.access(access)).await, secret)
}

#[tokio::test]
async fn client_without_a_token_may_only_show_one() {
    let (server, secret) = with_token().await;
    let mut client = server.client().await;
    for command in [
        "CLIENT SETNAME me",
        "CLIENT ID",
        "ECHO x",
        "SELECT 0",
        "COMMAND",
        "CONFIG GET save",
        "INFO",
        "MULTI",
        "INCR s",
        "HELLO 3",
    ] {
        let answer = client.ask(command).await;
        assert!(answer.starts_with("-NOAUTH"), "{command}: {answer}");
    }
    assert!(client.ask("AUTTH x").await.starts_with("-ERR unknown command"));
    assert_eq!(client.ask("PING").await, "+PONG");
    assert_eq!(client.ask("RESET").await, "+RESET");
    assert_eq!(client.ask(&format!("AUTH {}", secret.reveal())).await, "+OK");
    assert_eq!(client.ask("CLIENT SETNAME me").await, "+OK");
    assert_eq!(server.client().await.ask("QUIT").await, "+OK");
}

#[tokio::test]
async fn client_without_a_token_sends_short_commands() {
    let (server, secret) = with_token().await;
    for long in ["*2\r\n$4\r\nPING\r\n$16384\r\n".to_owned(), "x".repeat(17_000)] {
        let mut client = server.client().await;
        client.send(&long).await;
        assert_eq!(client.line().await, "-ERR Protocol error: invalid bulk length");
        assert_eq!(client.rest().await, "");
    }
    let mut client = server.client().await;
    assert_eq!(client.ask(&format!("AUTH {}", secret.reveal())).await, "+OK");
    assert_eq!(client.ask(&format!("PING {}", "x".repeat(100_000))).await, "$100000");
}

#[tokio::test]
async fn names_of_clients_are_short() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    let (longest, longer) = ("x".repeat(64), "x".repeat(65));
    assert_eq!(client.ask(&format!("CLIENT SETNAME {longest}")).await, "+OK");
    for command in [format!("CLIENT SETNAME {longer}"), format!("HELLO 3 SETNAME {longer}")] {
        let answer = client.ask(&command).await;
        assert!(answer.starts_with("-ERR a client's name may have at most 64 bytes"), "{answer}");
    }
    assert_eq!(client.ask("CLIENT GETNAME").await, "$64");
}

/// A line without an end is not buffered.
#[tokio::test]
async fn endless_input_is_disconnected_early() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    let (mut sent, endless) = (0_usize, vec![b'x'; 65536]);
    while client.0.stream().write_all(&endless).await.is_ok() {
        sent += 65536;
        assert!(sent < 1 << 30, "a gigabyte was read");
    }
    assert!(sent >= 1 << 17, "cut off after {sent} bytes");
}

/// The server stops reading, so the buffer of unread answers is bounded.
#[tokio::test]
async fn unread_replies_stop_reading_the_pipeline() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    let commands = "*2\r\n$4\r\nPING\r\n$1000\r\n".to_owned() + &"x".repeat(1000) + "\r\n";
    let commands = commands.repeat(64);
    let mut sent = 0_usize;
    while timeout(Duration::from_secs(2), client.0.stream().write_all(commands.as_bytes())).await.is_ok() {
        sent += commands.len();
        assert!(sent < 1 << 28, "a quarter of a gigabyte was read");
    }
    let mut other = server.client().await;
    assert_eq!(other.ask("INCR s").await, ":1");
}

#[tokio::test]
async fn clients_above_the_connection_limit_are_rejected() {
    let server = Running::with(FaultyStore::new(), |server| server.max_connections(2)).await;
    let (mut first, mut second) = (server.client().await, server.client().await);
    assert_eq!(first.ask("PING").await, "+PONG");
    assert_eq!(second.ask("PING").await, "+PONG");
    let mut third = server.client().await;
    assert_eq!(third.line().await, "-ERR max number of clients reached");
    assert_eq!(third.rest().await, "");
    drop(first);
    // The slot is freed once the server has detected the disconnect.
    eventually("the slot is free", async || {
        let answer = server.client().await.ask_or_end("PING").await;
        holds(answer == "+PONG", answer)
    })
    .await;
}

/// Clients send half of a request over both protocols, and then nothing. Other clients are still served.
#[tokio::test]
async fn incomplete_commands_do_not_block_other_clients() {
    let server = Running::over(FaultyStore::new()).await;
    let mut halves = Vec::new();
    for _ in 0..50 {
        let mut client = server.client().await;
        client.send("*2\r\n$4\r\nINCR\r\n$6\r\nord").await;
        halves.push(client.0.into_stream());
        let mut stream = tokio::net::TcpStream::connect(server.http).await.unwrap();
        stream.write_all(b"POST /v1/sequences/orders/ids HTTP/1.1\r\nHo").await.unwrap();
        halves.push(stream);
    }
    assert_eq!(server.client().await.ask("INCR orders").await, ":1");
    let http = reqwest::Client::new().post(server.url("/v1/sequences/orders/ids")).send().await.unwrap();
    assert_eq!(http.text().await.unwrap(), r#"{"sequence":"orders","ids":[2]}"#);
}

#[tokio::test]
async fn clients_of_http_have_places_too() {
    let server = Running::with(FaultyStore::new(), |server| server.max_connections(1)).await;
    let mut only = server.client().await;
    assert_eq!(only.ask("PING").await, "+PONG");
    let asked = async |path: &str| {
        let mut client = Client::to(server.http).await;
        client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
        client.rest().await.to_lowercase()
    };
    let answer = asked("/v1/sequences").await;
    assert!(answer.starts_with("http/1.1 503") && answer.contains("retry-after"), "{answer}");
    // Probes are answered above the limit: an orchestrator would kill a server that does not answer.
    let answer = asked("/healthz").await;
    assert!(answer.starts_with("http/1.1 200") && answer.contains("connection: close"), "{answer}");
    // If silent clients take all connections for probes, further clients are rejected immediately.
    let silent: Vec<_> =
        futures_util::future::join_all((0..40).map(|_| TcpStream::connect(server.http))).await;
    let mut last = Client::to(server.http).await;
    let answer = last.rest().await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("Retry-After"), "{answer}");
    drop(silent);
}
