//! A server that ends, is away, and comes back.

use std::net::SocketAddr;

use idmill::Sequences;
use idmill_server::Server;
use serde_json::json;

use crate::browser::Browser;
use crate::common::{Running, with_orders};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_is_told_with_the_time_of_the_last_figures_and_asked_again() {
    let store = with_orders().await;
    let server = Running::over(store.clone()).await;
    let address: SocketAddr = server.http;
    server.client().await.id("INCRBY orders 5").await;
    let browser = Browser::at(&server.url("/")).await;
    browser.until_cell("orders", "last", "it === '5'").await;
    browser.until("document.body.dataset.link === 'live'").await;
    server.end().await.unwrap();
    browser.until("document.body.dataset.link === 'lost'").await;
    assert_eq!(browser.text("[data-field=state]").await, "Ending");
    let told = browser.text("#link").await;
    let at = browser.text("[data-field=at]").await;
    assert!(told.contains("Not connected") && told.contains(&at), "{told}");
    // What is old looks old, and is still there to be read.
    assert_eq!(browser.cell("orders", "last").await, "5");
    assert_eq!(
        browser.value("getComputedStyle(document.querySelector('#rows td')).fontStyle").await,
        json!("italic")
    );
    // The pauses between the attempts grow.
    browser.until("pauses.filter((pause) => pause > 300).length >= 4").await;
    let grow = "((waited) => waited.every((pause, at) => at === 0 || pause > waited[at - 1]))(pauses.filter((pause) => pause > 300).slice(0, 4))";
    assert_eq!(browser.value(grow).await, json!(true), "{}", browser.value("pauses").await);
    let again = Server::builder(Sequences::new(store).unwrap()).http(address).bind().await.unwrap();
    let again = tokio::spawn(again.run(std::future::pending()));
    browser.until("document.body.dataset.link === 'live'").await;
    browser.until("document.getElementById('link').textContent === ''").await;
    assert_eq!(browser.text("[data-field=state]").await, "Ready");
    again.abort();
}
