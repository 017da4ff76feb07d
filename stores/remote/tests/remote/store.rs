//! Tests that results of the store arrive unchanged.

use idmill::store::{
    Bounds, Capabilities, Change, Durability, GiveBack, Grant, Identity, MemoryStore, Page, Pages, Reserve,
    Store, StoreFuture,
};
use idmill::{Allocator, ErrorKind, Result, Sequences};
use idmill_testing::hooked::{Hooked, Hooks};
use tokio::sync::Notify;

use crate::common::{Running, name, request, reserve};

#[tokio::test]
async fn grants_errors_and_capabilities_arrive_unchanged() {
    let memory = MemoryStore::new();
    let server = Running::over(memory.clone()).await;
    let remote = server.open().await;
    assert_eq!(remote.capabilities(), memory.capabilities());
    let orders = name("orders");
    let bounds = Bounds::new(u64::MAX - 9, u64::MAX).unwrap();
    let created = remote.create(&orders, bounds).await.unwrap();
    assert_eq!(memory.inspect(&orders).await.unwrap(), Some(created.clone()));
    let grant = remote.reserve(&Reserve::new(orders.clone(), 10)).await.unwrap();
    assert_eq!((grant.range.start(), grant.range.len()), (u64::MAX - 9, 10));
    assert_eq!((grant.identity, grant.bounds), (created.identity, bounds));
    for wrong in [Change::new().next(3), Change::new().next(u64::MAX - 5)] {
        let (ours, its) = (remote.set(&orders, wrong).await, memory.set(&orders, wrong).await);
        same(&ours.unwrap_err(), &its.unwrap_err());
    }
    let more = Reserve::new(orders.clone(), 1);
    same(&remote.reserve(&more).await.unwrap_err(), &memory.reserve(&more).await.unwrap_err());
    let none = Reserve::new(name("none"), 1);
    same(&remote.reserve(&none).await.unwrap_err(), &memory.reserve(&none).await.unwrap_err());
    let again = (remote.create(&orders, bounds).await, memory.create(&orders, bounds).await);
    same(&again.0.unwrap_err(), &again.1.unwrap_err());
    let back = GiveBack::new(orders.clone(), grant.identity, grant.range);
    assert!(remote.give_back(&back).await.unwrap() && !remote.give_back(&back).await.unwrap());
    let other = Some(Identity { epoch: 1, ..created.identity });
    same(
        &remote.remove(&orders, other).await.unwrap_err(),
        &memory.remove(&orders, other).await.unwrap_err(),
    );
    let own = Some(created.identity);
    assert!(remote.remove(&orders, own).await.unwrap() && !remote.remove(&orders, None).await.unwrap());
    assert_eq!(remote.inspect(&orders).await.unwrap(), None);
}

fn same(ours: &idmill::Error, its: &idmill::Error) {
    assert_eq!((ours.kind(), ours.status()), (its.kind(), its.status()));
    assert_eq!(ours.to_string(), its.to_string());
    assert_eq!((ours.operation(), ours.sequence()), (its.operation(), its.sequence()));
}

/// Uses more reserves, names and rows than fit into one request.
#[tokio::test]
async fn batches_return_results_in_order() {
    let memory = MemoryStore::new();
    let server = Running::over(memory.clone()).await;
    let remote = server.open().await;
    let long = "\"".repeat(190);
    let names: Vec<_> = (0..1_200).map(|n| name(&format!("{long}{n:04}"))).collect();
    let counts = (1..).zip(&names);
    let requests: Vec<_> = counts.map(|(count, name)| request(name, count)).collect();
    let grants = remote.reserve_many(&requests).await;
    assert!((1..).zip(&grants).all(|(count, grant)| grant.as_ref().unwrap().range.len() == count));
    let found = remote.inspect_many(&names).await;
    for ((name, found), count) in names.iter().zip(found).zip(1..) {
        let info = found.unwrap().unwrap();
        assert_eq!((&info.name, info.next), (name, Some(1 + count)));
    }
    let mut pages = Pages::new(&remote, Page::default().limit(5_000));
    let mut listed = Vec::new();
    while let Some(page) = pages.next().await.unwrap() {
        assert!(page.sequences.len() <= 1_000);
        listed.extend(page.sequences);
    }
    assert_eq!(listed, memory.list_all().await.unwrap());
    assert!(remote.reserve_many(&[]).await.is_empty() && remote.inspect_many(&[]).await.is_empty());
}

/// A store whose reserves from one sequence wait until they are released.
#[derive(Debug, Default)]
struct Stuck {
    memory: MemoryStore,
    begun: Notify,
    let_go: Notify,
}

impl Hooks for Stuck {
    fn inner(&self) -> &dyn Store {
        &self.memory
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            if &*request.name == "stuck" {
                self.begun.notify_one();
                self.let_go.notified().await;
            }
            self.memory.reserve(request).await
        })
    }
}

#[tokio::test]
async fn calls_do_not_wait_for_each_other() {
    let stuck = std::sync::Arc::new(Hooked(Stuck::default()));
    let server = Running::over(stuck.clone()).await;
    let remote = std::sync::Arc::new(server.open().await);
    let waits = remote.clone();
    let waits = tokio::spawn(async move { reserve(&*waits, "stuck", 1).await });
    stuck.begun.notified().await;
    for count in 1..5 {
        reserve(&*remote, "other", count).await.unwrap();
    }
    assert!(!waits.is_finished());
    stuck.let_go.notify_one();
    waits.await.unwrap().unwrap();
}

/// Each set of sequences has its own client, like a separate process.
#[tokio::test]
async fn processes_draw_disjoint_ids_and_give_back_the_rest() {
    let memory = MemoryStore::new();
    let server = Running::over(memory.clone()).await;
    let mut drawn = Vec::new();
    let mut sets = Vec::new();
    for _ in 0..3 {
        sets.push(Sequences::new(server.open().await).unwrap());
    }
    let mut drawing = Vec::new();
    for ids in &sets {
        let orders: Allocator<u64> = ids.sequence("orders").await.unwrap();
        drawing.push(tokio::spawn(async move {
            let mut ids = Vec::new();
            for _ in 0..500 {
                ids.push(orders.next().await.unwrap());
            }
            ids
        }));
    }
    for drawing in drawing {
        drawn.extend(drawing.await.unwrap());
    }
    drawn.sort_unstable();
    assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]), "an id came twice");
    // On close, the client with the last reserved range gives its unused ids back.
    let before = memory.inspect(&name("orders")).await.unwrap().unwrap().next.unwrap();
    for ids in sets {
        ids.close().await;
    }
    let after = memory.inspect(&name("orders")).await.unwrap().unwrap().next.unwrap();
    assert!(after <= before && after > *drawn.last().unwrap(), "{after}, {before}");
}

#[tokio::test]
async fn records_are_kept_behind_the_server() {
    let sqlite =
        idmill_sqlite::SqliteStore::open(tempfile::tempdir().unwrap().keep().join("ids.db")).await.unwrap();
    let sqlite = std::sync::Arc::new(sqlite);
    assert!(sqlite.capabilities().records);
    let server = Running::over(sqlite.clone()).await;
    let remote = server.open().await;
    let kept = name("kept");
    assert!(remote.swap_record(&kept, None, "one").await.unwrap());
    assert!(!remote.swap_record(&kept, None, "two").await.unwrap());
    assert_eq!(remote.record(&kept).await.unwrap().as_deref(), Some("one"));
    assert_eq!(sqlite.record(&kept).await.unwrap().as_deref(), Some("one"));
    let listed = remote.list_records(&Page::default()).await.unwrap();
    assert_eq!(listed.records, [(kept, "one".to_owned())]);
}

/// A memory store without batches, give-backs and records, for one process.
#[derive(Debug, Default)]
struct Least(MemoryStore);

impl Store for Least {
    idmill::store_calls!(|this| this.0 => reserve create inspect list set remove);

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::Disk)
    }
}

#[tokio::test]
async fn unsupported_capabilities_are_not_declared() {
    let server = Running::over(Least::default()).await;
    let (remote, kept) = (server.open().await, name("kept"));
    let can = remote.capabilities();
    assert_eq!(can.durability, Durability::Disk);
    assert_eq!([can.batches, can.shared, can.gives_back, can.records], [false; 4]);
    for error in [
        remote.record(&kept).await.unwrap_err(),
        remote.swap_record(&kept, None, "one").await.unwrap_err(),
        remote.list_records(&Page::default()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
    assert_eq!(reserve(&remote, "s", 5).await.unwrap().range.len(), 5);
}

/// Its options contain a token.
#[tokio::test]
async fn debug_output_has_the_servers_and_no_token() {
    let server = Running::over(MemoryStore::new()).await;
    let shown = format!("{:?}", server.open().await);
    assert!(shown.contains(&server.address.port().to_string()), "{shown}");
    assert!(!shown.contains("options") && !shown.contains("token"), "{shown}");
}
