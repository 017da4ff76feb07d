//! Ids inside transactions of `PgConnection`, over libpq.

use std::collections::BTreeSet;
use std::thread;

use idmill_diesel::diesel::r2d2::{ConnectionManager, Pool};
use idmill_diesel::diesel::{Connection, PgConnection, result::Error as DieselError};
use idmill_diesel::idmill::ErrorKind;
use idmill_diesel::idmill::store::{Bounds, Store};
use idmill_diesel::postgres::InTransaction;
use idmill_diesel::postgres::blocking::{next_in, reserve_in};
use idmill_testing::engines::Engine;

use crate::{AnyError, ids, name, open, reserve, server, url};

fn connect(engine: &Engine) -> PgConnection {
    PgConnection::establish(&url(engine)).unwrap()
}

/// A store and the transactions of a pool draw from one sequence; some transactions roll back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_and_store_share_a_sequence_without_duplicates() {
    let Some(engine) = server().await else { return };
    let store = open(&engine).await;
    let pool =
        Pool::builder().max_size(3).build(ConnectionManager::<PgConnection>::new(url(&engine))).unwrap();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let pool = pool.clone();
            thread::spawn(move || {
                let mut drawn = Vec::new();
                for round in 0..30 {
                    let outcome = pool.get().unwrap().transaction(|conn| {
                        let id = next_in::<u64>(conn, "shared")?;
                        if round % 3 == 0 { Err(AnyError::from("gives up")) } else { Ok(id) }
                    });
                    drawn.extend(outcome.ok());
                }
                drawn
            })
        })
        .collect();
    let mut drawn = Vec::new();
    for _ in 0..30 {
        drawn.extend(reserve(&store, "shared", 3).await.unwrap().range.iter());
    }
    for thread in threads {
        drawn.extend(thread.join().unwrap());
    }
    let count = u64::try_from(drawn.len()).unwrap();
    assert_eq!(count, 30 * 3 + 3 * 20);
    assert_eq!(drawn.into_iter().collect::<BTreeSet<_>>(), (1..=count).collect(), "no gap and no duplicate");
}

#[tokio::test]
async fn a_refusal_leaves_the_transaction_as_it_was() {
    let Some(engine) = server().await else { return };
    let (store, mut conn) = (open(&engine).await, connect(&engine));
    store.create(&name("few"), Bounds::new(1, 5).unwrap()).await.unwrap();
    let error = next_in::<u64>(&mut conn, "few").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "outside of a transaction: {error}");
    let drawn = conn.transaction(|conn| {
        assert_eq!(ids(reserve_in::<u64>(conn, "few", 3).unwrap()), (1, 3));
        assert_eq!(reserve_in::<u64>(conn, "few", 3).unwrap_err().kind(), ErrorKind::Exhausted);
        assert_eq!(next_in::<u64>(conn, "a\0b").unwrap_err().kind(), ErrorKind::InvalidInput);
        let inner = conn.transaction(|conn| {
            assert_eq!(next_in::<u64>(conn, "few").unwrap(), 4);
            Err::<(), _>(DieselError::RollbackTransaction)
        });
        inner.unwrap_err();
        assert_eq!(ids(reserve_in::<u64>(conn, "few", 2).unwrap()), (4, 5), "all or nothing");
        Ok::<_, DieselError>(())
    });
    drawn.unwrap();
    let missing = InTransaction::<i64>::new("s").unwrap().table("missing").unwrap();
    let drawn = conn.transaction(|conn| Ok::<_, AnyError>(missing.next_blocking(conn)?));
    let error = drawn.unwrap_err();
    let error = error.downcast_ref::<idmill_diesel::idmill::Error>().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}
