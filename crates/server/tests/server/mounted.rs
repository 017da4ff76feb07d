//! The HTTP routes, mounted in another router.

use axum::Router;
use axum::routing::get;
use idmill::Sequences;
use idmill_server::{Access, Server};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::common::with_orders;

#[tokio::test]
async fn mounted_router_serves_ids_beside_other_routes() {
    let store = with_orders().await;
    let server = Server::builder(Sequences::new(store.clone()).unwrap()).bind().await.unwrap();
    let shop = Router::new().route("/", get(async || "shop")).nest("/ids", server.router());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, shop).into_future());
    let (end, ended) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async { drop(ended.await) }));

    let http = Client::new();
    let url = |path: &str| format!("http://{at}{path}");
    let drawn = http.post(url("/ids/v1/sequences/orders/ids?n=3")).send().await.unwrap();
    assert_eq!(drawn.json::<Value>().await.unwrap()["ids"], json!([1, 2, 3]));
    assert_eq!(http.get(url("/ids/readyz")).send().await.unwrap().status(), StatusCode::OK);
    let own = http.get(url("/")).send().await.unwrap();
    assert!(!own.headers().contains_key("x-frame-options"), "the service's own routes stay as they are");
    assert_eq!(own.text().await.unwrap(), "shop");

    end.send(()).unwrap();
    running.await.unwrap();
    let after = http.post(url("/ids/v1/sequences/orders/ids")).send().await.unwrap();
    assert_eq!(after.status(), StatusCode::SERVICE_UNAVAILABLE);
    let next = Sequences::new(store).unwrap().admin().inspect("orders").await.unwrap().unwrap().next;
    assert_eq!(next, Some(4), "the ids in memory are given back");
}

#[tokio::test]
async fn mounted_router_requires_the_token() {
    let ids = Sequences::new(with_orders().await).unwrap();
    let server = Server::builder(ids).access(Access::by([])).bind().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, server.router()).into_future());
    let drawn = Client::new().post(format!("http://{at}/v1/sequences/orders/ids")).send().await.unwrap();
    assert_eq!(drawn.status(), StatusCode::UNAUTHORIZED);
}
