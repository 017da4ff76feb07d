//! Ids in memory while their sequence is changed or removed through the server.

use idmill::store::{Bounds, Change, Identity, MemoryStore, Store};
use idmill::{SequenceName, Sequences};
use idmill_kit::Existing;
use idmill_remote::protocol::Ask;
use idmill_testing::faulty::FaultyStore;
use idmill_testing::replaced::Replaced;
use idmill_testing::{eventually, holds};
use reqwest::{Client as Http, Method, StatusCode};

use crate::common::{Client, Running, with_orders};

fn orders() -> SequenceName {
    "orders".parse().unwrap()
}

/// How a sequence is changed: over HTTP, or through the store behind the server.
#[derive(Clone, Copy, Debug)]
enum Way {
    Http,
    Store,
}

impl Way {
    const ALL: [Self; 2] = [Self::Http, Self::Store];

    async fn change(self, server: &Running, change: Change) {
        match self {
            Self::Http => {
                let body = match change {
                    Change { max: Some(max), .. } => format!("{{\"max\":{max},\"backwards\":true}}"),
                    Change { next: Some(next), .. } => format!("{{\"next\":{next},\"backwards\":true}}"),
                    _ => "{\"revoke\":true}".to_owned(),
                };
                assert_eq!(http(server, Method::PATCH, &body).await, StatusCode::OK);
            }
            Self::Store => {
                let set = Ask::Set { name: orders(), change };
                let answer = server.client().await.ask_store(set).await;
                assert!(answer.contains("sequence"), "{answer}");
            }
        }
    }

    async fn remove(self, server: &Running) {
        match self {
            Self::Http => assert_eq!(http(server, Method::DELETE, "").await, StatusCode::NO_CONTENT),
            Self::Store => {
                let answer = server.client().await.ask_store(Ask::Remove(orders())).await;
                assert!(answer.contains("true"), "{answer}");
            }
        }
    }

    async fn create(self, server: &Running) {
        match self {
            Self::Http => assert_eq!(http(server, Method::PUT, "{}").await, StatusCode::CREATED),
            Self::Store => {
                let create = Ask::Create { name: orders(), bounds: Bounds::of::<i64>() };
                let answer = server.client().await.ask_store(create).await;
                assert!(answer.contains("sequence"), "{answer}");
            }
        }
    }
}

async fn http(server: &Running, method: Method, body: &str) -> StatusCode {
    let request = Http::new().request(method, server.url("/v1/sequences/orders"));
    request.header("content-type", "application/json").body(body.to_owned()).send().await.unwrap().status()
}

/// Starts a server with ids of `orders` in memory, and a client that has drawn some.
async fn drawn() -> (Running, FaultyStore, Client, u64) {
    let store = with_orders().await;
    let administered = Sequences::new(store.clone()).unwrap();
    let server = Running::with(Existing::of(store.clone()), |server| server.administers(administered)).await;
    let mut client = server.client().await;
    for _ in 0..3 {
        client.id("INCRBY orders 100").await;
    }
    let mut last = 0;
    eventually("the server has ids in memory", async || {
        last = client.id("INCR orders").await;
        holds(reached(&store).await > last, last)
    })
    .await;
    (server, store, client, last)
}

/// Returns the last reserved id.
async fn reached(store: &FaultyStore) -> u64 {
    store.inspect(&orders()).await.unwrap().unwrap().next.unwrap() - 1
}

#[tokio::test]
async fn removed_sequence_is_not_drawn_from_memory() {
    for way in Way::ALL {
        let (server, _, mut client, _) = drawn().await;
        way.remove(&server).await;
        for command in ["INCR orders", "INCRBY orders 2"] {
            let answer = client.ask(command).await;
            assert!(answer.starts_with('-'), "{way:?}, {command}: {answer}");
        }
        let drawn = Http::new().post(server.url("/v1/sequences/orders/ids")).send().await.unwrap();
        assert!(!drawn.status().is_success(), "{way:?}");
        // A sequence created under the same name starts at 1, even on open connections.
        way.create(&server).await;
        let mut ids = Vec::new();
        for _ in 0..200 {
            ids.push(client.id("INCR orders").await);
        }
        assert_eq!(ids, (1..=200).collect::<Vec<_>>(), "{way:?}");
    }
}

#[tokio::test]
async fn delete_with_if_match_spares_a_new_sequence() {
    let memory = MemoryStore::new();
    let server = Running::over(Replaced(memory.clone())).await;
    let url = server.url("/v1/sequences/orders");
    for method in [Method::PATCH, Method::DELETE] {
        memory.remove(&orders(), None).await.unwrap();
        let Identity { incarnation, epoch } =
            memory.create(&orders(), Bounds::of::<i64>()).await.unwrap().identity;
        let request =
            Http::new().request(method, &url).header("If-Match", format!("\"{incarnation:x}.{epoch}\""));
        let request = request.header("content-type", "application/json").body("{\"max\":9}");
        assert_eq!(request.send().await.unwrap().status(), StatusCode::CONFLICT);
        let stored = memory.inspect(&orders()).await.unwrap().expect("the new sequence");
        assert_eq!(stored.bounds, Bounds::of::<i64>());
    }
}

#[tokio::test]
async fn recreated_sequence_does_not_use_old_ids_in_memory() {
    for way in Way::ALL {
        let (server, store, mut client, _) = drawn().await;
        // Another process removes the sequence, while this server still has ids in memory.
        store.remove(&orders(), None).await.unwrap();
        way.create(&server).await;
        assert_eq!(client.ask("INCR orders").await, ":1", "{way:?}");
    }
}

#[tokio::test]
async fn lowered_max_ends_draws_from_memory() {
    for way in Way::ALL {
        let (server, _, mut client, last) = drawn().await;
        way.change(&server, Change::new().max(Some(last)).backwards(true)).await;
        let answer = client.ask("INCR orders").await;
        assert!(answer.starts_with("-EXHAUSTED"), "{way:?}: {answer}");
    }
}

#[tokio::test]
async fn revoked_ids_in_memory_are_not_drawn() {
    for way in Way::ALL {
        let (server, store, mut client, last) = drawn().await;
        let reserved = reached(&store).await;
        assert!(reserved > last, "nothing is in memory");
        way.change(&server, Change::new().revoke(true)).await;
        let id = client.id("INCR orders").await;
        assert!(id > reserved, "{way:?}: {id} was in memory, up to {reserved}");
    }
}

#[tokio::test]
async fn sequence_set_backwards_continues_from_there() {
    for way in Way::ALL {
        let (server, _, mut client, _) = drawn().await;
        let change = Change::new().next(Some(5)).backwards(true);
        way.change(&server, change).await;
        assert_eq!(client.ask("INCR orders").await, ":5", "{way:?}");
    }
}

/// A refused change costs no ids.
#[tokio::test]
async fn refused_change_leaves_memory_as_it_is() {
    let (server, _, mut client, last) = drawn().await;
    assert_eq!(http(&server, Method::PATCH, "{\"next\":1}").await, StatusCode::CONFLICT);
    assert_eq!(http(&server, Method::PUT, "{}").await, StatusCode::CONFLICT);
    assert_eq!(client.id("INCR orders").await, last + 1);
}
