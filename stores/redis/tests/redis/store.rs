//! Behavior that is specific to Redis as a store.

use idmill::store::{Bounds, Capabilities, Change, Durability, GiveBack, Page, Reserve, Store};
use idmill::{Error, ErrorKind, IdRange, SequenceName};
use idmill_redis::RedisStore;
use idmill_testing::engines::Engine;
use idmill_testing::eventually;

use crate::server::{Client, ask, cut_off, info, pair, promote, start, until, until_rewritten};

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

fn request(text: &str, count: u64) -> Reserve {
    Reserve::new(name(text), count).create(Bounds::new(1, u64::MAX).unwrap())
}

async fn open(engine: &Engine, options: &str) -> Result<RedisStore, Error> {
    RedisStore::open(&format!("redis://{}?{options}", engine.address())).await
}

async fn first(store: &RedisStore, sequence: &str) -> Result<u64, Error> {
    store.reserve(&request(sequence, 1)).await.map(|grant| grant.range.start())
}

async fn refused(engine: &Engine, options: &str, kind: ErrorKind, words: &[&str]) {
    let error = open(engine, options).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

#[tokio::test]
async fn non_durable_server_is_rejected_with_the_remedy() {
    for (settings, remedy) in [
        (&["--appendonly", "no"][..], "CONFIG SET appendonly yes"),
        (&["--appendfsync", "everysec"], "CONFIG SET appendfsync always"),
        (&["--no-appendfsync-on-rewrite", "yes"], "CONFIG SET no-appendfsync-on-rewrite no"),
    ] {
        let Some(engine) = start(settings).await else { return };
        refused(&engine, "", ErrorKind::Unsupported, &[remedy, "durability=process"]).await;
        let accepted = open(&engine, "durability=process").await.unwrap();
        assert_eq!(accepted.capabilities().durability, Durability::Process);
        // The remedy works.
        let words: Vec<&str> = remedy.split(' ').collect();
        assert_eq!(ask(&engine, &words), "+OK");
        let Capabilities { durability, batches, gives_back, .. } =
            open(&engine, "").await.unwrap().capabilities();
        assert_eq!((durability, batches, gives_back), (Durability::Disk, true, true));
    }
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_whatever_is_accepted() {
    let Some(engine) = start(&["--maxmemory-policy", "allkeys-lru"]).await else { return };
    for options in ["", "durability=process", "durability=trust"] {
        refused(&engine, options, ErrorKind::Unsupported, &["allkeys-lru", "noeviction"]).await;
    }
    assert_eq!(ask(&engine, &["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]), "+OK");
    assert!(open(&engine, "").await.is_ok());
}

#[tokio::test]
async fn hidden_durability_settings_need_explicit_trust() {
    let Some(engine) = start(&["--rename-command", "CONFIG", "hidden"]).await else { return };
    refused(&engine, "", ErrorKind::Unsupported, &["cannot check whether", "durability=trust"]).await;
    let trusted = open(&engine, "durability=trust").await.unwrap();
    assert_eq!(trusted.capabilities().durability, Durability::Disk);
    assert_eq!(first(&trusted, "s").await.unwrap(), 1);
}

/// Every connection checks again: a server may have been restarted with other settings.
#[tokio::test]
async fn settings_are_checked_on_every_connection() {
    let Some(engine) = start(&[]).await else { return };
    let store = open(&engine, "").await.unwrap();
    assert_eq!(first(&store, "s").await.unwrap(), 1);
    assert_eq!(ask(&engine, &["CONFIG", "SET", "appendfsync", "everysec"]), "+OK");
    ask(&engine, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let mut refusal = None;
    for _ in 0..3 {
        // If the kill is detected only during the call, the first outcome is unknown.
        refusal = store.reserve(&request("s", 1)).await.err();
    }
    assert_eq!(refusal.map(|error| error.kind()), Some(ErrorKind::Unsupported));
}

#[tokio::test]
async fn flushed_scripts_are_reloaded_and_run_once() {
    let Some(engine) = start(&[]).await else { return };
    let store = open(&engine, "").await.unwrap();
    for id in 1..=20 {
        assert_eq!(first(&store, "s").await.unwrap(), id);
        assert_eq!(ask(&engine, &["SCRIPT", "FLUSH"]), "+OK");
    }
    let many: Vec<Reserve> = ["a", "b", "s"].map(|name| request(name, 2)).to_vec();
    let starts: Vec<u64> =
        store.reserve_many(&many).await.into_iter().map(|grant| grant.unwrap().range.start()).collect();
    assert_eq!(starts, [1, 1, 21]);
}

#[tokio::test]
async fn grants_survive_a_crash() {
    let Some(engine) = start(&[]).await else { return };
    let store = open(&engine, "").await.unwrap();
    let mut last = 0;
    for round in 0..5 {
        for _ in 0..20 {
            last = first(&store, "s").await.unwrap();
        }
        if round % 2 == 1 {
            // A rewritten file is loaded by another code path, and must not be taken for another server's.
            ask(&engine, &["BGREWRITEAOF"]);
            until_rewritten(&engine);
        }
        engine.kill();
        engine.restart().await;
        // The connection is closed, so the first outcome may be unknown. A restart must not cause a conflict.
        let id = eventually("the store grants after the restart", async || {
            let granted = first(&store, "s").await;
            if let Err(error) = &granted {
                assert!(!matches!(error.kind(), ErrorKind::StoreViolation | ErrorKind::Conflict), "{error}");
            }
            granted
        })
        .await;
        assert!(std::mem::replace(&mut last, id) < id);
    }
}

/// Names, prefixes and databases are separate; other programs' keys are not touched.
#[tokio::test]
async fn each_prefix_and_each_database_is_a_namespace() {
    let Some(engine) = start(&[]).await else { return };
    for (database, prefix) in [(0, "a"), (0, "a:b"), (1, "a")] {
        let store = RedisStore::open(&format!("redis://{}/{database}?prefix={prefix}", engine.address()))
            .await
            .unwrap();
        assert_eq!(first(&store, "s }{ ü").await.unwrap(), 1, "{database} {prefix}");
        assert_eq!(store.list_all().await.unwrap().len(), 1);
    }
    let store = open(&engine, "prefix=x").await.unwrap();
    ask(&engine, &["SET", "{x}:s:text", "5"]);
    ask(&engine, &["HSET", "{x}:s:hash", "next", "5"]);
    assert_eq!(first(&store, "text").await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(first(&store, "hash").await.unwrap_err().kind(), ErrorKind::StoreViolation);
    assert_eq!(store.remove(&name("hash"), None).await.unwrap_err().kind(), ErrorKind::StoreViolation);
    assert_eq!(ask(&engine, &["HGET", "{x}:s:hash", "next"]), "5");
    ask(&engine, &["SADD", "{x}:names", "hash", " no name", "gone"]);
    first(&store, "fine").await.unwrap();
    let listing = store.list(&Page::default()).await.unwrap();
    let good: Vec<_> = listing.sequences.iter().map(|info| &*info.name).collect();
    let bad: Vec<_> = listing.unreadable.iter().map(|row| (&*row.name, row.error.kind())).collect();
    let violation = ErrorKind::StoreViolation;
    assert_eq!((good, bad), (vec!["fine"], vec![(" no name", violation), ("hash", violation)]));
}

#[tokio::test]
async fn a_rest_is_taken_back_once_and_only_from_the_end() {
    let Some(engine) = start(&[]).await else { return };
    let store = open(&engine, "").await.unwrap();
    let create = Bounds::new(5, 14).unwrap();
    for count in [4, 100] {
        // The first range ends within the sequence, the second at its last id.
        let request = request("s", 1).count(count).create(create);
        let grant = store.reserve(&request).await.unwrap();
        let mut rest = grant.range;
        let _ = rest.take_front(1);
        let back = GiveBack::new(request.name.clone(), grant.identity, rest);
        let mut other = back.clone();
        other.identity.epoch += 1;
        assert!(!store.give_back(&other).await.unwrap(), "of another identity");
        assert!(store.give_back(&back).await.unwrap());
        assert!(!store.give_back(&back).await.unwrap(), "a range is given back once");
        assert_eq!(store.inspect(&request.name).await.unwrap().unwrap().next, Some(rest.start()));
    }
    let missing =
        GiveBack::new(name("none"), idmill::store::Identity::fresh(), idmill::IdRange::new(1, 1).unwrap());
    assert!(!store.give_back(&missing).await.unwrap());
}

#[tokio::test]
async fn replicas_and_demoted_masters_are_rejected() {
    let Some((master, replica)) = pair().await else { return };
    let port = master.address().port().to_string();
    refused(&replica, "", ErrorKind::Unavailable, &["replica", &port]).await;
    let Some(other) = start(&[]).await else { return };
    let store = open(&other, "").await.unwrap();
    assert_eq!(first(&store, "s").await.unwrap(), 1);
    // A writable replica is rejected, too.
    assert_eq!(ask(&other, &["CONFIG", "SET", "replica-read-only", "no"]), "+OK");
    assert_eq!(ask(&other, &["REPLICAOF", "127.0.0.1", &port]), "+OK");
    for _ in 0..3 {
        let error = first(&store, "s").await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::UnknownOutcome), "{error}");
    }
    assert_eq!(first(&store, "s").await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn promoted_replica_is_rejected_until_next_id_is_set() {
    let Some((master, replica)) = pair().await else { return };
    let old = open(&master, "").await.unwrap();
    assert_eq!(first(&old, "s").await.unwrap(), 1);
    until("it is replicated", ":1", || ask(&replica, &["EXISTS", "{idmill}:s:s"]));
    cut_off(&replica);
    assert_eq!(first(&old, "s").await.unwrap(), 2, "a grant that is not replicated");
    promote(&replica);
    let store = open(&replica, "").await.unwrap();
    let error = first(&store, "s").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("--next"), "{error}");
    let masters = [info(&master, "master_replid"), info(&replica, "master_replid")];
    let words = format!("last written on master {}, not on master {};", masters[0], masters[1]);
    assert!(error.to_string().contains(&words), "{error}");
    assert_eq!(store.inspect(&name("s")).await.unwrap().unwrap().next, Some(2), "reads are allowed");
    assert_eq!(first(&store, "new").await.unwrap(), 1, "a sequence created on this master is accepted");
    // With `failover=allow`, a new sequence begins as usual.
    assert_eq!(first(&open(&replica, "failover=allow&prefix=idmill").await.unwrap(), "t").await.unwrap(), 1);
    let identity = store.inspect(&name("s")).await.unwrap().unwrap().identity;
    let back = GiveBack::new(name("s"), identity, IdRange::new(1, 1).unwrap());
    let allows = open(&replica, "failover=allow").await.unwrap();
    assert!(!allows.give_back(&back).await.unwrap(), "the range may be granted on the other master");
    store.set(&name("s"), Change::new().max(100)).await.unwrap();
    assert_eq!(first(&store, "s").await.unwrap_err().kind(), ErrorKind::Conflict, "that decides nothing");
    store.set(&name("s"), Change::new().next(3)).await.unwrap();
    assert_eq!(first(&store, "s").await.unwrap(), 3);
}

/// Several callers detect the failover concurrently: ids are skipped only once. A skip past the last id
/// exhausts the sequence.
#[tokio::test]
async fn a_promoted_replica_leaves_ids_out_once() {
    let Some((master, replica)) = pair().await else { return };
    let old = open(&master, "").await.unwrap();
    let small = Reserve::new(name("small"), 1).create(Bounds::new(1, 100).unwrap());
    for sequence in ["s", "t"] {
        assert_eq!(first(&old, sequence).await.unwrap(), 1);
    }
    old.reserve(&small).await.unwrap();
    until("it is replicated", ":1", || ask(&replica, &["EXISTS", "{idmill}:s:small"]));
    cut_off(&replica);
    promote(&replica);
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(open(&replica, "failover=skip:1000").await.unwrap());
    }
    let drawn = futures_util::future::join_all(stores.iter().map(|store| first(store, "s"))).await;
    let mut drawn: Vec<_> = drawn.into_iter().map(Result::unwrap).collect();
    drawn.sort_unstable();
    assert_eq!(drawn, [1_002, 1_003, 1_004, 1_005]);
    assert_eq!(stores[0].reserve(&small).await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(first(&open(&replica, "failover=allow").await.unwrap(), "t").await.unwrap(), 2);
    let refuses = open(&replica, "").await.unwrap();
    assert_eq!(first(&refuses, "t").await.unwrap(), 3, "the sequence was last written on this master");
}

/// A promoted replica may lack the last writes, and the records about these writes.
#[tokio::test]
async fn promoted_replica_keeps_records_unless_failover_allowed() {
    let Some((master, replica)) = pair().await else { return };
    let (old, s) = (open(&master, "").await.unwrap(), name("s"));
    assert!(old.swap_record(&s, None, "a").await.unwrap());
    until("it is replicated", ":1", || ask(&replica, &["EXISTS", "{idmill}:w:s"]));
    cut_off(&replica);
    assert!(old.swap_record(&s, Some("a"), "b").await.unwrap());
    promote(&replica);
    let store = open(&replica, "").await.unwrap();
    assert_eq!(store.record(&s).await.unwrap().as_deref(), Some("a"), "reads are allowed");
    let error = store.swap_record(&s, Some("a"), "c").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("failover=allow"), "{error}");
    assert!(
        store.swap_record(&name("new"), None, "a").await.unwrap(),
        "a record written on this master is accepted"
    );
    assert!(open(&replica, "failover=allow").await.unwrap().swap_record(&s, Some("a"), "c").await.unwrap());
    assert!(
        store.swap_record(&s, Some("c"), "d").await.unwrap(),
        "the record was last written on this master"
    );
}

#[tokio::test]
async fn grant_on_too_few_replicas_is_unknown() {
    let Some((master, replica)) = pair().await else { return };
    let store = open(&master, "replicas=1&timeout=4s").await.unwrap();
    assert_eq!(first(&store, "s").await.unwrap(), 1);
    assert_eq!(ask(&replica, &["HGET", "{idmill}:s:s", "next"]), "2");
    cut_off(&replica);
    until("the master lost the replica", "0", || info(&master, "connected_slaves"));
    let error = first(&store, "s").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
    // A command that wrote nothing needs no replica.
    let exists = store.create(&name("s"), Bounds::new(1, 9).unwrap()).await.unwrap_err();
    assert_eq!(exists.kind(), ErrorKind::AlreadyExists, "{exists}");
    assert!(!store.remove(&name("none"), None).await.unwrap());
    // Both servers have the acknowledged writes, so the replica may continue.
    promote(&replica);
    let other = open(&replica, "failover=allow").await.unwrap();
    assert_eq!(first(&other, "s").await.unwrap(), 2);
}

#[tokio::test]
async fn passwords_are_never_printed() {
    let Some(engine) = start(&["--requirepass", "hunter2"]).await else { return };
    let address = engine.address();
    let denied = RedisStore::open(&format!("redis://{address}")).await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    let denied = RedisStore::open(&format!("redis://:wrong7@{address}")).await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    assert!(!format!("{denied} {denied:?}").contains("wrong7"));
    let store = RedisStore::open(&format!("redis://default:hunter2@{address}")).await.unwrap();
    assert_eq!(first(&store, "s").await.unwrap(), 1);
    assert!(!format!("{store:?}").contains("hunter2"));
}

/// A foreign script blocks the server: the error is transient.
#[tokio::test]
async fn a_server_that_is_busy_with_a_script_reserved_nothing() {
    let Some(engine) = start(&["--lua-time-limit", "50"]).await else { return };
    let store = open(&engine, "timeout=5s").await.unwrap();
    assert_eq!(first(&store, "s").await.unwrap(), 1);
    let mut hog = Client::to(engine.address());
    hog.send(&["EVAL", "while true do end", "0"]);
    let error = eventually("the server is busy", async || match first(&store, "s").await {
        Ok(id) => Err(id),
        // Until the script reaches its time limit, the server does not answer.
        Err(error) => Ok(error),
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(ask(&engine, &["SCRIPT", "KILL"]), "+OK");
    let _ = hog.answer();
    assert!(first(&store, "s").await.unwrap() > 1);
}

/// A process that has the sequence in memory gets an error: it would otherwise recreate the sequence, and
/// return the same ids again.
#[tokio::test]
async fn flushed_sequence_is_not_recreated_after_grants() {
    let Some(engine) = start(&[]).await else { return };
    let ids = idmill_redis::connect(&format!("redis://{}", engine.address())).await.unwrap();
    let s = ids.sequence::<u64>("s").step(10).watermark(0).await.unwrap();
    assert_eq!(s.take(20).await.unwrap().iter().next_back(), Some(20));
    assert_eq!(ask(&engine, &["FLUSHALL"]), "+OK");
    for _ in 0..2 {
        let error = s.next().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
        assert!(error.to_string().contains("its ids up to 20"), "{error}");
    }
    let admin = open(&engine, "").await.unwrap();
    assert_eq!(admin.inspect(&name("s")).await.unwrap(), None);
    admin.create(&name("s"), Bounds::new(21, 1_000).unwrap()).await.unwrap();
    // The error stands for a moment.
    assert_eq!(eventually("the sequence is granted from again", async || s.next().await).await, 21);
}
