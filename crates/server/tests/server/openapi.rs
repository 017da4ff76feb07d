//! Each response matches the schema of its operation in `/openapi.json`.

use std::collections::BTreeSet;

use idmill::Sequences;
use idmill_kit::Existing;
use idmill_testing::faulty::FaultyStore;
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};

use crate::common::Running;
use crate::page::Events;

/// The OpenAPI description, and the operations that were tested.
struct Described {
    text: Value,
    tried: BTreeSet<String>,
}

impl Described {
    /// Resolves a reference, if the value is one.
    fn followed<'a>(&'a self, value: &'a Value) -> &'a Value {
        let path = value["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
        path.map_or(value, |path| self.text.pointer(path).unwrap_or_else(|| panic!("{path} leads nowhere")))
    }

    fn hold(&self, schema: &Value, body: &Value, of: &str) {
        assert!(schema.is_object(), "{of} is not described");
        let schema = json!({ "components": self.text["components"], "allOf": [schema] });
        let validator = jsonschema::validator_for(&schema).unwrap();
        let faults: Vec<_> = validator.iter_errors(body).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{of}: {body}: {faults:?}");
    }

    /// Checks an answer against its schema, and returns the body.
    async fn check(&mut self, path: &str, method: &Method, response: Response) -> Value {
        let operation = &self.text["paths"][path][method.as_str().to_lowercase()];
        assert!(operation.is_object(), "{method} {path} is not described");
        let (status, kind) =
            (response.status().as_u16().to_string(), response.headers().get("content-type").cloned());
        let described = operation["responses"].get(&status).or_else(|| operation["responses"].get("default"));
        let described =
            self.followed(described.unwrap_or_else(|| panic!("{method} {path}: {status} is not described")));
        let required = described["headers"].as_object().into_iter().flatten();
        for (header, _) in required.filter(|(_, what)| what["required"] == json!(true)) {
            assert!(response.headers().contains_key(header), "{method} {path}: no {header}");
        }
        let name = operation["operationId"].as_str().unwrap().to_owned();
        if kind.as_ref().is_some_and(|kind| kind == "text/event-stream") {
            let (_, data) = Events::of(response).next().await.unwrap();
            self.hold(&described["content"]["text/event-stream"]["schema"], &data, path);
            self.tried.insert(name);
            return data;
        }
        let text = response.text().await.unwrap();
        let body = match kind {
            None => {
                assert!(
                    described.get("content").is_none() && text.is_empty(),
                    "{method} {path}: {status} {text}"
                );
                Value::Null
            }
            Some(kind) => {
                let kind = kind.to_str().unwrap().split(';').next().unwrap().to_owned();
                let schema = &described["content"][&kind]["schema"];
                assert!(schema.is_object(), "{method} {path}: {status} as {kind} is not described");
                let is_text = kind == "text/plain" || kind == "text/html";
                let body = if is_text { json!(text) } else { serde_json::from_str(&text).unwrap() };
                self.hold(schema, &body, &format!("{method} {path}: {status}"));
                body
            }
        };
        self.tried.insert(name);
        body
    }
}

#[tokio::test]
async fn each_response_matches_its_schema() {
    let store = FaultyStore::new();
    let administered = Sequences::new(store.clone()).unwrap();
    let server = Running::with(Existing::of(store), |server| {
        server.administers(administered).metrics(|| "idmill_draws_total 1\n".to_owned())
    })
    .await;
    let http = Client::new();
    let text = http.get(server.url("/openapi.json")).send().await.unwrap().json().await.unwrap();
    let mut described = Described { text, tried: BTreeSet::new() };
    let (all, one, ids) = ("/v1/sequences", "/v1/sequences/{name}", "/v1/sequences/{name}/ids");
    let (beyond, nothing) = (json!({"start": 9_007_199_254_740_992_u64, "max": u64::MAX}), json!({}));
    for (path, method, name, query, body) in [
        (one, Method::PUT, "orders", "", Some(nothing.clone())),
        (one, Method::PUT, "orders", "", Some(nothing)),
        (one, Method::PUT, "big", "", Some(beyond)),
        (one, Method::PUT, "wrong", "", Some(json!({"start": 5, "max": 1}))),
        (one, Method::PUT, "wrong", "", Some(json!({"begin": 5}))),
        (one, Method::GET, "orders", "", None),
        (one, Method::GET, "none", "", None),
        (one, Method::PATCH, "orders", "", Some(json!({"next": 500, "revoke": true}))),
        (one, Method::PATCH, "orders", "", Some(json!({"next": 5}))),
        (ids, Method::POST, "orders", "", None),
        (ids, Method::POST, "orders", "?n=3&form=ranges", None),
        (ids, Method::POST, "big", "?n=3", None),
        (ids, Method::POST, "none", "", None),
        (ids, Method::POST, "orders", "?n=0", None),
        (all, Method::GET, "", "?limit=1", None),
        (all, Method::GET, "", "?limit=0", None),
        (one, Method::DELETE, "big", "", None),
        (one, Method::DELETE, "big", "", None),
        ("/healthz", Method::GET, "", "", None),
        ("/readyz", Method::GET, "", "", None),
        ("/metrics", Method::GET, "", "", None),
        ("/openapi.json", Method::GET, "", "", None),
        ("/", Method::GET, "", "?search=o&sort=-rate&page=1", None),
        ("/", Method::GET, "", "?sort=nothing", None),
        ("/v1/events", Method::GET, "", "?search=o&sort=-rate&page=1", None),
        ("/v1/events", Method::GET, "", "?page=x", None),
    ] {
        let url = server.url(&(path.replace("{name}", name) + query));
        let mut request = http.request(method.clone(), url);
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body.to_string());
        }
        described.check(path, &method, request.send().await.unwrap()).await;
    }
    let paths = described.text["paths"].as_object().unwrap();
    let operations = paths.values().flat_map(|path| path.as_object().unwrap().values());
    let operations = operations.filter_map(|operation| Some(operation["operationId"].as_str()?.to_owned()));
    assert_eq!(operations.collect::<BTreeSet<_>>(), described.tried);
}
