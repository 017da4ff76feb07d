//! Repeated draws from sequences that do not exist.

use idmill::SequenceName;
use idmill::store::{Bounds, Store};
use idmill_kit::Existing;

use crate::audit;
use crate::common::{Client, Running, Watched};

const DRAWS: usize = 3000;

fn orders() -> SequenceName {
    "orders".parse().unwrap()
}

/// Draws in a pipeline. Every draw is refused.
async fn refused(client: &mut Client) {
    client.send("INCR orders\r\n".repeat(DRAWS)).await;
    for answer in client.lines(DRAWS).await {
        assert!(answer.starts_with('-'), "{answer}");
    }
}

#[tokio::test]
async fn unknown_name_is_seldom_looked_for() {
    let store = Watched::default();
    let server = Running::over(Existing::of(store.clone())).await;
    let mut client = server.client().await;
    assert!(client.ask("INCR orders").await.starts_with("-NOTFOUND"));
    let before = store.calls();
    refused(&mut client).await;
    let calls = store.calls() - before;
    assert!(calls < DRAWS / 20, "{calls} store calls for {DRAWS} draws");
    store.create(&orders(), Bounds::new(1, 1000).unwrap()).await.unwrap();
    client.until_drawn("INCR orders").await;
}

#[tokio::test]
async fn removed_sequence_is_seldom_asked_for_and_logged_once() {
    let ((log, _guard), store) = (audit::begin(), Watched::default());
    store.create(&orders(), Bounds::new(1, 1000).unwrap()).await.unwrap();
    let server = Running::over(Existing::of(store.clone())).await;
    let mut client = server.client().await;
    client.id("INCR orders").await;
    store.remove(&orders(), None).await.unwrap();
    client.until_refused("INCR orders").await;
    let before = store.calls();
    refused(&mut client).await;
    let calls = store.calls() - before;
    assert!(calls < DRAWS / 20, "{calls} store calls for {DRAWS} draws");
    let text = log.text();
    let lines = text.lines().filter(|line| line.contains("\"WARN\"") && line.contains("orders")).count();
    assert_eq!(lines, 1, "{text}");
    store.create(&orders(), Bounds::new(1, 1000).unwrap()).await.unwrap();
    client.until_drawn("INCR orders").await;
}
