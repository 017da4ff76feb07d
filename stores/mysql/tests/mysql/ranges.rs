//! The reserved ids, and the statements that reserve them.

use idmill::IdRange;
use idmill::store::{Change, GiveBack};

use super::*;

fn range(start: u64, len: u64) -> IdRange {
    IdRange::new(start, len).unwrap()
}

/// Returns how many statements were prepared, and how many prepared statements were executed.
async fn prepared(root: &mut Conn) -> [u64; 2] {
    let mut counts = [0; 2];
    for (count, kind) in counts.iter_mut().zip(["prepare", "execute"]) {
        let sql = format!("SHOW GLOBAL STATUS LIKE 'Com_stmt_{kind}'");
        *count = one::<(String, u64)>(root, &sql).await.1;
    }
    counts
}

/// Uses its own server, since the counts include all clients.
#[tokio::test]
async fn a_reserve_is_one_statement() {
    let Some(engine) = Engine::start(ENGINE).await else { return };
    let store = open(engine.address(), "t").await;
    reserve(&store, "s", 10).await.unwrap();
    let mut root = root(engine.address()).await;
    // The second reserve is the first that is prepared.
    reserve(&store, "s", 10).await.unwrap();
    let (before, kept) = (counted(&mut root).await, prepared(&mut root).await);
    for _ in 0..20 {
        reserve(&store, "s", 10).await.unwrap();
    }
    let after = counted(&mut root).await;
    assert_eq!([0, 1, 2].map(|kind| after[kind] - before[kind]), [20, 0, 0]);
    // Each connection prepares the statement once; the driver opens a second connection while it returns the
    // first to the pool.
    let [prepares, executes] = prepared(&mut root).await;
    assert!(prepares - kept[0] < 5 && executes - kept[1] == 20, "{kept:?} and {prepares}, {executes}");
    // Another process reads the row once.
    let other = open(engine.address(), "t").await;
    let before = counted(&mut root).await;
    assert_eq!(reserve(&other, "s", 10).await.unwrap(), (221, 10));
    let after = counted(&mut root).await;
    assert_eq!([0, 1, 2].map(|kind| after[kind] - before[kind]), [1, 1, 0]);
}

/// Numbers are exact for any `sql_mode` of the server or of a user's pool.
#[tokio::test]
async fn numbers_are_exact_to_both_ends_of_u64() {
    let Some(engine) = server().await else { return };
    let modes = ["", "STRICT_ALL_TABLES,ANSI", "NO_UNSIGNED_SUBTRACTION,ANSI_QUOTES,NO_BACKSLASH_ESCAPES"];
    for (index, mode) in modes.into_iter().enumerate() {
        let pool = pool(engine.address(), |options| options.setup(vec![format!("SET sql_mode = '{mode}'")]));
        let store = MysqlStore::from_pool(&pool, MysqlOptions::default().table(format!("edges_{index}")))
            .await
            .unwrap();
        let near = u64::MAX - 10;
        store.create(&name("high"), bounds(near, u64::MAX)).await.unwrap();
        assert_eq!(reserve(&store, "high", 4).await.unwrap(), (near, 4), "{mode}");
        assert_eq!(inspect(&store, "high").await.next, Some(near + 4));
        assert_eq!(reserve(&store, "high", 6).await.unwrap(), (near + 4, 6));
        assert_eq!(reserve(&store, "high", u64::MAX).await.unwrap(), (u64::MAX, 1));
        assert_eq!(inspect(&store, "high").await.next, None);
        assert_eq!(refused(&store, "high", "last id").await, ErrorKind::Exhausted);

        // Numbers with the sign bit set, and the id 0, which `LAST_INSERT_ID` cannot represent.
        store.create(&name("wide"), bounds(0, u64::MAX)).await.unwrap();
        assert_eq!(reserve(&store, "wide", 1).await.unwrap(), (0, 1));
        assert_eq!(reserve(&store, "wide", (1 << 63) - 2).await.unwrap(), (1, (1 << 63) - 2));
        assert_eq!(reserve(&store, "wide", 5).await.unwrap(), ((1 << 63) - 1, 5));
        assert_eq!(reserve(&store, "wide", u64::MAX).await.unwrap(), ((1 << 63) + 4, (1 << 63) - 4));
        assert_eq!(refused(&store, "wide", "last id").await, ErrorKind::Exhausted);

        store.create(&name("all"), bounds(0, u64::MAX)).await.unwrap();
        assert_eq!(reserve(&store, "all", u64::MAX).await.unwrap(), (0, u64::MAX));
        assert_eq!(reserve(&store, "all", u64::MAX).await.unwrap(), (u64::MAX, 1));
        pool.disconnect().await.unwrap();
    }
}

#[tokio::test]
async fn a_ceiling_below_the_max_is_kept() {
    let Some(engine) = server().await else { return };
    let store = open(engine.address(), "ceilings").await;
    let ask = |count| request("s", count).ceiling(20);
    let mut starts = Vec::new();
    for count in [15, 4, 10] {
        starts.push(store.reserve(&ask(count)).await.unwrap().range);
    }
    assert_eq!(starts, [range(1, 15), range(16, 4), range(20, 1)]);
    assert_eq!(store.reserve(&ask(1)).await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(reserve(&store, "s", 3).await.unwrap(), (21, 3));
}

/// A grant has the identity and bounds of the state that the range came from, whatever this process
/// has cached.
#[tokio::test]
async fn changes_by_others_appear_in_the_next_grant() {
    let Some(engine) = server().await else { return };
    let (ours, theirs) = (open(engine.address(), "changes").await, open(engine.address(), "changes").await);
    reserve(&ours, "s", 10).await.unwrap();
    let before = inspect(&ours, "s").await;

    let raised = Change::new().max(1000);
    theirs.set(&name("s"), raised).await.unwrap();
    let grant = ours.reserve(&request("s", 10)).await.unwrap();
    assert_eq!((grant.range.start(), grant.bounds, grant.identity), (11, bounds(1, 1000), before.identity));

    let back = Change::new().next(5).backwards(true);
    let reset = theirs.set(&name("s"), back).await.unwrap();
    let grant = ours.reserve(&request("s", 10)).await.unwrap();
    assert_eq!((grant.range.start(), grant.identity), (5, reset.identity));
    assert_ne!(grant.identity, before.identity);

    theirs.remove(&name("s"), None).await.unwrap();
    let created = theirs.create(&name("s"), bounds(100, 200)).await.unwrap();
    let grant = ours.reserve(&request("s", 10)).await.unwrap();
    assert_eq!((grant.range.start(), grant.identity, grant.bounds), (100, created.identity, created.bounds));
    assert_eq!(inspect(&ours, "s").await.next, Some(110));
}

#[tokio::test]
async fn change_to_the_current_values_changes_nothing() {
    let Some(engine) = server().await else { return };
    let store = open(engine.address(), "same").await;
    reserve(&store, "s", 10).await.unwrap();
    let same = Change::new().next(11);
    assert_eq!(store.set(&name("s"), same).await.unwrap(), inspect(&store, "s").await);
}

/// An earlier statement of the connection set `LAST_INSERT_ID`; an update without effect must not return that
/// value.
#[tokio::test]
async fn an_id_left_over_from_another_statement_is_never_taken() {
    let Some(engine) = server().await else { return };
    let one = pool(engine.address(), |options| {
        let constraints = idmill_mysql::driver::PoolConstraints::new(1, 1).unwrap();
        let pool = idmill_mysql::driver::PoolOpts::default()
            .with_constraints(constraints)
            .with_reset_connection(false);
        options.pool_opts(pool).setup(vec!["SELECT LAST_INSERT_ID(7)"])
    });
    let store = MysqlStore::from_pool(&one, MysqlOptions::default().table("left_over")).await.unwrap();
    store.create(&name("s"), bounds(1, 100)).await.unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    let mut connection = one.get_conn().await.unwrap();
    run(&mut connection, &["DELETE FROM left_over", "SELECT LAST_INSERT_ID(11)"]).await;
    drop(connection);
    // The cached sequence was removed: nothing is updated, and a new one begins.
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
}

#[tokio::test]
async fn rest_is_given_back_once_and_only_at_the_end() {
    let Some(engine) = server().await else { return };
    let store = open(engine.address(), "rests").await;
    store.create(&name("s"), bounds(0, 30)).await.unwrap();
    let first = store.reserve(&request("s", 10)).await.unwrap();
    let back = |identity, rest| GiveBack::new(name("s"), identity, rest);
    let other = idmill::store::Identity { epoch: 1, ..first.identity };
    assert!(!store.give_back(&back(other, range(5, 5))).await.unwrap(), "another epoch");
    assert!(!store.give_back(&back(first.identity, range(5, 4))).await.unwrap(), "not the end");
    assert!(store.give_back(&back(first.identity, range(5, 5))).await.unwrap());
    assert!(!store.give_back(&back(first.identity, range(5, 5))).await.unwrap(), "once");
    assert_eq!(reserve(&store, "s", 100).await.unwrap(), (5, 26));
    assert_eq!(inspect(&store, "s").await.next, None);
    assert!(!store.give_back(&back(first.identity, range(30, 5))).await.unwrap(), "beyond the end");
    assert!(store.give_back(&back(first.identity, range(0, 31))).await.unwrap());
    assert_eq!(reserve(&store, "s", 100).await.unwrap(), (0, 31));

    store.create(&name("end"), bounds(u64::MAX - 5, u64::MAX)).await.unwrap();
    let all = store.reserve(&request("end", 6)).await.unwrap();
    let rest = GiveBack::new(name("end"), all.identity, range(u64::MAX, 1));
    assert!(store.give_back(&rest).await.unwrap());
    assert_eq!(reserve(&store, "end", 5).await.unwrap(), (u64::MAX, 1));
    let below = GiveBack::new(rest.name.clone(), rest.identity, range(u64::MAX - 7, 8));
    assert!(!store.give_back(&below).await.unwrap(), "below the start");
}
