//! Ids that commit or roll back with a transaction of the caller.

use idmill_mysql::driver::{IsolationLevel, TxOpts};
use idmill_mysql::{InTransaction, next_in, next_in_sql, reserve_in};

use super::*;

#[tokio::test]
async fn ids_commit_and_roll_back_with_their_rows() {
    let Some(engine) = server().await else { return };
    let pool = pool(engine.address(), |options| options);
    let store = MysqlStore::from_pool(&pool, MysqlOptions::default()).await.unwrap();
    for (commit, expected) in [(false, 1), (true, 1), (false, 4), (true, 4)] {
        let mut tx = pool.start_transaction(TxOpts::default()).await.unwrap();
        assert_eq!(next_in::<i64>(&mut tx, "invoices").await.unwrap(), expected);
        let two: Vec<u32> = reserve_in(&mut tx, "invoices", 2).await.unwrap().into_iter().collect();
        assert_eq!(two.len(), 2);
        if commit { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }
    assert_eq!(inspect(&store, "invoices").await.next, Some(7));
    // The store and transactions draw from one sequence.
    assert_eq!(reserve(&store, "invoices", 3).await.unwrap(), (7, 3));
    let mut tx = pool.start_transaction(TxOpts::default()).await.unwrap();
    assert_eq!(next_in::<u64>(&mut tx, "invoices").await.unwrap(), 10);
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn many_at_once_leave_no_gap_at_any_isolation_level() {
    use IsolationLevel::{ReadCommitted, ReadUncommitted, RepeatableRead, Serializable};
    let Some(engine) = server().await else { return };
    let pool = pool(engine.address(), |options| options);
    let ids = InTransaction::<u64>::new("s").unwrap().table("levels").unwrap();
    let store = open(engine.address(), "levels").await;
    reserve(&store, "s", 1).await.unwrap();
    let mut tasks = Vec::new();
    for task in 0..8 {
        let (pool, ids) = (pool.clone(), ids.clone());
        let level = [ReadUncommitted, ReadCommitted, RepeatableRead, Serializable][task % 4];
        tasks.push(tokio::spawn(async move {
            let mut drawn = Vec::new();
            for round in 0..10 {
                let options = TxOpts::default().with_isolation_level(level).clone();
                let mut tx = pool.start_transaction(options).await.unwrap();
                // Create a snapshot: the id must not be read from it. Serializable has no snapshot: its reads
                // lock rows.
                if level != Serializable {
                    tx.query_drop("SELECT * FROM levels").await.unwrap();
                }
                let id = ids.next(&mut tx).await.unwrap();
                if round % 3 == 0 {
                    tx.rollback().await.unwrap();
                } else {
                    tx.commit().await.unwrap();
                    drawn.push(id);
                }
            }
            drawn
        }));
    }
    let mut drawn = Vec::new();
    for task in tasks {
        drawn.extend(task.await.unwrap());
    }
    drawn.sort_unstable();
    assert_eq!(drawn, (2..2 + 48).collect::<Vec<_>>());
}

#[tokio::test]
async fn block_is_reserved_whole_and_fits_the_type() {
    let Some(engine) = server().await else { return };
    let pool = pool(engine.address(), |options| options);
    let store = open(engine.address(), "fits").await;
    let ids = |text: &str| InTransaction::<i32>::new(text).unwrap().table("fits").unwrap();
    store.create(&name("short"), bounds(1, 10)).await.unwrap();
    store.create(&name("zero"), bounds(0, 10)).await.unwrap();
    store.create(&name("big"), bounds(1, u64::MAX)).await.unwrap();
    let near = u64::from(i32::MAX.unsigned_abs());
    let change = idmill::store::Change::new().next(near);
    store.set(&name("big"), change).await.unwrap();
    let mut tx = pool.start_transaction(TxOpts::default()).await.unwrap();
    let kind = async |tx: &mut _, text: &str, count| ids(text).reserve(tx, count).await.map_err(|e| e.kind());
    assert_eq!(kind(&mut tx, "short", 0).await, Err(ErrorKind::InvalidInput));
    assert_eq!(kind(&mut tx, "short", 11).await, Err(ErrorKind::Exhausted));
    assert_eq!(kind(&mut tx, "short", 10).await.unwrap().len(), 10);
    assert_eq!(kind(&mut tx, "short", 1).await, Err(ErrorKind::Exhausted));
    assert_eq!(kind(&mut tx, "zero", 1).await.unwrap().first(), Some(0));
    assert_eq!(kind(&mut tx, "zero", 1).await.unwrap().first(), Some(1));
    assert_eq!(kind(&mut tx, "big", 2).await, Err(ErrorKind::Exhausted));
    assert_eq!(kind(&mut tx, "big", 1).await.unwrap().first(), Some(i32::MAX));
    assert_eq!(kind(&mut tx, "big", 1).await, Err(ErrorKind::Exhausted));
    tx.commit().await.unwrap();
    assert_eq!(inspect(&store, "big").await.next, Some(near + 1));
}

/// The last ids come from the current row, not from this transaction's snapshot.
#[tokio::test]
async fn ids_ignore_the_snapshot_of_the_transaction() {
    let Some(engine) = server().await else { return };
    let pool = pool(engine.address(), |options| options);
    let store = open(engine.address(), "snapshots").await;
    store.create(&name("s"), bounds(1, 10)).await.unwrap();
    let mut options = TxOpts::default();
    options.with_consistent_snapshot(true).with_isolation_level(IsolationLevel::RepeatableRead);
    let mut tx = pool.start_transaction(options).await.unwrap();
    assert_eq!(reserve(&store, "s", 8).await.unwrap(), (1, 8));
    let ids = InTransaction::<u64>::new("s").unwrap().table("snapshots").unwrap();
    assert_eq!(ids.reserve(&mut tx, 2).await.unwrap().start(), 9);
    tx.commit().await.unwrap();
    assert_eq!(inspect(&store, "s").await.next, None);
}

/// Two transactions create one sequence: whichever the server delays or rolls back, no id is
/// duplicated.
#[tokio::test]
async fn a_race_of_creation_is_settled() {
    let Some(engine) = server().await else { return };
    let pool = pool(engine.address(), |options| options);
    let store = open(engine.address(), "creations").await;
    let ids = InTransaction::<u64>::new("s").unwrap().table("creations").unwrap();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (pool, ids) = (pool.clone(), ids.clone());
        tasks.push(tokio::spawn(async move {
            loop {
                let mut tx = pool.start_transaction(TxOpts::default()).await.unwrap();
                match ids.next(&mut tx).await {
                    Ok(id) => {
                        tx.commit().await.unwrap();
                        break id;
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                        tx.rollback().await.unwrap();
                    }
                }
            }
        }));
    }
    let mut drawn = Vec::new();
    for task in tasks {
        drawn.push(task.await.unwrap());
    }
    drawn.sort_unstable();
    assert_eq!(drawn, [1, 2, 3, 4]);
    assert_eq!(inspect(&store, "s").await.next, Some(5));
}

/// The server has rolled back, and would run later statements outside a transaction.
#[tokio::test]
async fn a_transaction_that_the_server_ended_is_noticed() {
    let Some(engine) = server().await else { return };
    let pool = pool(engine.address(), |options| options);
    let store = open(engine.address(), "ended").await;
    reserve(&store, "s", 1).await.unwrap();
    let ids = InTransaction::<u64>::new("s").unwrap().table("ended").unwrap();
    let mut tx = pool.start_transaction(TxOpts::default()).await.unwrap();
    tx.query_drop("ROLLBACK").await.unwrap();
    let error = ids.next(&mut tx).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("begin it again"), "{error}");
    tx.rollback().await.unwrap();
    let missing = InTransaction::<u64>::new("s").unwrap().table("no_such_table").unwrap();
    let mut tx = pool.start_transaction(TxOpts::default()).await.unwrap();
    assert_eq!(missing.next(&mut tx).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn statement_for_other_drivers_draws_the_same_ids() {
    let Some(engine) = server().await else { return };
    let (pool, store) =
        (pool(engine.address(), |options| options), open(engine.address(), "published").await);
    store.create(&name("few"), bounds(1, 6)).await.unwrap();
    let ids = InTransaction::<u64>::new("few").unwrap().table("published").unwrap();
    for (commits, first) in [(false, 1), (true, 1), (true, 4)] {
        let mut tx = pool.start_transaction(TxOpts::default()).await.unwrap();
        let sql = next_in_sql("published", 2).unwrap();
        tx.exec_drop(&sql, ("few",)).await.unwrap();
        assert_eq!((tx.affected_rows(), tx.last_insert_id()), (1, Some(first)));
        if commits {
            if first == 1 {
                assert_eq!(ids.next(&mut tx).await.unwrap(), 3);
            }
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
    }
    let mut tx = pool.start_transaction(TxOpts::default()).await.unwrap();
    for (name, count) in [("few", 1), ("missing", 1)] {
        tx.exec_drop(next_in_sql("published", count).unwrap(), (name,)).await.unwrap();
        assert_eq!(tx.affected_rows(), 0, "{name}");
    }
    tx.rollback().await.unwrap();
    assert_eq!(inspect(&store, "few").await.next, Some(6));
    for error in [next_in_sql("published", 0).unwrap_err(), next_in_sql("a`b", 1).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}
