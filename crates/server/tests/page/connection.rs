//! A server that ends, is unreachable or silent, and recovers.

use std::net::SocketAddr;

use idmill::Sequences;
use idmill_server::Server;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::browser::Browser;
use crate::common::{Running, with_orders};

#[tokio::test(flavor = "multi_thread")]
async fn ended_server_shows_not_connected_and_is_polled_again() {
    let store = with_orders().await;
    let server = Running::over(store.clone()).await;
    let address: SocketAddr = server.http;
    server.client().await.id("INCRBY orders 5").await;
    let browser = Browser::at(&server.url("/")).await;
    browser.until_cell("orders", "last", "it === '5'").await;
    browser.until("document.body.dataset.link === 'live'").await;
    server.end().await.unwrap();
    browser.until("document.body.dataset.link === 'lost'").await;
    // Neither the page nor its tab shows the last state as current.
    assert_eq!(browser.text("[data-field=state]").await, "Not connected");
    assert!(browser.text("[data-field=reason]").await.contains("It was ending at "));
    assert!(browser.driver.title().await.unwrap().starts_with("○ Not connected – "));
    for mark in [".state .mark", "#rows tr .mark"] {
        let sign = format!("getComputedStyle(document.querySelector({}), '::before').content", json!(mark));
        assert_eq!(browser.value(&sign).await, json!("\"○\""), "{mark}");
    }
    let told = browser.text("#link").await;
    let at = browser.text("[data-field=at]").await;
    assert!(told.contains("Not connected") && told.contains(&at), "{told}");
    // Old figures are marked, and can still be read.
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
    let sign = "getComputedStyle(document.querySelector('.state .mark'), '::before').content";
    assert_eq!(browser.value(sign).await, json!("\"●\""));
    again.abort();
}

/// A host that has disappeared closes no connections, nor does a stopped process: the page must detect the
/// silence.
#[tokio::test(flavor = "multi_thread")]
async fn silent_server_is_shown_as_not_connected() {
    let server = Running::over(with_orders().await).await;
    let (address, held) = way_to(server.http).await;
    let browser = Browser::at(&format!("http://{address}/")).await;
    browser.until("document.body.dataset.link === 'live'").await;
    held.send(true).unwrap();
    browser.until("document.body.dataset.link === 'lost'").await;
    assert!(browser.text("#link").await.contains("Not connected"));
    held.send(false).unwrap();
    browser.until("document.body.dataset.link === 'live'").await;
}

/// Forwards connections to `server`. While the returned flag is `true`, nothing is forwarded.
async fn way_to(server: SocketAddr) -> (SocketAddr, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, (hold, held)) = (listener.local_addr().unwrap(), watch::channel(false));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (said, answer) = client.into_split();
            let (answered, say) = TcpStream::connect(server).await.unwrap().into_split();
            tokio::spawn(pass(said, say, held.clone()));
            tokio::spawn(pass(answered, answer, held.clone()));
        }
    });
    (address, hold)
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut held: watch::Receiver<bool>) {
    let mut bytes = [0; 4096];
    while let Ok(some @ 1..) = from.read(&mut bytes).await {
        let _ = held.wait_for(|held| !held).await;
        if to.write_all(&bytes[..some]).await.is_err() {
            return;
        }
    }
}
