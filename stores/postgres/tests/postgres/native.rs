//! PostgreSQL's own sequences.

use std::collections::BTreeSet;

use idmill::store::{Bounds, Change, Page, Pages, Reserve, Store};
use idmill::{ErrorKind, IdRange};
use idmill_postgres::NativeSequences;
use idmill_postgres::driver::Client;
use idmill_testing::engines::Engine;

use crate::{client, identity, ids, inspect, name, reserve, server, url};

/// Not more, since each restart is a commit; not fewer, since only one in several thousand concurrent reads
/// sees a removed file.
const RESTARTS: u64 = 1_000;

async fn open(engine: &Engine, options: &str) -> NativeSequences {
    let url = url(engine, &format!("&sequences=native{options}"));
    let store = NativeSequences::open(&url).await.unwrap();
    assert!(!store.capabilities().gives_back);
    store
}

async fn nextval(client: &Client, name: &str) -> u64 {
    let sql = format!("SELECT nextval('\"{name}\"')");
    client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0).cast_unsigned()
}

async fn draw(store: &NativeSequences, name: &str, count: u64) -> IdRange {
    reserve(store, name, count).await.unwrap().range
}

/// Adds all ids of a range, which must be new.
fn keep(seen: &mut BTreeSet<u64>, range: IdRange) {
    let (first, last) = ids(range);
    for id in first..=last {
        assert!(seen.insert(id), "{id} was handed out twice");
    }
}

/// A value is returned while another transaction is still open, and then the server crashes. A bare
/// `nextval` does not wait until the record that advances the sequence is on disk; the store does.
#[tokio::test]
async fn grant_survives_a_crash_during_an_open_transaction() {
    let Some(engine) = server().await else { return };
    let admin = client(&engine).await;
    admin.batch_execute("ALTER SYSTEM SET wal_writer_delay = '10s'").await.unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let mut repeated = 0;
    for round in 0..3 {
        let store = open(&engine, "").await;
        for bare in [true, false] {
            // Use a new sequence: only its first value is logged, and the holder must draw that value.
            let sequence = format!("s{round}_{bare}");
            store.create(&name(&sequence), Bounds::new(1, 1 << 40).unwrap()).await.unwrap();
            let (mut holder, beside) = (client(&engine).await, client(&engine).await);
            // Warm up: a first statement can clean up the catalog, and syncing this cleanup also syncs
            // everything before it.
            for _ in 0..3 {
                draw(&store, "warm", 3).await;
                nextval(&beside, "warm").await;
            }
            let open_one = holder.transaction().await.unwrap();
            open_one.execute(&format!("SELECT nextval('{sequence}')"), &[]).await.unwrap();
            let granted = if bare {
                nextval(&beside, &sequence).await
            } else {
                ids(draw(&store, &sequence, 3).await).1
            };
            engine.kill();
            engine.restart().await;
            let next = nextval(&client(&engine).await, &sequence).await;
            assert!(bare || next > granted, "{granted} was granted, and after the crash {next} again");
            repeated += u32::from(next <= granted);
        }
    }
    println!("of 3 values of a bare nextval, {repeated} were given again");
}

/// Whenever the increment changes, no id is duplicated, by this store or by a program that interprets values
/// in the same way.
#[tokio::test]
async fn an_increment_that_changes_repeats_nothing() {
    let Some(engine) = server().await else { return };
    let (admin, store, other) =
        (client(&engine).await, open(&engine, "&increment=10").await, open(&engine, "").await);
    let mut seen = BTreeSet::new();
    keep(&mut seen, draw(&store, "s", 25).await);
    for increment in [10, 3, 50, 1, 7, 100, 2] {
        admin.batch_execute(&format!("ALTER SEQUENCE s INCREMENT BY {increment}")).await.unwrap();
        for _ in 0..5 {
            keep(&mut seen, draw(&store, "s", 30).await);
            keep(&mut seen, draw(&other, "s", 4).await);
        }
    }
    // Change the increment while ids are being drawn.
    let racing = tokio::spawn({
        let store = store.clone();
        async move {
            let mut ranges = Vec::new();
            for _ in 0..200 {
                ranges.push(draw(&store, "s", 20).await);
            }
            ranges
        }
    });
    let mut increments = [1, 40, 5, 90].into_iter().cycle();
    while !racing.is_finished() {
        let increment = increments.next().unwrap();
        admin.batch_execute(&format!("ALTER SEQUENCE s INCREMENT BY {increment}")).await.unwrap();
        keep(&mut seen, draw(&other, "s", 7).await);
    }
    for range in racing.await.unwrap() {
        keep(&mut seen, range);
    }
}

#[tokio::test]
async fn values_that_others_draw_in_between_cost_nothing() {
    let Some(engine) = server().await else { return };
    let (admin, store) = (client(&engine).await, open(&engine, "").await);
    admin.batch_execute("CREATE TABLE t (id bigserial PRIMARY KEY)").await.unwrap();
    let mut seen = BTreeSet::new();
    let racing = tokio::spawn({
        let store = store.clone();
        async move {
            let mut ranges = Vec::new();
            for _ in 0..50 {
                ranges.push(draw(&store, "t_id_seq", 1_000).await);
            }
            ranges
        }
    });
    while !racing.is_finished() {
        assert!(seen.insert(nextval(&admin, "t_id_seq").await));
    }
    for range in racing.await.unwrap() {
        keep(&mut seen, range);
    }
    // Draws the remaining pieces of earlier blocks.
    let reached = inspect(&store, "t_id_seq").await.next.unwrap();
    while seen.len() < usize::try_from(reached - 1).unwrap() {
        let (first, _) = ids(draw(&store, "t_id_seq", 1).await);
        assert!(first < reached, "ids below {reached} are missing");
        assert!(seen.insert(first), "{first} was handed out twice");
    }
}

#[tokio::test]
async fn foreign_restart_is_a_new_epoch_at_the_exact_id() {
    let Some(engine) = server().await else { return };
    let (admin, store) = (client(&engine).await, open(&engine, "&increment=10").await);
    draw(&store, "s", 1).await;
    assert_eq!(ids(draw(&store, "s", 10).await), (2, 10));
    let before = inspect(&store, "s").await;
    // A user has rows up to 4999, and restarts the sequence without regard to blocks.
    for restart in ["ALTER SEQUENCE s RESTART WITH 5000", "ALTER SEQUENCE s RESTART WITH 5000"] {
        admin.batch_execute(restart).await.unwrap();
        let grant = reserve(&store, "s", 10).await.unwrap();
        assert_eq!(grant.range.start(), 5000);
        assert_ne!(grant.identity, identity(&before));
    }
    let again = inspect(&store, "s").await;
    assert_eq!(again.identity.incarnation, before.identity.incarnation);
    let change = Change::new().next(100).backwards(true);
    let set = store.set(&name("s"), change).await.unwrap();
    assert_eq!((set.next, set.identity.epoch), (Some(100), again.identity.epoch + 1));
    assert_eq!(inspect(&store, "s").await, set);
    assert_eq!(draw(&store, "s", 10).await.start(), 100);
    store.remove(&name("s"), None).await.unwrap();
    draw(&store, "s", 1).await;
    assert_ne!(inspect(&store, "s").await.identity.incarnation, before.identity.incarnation);
}

/// A restart changes the file of a sequence. A concurrent reader of the old file finds it empty, or
/// removed during the read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_restarts_do_not_fail_draws_or_reads() {
    let Some(engine) = server().await else { return };
    let store = open(&engine, "").await;
    store.create(&name("s"), Bounds::new(1, 1 << 40).unwrap()).await.unwrap();
    let restarting = {
        let admin = client(&engine).await;
        tokio::spawn(async move {
            for next in 1..=RESTARTS {
                admin
                    .batch_execute(&format!("ALTER SEQUENCE s RESTART WITH {}", next * 1_000_000))
                    .await
                    .unwrap();
            }
        })
    };
    let drawing = (0..3).map(|_| {
        let engine = url(&engine, "&sequences=native");
        let is_over = restarting.abort_handle();
        tokio::spawn(async move {
            let store = NativeSequences::open(&engine).await.unwrap();
            let mut ranges = Vec::new();
            while !is_over.is_finished() {
                ranges.push(draw(&store, "s", 3).await);
                inspect(&store, "s").await;
            }
            ranges
        })
    });
    let mut seen = BTreeSet::new();
    for drawn in drawing.collect::<Vec<_>>() {
        drawn.await.unwrap().into_iter().for_each(|range| keep(&mut seen, range));
    }
    restarting.await.unwrap();
}

/// Returns the statements that an error advises for the sequence `odd`, with the id that is to follow.
fn advised(error: &str, next: i64) -> String {
    let (_, advice) = error.split_once("; ALTER").unwrap_or_else(|| panic!("no statement: {error}"));
    let statements = advice.split(", with N above every id in use").next().unwrap().replace('…', "odd");
    let words =
        statements.split(' ').map(|word| if word == "N" { next.to_string() } else { word.to_owned() });
    format!("ALTER{}", words.collect::<Vec<_>>().join(" "))
}

/// A table has ids up to 100 while its sequence is at a lower position.
#[tokio::test]
async fn unsafe_sequence_is_rejected_and_its_fix_repeats_no_id() {
    let Some(engine) = server().await else { return };
    let (admin, store) = (client(&engine).await, open(&engine, "").await);
    admin.batch_execute("CREATE TABLE orders AS SELECT generate_series(1, 100) AS id").await.unwrap();
    for (options, position) in [
        ("CYCLE", 2),
        ("INCREMENT BY -1 MINVALUE 1 MAXVALUE 100 START 100", 50),
        ("INCREMENT BY -1", -7),
        ("CACHE 20", 100),
        ("MINVALUE -5 START -5", -5),
        ("MINVALUE -2147483648 START 1", -2_147_483_648),
        ("AS smallint MINVALUE -5", -3),
    ] {
        admin
            .batch_execute(&format!("CREATE SEQUENCE odd {options}; SELECT setval('odd', {position})"))
            .await
            .unwrap();
        let error = reserve(&store, "odd", 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{options}");
        assert_eq!(store.list_all().await.unwrap(), []);
        admin.batch_execute(&advised(&error.to_string(), 101)).await.unwrap();
        let range = draw(&store, "odd", 3).await;
        assert!(range.start() > 100, "{options}: {range:?} after {error}");
        admin.batch_execute("DROP SEQUENCE odd").await.unwrap();
    }
    // As after a crash, which resets the sequence.
    admin.batch_execute("CREATE UNLOGGED SEQUENCE odd").await.unwrap();
    let error = reserve(&store, "odd", 1).await.unwrap_err().to_string();
    for statement in advised(&error, 101).split("; ") {
        admin.batch_execute(statement).await.unwrap();
    }
    assert!(draw(&store, "odd", 3).await.start() > 100, "{error}");
    // A sequence that was already drawn from is rejected too.
    draw(&store, "s", 5).await;
    admin.batch_execute("ALTER SEQUENCE s CYCLE").await.unwrap();
    assert_eq!(reserve(&store, "s", 1).await.unwrap_err().kind(), ErrorKind::Conflict);
    admin.batch_execute("CREATE TABLE no (a int)").await.unwrap();
    assert_eq!(reserve(&store, "no", 1).await.unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn concurrent_draws_reach_the_exact_end_of_a_sequence() {
    let Some(engine) = server().await else { return };
    let stores = [open(&engine, "").await, open(&engine, "").await];
    for round in 0..5 {
        let sequence = format!("s{round}");
        stores[0].create(&name(&sequence), Bounds::new(5, 1000).unwrap()).await.unwrap();
        let racing = stores.clone().map(|store| {
            let sequence = sequence.clone();
            tokio::spawn(async move {
                let mut ranges = Vec::new();
                loop {
                    match reserve(&store, &sequence, 37).await {
                        Ok(grant) => ranges.push(grant.range),
                        Err(error) if error.kind() == ErrorKind::Exhausted => return ranges,
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        });
        let mut seen = BTreeSet::new();
        for ranges in racing {
            for range in ranges.await.unwrap() {
                keep(&mut seen, range);
            }
        }
        assert_eq!(seen, (5..=1000).collect());
    }
}

/// PostgreSQL requires MINVALUE and START to be at most MAXVALUE.
#[tokio::test]
async fn max_can_be_lowered_to_the_first_id_and_below_start() {
    let Some(engine) = server().await else { return };
    let (admin, store) = (client(&engine).await, open(&engine, "").await);
    admin
        .batch_execute("CREATE SEQUENCE low START WITH 1000; ALTER SEQUENCE low RESTART WITH 5")
        .await
        .unwrap();
    store.create(&name("s"), Bounds::new(0, 10).unwrap()).await.unwrap();
    for (sequence, first, next) in [("s", 0, 0), ("low", 1, 5)] {
        for max in [next, next + 1, first, 700] {
            let change = Change::new().next(next.min(max)).max(max).backwards(true);
            let set = store.set(&name(sequence), change).await.unwrap();
            assert_eq!(set.bounds, Bounds::new(first, max).unwrap(), "{sequence}");
            assert_eq!(inspect(&store, sequence).await, set);
            assert_eq!(draw(&store, sequence, 1).await.start(), next.min(max));
        }
    }
}

#[tokio::test]
async fn names_are_kept_as_they_are() {
    let Some(engine) = server().await else { return };
    let store = open(&engine, "").await;
    let mut names =
        ["Orders", "orders", "a \"b\" 'c'", "\\ü\\'", "%I; DROP", "x".repeat(63).as_str()].map(str::to_owned);
    names.sort();
    for sequence in &names {
        assert_eq!(draw(&store, sequence, 3).await.start(), 1, "{sequence}");
        let change = Change::new().next(50);
        store.set(&name(sequence), change).await.unwrap();
        assert_eq!(draw(&store, sequence, 3).await.start(), 50, "{sequence}");
    }
    let listed: Vec<_> = store.list_all().await.unwrap().iter().map(|info| info.name.to_string()).collect();
    assert_eq!(listed, names);
    for sequence in &names {
        assert!(store.remove(&name(sequence), None).await.unwrap());
    }
    assert_eq!(store.list_all().await.unwrap(), []);
    let error = reserve(&store, &"x".repeat(64), 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

/// One statement reads the names of a page, and each further one reads 100 sequences.
#[tokio::test]
async fn list_skips_unsafe_and_reports_denied_sequences() {
    let Some(engine) = server().await else { return };
    let (admin, store) = (client(&engine).await, open(&engine, "").await);
    let make = "DO $$ BEGIN FOR i IN 100..349 LOOP EXECUTE 'CREATE SEQUENCE s' || i; END LOOP; END $$; \
                CREATE ROLE looks LOGIN; GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO looks; \
                REVOKE ALL ON SEQUENCE s200 FROM looks; ALTER SEQUENCE s201 CYCLE";
    admin.batch_execute(make).await.unwrap();
    assert_eq!(store.list_all().await.unwrap().len(), 249);
    let url = url(&engine, "&mode=ro").replace("postgres@", "looks@");
    let looks = NativeSequences::open(&format!("{url}&sequences=native")).await.unwrap();
    let mut pages = Pages::new(&looks, Page::of("s2").limit(30));
    let (mut sizes, mut bad) = (Vec::new(), Vec::new());
    while let Some(page) = pages.next().await.unwrap() {
        sizes.push(page.sequences.len());
        bad.extend(page.unreadable.into_iter().map(|row| (row.name, row.error.kind())));
    }
    assert_eq!(sizes, [28, 30, 30, 10]);
    assert_eq!(bad, [("s200".to_owned(), ErrorKind::Denied)]);
}

#[tokio::test]
async fn existing_qualified_name_is_rejected() {
    let Some(engine) = server().await else { return };
    let admin = client(&engine).await;
    admin.batch_execute("CREATE SCHEMA app; CREATE TABLE app.t (id bigserial)").await.unwrap();
    let store = open(&engine, "").await;
    for written in ["app.t_id_seq", "APP.t_ID_seq", r#"app."t_id_seq""#] {
        for outcome in [
            store.reserve(&Reserve::new(name(written), 1).create(Bounds::of::<i32>())).await.map(drop),
            store.create(&name(written), Bounds::of::<i32>()).await.map(drop),
        ] {
            let error = outcome.unwrap_err();
            let said = error.to_string();
            assert!(
                error.kind() == ErrorKind::InvalidInput && said.contains("schema=app"),
                "{written}: {said}"
            );
        }
    }
    assert_eq!(store.list_all().await.unwrap().len(), 0, "in the path");
    // A name with a dot is valid, unless it is also the qualified name of an existing sequence.
    store.create(&name("app.other"), Bounds::of::<i32>()).await.unwrap();
}
