//! Errors of a real server and of the driver, and how the store classifies them.

use std::error::Error as _;
use std::net::SocketAddr;
use std::time::Duration;

use idmill::store::{Bounds, Change, Store};
use idmill::{Error, ErrorKind};
use idmill_conformance::proxy::{Fault, Gate};
use idmill_mongodb::MongoStore;
use idmill_mongodb::driver::Client;
use idmill_mongodb::driver::bson::{Document, doc};
use idmill_mongodb::driver::error::ErrorKind as Mongo;
use idmill_mongodb::driver::options::ClientOptions;

use crate::commands::Between;
use crate::{ENGINE, bounds, documents, inspect, name, open, request, reserve, schemes, server, url};
use idmill_testing::engines;
use idmill_testing::{eventually, holds};

/// Opens a store behind a proxy. The store's timeout is long enough for a busy machine.
async fn behind(proxy: &Between) -> MongoStore {
    MongoStore::open(&url(proxy.address(), "&timeout=10s")).await.unwrap()
}

#[tokio::test]
async fn reserve_with_a_lost_reply_is_unknown_and_not_retried() {
    let Some(server) = server().await else { return };
    let faults = [
        ("before", Fault::CutBefore, false),
        ("reply", Fault::CutReply, true),
        ("withheld", Fault::Withhold(Gate::new()), true),
    ];
    for (sequence, fault, applied) in faults {
        let proxy = Between::to(server.address()).await;
        let store = behind(&proxy).await;
        assert_eq!(reserve(&store, sequence, 10).await.unwrap(), (1, 10));
        proxy.counts(["findAndModify"]);
        proxy.arm("findAndModify", fault);
        let error = reserve(&store, sequence, 10).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{sequence}: {error}");
        assert_eq!(proxy.counts(["findAndModify"]), [1], "{sequence}");
        let next = if applied { 21 } else { 11 };
        assert_eq!(reserve(&store, sequence, 10).await.unwrap(), (next, 10), "{sequence}");
    }
}

/// By default the driver's own methods retry writes on a replica set. The store's commands must not be
/// retried.
#[tokio::test]
async fn write_is_sent_once_by_a_retrying_client() {
    let Some(server) = server().await else { return };
    let proxy = Between::to(server.address()).await.replicated();
    let mut options = ClientOptions::parse(url(proxy.address(), "&retryWrites=true")).await.unwrap();
    options.server_selection_timeout = Some(Duration::from_secs(20));
    let client = Client::with_options(options).unwrap();
    let store = MongoStore::new(&client.database("test").collection::<Document>("c"));
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    proxy.counts([]);
    proxy.arm("findAndModify", Fault::CutReply);
    let error = reserve(&store, "s", 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    assert_eq!(proxy.counts(["findAndModify"]), [1]);
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (21, 10));
}

#[tokio::test]
async fn replica_set_is_read_with_linearizable_concern() {
    let Some(server) = server().await else { return };
    for replicated in [false, true] {
        let mut proxy = Between::to(server.address()).await;
        if replicated {
            proxy = proxy.replicated();
        }
        let store = open(proxy.address()).await;
        reserve(&store, "s", 10).await.unwrap();
        inspect(&store, "s").await;
        assert_eq!((proxy.read_with("linearizable"), proxy.read_with("majority")), (replicated, !replicated));
    }
}

#[tokio::test]
async fn write_with_a_lost_reply_is_unknown_read_is_unavailable() {
    let Some(server) = server().await else { return };
    let proxy = Between::to(server.address()).await;
    let (store, s) = (behind(&proxy).await, name("s"));
    proxy.arm("insert", Fault::CutReply);
    let error = store.create(&s, bounds(1, 100)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    let mut seen = inspect(&store, "s").await;
    assert_eq!(seen.bounds, bounds(1, 100), "the sequence was created");
    proxy.arm("findAndModify", Fault::Withhold(Gate::new()));
    let change = Change::new().next(50);
    assert_eq!(store.set(&s, change).await.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    seen.next = Some(50);
    assert_eq!(inspect(&store, "s").await, seen, "the change was applied");
    proxy.arm("find", Fault::Withhold(Gate::new()));
    let error = store.inspect(&s).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "a read has no unknown outcome: {error}");
    proxy.arm("delete", Fault::CutReply);
    assert_eq!(store.remove(&s, None).await.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    assert!(!store.remove(&s, None).await.unwrap(), "the sequence was removed");
}

#[tokio::test]
async fn first_reserve_with_a_lost_reply_is_a_gap() {
    let Some(server) = server().await else { return };
    let proxy = Between::to(server.address()).await;
    let store = behind(&proxy).await;
    proxy.arm("insert", Fault::CutReply);
    assert_eq!(reserve(&store, "s", 10).await.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10));
}

#[tokio::test]
async fn grants_survive_a_kill_and_stopped_server_is_unavailable() {
    let Some(server) = server().await else { return };
    let store = MongoStore::open(&url(server.address(), "&timeout=5s")).await.unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    server.kill();
    // The first call may use a connection whose failure is not detected yet. Later calls have no
    // connection.
    let first = reserve(&store, "s", 10).await.unwrap_err();
    assert!(matches!(first.kind(), ErrorKind::UnknownOutcome | ErrorKind::Unavailable), "{first}");
    for _ in 0..2 {
        let error = reserve(&store, "s", 10).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    let error = MongoStore::open(&url(server.address(), "&timeout=500ms")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.restart().await;
    assert_eq!(
        reserve(&open(server.address()).await, "s", 10).await.unwrap(),
        (11, 10),
        "no reserve reached the server during the outage"
    );
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (21, 10), "the old store continues");
}

/// An error, how it was produced, and the expected properties.
struct Taken {
    what: &'static str,
    error: Error,
    kind: ErrorKind,
    /// Checks the driver's error, if it is the source.
    driver: fn(Option<&Mongo>) -> bool,
    remedy: &'static str,
}

fn code(kind: Option<&Mongo>, expected: i32) -> bool {
    matches!(kind, Some(Mongo::Command(command)) if command.code == expected)
}

#[tokio::test]
async fn errors_of_the_real_engine_are_classified() {
    let Some(server) = server().await else { return };
    let address = server.address();
    for Taken { what, error, kind, driver, remedy } in taken(address).await {
        assert_eq!(error.kind(), kind, "{what}: {error:?}");
        assert!(error.to_string().contains(remedy), "{what}: {error}");
        let cause = error.source().and_then(|source| source.downcast_ref::<Mongo>());
        assert!(driver(cause), "{what}: {error:?}");
    }
}

async fn taken(address: SocketAddr) -> Vec<Taken> {
    let nobody = SocketAddr::from(([127, 0, 0, 1], idmill_conformance::free_port()));
    let client = Client::with_uri_str(url(address, "")).await.unwrap();
    let malformed = MongoStore::new(&client.database("test").collection::<Document>("a$b"));
    vec![
        Taken {
            what: "no server listens",
            error: MongoStore::open(&url(nobody, "&timeout=400ms")).await.unwrap_err(),
            kind: ErrorKind::Unavailable,
            // The driver's error is not the source: it prints its topology in debug format.
            driver: |kind| kind.is_none(),
            remedy: "Connection refused",
        },
        Taken {
            what: "no member of that replica set",
            error: MongoStore::open(&format!("mongodb://{address}/?replicaSet=rs0&timeout=400ms"))
                .await
                .unwrap_err(),
            kind: ErrorKind::Unavailable,
            // The driver's error is not the source: it prints its topology in debug format.
            driver: |kind| kind.is_none(),
            remedy: "nothing was changed",
        },
        Taken {
            what: "wrong credentials",
            error: MongoStore::open(&format!("mongodb://user:hunter2@{address}/")).await.unwrap_err(),
            kind: ErrorKind::Denied,
            driver: |kind| matches!(kind, Some(Mongo::Authentication { .. })),
            remedy: "authSource",
        },
        Taken {
            what: "an illegal collection, read",
            error: malformed.inspect(&name("s")).await.unwrap_err(),
            kind: ErrorKind::InvalidInput,
            driver: |kind| code(kind, 73),
            remedy: "a$b",
        },
        Taken {
            what: "an illegal collection, written",
            error: reserve(&malformed, "s", 1).await.unwrap_err(),
            kind: ErrorKind::InvalidInput,
            driver: |kind| code(kind, 73),
            remedy: "a$b",
        },
        Taken {
            what: "an error that the server cannot explain",
            error: somebodys_index(address).await,
            kind: ErrorKind::UnknownOutcome,
            driver: |kind| code(kind, 1),
            remedy: "may have been applied",
        },
    ]
}

/// Creates a unique index that rejects the increment. FerretDB reports the rejection as an internal error.
async fn somebodys_index(address: SocketAddr) -> Error {
    let database = documents(address).await.client().database("index");
    let index =
        doc! { "createIndexes": "c", "indexes": [{ "key": { "last": 1 }, "name": "u", "unique": true }] };
    database.run_command(index).await.unwrap();
    let store = MongoStore::new(&database.collection::<Document>("c"));
    store.create(&name("a"), Bounds::of::<u64>()).await.unwrap();
    // A duplicate name and a duplicate value in the user's index are different errors.
    let again = store.create(&name("a"), Bounds::of::<u64>()).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{again}");
    let other = store.create(&name("b"), Bounds::of::<u64>()).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Conflict, "{other}");
    assert_eq!(store.reserve(&request("b", 10)).await.unwrap().range.start(), 1);
    let third = store.reserve(&request("c", 10)).await.unwrap_err();
    assert_eq!(third.kind(), ErrorKind::Conflict, "{third}");
    store.reserve(&request("a", 10)).await.unwrap_err()
}

#[tokio::test]
async fn passwords_are_not_printed() {
    let Some(server) = server().await else { return };
    let address = server.address();
    // FerretDB accepts any user and password with this mechanism.
    let good = format!("mongodb://app:hunter2@{address}/?authMechanism=PLAIN");
    let store = MongoStore::open(&good).await.unwrap();
    assert_eq!(reserve(&store, "s", 1).await.unwrap(), (1, 1));
    let bad = MongoStore::open(&format!("mongodb://app:hunter2@{address}/")).await.unwrap_err();
    let existing = schemes().parse(&good.replace('?', "nowhere?")).unwrap().existing();
    let missing = existing.connect().await.unwrap_err();
    for shown in [
        format!("{store:?}"),
        format!("{bad} {bad:?}"),
        format!("{existing} {existing:?}"),
        format!("{missing:?}"),
    ] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[tokio::test]
async fn dropped_call_does_not_break_the_store() {
    let Some(server) = server().await else { return };
    let proxy = Between::to(server.address()).await;
    let store = behind(&proxy).await;
    reserve(&store, "s", 10).await.unwrap();
    proxy.arm("findAndModify", Fault::Withhold(Gate::new()));
    proxy.counts([]);
    let request = request("s", 10);
    let mut dropped = store.reserve(&request);
    // Poll the reserve until its command is sent, then drop it.
    let is_sent =
        eventually("the command is sent", async || holds(proxy.counts(["findAndModify"]) == [1], 0));
    tokio::select! {
        outcome = &mut dropped => panic!("{outcome:?}"),
        () = is_sent => {}
    }
    drop(dropped);
    let (start, _) = reserve(&store, "s", 10).await.unwrap();
    assert!(start == 11 || start == 21, "{start}");
}

#[tokio::test]
async fn engine_reports_its_version() {
    let Some(engine) = engines::Engine::down(ENGINE) else { return };
    assert!(engine.version().starts_with("FerretDB v1."), "{}", engine.version());
}
