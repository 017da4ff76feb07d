//! The limits of tokens, over both protocols.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use idmill::SequenceName;
use idmill::store::Reserve;
use idmill::store::Store;
use idmill_kit::Existing;
use idmill_remote::protocol::Ask;
use idmill_server::{Access, Pattern, Rights, Secret, Token};
use idmill_testing::faulty::FaultyStore;
use idmill_testing::{eventually, holds};
use reqwest::{Client as Http, StatusCode};
use serde_json::Value;
use tokio::io::AsyncWriteExt;

use crate::common::{Client, Running, with_orders};

/// Returns a token with all rights and these limits.
fn limited(secret: &Secret, limits: impl FnOnce(&mut Token)) -> Token {
    let mut token = Token::new("shop", secret.hash(), Rights::ALL, vec![Pattern::any()]);
    limits(&mut token);
    token
}

async fn with(store: impl Store + 'static, tokens: impl IntoIterator<Item = Token>) -> (Running, Access) {
    let access = Access::by(tokens);
    (Running::with(store, |server| server.access(access.clone())).await, access)
}

/// Returns a client that has sent its token.
async fn client(server: &Running, secret: &Secret) -> Client {
    let mut client = server.client().await;
    assert_eq!(client.ask(&format!("AUTH {}", secret.reveal())).await, "+OK");
    client
}

/// Sets a rate so low that the burst is not refilled during a test.
fn few(token: &mut Token, burst: u32) {
    // One per second is the lowest rate: during a short test, it adds few requests to the burst.
    (token.requests_per_second, token.burst) = (NonZeroU32::new(1), NonZeroU32::new(burst));
}

#[tokio::test]
async fn pipeline_beyond_the_request_limit_gets_tryagain() {
    let secret = Secret::fresh().unwrap();
    let (server, access) = with(FaultyStore::new(), [limited(&secret, |token| few(token, 100))]).await;
    let mut shop = client(&server, &secret).await;
    shop.send("INCR s\r\n".repeat(1000)).await;
    let mut answers = Vec::new();
    for _ in 0..1000 {
        answers.push(shop.line().await);
    }
    let ids: Vec<_> = answers.iter().filter(|answer| answer.starts_with(':')).cloned().collect();
    // One more request is accepted each second. On a slow machine, several seconds may pass.
    assert!((100..200).contains(&ids.len()), "{} requests were let in", ids.len());
    assert_eq!(
        ids,
        (1..=ids.len()).map(|id| format!(":{id}")).collect::<Vec<_>>(),
        "a rejected request consumed an id"
    );
    let refused = answers.iter().find(|answer| !answer.starts_with(':')).unwrap();
    assert!(refused.starts_with("-TRYAGAIN the token's request rate is exceeded"), "{refused}");
    // Another connection shares the limit, even after the tokens are reloaded.
    let mut other = client(&server, &secret).await;
    other.send("INCR s\r\n".repeat(200)).await;
    let mut let_in = 0;
    for _ in 0..200 {
        let_in += usize::from(other.line().await.starts_with(':'));
    }
    assert!(let_in < 100, "{let_in}");
    access.replace([limited(&secret, |token| few(token, 100))]);
    other.send("INCR s\r\n".repeat(200)).await;
    let mut let_in = 0;
    for _ in 0..200 {
        let_in += usize::from(other.line().await.starts_with(':'));
    }
    assert!(let_in < 100, "{let_in} after the tokens were read again");
    // Without a limit, all requests are accepted.
    access.replace([limited(&secret, |_| {})]);
    other.send("INCR s\r\n".repeat(1000)).await;
    for _ in 0..1000 {
        assert!(other.line().await.starts_with(':'));
    }
}

#[tokio::test]
async fn transaction_over_the_request_limit_draws_nothing() {
    let secret = Secret::fresh().unwrap();
    let (server, access) = with(FaultyStore::new(), [limited(&secret, |token| few(token, 1000))]).await;
    let mut shop = client(&server, &secret).await;
    for (draws, answer) in [
        (700, "*700"),
        (700, "-TRYAGAIN the token's request rate is exceeded"),
        (1001, "-NOPERM the token allows a burst of 1000 requests"),
    ] {
        shop.send("MULTI\r\n".to_owned() + &"INCR s\r\n".repeat(draws) + "EXEC\r\n").await;
        assert_eq!(shop.line().await, "+OK");
        assert!(shop.lines(draws).await.iter().all(|answer| answer == "+QUEUED"));
        let line = shop.line().await;
        assert!(line.starts_with(answer), "{line}, and not {answer}");
        if let Some(drawn) = line.strip_prefix('*') {
            shop.lines(drawn.parse().unwrap()).await;
        }
    }
    // A discarded transaction does not count towards the limit.
    shop.send("MULTI\r\n".to_owned() + &"INCR s\r\n".repeat(900) + "DISCARD\r\n").await;
    assert_eq!(shop.lines(902).await.pop().unwrap(), "+OK");
    access.replace([limited(&secret, |_| {})]);
    assert_eq!(shop.ask("INCR s").await, ":701");
}

/// Commands that are queued without a token would not count towards the limit.
#[tokio::test]
async fn transaction_with_a_login_in_it_draws_nothing() {
    let secret = Secret::fresh().unwrap();
    let store = with_orders().await;
    let (server, _) = with(store.clone(), [limited(&secret, |token| few(token, 2))]).await;
    let mut shop = server.client().await;
    let draws = "IDMILL.TAKE orders 10\r\n".repeat(1000);
    shop.send(format!("MULTI\r\nAUTH {}\r\n{draws}EXEC\r\nQUIT\r\n", secret.reveal())).await;
    let drawn = shop.rest().await.lines().filter(|line| line.starts_with("*2")).count();
    assert!(drawn < 10, "{drawn} draws exceed the limit");
}

#[tokio::test]
async fn store_command_pays_for_each_entry() {
    let limits = |token: &mut Token| {
        few(token, 10);
        token.max_ids = Some(10);
    };
    let store = with_orders().await;
    let orders: SequenceName = "orders".parse().unwrap();
    let entry = Reserve::new(orders.clone(), 10);
    for ask in [Ask::Reserve(vec![entry; 256]), Ask::Inspect(vec![orders.clone(); 256])] {
        let secret = Secret::fresh().unwrap();
        let (server, _) = with(store.clone(), [limited(&secret, limits)]).await;
        let answer = client(&server, &secret).await.ask_store(ask).await;
        let refused = answer.matches("request rate is exceeded").count();
        // One more request is accepted each second. On a slow machine, several seconds may pass.
        assert!((200..=246).contains(&refused), "{refused} refused: {answer}");
    }
    let next = store.inspect(&orders).await.unwrap().unwrap().next.unwrap();
    assert!(next < 600, "{next}");
}

#[tokio::test]
async fn exists_pays_for_each_name() {
    let secret = Secret::fresh().unwrap();
    let (server, _) = with(with_orders().await, [limited(&secret, |token| few(token, 1000))]).await;
    let mut shop = client(&server, &secret).await;
    for (names, answer) in
        [(700, ":700"), (700, "-TRYAGAIN"), (1001, "-NOPERM the token allows a burst of 1000")]
    {
        let line = shop.ask(&format!("EXISTS{}", " orders".repeat(names))).await;
        assert!(line.starts_with(answer), "{line}, and not {answer}");
    }
}

/// The bound is for all connections of a token together.
#[tokio::test]
async fn commands_that_wait_are_bounded_for_each_token() {
    let (secret, other) = (Secret::fresh().unwrap(), Secret::fresh().unwrap());
    let tokens = [limited(&secret, |_| {}), limited(&other, |_| {})];
    let (server, _) = with(with_orders().await, tokens).await;
    let transaction = "MULTI\r\n".to_owned() + &format!("ECHO {}\r\n", "x".repeat(10_000)).repeat(20);
    let (mut clients, mut refused, begun) = (Vec::new(), 0, Instant::now());
    for _ in 0..200 {
        let mut shop = client(&server, &secret).await;
        shop.send(&transaction).await;
        assert_eq!(shop.line().await, "+OK");
        let mut last = String::new();
        for _ in 0..20 {
            last = shop.rest_of_line().await;
        }
        // The refusal follows the answers, and ends the connection.
        refused += usize::from(last != "+QUEUED" || shop.ask_or_end("PING").await != "+QUEUED");
        clients.push(shop);
    }
    assert!((20..100).contains(&refused), "{refused} of 200 transactions of 200 kB");
    let mut other = client(&server, &other).await;
    other.send(&transaction).await;
    assert_eq!(other.lines(21).await.pop().unwrap(), "+QUEUED");
    // Closed connections free their memory.
    drop(clients);
    eventually("the token's memory is free", async || {
        let mut shop = client(&server, &secret).await;
        // Ignore the error: the server may disconnect.
        let _ = shop.0.stream().write_all(transaction.as_bytes()).await;
        let mut last = String::new();
        for _ in 0..21 {
            last = shop.rest_of_line().await;
        }
        holds(last == "+QUEUED" && shop.ask_or_end("PING").await == "+QUEUED", last)
    })
    .await;
    // After a minute, the server ends the transactions, even of connected clients.
    assert!(begun.elapsed() < Duration::from_secs(60), "the disconnects freed nothing");
}

#[tokio::test]
async fn http_request_above_the_limit_gets_retry_after() {
    let secret = Secret::fresh().unwrap();
    let (server, _) = with(with_orders().await, [limited(&secret, |token| few(token, 2))]).await;
    let http = Http::new();
    let refused = eventually("a request is refused", async || {
        let drawn = http.post(server.url("/v1/sequences/orders/ids")).bearer_auth(secret.reveal());
        let drawn = drawn.send().await.unwrap();
        if drawn.status() == StatusCode::OK { Err(drawn.status()) } else { Ok(drawn) }
    })
    .await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "1");
    let problem: Value = refused.json().await.unwrap();
    assert_eq!((&problem["kind"], &problem["outcome"]), (&"overloaded".into(), &"transient".into()));
}

#[tokio::test]
async fn token_connection_limit_is_freed_by_a_disconnect() {
    let (secret, other) = (Secret::fresh().unwrap(), Secret::fresh().unwrap());
    let two = |token: &mut Token| token.max_connections = Some(2);
    let tokens = || [limited(&secret, two), limited(&other, |_| {})];
    let (server, access) = with(with_orders().await, tokens()).await;
    let auth = format!("AUTH {}", secret.reveal());
    let (mut first, second) = (client(&server, &secret).await, client(&server, &secret).await);
    let mut third = server.client().await;
    assert!(third.ask(&auth).await.starts_with("-TRYAGAIN the token allows 2 connections"));
    assert!(third.ask("INCR orders").await.starts_with("-NOAUTH"));
    // HTTP connections count too. Clients stay connected when the tokens are reloaded.
    access.replace(tokens());
    assert_eq!(first.ask(&auth).await, "+OK");
    let http = Http::new();
    let draw = || http.post(server.url("/v1/sequences/orders/ids")).bearer_auth(secret.reveal()).send();
    // A refusal is no guess: the connection stays open.
    for _ in 0..6 {
        let refused = draw().await.unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(!refused.headers().contains_key("connection"));
        refused.bytes().await.unwrap();
    }
    // A connection that sends another token or disconnects no longer counts.
    assert_eq!(first.ask(&format!("AUTH {}", other.reveal())).await, "+OK");
    assert_eq!(third.ask(&auth).await, "+OK");
    assert_eq!(first.ask("RESET").await, "+RESET");
    assert!(first.ask(&auth).await.starts_with("-TRYAGAIN"));
    drop(second);
    eventually("the server has detected the disconnect", async || {
        let status = draw().await.unwrap().status();
        holds(status == StatusCode::OK, status)
    })
    .await;
    assert_eq!(draw().await.unwrap().status(), StatusCode::OK, "the connection counted twice");
    assert!(first.ask(&auth).await.starts_with("-TRYAGAIN"));
}

#[tokio::test]
async fn new_sequence_limit_keeps_existing_ones_served() {
    let (secret, none) = (Secret::fresh().unwrap(), Secret::fresh().unwrap());
    let tokens = || {
        [
            limited(&secret, |token| token.new_sequences = Some(2)),
            limited(&none, |token| token.new_sequences = Some(0)),
        ]
    };
    let store = with_orders().await;
    let (server, access) = with(store.clone(), tokens()).await;
    let mut shop = client(&server, &secret).await;
    for answer in [shop.ask("INCR a").await, shop.ask("INCR a").await, shop.ask("INCR b").await] {
        assert!(answer.starts_with(':'), "{answer}");
    }
    access.replace(tokens());
    let refused = shop.ask("INCR c").await;
    assert!(refused.starts_with("-TRYAGAIN the token may create no more sequences"), "{refused}");
    assert_eq!(shop.ask("INCR orders").await, ":1");
    let http = Http::new();
    let draw = |name: &str, secret: &Secret| {
        http.post(server.url(&format!("/v1/sequences/{name}/ids"))).bearer_auth(secret.reveal()).send()
    };
    let refused = draw("c", &secret).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((43_000..=43_200).contains(&wait), "half a day, and not {wait} s");
    assert_eq!(draw("c", &none).await.unwrap().status(), StatusCode::FORBIDDEN);
    assert_eq!(draw("a", &none).await.unwrap().status(), StatusCode::OK);
    assert!(store.inspect(&"c".parse().unwrap()).await.unwrap().is_none());
}

/// A mistyped name that creates nothing does not count.
#[tokio::test]
async fn failed_creation_does_not_count() {
    let secret = Secret::fresh().unwrap();
    let token = limited(&secret, |token| token.new_sequences = Some(1));
    let (server, _) = with(Existing::of(with_orders().await), [token]).await;
    let mut shop = client(&server, &secret).await;
    for _ in 0..3 {
        assert!(shop.ask("INCR odrers").await.starts_with("-NOTFOUND"));
    }
}
