//! Rights, over both protocols.

use idmill_server::{Access, Pattern, Right, Rights, Secret, Token};
use idmill_testing::faulty::FaultyStore;
use reqwest::{Client as Http, StatusCode};

use crate::common::Running;

fn token(secret: &Secret, rights: impl IntoIterator<Item = Right>, patterns: &[&str]) -> Token {
    let patterns = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
    Token::new("shop", secret.hash(), rights.into_iter().collect(), patterns)
}

#[tokio::test]
async fn token_is_required_and_limits_commands() {
    let secret = Secret::fresh().unwrap();
    let mut shop = token(&secret, [Right::Draw], &["shop.*"]);
    shop.max_ids = Some(100);
    let access = Access::by([shop]);
    let server = Running::with(FaultyStore::new(), |server| server.access(access)).await;
    let mut client = server.client().await;
    for command in ["INCR shop.a", "GET shop.a", "EXISTS shop.a", "INFO", "HELLO 3", "INCRBY shop.a 3"] {
        let answer = client.ask(command).await;
        assert!(answer.starts_with("-NOAUTH"), "{command}: {answer}");
    }
    assert!(client.ask("AUTH wrong").await.starts_with("-WRONGPASS"));
    assert_eq!(client.ask(&format!("AUTH {}", secret.reveal())).await, "+OK");
    assert_eq!(client.ask("INCR shop.a").await, ":1");
    assert!(client.ask("INCR other").await.starts_with("-NOPERM"));
    assert!(client.ask("INCRBY shop.a 101").await.contains("100 ids per request"));
    assert_eq!(client.ask("INCRBY shop.a 100").await, ":101");
    let mut client = server.client().await;
    for after in ["more", "SETNAME me more"] {
        let answer = client.ask(&format!("HELLO 3 AUTH default {} {after}", secret.reveal())).await;
        assert!(answer.starts_with("-ERR syntax error in HELLO"), "{after}: {answer}");
    }
    assert_eq!(client.ask(&format!("HELLO 3 AUTH default {}", secret.reveal())).await, "%7");
}

#[tokio::test]
async fn removed_token_disconnects_its_clients() {
    let (secret, other) = (Secret::fresh().unwrap(), Secret::fresh().unwrap());
    let access = Access::by([token(&secret, [Right::Draw], &["*"])]);
    let server = Running::with(FaultyStore::new(), |server| server.access(access.clone())).await;
    let mut client = server.client().await;
    assert_eq!(client.ask(&format!("AUTH {}", secret.reveal())).await, "+OK");
    assert_eq!(client.ask("INCR a").await, ":1");
    access.replace([token(&other, [Right::Draw], &["*"])]);
    assert!(client.ask("INCR a").await.starts_with("-WRONGPASS the token has expired or was removed"));
    assert_eq!(client.rest().await, "");
    let mut client = server.client().await;
    assert_eq!(client.ask(&format!("AUTH {}", other.reveal())).await, "+OK");
    assert_eq!(client.ask("INCR a").await, ":2");
}

#[tokio::test]
async fn new_rights_of_a_token_hold_for_the_last_sequence() {
    let secret = Secret::fresh().unwrap();
    let access = Access::by([token(&secret, [Right::Draw], &["*"])]);
    let server = Running::with(FaultyStore::new(), |server| server.access(access.clone())).await;
    let mut client = server.client().await;
    assert_eq!(client.ask(&format!("AUTH {}", secret.reveal())).await, "+OK");
    assert_eq!(client.ask("INCR a").await, ":1");
    assert_eq!(client.ask("INCR a").await, ":2");
    access.replace([token(&secret, [Right::Draw], &["b"])]);
    assert!(client.ask("INCR a").await.starts_with("-NOPERM"));
    assert_eq!(client.ask("INCR b").await, ":1");
}

#[tokio::test]
async fn over_http_a_token_allows_the_same() {
    let (shop, operator) = (Secret::fresh().unwrap(), Secret::fresh().unwrap());
    let access = Access::by([
        token(&shop, [Right::Draw], &["shop.*"]),
        Token::new("operator", operator.hash(), Rights::ALL, vec![Pattern::any()]),
    ]);
    let server = Running::with(FaultyStore::new(), |server| server.access(access).metrics(String::new)).await;
    let http = Http::new();
    let draw = |name: &str| http.post(server.url(&format!("/v1/sequences/{name}/ids")));
    let nobody = draw("shop.a").send().await.unwrap();
    assert_eq!(nobody.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(nobody.headers()["www-authenticate"], "Bearer");
    let wrong = draw("shop.a").bearer_auth("wrong").send().await.unwrap();
    assert_eq!(wrong.status(), StatusCode::UNAUTHORIZED);
    let text = wrong.text().await.unwrap();
    assert!(!text.contains("wrong\"") && text.contains("the token is unknown"), "{text}");
    assert_eq!(draw("shop.a").bearer_auth(shop.reveal()).send().await.unwrap().status(), StatusCode::OK);
    assert_eq!(draw("b").bearer_auth(shop.reveal()).send().await.unwrap().status(), StatusCode::FORBIDDEN);
    assert_eq!(draw("b").bearer_auth(operator.reveal()).send().await.unwrap().status(), StatusCode::OK);
    for path in ["/v1/sequences", "/v1/sequences/b", "/metrics"] {
        let nobody = http.get(server.url(path)).send().await.unwrap();
        assert_eq!(nobody.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    let listed = http.get(server.url("/v1/sequences")).bearer_auth(shop.reveal()).send().await.unwrap();
    let listed: serde_json::Value = listed.json().await.unwrap();
    assert_eq!(listed["sequences"].as_array().unwrap().len(), 1, "{listed}");
    let metrics = http.get(server.url("/metrics")).bearer_auth(shop.reveal()).send().await.unwrap();
    assert_eq!(metrics.status(), StatusCode::FORBIDDEN);
    let removed =
        http.delete(server.url("/v1/sequences/shop.a")).bearer_auth(shop.reveal()).send().await.unwrap();
    assert_eq!(removed.status(), StatusCode::FORBIDDEN);
    // Only with the right `observe`, a probe gets the state of the sequences.
    let probe = || http.get(server.url("/readyz"));
    for (probe, text) in [
        (probe(), "ready\n"),
        (probe().bearer_auth("wrong"), "ready\n"),
        (probe().bearer_auth(shop.reveal()), "ready\n"),
        (probe().bearer_auth(operator.reveal()), "ready: 2 sequences, 0 in trouble\n"),
    ] {
        let ready = probe.send().await.unwrap();
        assert_eq!((ready.status(), ready.text().await.unwrap().as_str()), (StatusCode::OK, text));
    }
}

/// The greetings of client libraries, unchanged: redis-py 8, node-redis 6, ioredis 6, jedis 8, lettuce 7 and
/// go-redis 9, with each version of the protocol. Only `MAINT_NOTIFICATIONS` may fail, because the server
/// never changes its address; the libraries accept the error.
#[tokio::test]
async fn greetings_of_client_libraries_are_answered() {
    let secret = Secret::fresh().unwrap();
    let access = Access::by([token(&secret, [Right::Draw], &["*"])]);
    let server = Running::with(FaultyStore::new(), |server| server.access(access)).await;
    let greetings = [
        ("AUTH", "+OK"),
        ("AUTH default", "+OK"),
        ("HELLO 2 AUTH default", "*14"),
        ("HELLO 3 AUTH default", "%7"),
        ("hello 3 auth default", "%7"),
        ("HELLO 3 SETNAME me AUTH default", "%7"),
    ];
    for (id, (greeting, answer)) in (1..).zip(greetings) {
        let mut client = server.client().await;
        client
            .send(format!(
                "{greeting} {}\r\nCLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type internal-ip\r\nCLIENT SETINFO LIB-NAME go-redis(,go1.26.8)\r\n\
                 client setinfo lib-ver 7.7.0.RELEASE/1960d49\r\nSELECT 0\r\nPING\r\nINCRBY a 1\r\nQUIT\r\n",
                secret.reveal()
            ))
            .await;
        let said = client.rest().await;
        let end = format!(
            "-ERR unknown CLIENT subcommand; use SETNAME, GETNAME, SETINFO or ID\r\n+OK\r\n+OK\r\n+OK\r\n+PONG\r\n:{id}\r\n+OK\r\n"
        );
        assert!(said.starts_with(&format!("{answer}\r\n")) && said.ends_with(&end), "{greeting}: {said}");
    }
}
