//! The page for operators and its events over HTTP. The test `page` checks them in a browser.

use std::time::Duration;

use idmill::store::{Bounds, Store};
use idmill_server::{Access, Pattern, Right, Secret, Token};
use idmill_testing::faulty::{Faults, FaultyStore};
use reqwest::{Client as Http, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::common::{Running, with_orders};

const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&{{rows}}";
const TIMEOUT: Duration = Duration::from_secs(60);

/// Reads `/v1/events`, one event at a time.
pub(crate) struct Events {
    response: Response,
    text: String,
}

impl Events {
    pub(crate) fn of(response: Response) -> Self {
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    async fn at(server: &Running, query: &str) -> Self {
        Self::of(reqwest::get(server.url(&format!("/v1/events{query}"))).await.unwrap())
    }

    /// Returns the name of the next event, and its data; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let event: String = self.text.drain(..end + 2).collect();
                let (name, data) = event.trim_end().split_once('\n').unwrap();
                let name = name.strip_prefix("event: ").unwrap().to_owned();
                let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
                return Some((name, data));
            }
            let chunk = timeout(TIMEOUT, self.response.chunk()).await.unwrap().unwrap()?;
            self.text += std::str::from_utf8(&chunk).unwrap();
        }
    }

    /// Returns the data of the event with this name, which must come within a minute of snapshots.
    async fn last(&mut self, wanted: &str) -> Value {
        for _ in 0..60 {
            match self.next().await.unwrap_or_else(|| panic!("the stream ended without {wanted}")) {
                (name, data) if name == wanted => return data,
                (name, data) => assert_eq!(name, "look", "{data}"),
            }
        }
        panic!("{wanted} never arrived");
    }

    /// Returns the first snapshot for which `holds` is true.
    async fn until(&mut self, holds: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..60 {
            let (name, data) = self.next().await.expect("the stream ended");
            assert_eq!(name, "look", "{data}");
            if holds(&data) {
                return data;
            }
            last = data;
        }
        panic!("the expected snapshot never arrived; the last one is {last}");
    }
}

fn row<'a>(look: &'a Value, name: &str) -> &'a Value {
    let rows = look["sequences"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == json!(name)).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn events_report_the_state_every_second() {
    let store = FaultyStore::with_faults(Faults::none().latency(Duration::from_millis(3)));
    store.create(&"orders".parse().unwrap(), Bounds::new(1, 100_000).unwrap()).await.unwrap();
    let server = Running::with(store, |server| server.store_url("postgres://app:secret@db1/shop")).await;
    let mut client = server.client().await;
    let mut events = Events::at(&server, "").await;
    client.id("INCRBY orders 400").await;
    events.until(|look| !row(look, "orders").is_null()).await;
    client.id("INCRBY orders 100").await;
    let look = events.until(|look| row(look, "orders")["rate"].as_f64() > Some(0.0)).await;
    let (about, orders) = (&look["server"], row(&look, "orders"));
    assert_eq!((&about["state"], &about["version"]), (&json!("ready"), &json!(env!("CARGO_PKG_VERSION"))));
    assert!(about["connections"].as_u64() >= Some(2), "{about}");
    let url = about["store"].as_str().unwrap();
    assert!(url.contains("db1/shop") && !url.contains("secret"), "{url}");
    assert_eq!(
        (&orders["last"], &orders["health"], &orders["waiting"]),
        (&json!(500), &json!("serving"), &json!(0))
    );
    assert!(orders["latency_p50_seconds"].as_f64() >= Some(0.003), "{orders}");
    let used = orders["used"].as_f64().unwrap() * 1e5;
    assert!((used - orders["reached"].as_f64().unwrap()).abs() < 0.5, "{orders}");
    // At this rate, the remaining hundred thousand ids do not last long.
    assert_eq!((&orders["ends_soon"], &orders["shown"]["health"]), (&json!(true), &json!("ending soon")));
    let date = orders["exhausted_on"].as_str().unwrap();
    assert!(date.starts_with("20") && date.len() == 10, "{date}");
}

#[tokio::test]
async fn events_show_waiting_callers_and_the_reason() {
    let store = with_orders().await;
    let server = Running::with(store.clone(), |server| server.timeout(Duration::from_secs(30))).await;
    let mut events = Events::at(&server, "").await;
    server.client().await.id("INCR orders").await;
    store.set_faults(Faults::outage());
    let address = server.resp;
    let waits = tokio::spawn(async move {
        let mut client = crate::common::Client::to(address).await;
        client.until_refused("INCR orders").await;
    });
    let look = events.until(|look| row(look, "orders")["waiting"] == json!(1)).await;
    let reason = row(&look, "orders")["shown"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("failed"), "{reason}");
    let look = events.until(|look| look["server"]["state"] == json!("not_ready")).await;
    assert_eq!(
        look["server"]["shown"]["reason"],
        json!("the store grants no ids, and the ids in memory are used up or running out; orders has no ids")
    );
    store.set_faults(Faults::none());
    events.until(|look| look["server"]["state"] == json!("ready")).await;
    events.until(|look| row(look, "orders")["waiting"] == json!(0)).await;
    waits.abort();
}

#[tokio::test]
async fn event_stream_ends_with_the_server() {
    let hour = Duration::from_secs(3600);
    let server = Running::with(with_orders().await, |server| server.shutdown_timeout(hour)).await;
    let mut events = Events::at(&server, "").await;
    events.next().await.unwrap();
    let ended = server.end();
    let last = events.last("ending").await;
    assert_eq!(last["server"]["state"], json!("ending"));
    assert!(events.next().await.is_none());
    timeout(TIMEOUT, ended).await.expect("the shutdown waited for the shutdown timeout").unwrap();
}

#[tokio::test]
async fn events_show_only_sequences_of_a_valid_token() {
    let (operator, shop) = (Secret::fresh().unwrap(), Secret::fresh().unwrap());
    let token = |secret: &Secret, right, pattern: &str| {
        let patterns: Vec<Pattern> = vec![pattern.parse().unwrap()];
        Token::new("t", secret.hash(), [right].into_iter().collect(), patterns)
    };
    let access = Access::by([token(&operator, Right::Observe, "shop.*"), token(&shop, Right::Draw, "*")]);
    let server = Running::with(FaultyStore::new(), |server| server.access(access.clone())).await;
    let mut client = server.client().await;
    assert_eq!(client.ask(&format!("AUTH {}", shop.reveal())).await, "+OK");
    for name in ["shop.a", "secret"] {
        client.id(&format!("INCR {name}")).await;
    }
    let http = Http::new();
    let get = |path: &str| http.get(server.url(path));
    for (path, secret, status) in [
        ("/", None, StatusCode::OK),
        ("/", Some("wrong"), StatusCode::UNAUTHORIZED),
        ("/", Some(shop.reveal()), StatusCode::FORBIDDEN),
        ("/v1/events", None, StatusCode::UNAUTHORIZED),
        ("/v1/events", Some("wrong"), StatusCode::UNAUTHORIZED),
        ("/v1/events", Some(shop.reveal()), StatusCode::FORBIDDEN),
    ] {
        let request = secret.into_iter().fold(get(path), reqwest::RequestBuilder::bearer_auth);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), status, "{path} {secret:?}");
        let text = response.text().await.unwrap();
        assert!(!text.contains("shop.a") && !text.contains("secret<"), "{path}: {text}");
    }
    let events = get("/v1/events").bearer_auth(operator.reveal()).send().await.unwrap();
    let mut events = Events::of(events);
    let look = events.until(|look| !row(look, "shop.a").is_null()).await;
    assert_eq!((&look["matching"], row(&look, "secret")), (&json!(1), &Value::Null));
    let page = get("/").bearer_auth(operator.reveal()).send().await.unwrap().text().await.unwrap();
    assert!(page.contains(">shop.a<") && !page.contains(">secret<"), "{page}");
    access.replace([token(&shop, Right::Draw, "*")]);
    let refused = events.last("refused").await;
    assert_eq!(refused["status"], json!(401));
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn names_are_always_rendered_as_text() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    client.send(format!("*2\r\n$4\r\nINCR\r\n${}\r\n{HOSTILE}\r\n", HOSTILE.len())).await;
    assert_eq!(client.line().await, ":1");
    Events::at(&server, "").await.until(|look| !row(look, HOSTILE).is_null()).await;
    let search = reqwest::Url::parse_with_params(&server.url("/"), [("search", HOSTILE)]).unwrap();
    let page = reqwest::get(search).await.unwrap().text().await.unwrap();
    assert!(!page.contains("<img"), "{page}");
    let escaped = "&lt;img src=x onerror=alert(1)&gt;&quot;&#x27;&amp;{{rows}}";
    assert!(page.contains(&format!("<bdi data-cell=\"name\">{escaped}</bdi>")), "{page}");
    assert!(page.contains(&format!("value=\"{escaped}\"")), "{page}");
}

#[tokio::test]
async fn many_sequences_are_shown_in_pages_and_found_by_name() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    for at in 0..120 {
        client.id(&format!("INCRBY Shop{at:03} {}", at + 1)).await;
    }
    let look =
        Events::at(&server, "?sort=-last&page=3").await.until(|look| look["matching"] == json!(120)).await;
    assert_eq!((&look["page"], &look["pages"]), (&json!(3), &json!(3)));
    assert_eq!(look["server"]["shown"]["summary"], json!("101–120 of 120 open sequences"));
    let names: Vec<_> = look["sequences"].as_array().unwrap().iter().map(|row| row["name"].clone()).collect();
    assert_eq!((names.len(), &names[0], &names[19]), (20, &json!("Shop019"), &json!("Shop000")));
    let found = Events::at(&server, "?search=sHOP11").await.next().await.unwrap().1;
    assert_eq!((found["matching"].clone(), found["pages"].clone()), (json!(10), json!(1)));
    let page = reqwest::get(server.url("/?search=sHOP11&sort=-name")).await.unwrap().text().await.unwrap();
    assert!(page.contains("\"?sort=-rate&amp;search=sHOP11\""), "{page}");
    let first = page.find(">Shop119<").unwrap();
    assert!(first < page.find(">Shop110<").unwrap() && !page.contains(">Shop109<"), "{page}");
    for query in ["?sort=nothing", "?rows=5", "?page=x"] {
        let refused = reqwest::get(server.url(&format!("/v1/events{query}"))).await.unwrap();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{query}");
    }
}

/// If there are more sequences than rows, sequences in trouble are shown first, and a search covers all.
#[tokio::test]
async fn trouble_comes_first_and_search_covers_thousands() {
    let store = FaultyStore::new();
    store.create(&"zz-ended".parse().unwrap(), Bounds::new(1, 3).unwrap()).await.unwrap();
    let server = Running::over(store).await;
    let mut client = server.client().await;
    let names = (0..5_010).map(|at| format!("s{at:04}")).chain(["zz-good".to_owned()]);
    let commands: Vec<_> = names.map(|name| format!("INCR {name}\r\n")).collect();
    for some in commands.chunks(100) {
        client.send(some.concat()).await;
        for _ in some {
            assert_eq!(client.line().await, ":1");
        }
    }
    client.until_refused("INCR zz-ended").await;
    // On a busy machine, the first looks may have other troubles: reserves that take over a second.
    let only_ended = |look: &Value| look["troubles"] == 1 && !row(look, "zz-ended").is_null();
    let look = Events::at(&server, "").await.until(only_ended).await;
    assert_eq!(row(&look, "zz-ended")["health"], "ended");
    assert!(look["server"]["shown"]["title"].as_str().unwrap().starts_with("▲ 1 in trouble – "), "{look}");
    let summary = look["server"]["shown"]["summary"].as_str().unwrap();
    assert!(summary.contains("errors first") && summary.contains("5,012 open"), "{summary}");
    let look = Events::at(&server, "?search=ZZ-GOOD").await.until(|look| look["matching"] == json!(1)).await;
    assert_eq!((&row(&look, "zz-good")["last"], &look["matching"]), (&json!(1), &json!(1)));
    assert_eq!(look["server"]["shown"]["summary"], json!("One open sequence whose name contains “ZZ-GOOD”"));
}

#[tokio::test]
async fn trouble_has_a_start_time_and_a_rate() {
    let store = with_orders().await;
    let server = Running::with(store.clone(), |server| server.timeout(Duration::from_millis(20))).await;
    let mut client = server.client().await;
    client.until_drawn("INCR orders").await;
    store.set_faults(Faults::outage());
    client.until_refused("INCR orders").await;
    let mut events = Events::at(&server, "").await;
    let first = events.until(|look| row(look, "orders")["since"].is_string()).await;
    for _ in 0..20 {
        client.ask("INCR orders").await;
    }
    let then = events.until(|look| row(look, "orders")["failures_per_second"].as_f64() > Some(0.0)).await;
    let (first, then) = (row(&first, "orders"), row(&then, "orders"));
    assert_eq!(first["since"], then["since"]);
    assert!(then["shown"]["since"].as_str().unwrap().starts_with("since "), "{then}");
    assert!(then["shown"]["failing"].as_str().unwrap().ends_with(" fail"), "{then}");
    store.set_faults(Faults::none());
    let mended = events.until(|look| row(look, "orders")["health"] == json!("serving")).await;
    assert_eq!(row(&mended, "orders")["since"], Value::Null);
}

/// The page ignores parameters that programs add to links.
#[tokio::test]
async fn link_with_unknown_parameters_serves_the_page() {
    let server = Running::over(FaultyStore::new()).await;
    for query in ["?utm_source=x", "?utm_source=x&search=shop&sort=nothing&page=x", "?page=-1&=&%ff=1"] {
        let served = reqwest::get(server.url(&format!("/{query}"))).await.unwrap();
        assert_eq!(served.status(), StatusCode::OK, "{query}");
        let page = served.text().await.unwrap();
        assert!(page.starts_with("<!doctype html>"), "{page}");
        assert_eq!(page.contains("value=\"shop\""), query.contains("shop"), "{query}");
    }
}

#[tokio::test]
async fn page_responses_forbid_caching_framing_and_sniffing() {
    let server = Running::over(FaultyStore::new()).await;
    for path in ["/", "/page/page.css", "/page/page.js", "/page/theme.js", "/page/icon.svg", "/v1/events"] {
        let response = reqwest::get(server.url(path)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let header = |name: &str| response.headers()[name].to_str().unwrap();
        let policy = header("content-security-policy");
        for word in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"]
        {
            assert!(policy.contains(word), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{path}: {policy}");
        assert_eq!(
            ["x-content-type-options", "x-frame-options", "referrer-policy", "cache-control"].map(header),
            ["nosniff", "DENY", "no-referrer", "no-store"],
            "{path}"
        );
    }
}

/// If a foreign domain resolved to this machine, a browser would let its pages call the server (DNS
/// rebinding).
#[tokio::test]
async fn foreign_host_is_rejected_without_access_control() {
    let ask = async |server: &Running, host: &str| {
        let request = Http::new().get(server.url("/v1/sequences")).header("Host", host);
        request.send().await.unwrap().status()
    };
    let server = Running::over(FaultyStore::new()).await;
    for host in ["evil.example", "evil.example:7381"] {
        assert_eq!(ask(&server, host).await, StatusCode::MISDIRECTED_REQUEST, "{host}");
    }
    assert_eq!(ask(&server, "localhost:1").await, StatusCode::OK);
    let server = Running::with(FaultyStore::new(), |server| server.http_hosts(["ids.internal"])).await;
    assert_eq!(ask(&server, "ids.internal").await, StatusCode::OK);
    assert_eq!(ask(&server, "evil.example").await, StatusCode::MISDIRECTED_REQUEST);
    let locked = Running::with(FaultyStore::new(), |server| server.access(Access::by([]))).await;
    assert_eq!(ask(&locked, "evil.example").await, StatusCode::UNAUTHORIZED);
}
