//! A clock that jumps.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use idmill_server::{Access, Pattern, Rights, Secret, Token};
use idmill_testing::faulty::FaultyStore;
use reqwest::StatusCode;

use crate::common::Running;

const DAY: u64 = 24 * 60 * 60;

/// A clock that is set by the test, in seconds.
#[derive(Clone)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(100 * DAY)))
    }

    fn set(&self, seconds: u64) {
        self.0.store(seconds, Ordering::SeqCst);
    }

    fn access(&self, token: Token) -> Access {
        let shown = self.0.clone();
        Access::by([token]).clocked(move || at(shown.load(Ordering::SeqCst)))
    }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn token(secret: &Secret) -> Token {
    Token::new("shop", secret.hash(), Rights::ALL, vec![Pattern::any()])
}

#[tokio::test]
async fn token_expires_by_the_clock_and_ids_stay_unique() {
    let (secret, clock) = (Secret::fresh().unwrap(), Clock::new());
    let mut token = token(&secret);
    token.expires = Some(at(200 * DAY));
    let server = Running::with(FaultyStore::new(), |server| server.access(clock.access(token))).await;
    let (auth, http) = (format!("AUTH {}", secret.reveal()), reqwest::Client::new());
    let draw = || http.post(server.url("/v1/sequences/s/ids")).bearer_auth(secret.reveal()).send();
    let mut ids = BTreeSet::new();
    let mut client = server.client().await;
    assert_eq!(client.ask(&auth).await, "+OK");
    for day in [100, 199, 5, 150, 0, 199] {
        clock.set(day * DAY);
        assert!(ids.insert(client.id("INCR s").await) && ids.insert(client.id("INCRBY s 1").await));
        let drawn: serde_json::Value = draw().await.unwrap().json().await.unwrap();
        assert!(ids.insert(drawn["ids"][0].as_u64().unwrap()), "{drawn} is a duplicate");
    }
    clock.set(200 * DAY);
    assert!(client.ask("INCR s").await.starts_with("-WRONGPASS the token has expired"));
    assert_eq!(client.rest().await, "");
    assert_eq!(draw().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    // A wrong clock has no lasting effect once it is corrected.
    clock.set(100 * DAY);
    let mut client = server.client().await;
    assert_eq!(client.ask(&auth).await, "+OK");
    assert!(ids.insert(client.id("INCR s").await));
    assert_eq!(ids.len(), 19);
    assert_eq!(ids.last(), Some(&19), "a gap");
}

/// A jump of the clock neither loosens rate limits nor blocks requests.
#[tokio::test]
async fn request_limit_ignores_the_wall_clock() {
    let (secret, clock) = (Secret::fresh().unwrap(), Clock::new());
    let mut token = token(&secret);
    (token.requests_per_second, token.burst) = (NonZeroU32::new(1), NonZeroU32::new(200));
    let server = Running::with(FaultyStore::new(), |server| server.access(clock.access(token))).await;
    let mut client = server.client().await;
    assert_eq!(client.ask(&format!("AUTH {}", secret.reveal())).await, "+OK");
    let mut let_in = 0;
    for day in [100, 101, 1, 102, 0] {
        clock.set(day * DAY);
        client.send("INCR s\r\n".repeat(100)).await;
        for _ in 0..100 {
            let_in += usize::from(client.line().await.starts_with(':'));
        }
    }
    assert!((200..400).contains(&let_in), "{let_in}");
}
