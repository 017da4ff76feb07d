//! The window with the services of the scheme in `specimen.rs`: the durable count in Datastore, the window in
//! memcached.

use idmill::Order;
use idmill_datastore::{DatastoreOptions, DatastoreStore};
use idmill_testing::engines::Engine;

use crate::bench::{Raw, request, server};
use crate::{growth, processes, specimen};

/// Starts the emulator. If it is not available, ends the test.
macro_rules! emulator {
    () => {
        match Engine::start("datastore").await {
            Some(emulator) => emulator,
            None => return,
        }
    };
}

fn options(emulator: &Engine) -> DatastoreOptions {
    DatastoreOptions::new("pair").emulator(emulator.address().to_string())
}

async fn open(emulator: &Engine) -> DatastoreStore {
    DatastoreStore::open_with(options(emulator)).await.unwrap()
}

#[tokio::test]
async fn window_repeats_no_id_where_the_published_scheme_does() {
    let (server, emulator) = (server!(), emulator!());
    specimen::leaves_ours_unharmed(&server, open(&emulator).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn evictions_repeat_no_id_and_keep_ids_growing() {
    let (server, emulator) = (server!(), emulator!());
    let times = growth::evictions(&server, open(&emulator).await, 40).await;
    assert!(times > 3, "{times} evictions");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_share_a_window_through_failures() {
    let (server, clock, emulator) = (server!(), server!(), emulator!());
    processes::share_a_window(6, &options(&emulator).to_string(), &server, &clock).await;
}

/// Opens the store by URL, like an application, and requests ids that grow across processes.
#[tokio::test]
async fn ids_grow_across_clients_in_global_order() {
    let (server, emulator) = (server!(), emulator!());
    let url = format!("{}&window=memcached://{}%3Fblock=20", options(&emulator), server.address());
    let mut clients = Vec::new();
    for _ in 0..3 {
        let ids = processes::schemes().connect(&url).await.unwrap();
        let orders = ids.sequence::<i64>("orders").order(Order::Global).await.unwrap();
        clients.push((ids, orders));
    }
    let (mut operator, mut last) = (Raw::open(&server).await, 0);
    for round in 0..60 {
        if round % 10 == 9 {
            assert_eq!(operator.ask("flush_all").await.0, "OK");
        }
        let id = clients[round % 3].1.next().await.unwrap();
        assert!(id > last, "{id} after {last}");
        last = id;
    }
    assert!(last > 60, "the evictions left gaps");
    let store = open(&emulator).await;
    let listed = idmill::store::Store::list_all(&store).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_ne!(*listed[0].name, *request(1).name);
    assert!(listed[0].next.unwrap() > last.cast_unsigned(), "Datastore is ahead of every id");
}
