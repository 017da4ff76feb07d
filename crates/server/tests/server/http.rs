//! HTTP: ids and administration.

use idmill::Sequences;
use idmill::store::{Bounds, Store};
use idmill_kit::Existing;
use idmill_testing::faulty::FaultyStore;
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

use crate::common::{Client as Raw, Running, with_orders};

async fn body(response: Response) -> Value {
    response.json().await.unwrap()
}

#[tokio::test]
async fn ids_are_drawn_singly_in_bulk_and_as_ranges() {
    let server = Running::over(with_orders().await).await;
    let http = Client::new();
    let draw = |query: &str| http.post(server.url(&format!("/v1/sequences/orders/ids{query}"))).send();
    assert_eq!(body(draw("").await.unwrap()).await, json!({"sequence": "orders", "ids": [1]}));
    assert_eq!(body(draw("?n=3").await.unwrap()).await["ids"], json!([2, 3, 4]));
    let ranges = body(draw("?n=6&form=ranges").await.unwrap()).await;
    assert_eq!(ranges["ranges"], json!([{"first": 5, "last": 10}]));
    let range = body(draw("?form=ranges").await.unwrap()).await;
    assert_eq!(range["ranges"], json!([{"first": 11, "last": 11}]));
    // The answer is large enough to be sent in several parts.
    let many = body(draw("?n=20000").await.unwrap()).await;
    let many: Vec<u64> = many["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    assert!(many.into_iter().eq(12..=20_011));
}

#[tokio::test]
async fn ids_above_2_53_are_strings() {
    let store = FaultyStore::new();
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
async fn errors_are_problem_details_with_a_remedy() {
    let server = Running::over(Existing::of(with_orders().await)).await;
    let http = Client::new();
    let post = |path: &str| http.post(server.url(path));
    for (request, status, words) in [
        (post("/v1/sequences/ordres/ids"), StatusCode::NOT_FOUND, "correct the name"),
        (post("/v1/sequences/orders/ids?n=0"), StatusCode::BAD_REQUEST, "at least 1"),
        (post("/v1/sequences/orders/ids?n=x"), StatusCode::BAD_REQUEST, "n: invalid digit"),
        (post("/v1/sequences/orders/ids").json(&json!({ "n": 10 })), StatusCode::BAD_REQUEST, "in the URL"),
        (post("/v1/sequences/orders/ids").body("n=10"), StatusCode::BAD_REQUEST, "in the URL"),
        (post("/v1/sequences/orders/ids?m=1"), StatusCode::BAD_REQUEST, "unknown field"),
        (
            post("/v1/sequences/orders/ids").header("Idempotency-Key", "1"),
            StatusCode::BAD_REQUEST,
            "is not supported",
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
        (http.get(server.url("/metrics")), StatusCode::NOT_FOUND, "has no metrics"),
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
    let store = FaultyStore::new();
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
    // Raising the sequence keeps its identity. A revocation starts a new epoch.
    let revoked = with(http.patch(&url).header("If-Match", &first), json!({"revoke": true})).await.unwrap();
    assert_eq!(revoked.status(), StatusCode::OK);
    assert_ne!(revoked.headers()["etag"], first);
    let late = with(http.patch(&url).header("If-Match", &first), json!({"next": 600})).await.unwrap();
    assert_eq!(late.status(), StatusCode::PRECONDITION_FAILED);
    let backwards = with(http.patch(&url), json!({"next": 20})).await.unwrap();
    assert_eq!(backwards.status(), StatusCode::CONFLICT);
    let drawn = body(http.post(format!("{url}/ids")).send().await.unwrap()).await;
    assert_eq!(drawn, json!({"sequence": "a/b", "ids": [500]}));
    assert_eq!(http.delete(&url).send().await.unwrap().status(), StatusCode::NO_CONTENT);
    assert_eq!(http.delete(&url).send().await.unwrap().status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn sequences_are_listed_in_pages() {
    let store = FaultyStore::new();
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

#[tokio::test]
async fn if_match_is_checked_for_each_change() {
    let store = with_orders().await;
    let server = Running::over(store).await;
    let (http, url) = (Client::new(), server.url("/v1/sequences/orders"));
    let send = |method: &str, condition: &str, body: &str| {
        let request = http.request(method.parse().unwrap(), &url).header("If-Match", condition);
        request.header("Content-Type", "application/json").body(body.to_owned()).send()
    };
    let first = http.get(&url).send().await.unwrap().headers()["etag"].to_str().unwrap().to_owned();
    let revoked = send("PATCH", &first, r#"{"revoke":true}"#).await.unwrap();
    let second = revoked.headers()["etag"].to_str().unwrap().to_owned();
    for (condition, status) in [
        (first.clone(), StatusCode::PRECONDITION_FAILED),
        (format!("{first}, \"another, one\""), StatusCode::PRECONDITION_FAILED),
        // A weak tag never matches (RFC 9110).
        (format!("W/{second}"), StatusCode::PRECONDITION_FAILED),
        ("nonsense".to_owned(), StatusCode::BAD_REQUEST),
        (format!("{second} {first}"), StatusCode::BAD_REQUEST),
        (String::new(), StatusCode::BAD_REQUEST),
    ] {
        for (method, body) in [("PATCH", r#"{"max":1000}"#), ("DELETE", "")] {
            let refused = send(method, &condition, body).await.unwrap();
            assert_eq!(refused.status(), status, "{method} {condition}");
        }
    }
    // If the condition holds, other refusals are not reported as a failed condition.
    let backwards = send("PATCH", &second, r#"{"next":1,"max":5}"#).await.unwrap();
    assert_eq!(backwards.status(), StatusCode::OK);
    let drawn = http.post(format!("{url}/ids?n=3")).send().await.unwrap();
    assert_eq!(drawn.status(), StatusCode::OK);
    assert_eq!(send("PATCH", &second, r#"{"next":1}"#).await.unwrap().status(), StatusCode::CONFLICT);
    for condition in ["*".to_owned(), format!("{first},{second}")] {
        let raised = send("PATCH", &condition, r#"{"max":1000}"#).await.unwrap();
        assert_eq!(raised.status(), StatusCode::OK, "{condition}");
    }
    assert_eq!(send("PUT", "*", "{}").await.unwrap().status(), StatusCode::PRECONDITION_FAILED);
    assert_eq!(send("DELETE", &second, "").await.unwrap().status(), StatusCode::NO_CONTENT);
    assert_eq!(send("DELETE", "*", "").await.unwrap().status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn body_is_an_object_and_numbers_are_exact() {
    let server = Running::over(with_orders().await).await;
    let (http, url) = (Client::new(), server.url("/v1/sequences/a"));
    let put =
        |body: &str| http.put(&url).header("Content-Type", "application/json").body(body.to_owned()).send();
    for (body, words) in [
        ("[5,9]", "an object"),
        ("null", "an object"),
        (r#"{"max":9223372036854776000}"#, "rounded"),
        (r#"{"max":4611686018427388000}"#, "rounded"),
        (r#"{"max":-1}"#, "0 to 2^64"),
        (r#"{"max":"-1"}"#, "0 to 2^64"),
        (r#"{"max":"+1"}"#, "0 to 2^64"),
        (r#"{"max":1.5}"#, "0 to 2^64"),
        (r#"{"max":5,"max":6}"#, "duplicate field"),
    ] {
        let refused = put(body).await.unwrap();
        assert!(refused.status().is_client_error(), "{body}");
        let detail = self::body(refused).await["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(words), "{body}: {detail}");
    }
    let patch = http.patch(server.url("/v1/sequences/orders")).header("Content-Type", "application/json");
    assert!(patch.body("[5]").send().await.unwrap().status().is_client_error());
    // Requests accept both forms that answers use: a string and a number.
    for text in ["9223372036854775807", "\"9223372036854775807\""] {
        let made = put(&format!("{{\"start\":\"7\",\"max\":{text}}}")).await.unwrap();
        assert_eq!(made.status(), StatusCode::CREATED, "{text}");
        let made = self::body(made).await;
        assert_eq!((&made["start"], &made["max"]), (&json!(7), &json!("9223372036854775807")));
        http.delete(&url).send().await.unwrap();
    }
}

/// A page of another site can observe whether an element loads, so the server rejects all such requests
/// alike.
#[tokio::test]
async fn other_sites_learn_nothing_from_fetches() {
    let server = Running::over(with_orders().await).await;
    let http = Client::new();
    let from = |path: &str, site: &'static str, mode: &'static str, dest: &'static str| {
        let request = http.get(server.url(path)).header("Sec-Fetch-Site", site);
        request.header("Sec-Fetch-Mode", mode).header("Sec-Fetch-Dest", dest).send()
    };
    for site in ["cross-site", "same-site"] {
        for path in
            ["/v1/sequences/orders", "/v1/sequences/none", "/v1/sequences", "/page/page.js", "/readyz"]
        {
            for (mode, dest) in [("no-cors", "object"), ("navigate", "iframe"), ("navigate", "document")] {
                let refused = from(path, site, mode, dest).await.unwrap();
                assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{path} {site} {mode} {dest}");
            }
        }
        // Only a navigation to the page itself is allowed.
        assert_eq!(from("/", site, "navigate", "document").await.unwrap().status(), StatusCode::OK);
        for (mode, dest) in [("no-cors", "image"), ("navigate", "iframe"), ("navigate", "object")] {
            assert_eq!(from("/", site, mode, dest).await.unwrap().status(), StatusCode::FORBIDDEN, "{dest}");
        }
        let posted = http.post(server.url("/")).header("Sec-Fetch-Site", site);
        let posted = posted.header("Sec-Fetch-Mode", "navigate").header("Sec-Fetch-Dest", "document");
        assert_eq!(posted.send().await.unwrap().status(), StatusCode::FORBIDDEN);
    }
    for site in ["same-origin", "none"] {
        let own = from("/v1/sequences/orders", site, "cors", "empty").await.unwrap();
        assert_eq!(own.status(), StatusCode::OK, "{site}");
    }
    for path in ["/v1/sequences/orders", "/v1/sequences/none", "/nothing", "/", "/healthz", "/page/page.js"] {
        let answer = http.get(server.url(path)).send().await.unwrap();
        let header = |name: &str| answer.headers()[name].to_str().unwrap();
        assert_eq!(
            ["cross-origin-resource-policy", "x-frame-options", "x-content-type-options"].map(header),
            ["same-origin", "DENY", "nosniff"],
            "{path}"
        );
    }
    let refused = from("/v1/sequences/orders", "cross-site", "no-cors", "object").await.unwrap();
    assert_eq!(refused.headers()["cross-origin-resource-policy"], "same-origin");
}

/// Sends these bytes and returns the whole answer.
async fn raw(server: &Running, request: &str) -> String {
    let mut client = Raw::to(server.http).await;
    client.send(request).await;
    client.rest().await
}

#[tokio::test]
async fn malformed_requests_are_refused_as_problems() {
    let server = Running::over(with_orders().await).await;
    for (request, words) in [
        ("GET /v1/sequences/%ff HTTP/1.1\r\nHost: localhost", "UTF-8"),
        ("POST /v1/sequences/%ff/ids HTTP/1.1\r\nHost: localhost", "UTF-8"),
        ("DELETE /v1/sequences/%ff HTTP/1.1\r\nHost: localhost", "UTF-8"),
        ("GET /healthz HTTP/1.1", "`Host`"),
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: other", "`Host`"),
    ] {
        let answer = raw(&server, &format!("{request}\r\nConnection: close\r\n\r\n")).await;
        assert!(
            answer.starts_with("HTTP/1.1 400") && answer.contains("application/problem+json"),
            "{answer}"
        );
        assert!(answer.contains(words), "{request}: {answer}");
    }
    for header in ["Authorization", "Origin", "Sec-Fetch-Site"] {
        // A proxy may have checked the second header.
        let twice = format!("{header}: none\r\n{}: cross-site", header.to_lowercase());
        let request = format!("POST /v1/sequences/orders/ids HTTP/1.1\r\nHost: localhost\r\n{twice}");
        let answer = raw(&server, &format!("{request}\r\nConnection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("; send one"), "{header}: {answer}");
    }
    // HTTP/1.0 does not require `Host`.
    let alive = raw(&server, "GET /healthz HTTP/1.0\r\n\r\n").await;
    assert!(alive.contains("200 OK") && alive.ends_with("\r\n\r\nalive\n"), "{alive}");
}

#[tokio::test]
async fn request_for_too_many_ids_names_the_limit() {
    let server = Running::over(with_orders().await).await;
    let asked = Client::new().post(server.url("/v1/sequences/orders/ids?n=1000001&form=ranges"));
    let refused = asked.send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    let described = Client::new().get(server.url("/openapi.json")).send().await.unwrap();
    let draw = &body(described).await["paths"]["/v1/sequences/{name}/ids"]["post"];
    assert_eq!(draw["parameters"][0]["schema"]["maximum"], 1_000_000);
    let detail = body(refused).await["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("the maximum is 1000000") && !detail.contains("raise"), "{detail}");
    let whole = Client::new().post(server.url("/v1/sequences/orders/ids?n=1000000&form=ranges"));
    assert_eq!(whole.send().await.unwrap().status(), StatusCode::OK);
}
