//! Native sequences shared with other programs: Hibernate, and the rules of EF Core.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use idmill::store::{Bounds, Change, Reserve, Store};
use idmill::{ErrorKind, IdRange, Result};
use idmill_postgres::NativeSequences;
use idmill_postgres::driver::Client;
use idmill_testing::engines::{Engine, tool};
use idmill_testing::{eventually, holds};

use crate::{client, ids, inspect, name, reserve, server, url};

async fn open(engine: &Engine, options: &str) -> NativeSequences {
    NativeSequences::open(&url(engine, &format!("&sequences=native{options}"))).await.unwrap()
}

async fn nextval(client: &Client, name: &str) -> u64 {
    let sql = format!("SELECT nextval('\"{name}\"')");
    client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0).cast_unsigned()
}

/// Draws a value, and returns its block as EF Core's `HiLoValueGeneratorState` and Hibernate's
/// `PooledLoOptimizer` do.
async fn block_of_first(client: &Client, name: &str, increment: u64) -> RangeInclusive<u64> {
    let first = nextval(client, name).await;
    let last = first + increment - 1;
    first..=last
}

/// Draws a value, and returns its block as Hibernate's `PooledOptimizer` does if the mapping has an
/// `initialValue` of 1.
async fn block_of_last(client: &Client, name: &str, increment: u64) -> RangeInclusive<u64> {
    let value = nextval(client, name).await;
    if value == 1 { 1..=1 } else { (value + 1).saturating_sub(increment)..=value }
}

/// A set of ids; each id must be new.
#[derive(Default)]
struct Seen(BTreeSet<u64>);

impl Seen {
    fn add(&mut self, ids: RangeInclusive<u64>) {
        for id in ids {
            assert!(self.0.insert(id), "{id} was drawn twice");
        }
    }

    fn add_range(&mut self, range: IdRange) {
        let (first, last) = ids(range);
        self.add(first..=last);
    }

    async fn draw(&mut self, store: &NativeSequences, name: &str, count: u64) {
        self.add_range(reserve(store, name, count).await.unwrap().range);
    }
}

#[tokio::test]
async fn native_foreign_increment_needs_values() {
    let Some(engine) = server().await else { return };
    let (admin, untold) = (client(&engine).await, open(&engine, "").await);
    let hilo = "EntityFrameworkHiLoSequence";
    admin.batch_execute(&format!("CREATE SEQUENCE \"{hilo}\" INCREMENT BY 10")).await.unwrap();
    let change = || Change::new().next(100);
    for error in [reserve(&untold, hilo, 1).await.err(), untold.set(&name(hilo), change()).await.err()] {
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        for told in ["`values=last` (Hibernate pooled)", "`values=first` (EF Core"] {
            assert!(error.to_string().contains(told), "{error}");
        }
    }
    assert_eq!(nextval(&admin, hilo).await, 1, "nothing was drawn");
    // An increment of 1 has only one interpretation.
    admin.batch_execute("CREATE SEQUENCE plain").await.unwrap();
    assert_eq!(reserve(&untold, "plain", 3).await.unwrap().range.start(), 1);
    // A change records no interpretation, so a larger increment needs `values`.
    for next in [100, 200] {
        untold.set(&name("plain"), Change::new().next(next)).await.unwrap();
    }
    admin.batch_execute("ALTER SEQUENCE plain INCREMENT BY 10").await.unwrap();
    let error = reserve(&untold, "plain", 1).await.unwrap_err();
    assert!(error.to_string().contains("`values=first` (EF Core"), "{error}");
    // A sequence that idmill created keeps its interpretation.
    open(&engine, "&increment=10").await.create(&name("ours"), Bounds::new(1, 1000).unwrap()).await.unwrap();
    reserve(&untold, "ours", 1).await.unwrap();
    let error = reserve(&open(&engine, "&values=first").await, "ours", 1).await.unwrap_err();
    assert!(error.to_string().contains("is recorded as values=last"), "{error}");
}

#[tokio::test]
async fn native_first_with_ef_core_repeats_nothing() {
    let Some(engine) = server().await else { return };
    let (admin, store) = (client(&engine).await, open(&engine, "&values=first").await);
    let other = open(&engine, "&values=first").await;
    admin.batch_execute("CREATE SEQUENCE s INCREMENT BY 10").await.unwrap();
    let mut seen = Seen::default();
    for count in [1, 9, 10, 25, 3] {
        seen.draw(&store, "s", count).await;
        seen.add(block_of_first(&admin, "s", 10).await);
        seen.draw(&other, "s", 7).await;
    }
    assert_eq!(seen.0.first(), Some(&1));
    // With `values=first`, the sequence's next value is the next id, and EF Core continues there.
    let set = store.set(&name("s"), Change::new().next(5_000)).await.unwrap();
    assert_eq!((set.next, inspect(&store, "s").await.next), (Some(5_000), Some(5_000)));
    assert_eq!(block_of_first(&admin, "s", 10).await, 5_000..=5_009);
    assert_eq!(reserve(&store, "s", 10).await.unwrap().range.start(), 5_010);
    // The max shortens the last block.
    store.set(&name("s"), Change::new().next(9_995).max(9_997)).await.unwrap();
    assert_eq!(ids(reserve(&store, "s", 10).await.unwrap().range), (9_995, 9_997));
    assert_eq!(reserve(&store, "s", 1).await.unwrap_err().kind(), ErrorKind::Exhausted);
}

#[tokio::test]
async fn native_first_survives_a_smaller_increment() {
    let Some(engine) = server().await else { return };
    let (admin, store) = (client(&engine).await, open(&engine, "&values=first&increment=10").await);
    let mut seen = Seen::default();
    let mut before = 10;
    seen.draw(&store, "s", 25).await;
    for increment in [3, 50, 1, 7, 100, 2] {
        // Another program draws the last block before the change.
        seen.add(block_of_first(&admin, "s", before).await);
        admin.batch_execute(&format!("ALTER SEQUENCE s INCREMENT BY {increment}")).await.unwrap();
        let altered = inspect(&store, "s").await.identity;
        // Draws the rest of earlier blocks.
        eventually("a grant has the new identity", async || {
            let grant = reserve(&store, "s", 30).await.unwrap();
            seen.add_range(grant.range);
            holds(grant.identity == altered, grant)
        })
        .await;
        before = increment;
    }
}

/// Hibernate interprets the first value as the last of a block, unless it is the `initialValue` of
/// its mapping.
#[tokio::test]
async fn native_create_with_start_leaves_ids_below_free() {
    let Some(engine) = server().await else { return };
    let (admin, store) = (client(&engine).await, open(&engine, "&increment=50").await);
    for (sequence, others_first) in [("theirs", true), ("ours", false), ("set", true)] {
        store.create(&name(sequence), Bounds::new(1_001, 100_000).unwrap()).await.unwrap();
        let mut seen = Seen::default();
        if sequence == "set" {
            seen.draw(&store, sequence, 70).await;
            seen = Seen::default();
            let change = Change::new().next(1_001).backwards(true);
            assert_eq!(store.set(&name(sequence), change).await.unwrap().next, Some(1_001));
        }
        assert_eq!(inspect(&store, sequence).await.next, Some(1_001));
        for _ in 0..3 {
            if others_first {
                seen.add(block_of_last(&admin, sequence, 50).await);
            }
            seen.draw(&store, sequence, 60).await;
            seen.add(block_of_last(&admin, sequence, 50).await);
        }
        assert_eq!(seen.0.first(), Some(&1_001), "{sequence}");
    }
    let short = store.create(&name("short"), Bounds::new(1_001, 1_049).unwrap()).await.unwrap_err();
    assert_eq!(short.kind(), ErrorKind::InvalidInput, "{short}");
}

/// One transaction creates a sequence and draws from it, as an import requires.
#[tokio::test]
async fn native_creation_takes_the_ids_asked_for() {
    let Some(engine) = server().await else { return };
    let admin = client(&engine).await;
    for (options, last) in [
        ("", 25_000),
        ("&increment=10", 25_000),
        ("&increment=10&values=first", 25_000),
        ("&increment=64", 25_024),
    ] {
        admin.batch_execute("DROP SEQUENCE IF EXISTS s").await.unwrap();
        let (store, other) = (open(&engine, options).await, open(&engine, options).await);
        assert_eq!(ids(reserve(&store, "s", 25_000).await.unwrap().range), (1, 25_000), "{options}");
        assert_eq!(inspect(&store, "s").await.next, Some(last + 1), "{options}");
        assert_eq!(reserve(&other, "s", 1).await.unwrap().range.start(), last + 1, "{options}");
    }
    let store = open(&engine, "&increment=10").await;
    let [large, small] = [100, 32].map(|max| Bounds::new(5, max).unwrap());
    let created = idmill_kit::create_at(&store, &name("imported"), large, 20).await.unwrap();
    assert_eq!((created.next, created.bounds), (Some(25), large), "two whole blocks");
    let end = store.reserve(&Reserve::new(name("end"), 1_000).create(small)).await.unwrap();
    assert_eq!(ids(end.range), (5, 24), "ids that do not fill a block are not granted");
    assert_eq!(reserve(&store, "end", 1).await.unwrap_err().kind(), ErrorKind::Exhausted);
}

/// Hibernate with both optimizers, together with the store: each with the right setting, and `pooled-lo` also
/// with a wrong one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn native_with_hibernate_repeats_only_if_misconfigured() {
    let Some(engine) = server().await else { return };
    let admin = client(&engine).await;
    for (optimizer, values, repeated) in
        [("pooled", "last", false), ("pooled-lo", "first", false), ("pooled-lo", "last", true)]
    {
        admin
            .batch_execute("DROP SEQUENCE IF EXISTS shared; CREATE SEQUENCE shared INCREMENT BY 50")
            .await
            .unwrap();
        let store = open(&engine, &format!("&values={values}")).await;
        let Some(theirs) = hibernate(&engine, optimizer) else { return };
        let theirs = tokio::task::spawn_blocking(theirs);
        let mut drawn = Vec::new();
        while !theirs.is_finished() || drawn.len() < 20 {
            drawn.push(reserve(&store, "shared", 120).await.map(|grant| ids(grant.range)));
        }
        let ours: Vec<_> = drawn.into_iter().collect::<Result<_>>().unwrap();
        let ours: Vec<_> = ours.into_iter().flat_map(|(first, last)| first..=last).collect();
        let theirs = theirs.await.unwrap();
        assert_eq!(theirs.len(), 5_000);
        let all: BTreeSet<_> = ours.iter().chain(&theirs).collect();
        let twice = ours.len() + theirs.len() - all.len();
        assert_eq!(
            twice > 0,
            repeated,
            "{optimizer} beside values={values}: {twice} of {} are duplicates",
            all.len()
        );
    }
}

/// Returns a function that draws 5,000 ids.
fn hibernate(engine: &Engine, optimizer: &str) -> Option<impl FnOnce() -> Vec<u64> + use<>> {
    let mut draws = tool("hibernate", "draws")?;
    draws.arg(format!("jdbc:postgresql://{}/postgres", engine.address())).args([optimizer, "5000"]);
    Some(move || {
        let output = draws.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect()
    })
}
