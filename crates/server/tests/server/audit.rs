//! Logs: the audit lines, and no secrets.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Bounds, Change};
use idmill_remote::protocol::Ask;
use idmill_server::{Access, Pattern, Right, Rights, Secret, Tls, Token};
use idmill_testing::faulty::{Faults, FaultyStore};
use idmill_testing::log::Log;
use idmill_testing::{eventually, holds};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use parking_lot::Mutex;
use reqwest::header::HeaderMap;
use reqwest::{Client as Http, Method, StatusCode};
use serde_json::Value;
use tracing::Level;
use tracing::subscriber::DefaultGuard;

use crate::common::{Running, with_orders};
use crate::tls::{Authority, asked};

/// Captures the whole log.
pub(crate) fn begin() -> (Log, DefaultGuard) {
    Log::begin(Level::TRACE)
}

/// The audit lines of a log.
trait Audit {
    /// Returns the fields of all audit lines so far.
    fn audit(&self) -> Vec<Value>;

    fn last(&self) -> Value {
        self.audit().pop().unwrap()
    }
}

impl Audit for Log {
    fn audit(&self) -> Vec<Value> {
        let audits = self.lines().into_iter().filter(|line| line["target"] == "idmill::audit");
        audits.map(|mut line| line["fields"].take()).collect()
    }
}

struct Tokens {
    operator: Secret,
    shop: Secret,
}

impl Tokens {
    fn new() -> Self {
        Self { operator: Secret::fresh().unwrap(), shop: Secret::fresh().unwrap() }
    }

    fn access(&self) -> Access {
        let draws = [Right::Draw].into_iter().collect();
        Access::by([
            Token::new("operator", self.operator.hash(), Rights::ALL, vec![Pattern::any()]),
            Token::new("shop", self.shop.hash(), draws, vec![Pattern::any()]),
        ])
    }
}

async fn administer(server: &Running, method: Method, name: &str, secret: &str, body: &str) -> StatusCode {
    let request =
        Http::new().request(method, server.url(&format!("/v1/sequences/{name}"))).bearer_auth(secret);
    let request = request.header("content-type", "application/json").body(body.to_owned());
    request.send().await.unwrap().status()
}

#[tokio::test]
async fn each_administrative_request_is_audited_with_its_outcome() {
    let ((log, _guard), tokens, store) = (begin(), Tokens::new(), with_orders().await);
    let server = Running::with(store.clone(), |server| server.access(tokens.access())).await;
    let (operator, shop) = (tokens.operator.reveal(), tokens.shop.reveal());
    let none = Value::Null;
    let faults = [Faults::none(), Faults::outage()];
    for (fault, method, name, secret, body, status, by, did, outcome) in [
        (0, Method::PUT, "a", operator, "{}", 201, "operator", "create", "done"),
        (0, Method::PUT, "a", operator, "{}", 409, "operator", "create", "refused"),
        (0, Method::PATCH, "a", operator, r#"{"next":50}"#, 200, "operator", "change", "done"),
        (0, Method::PATCH, "a", operator, r#"{"next":5}"#, 409, "operator", "change", "refused"),
        (0, Method::PATCH, "a", operator, "{", 400, "operator", "change", "refused"),
        (0, Method::DELETE, "a", shop, "", 403, "shop", "remove", "refused"),
        (0, Method::DELETE, "a", "wrong", "", 401, "", "remove", "refused"),
        (1, Method::DELETE, "a", operator, "", 503, "operator", "remove", "failed"),
        (0, Method::DELETE, "a", operator, "", 204, "operator", "remove", "done"),
    ] {
        store.set_faults(faults[fault].clone());
        let told = administer(&server, method, name, secret, body).await;
        let line = log.last();
        assert_eq!(told.as_u16(), status, "{line}");
        let by = if by.is_empty() { none.clone() } else { by.into() };
        assert_eq!(
            (&line["by"], &line["message"], &line["outcome"]),
            (&by, &did.into(), &outcome.into()),
            "{line}"
        );
        assert_eq!(line["sequence"], name);
        assert!(line["peer"].as_str().unwrap().parse::<SocketAddr>().unwrap().ip().is_loopback());
        assert_eq!(line["why"].is_null(), outcome == "done", "{line}");
    }
    let changed = log.audit().into_iter().find(|line| line["next"] == 50).unwrap();
    assert!(changed["incarnation"].is_u64() && changed["epoch"].is_u64(), "{changed}");
}

#[tokio::test]
async fn acts_on_the_store_behind_the_server_are_audited() {
    let ((log, _guard), tokens, store) = (begin(), Tokens::new(), with_orders().await);
    let server = Running::with(store.clone(), |server| server.access(tokens.access())).await;
    let name = || "a".parse().unwrap();
    let create = || Ask::Create { name: name(), bounds: Bounds::new(1, 1000).unwrap() };
    let next = |next| Ask::Set { name: name(), change: Change::new().next(next) };
    let remove = || Ask::Remove(name());
    let faults = [Faults::none(), Faults::outage()];
    for (fault, by, ask, did, outcome, told) in [
        (0, "operator", create(), "create", "done", "sequence"),
        (0, "operator", create(), "create", "refused", "already_exists"),
        (0, "operator", next(50), "change", "done", "sequence"),
        (0, "operator", next(5), "change", "refused", "backwards"),
        (0, "shop", create(), "create", "refused", "NOPERM"),
        (0, "shop", next(60), "change", "refused", "NOPERM"),
        (0, "shop", remove(), "remove", "refused", "NOPERM"),
        (1, "operator", remove(), "remove", "failed", "unavailable"),
        (0, "operator", remove(), "remove", "done", "true"),
    ] {
        let secret = if by == "shop" { &tokens.shop } else { &tokens.operator };
        let (mut client, before) = (server.client().await, log.audit().len());
        client.ask(&format!("AUTH {}", secret.reveal())).await;
        store.set_faults(faults[fault].clone());
        let answer = client.ask_store(ask).await;
        assert!(answer.contains(told), "{did} by {by}: {answer}");
        let line = log.last();
        assert_eq!(log.audit().len(), before + 1, "{did} by {by}: {line}");
        let shown = ["by", "message", "outcome", "sequence"].map(|key| line[key].as_str().unwrap());
        assert_eq!(shown, [by, did, outcome, "a"]);
        assert_eq!(line["peer"], client.0.stream().get_ref().local_addr().unwrap().to_string());
        assert_eq!(line["why"].is_null(), outcome == "done", "{line}");
    }
}

#[tokio::test]
async fn request_span_adopts_the_headers_and_probes_have_none() {
    let ((_log, _guard), seen) = (begin(), Arc::new(Mutex::new(Vec::new())));
    let adopted = seen.clone();
    let adopt = move |_: &tracing::Span, headers: &HeaderMap| {
        adopted.lock().push(headers["x-parent"].to_str().unwrap().to_owned());
    };
    let server = Running::with(with_orders().await, |server| server.parents(adopt)).await;
    for path in ["/healthz", "/v1/sequences", "/readyz", "/metrics", "/nothing"] {
        Http::new().get(server.url(path)).header("x-parent", path).send().await.unwrap();
    }
    assert_eq!(*seen.lock(), ["/v1/sequences", "/nothing"]);
}

#[tokio::test]
async fn unknown_or_removed_token_is_audited_on_each_protocol() {
    let ((log, _guard), tokens) = (begin(), Tokens::new());
    let access = tokens.access();
    let server = Running::with(with_orders().await, |server| server.access(access.clone())).await;
    let mut client = server.client().await;
    client.ask(&format!("AUTH {}", tokens.shop.reveal())).await;
    access.replace([]);
    let mut stranger = server.client().await;
    for at in ["connected", "resp", "http"] {
        let before = log.audit().len();
        match at {
            "connected" => assert!(client.ask("INCR orders").await.starts_with('-')),
            "resp" => assert!(stranger.ask("AUTH wrong").await.starts_with("-WRONGPASS")),
            _ => {
                let looked = Http::new().get(server.url("/v1/sequences")).bearer_auth("wrong").send().await;
                assert_eq!(looked.unwrap().status(), StatusCode::UNAUTHORIZED);
            }
        }
        let line = log.last();
        assert_eq!(log.audit().len(), before + 1, "{at}: {line}");
        assert_eq!([&line["message"], &line["outcome"]], ["authenticate", "refused"], "{at}");
        assert!(line["peer"].is_string() && line["why"].is_string(), "{at}: {line}");
    }
}

#[tokio::test]
async fn a_page_of_another_site_that_tries_has_a_line_too() {
    let (log, _guard) = begin();
    let server = Running::over(FaultyStore::new()).await;
    let request = Http::new().delete(server.url("/v1/sequences/a")).header("Origin", "http://evil");
    assert_eq!(request.send().await.unwrap().status(), StatusCode::FORBIDDEN);
    let line = log.last();
    assert_eq!((&line["outcome"], &line["message"]), (&"refused".into(), &"remove".into()), "{line}");
}

#[tokio::test]
async fn administrator_over_its_limits_is_named_in_the_line() {
    let ((log, _guard), secret) = (begin(), Secret::fresh().unwrap());
    let named = || Token::new("operator", secret.hash(), Rights::ALL, vec![Pattern::any()]);
    let (mut slow, mut lonely) = (named(), named());
    slow.requests_per_second = NonZeroU32::new(1);
    lonely.max_connections = Some(1);
    for token in [slow, lonely] {
        let access = Access::by([token]);
        let server = Running::with(with_orders().await, |server| server.access(access)).await;
        let mut client = server.client().await;
        assert_eq!(client.ask(&format!("AUTH {}", secret.reveal())).await, "+OK");
        eventually("a request is refused", async || {
            let status = administer(&server, Method::PUT, "orders", secret.reveal(), "{}").await;
            holds(status == StatusCode::TOO_MANY_REQUESTS, status)
        })
        .await;
        let line = log.last();
        assert_eq!((&line["by"], &line["outcome"]), (&"operator".into(), &"refused".into()), "{line}");
    }
}

#[tokio::test]
async fn the_clients_certificate_is_in_the_line() {
    let ((log, _guard), authority) = (begin(), Authority::new());
    let [certificate, key] = authority.signs("server");
    let shown = authority.signs_with("client", |params| {
        params.distinguished_name.push(rcgen::DnType::CommonName, "deploy");
    });
    let tls = Tls::from_files(&certificate, &key, Some(&authority.file("ca.pem"))).unwrap();
    let server = Running::with(FaultyStore::new(), |server| server.tls(tls)).await;
    let request = "PUT /v1/sequences/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    let answer = asked(&authority.client(Some(&shown)), server.http, request).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let line = log.last();
    assert!(line["certificate"].as_str().unwrap().contains("CN=deploy"), "{line}");
}

/// Refused clients can retry without limit, but must not fill the disk.
#[tokio::test]
async fn rejections_log_few_lines_and_are_all_counted() {
    let recorder = DebuggingRecorder::new();
    let (_recording, seen) = (metrics::set_default_local_recorder(&recorder), recorder.snapshotter());
    let ((log, _guard), tokens) = (begin(), Tokens::new());
    let server = Running::with(with_orders().await, |server| server.access(tokens.access())).await;
    let http = Http::new();
    for _ in 0..100 {
        let removed = http.delete(server.url("/v1/sequences/orders")).bearer_auth(tokens.shop.reveal());
        assert_eq!(removed.send().await.unwrap().status(), StatusCode::FORBIDDEN);
    }
    assert!((20..60).contains(&log.audit().len()), "{} lines", log.audit().len());
    let refused = seen.snapshot().into_vec().into_iter().find_map(|(key, _, what, value)| {
        let labels: Vec<_> = key.key().labels().map(|label| (label.key(), label.value())).collect();
        (labels == [("reason", "right")] && what.is_some()).then_some(value)
    });
    assert_eq!(refused, Some(DebugValue::Counter(100)));
    // The log limits refusals of callers with a token and of callers without one separately.
    assert_eq!(administer(&server, Method::DELETE, "orders", "wrong", "").await.as_u16(), 401);
    assert_eq!((&log.last()["by"], &log.last()["outcome"]), (&Value::Null, &"refused".into()));
    // The limit does not apply to completed acts.
    assert_eq!(
        administer(&server, Method::DELETE, "orders", tokens.operator.reveal(), "").await.as_u16(),
        204
    );
    assert_eq!(log.last()["outcome"], "done");
}

#[tokio::test]
async fn long_names_are_shortened_in_the_log() {
    let ((log, _guard), tokens) = (begin(), Tokens::new());
    let server = Running::with(with_orders().await, |server| server.access(tokens.access())).await;
    let long = "x".repeat(40_000);
    for secret in [tokens.operator.reveal(), tokens.shop.reveal(), "wrong"] {
        let status = administer(&server, Method::DELETE, &long, secret, "").await;
        assert!(status.is_client_error(), "{status}");
        let line = log.last();
        assert!(line["sequence"].as_str().unwrap().contains("xxx… (40000 bytes)"), "{line}");
        assert!(line.to_string().len() < 2000, "{}", line.to_string().len());
    }
}

#[tokio::test]
async fn rejected_clients_log_few_lines() {
    let (log, _guard) = begin();
    let server = Running::with(with_orders().await, |server| server.max_connections(1)).await;
    let mut only = server.client().await;
    assert_eq!(only.ask("PING").await, "+PONG");
    for _ in 0..100 {
        assert!(server.client().await.line().await.contains("max number of clients"));
    }
    let lines = log.text().matches("a connection was rejected").count();
    assert!((20..40).contains(&lines), "{lines} lines");
}

#[tokio::test]
async fn added_and_removed_tokens_are_audited_by_name() {
    let ((log, _guard), tokens, new) = (begin(), Tokens::new(), Secret::fresh().unwrap());
    let access = tokens.access();
    let new = Token::new("new", new.hash(), Rights::ALL, vec![Pattern::any()]);
    access.replace([new.clone()]);
    let line = log.last();
    assert_eq!((&line["came"], &line["went"]), (&"[\"new\"]".into(), &"[\"operator\", \"shop\"]".into()));
    access.replace([new]);
    assert_eq!(log.audit().len(), 1, "nothing was added or removed");
    access.replace([]);
    let line = log.last();
    assert_eq!((log.audit().len(), &line["came"], &line["went"]), (2, &"[]".into(), &"[\"new\"]".into()));
}

/// Logs at the most verbose level contain no token, not even a token that is wrong by one letter.
#[tokio::test]
async fn no_secret_is_in_a_log_or_in_what_debugging_shows() {
    let ((log, _guard), tokens) = (begin(), Tokens::new());
    let (access, authority) = (tokens.access(), Authority::new());
    let [certificate, key] = authority.signs("server");
    let tls = Tls::from_files(&certificate, &key, None).unwrap();
    let server = Running::with(FaultyStore::new(), |server| server.access(access.clone())).await;
    let (good, wrong) = (tokens.operator.reveal(), tokens.shop.reveal().replace("idm_", "idm-"));
    let mut client = server.client().await;
    for command in [format!("AUTH {wrong}"), format!("AUTH {good}"), format!("HELLO 3 AUTH default {wrong}")]
    {
        client.ask(&command).await;
    }
    for secret in [good, &wrong] {
        administer(&server, Method::PUT, "a", secret, "{}").await;
        administer(&server, Method::DELETE, "b", secret, "").await;
    }
    let _ = tokio::time::timeout(Duration::from_secs(60), server.end()).await;
    let debugging = format!("{access:?} {:?} {tls:?}", tokens.operator);
    let told = log.text() + &debugging;
    assert!(told.contains("WRONG") || told.contains("the token is unknown"), "nothing was logged: {told}");
    let key = std::fs::read_to_string(key).unwrap();
    for secret in [&good[4..], &wrong[4..], key.lines().nth(1).unwrap()] {
        assert!(!told.contains(secret), "{told}");
    }
}
