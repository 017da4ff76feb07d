//! HTTP: ids and administration.

use idmill::Sequences;
use idmill::store::{Bounds, Existing, MemoryStore, Store};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

use crate::common::{Running, with_orders};

async fn body(response: Response) -> Value {
    response.json().await.unwrap()
}

#[tokio::test]
async fn ids_come_one_by_one_many_and_as_ranges() {
    let server = Running::over(with_orders().await).await;
    let http = Client::new();
    let draw = |query: &str| http.post(server.url(&format!("/v1/sequences/orders/ids{query}"))).send();
    assert_eq!(body(draw("").await.unwrap()).await, json!({"sequence": "orders", "ids": [1]}));
    assert_eq!(body(draw("?n=3").await.unwrap()).await["ids"], json!([2, 3, 4]));
    let ranges = body(draw("?n=6&form=ranges").await.unwrap()).await;
    assert_eq!(ranges["ranges"], json!([{"first": 5, "last": 10}]));
    // More than one part of an answer.
    let many = body(draw("?n=20000").await.unwrap()).await;
    let many: Vec<u64> = many["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    assert!(many.len() == 20_000 && many.is_sorted() && many[0] == 11, "{} from {}", many.len(), many[0]);
}

#[tokio::test]
async fn ids_beyond_what_a_double_holds_are_strings() {
    let store = MemoryStore::new();
    let bounds = Bounds::new((1 << 53) - 1, u64::MAX).unwrap();
    store.create(&"big".parse().unwrap(), bounds).await.unwrap();
    let server = Running::over(store).await;
    let drawn = Client::new().post(server.url("/v1/sequences/big/ids?n=3")).send().await.unwrap();
    assert_eq!(
        body(drawn).await["ids"],
        json!([9_007_199_254_740_991_u64, 9_007_199_254_740_992_u64, "9007199254740993"])
    );
}

#[tokio::test]
async fn what_is_wrong_is_a_problem_that_says_what_to_do() {
    let server = Running::over(Existing::of(with_orders().await)).await;
    let http = Client::new();
    let post = |path: &str| http.post(server.url(path));
    for (request, status, words) in [
        (post("/v1/sequences/ordres/ids"), StatusCode::NOT_FOUND, "correct the name"),
        (post("/v1/sequences/orders/ids?n=0"), StatusCode::BAD_REQUEST, "at least 1"),
        (post("/v1/sequences/orders/ids?n=x"), StatusCode::BAD_REQUEST, "n"),
        (post("/v1/sequences/orders/ids?m=1"), StatusCode::BAD_REQUEST, "unknown field"),
        (
            post("/v1/sequences/orders/ids").header("Idempotency-Key", "1"),
            StatusCode::BAD_REQUEST,
            "not kept here",
        ),
        (
            post("/v1/sequences/orders/ids").header("Origin", "http://evil"),
            StatusCode::FORBIDDEN,
            "another site",
        ),
        (http.get(server.url("/v1/sequences/orders/ids")), StatusCode::METHOD_NOT_ALLOWED, "POST"),
        (http.get(server.url("/nothing")), StatusCode::NOT_FOUND, "POST /v1/sequences"),
        (http.get(server.url("/v1/sequences?limit=0")), StatusCode::BAD_REQUEST, "1 to 1000"),
        (http.get(server.url("/v1/sequences/none")), StatusCode::NOT_FOUND, "no sequence"),
        (http.put(server.url("/v1/sequences/a")).body("{"), StatusCode::BAD_REQUEST, "application/json"),
        (http.get(server.url("/metrics")), StatusCode::NOT_FOUND, "without metrics"),
    ] {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), status, "{words}");
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let problem = body(response).await;
        assert!(problem["detail"].as_str().unwrap().contains(words), "{problem}");
        assert_eq!((&problem["status"], &problem["outcome"]), (&json!(status.as_u16()), &json!("permanent")));
    }
    assert_eq!(body(post("/v1/sequences/orders/ids").send().await.unwrap()).await["ids"], json!([1]));
}

#[tokio::test]
async fn sequences_are_made_changed_and_removed() {
    let store = MemoryStore::new();
    let administered = Sequences::new(store.clone()).unwrap();
    let server = Running::with(Existing::of(store), |server| server.administers(administered)).await;
    let http = Client::new();
    let (url, json_of) = (server.url("/v1/sequences/a%2Fb"), |value: Value| value.to_string());
    let with = |request: reqwest::RequestBuilder, value: Value| {
        request.header("Content-Type", "application/json").body(json_of(value)).send()
    };
    let made = with(http.put(&url), json!({"start": 10, "max": 1000})).await.unwrap();
    assert_eq!(made.status(), StatusCode::CREATED);
    let first = made.headers()["etag"].clone();
    assert_eq!(body(made).await["next"], json!(10));
    assert_eq!(with(http.put(&url), json!({})).await.unwrap().status(), StatusCode::CONFLICT);
    let raised = with(http.patch(&url).header("If-Match", &first), json!({"next": 500})).await.unwrap();
    assert_eq!(raised.status(), StatusCode::OK);
    // A step forwards is the same sequence; a revocation is another epoch of it.
    let revoked = with(http.patch(&url).header("If-Match", &first), json!({"revoke": true})).await.unwrap();
    assert_eq!(revoked.status(), StatusCode::OK);
    assert_ne!(revoked.headers()["etag"], first);
    let late = with(http.patch(&url).header("If-Match", &first), json!({"next": 600})).await.unwrap();
    assert_eq!(late.status(), StatusCode::PRECONDITION_FAILED);
    let nonsense = with(http.patch(&url).header("If-Match", "*"), json!({"next": 600})).await.unwrap();
    assert_eq!(nonsense.status(), StatusCode::BAD_REQUEST);
    let backwards = with(http.patch(&url), json!({"next": 20})).await.unwrap();
    assert_eq!(backwards.status(), StatusCode::CONFLICT);
    let drawn = body(http.post(format!("{url}/ids")).send().await.unwrap()).await;
    assert_eq!(drawn, json!({"sequence": "a/b", "ids": [500]}));
    assert_eq!(http.delete(&url).send().await.unwrap().status(), StatusCode::NO_CONTENT);
    assert_eq!(http.delete(&url).send().await.unwrap().status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn sequences_are_listed_in_pages() {
    let store = MemoryStore::new();
    for at in 0..25 {
        store.create(&format!("s{at:02}").parse().unwrap(), Bounds::new(1, 9).unwrap()).await.unwrap();
    }
    let server = Running::over(store).await;
    let (http, mut names, mut after) = (Client::new(), Vec::new(), String::new());
    loop {
        let url = server.url(&format!("/v1/sequences?prefix=s&limit=10{after}"));
        let page = body(http.get(url).send().await.unwrap()).await;
        let rows = page["sequences"].as_array().unwrap();
        names.extend(rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()));
        match page["after"].as_str() {
            Some(cursor) => after = format!("&after={cursor}"),
            None => break,
        }
    }
    assert_eq!(names, (0..25).map(|at| format!("s{at:02}")).collect::<Vec<_>>());
}
