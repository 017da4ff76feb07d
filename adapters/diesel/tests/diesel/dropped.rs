//! The state after a future is dropped.

use idmill_diesel::diesel_async::{AsyncConnection, AsyncPgConnection};
use idmill_diesel::postgres::next_in;
use tokio::sync::oneshot;

use crate::{AnyError, connect, numbers, open, pool, server, until_waiting};

/// Draws the first number in a transaction whose future is then dropped.
async fn begin_and_drop(conn: &mut AsyncPgConnection) {
    let (drawn, when_drawn) = oneshot::channel();
    let dropped = conn.transaction(async |conn| {
        assert_eq!(next_in::<i64>(conn, "invoices").await?, 1);
        drawn.send(()).unwrap();
        std::future::pending::<Result<(), AnyError>>().await
    });
    tokio::select! { _ = dropped => panic!("it never ends"), drawn = when_drawn => drawn.unwrap() }
}

/// The draw is dropped; then the callback fails.
#[tokio::test]
async fn a_draw_that_is_dropped_leaves_a_connection_to_roll_back() {
    let Some(engine) = server().await else { return };
    open(&engine).await;
    let (pool, mut admin) = (pool(&engine, 2), connect(&engine).await);
    let mut holder = pool.get().await.unwrap();
    let mut conn = pool.get().await.unwrap();
    let (drawn, when_drawn) = oneshot::channel();
    let (over, when_over) = oneshot::channel();
    let holding = holder.transaction(async |holder| {
        assert_eq!(next_in::<i64>(holder, "invoices").await?, 1);
        drawn.send(()).unwrap();
        when_over.await?;
        Ok::<_, AnyError>(())
    });
    let dropped = conn.transaction(async |conn| {
        when_drawn.await?;
        tokio::select! {
            drawn = next_in::<i64>(conn, "invoices") => panic!("{drawn:?} although another holds the row"),
            () = until_waiting(&mut admin) => {}
        }
        over.send(()).unwrap();
        Err::<(), AnyError>("rolls back".into())
    });
    let (held, dropped) = tokio::join!(holding, dropped);
    held.unwrap();
    assert_eq!(dropped.unwrap_err().to_string(), "rolls back");
    // The connection is in sync, and no number is missing.
    for expected in 2..6 {
        let drawn = conn.transaction(async |conn| {
            let number = next_in::<i64>(conn, "invoices").await?;
            assert_eq!(numbers(conn, &format!("SELECT {number}::bigint AS number")).await, [expected]);
            Ok::<_, AnyError>(number)
        });
        assert_eq!(drawn.await.unwrap(), expected);
    }
}

/// The pool closes the connection of a dropped transaction instead of reusing it.
#[tokio::test]
async fn a_transaction_that_is_dropped_gives_its_number_back() {
    let Some(engine) = server().await else { return };
    open(&engine).await;
    let pool = pool(&engine, 1);
    for _ in 0..3 {
        let mut conn = pool.get().await.unwrap();
        begin_and_drop(&mut conn).await;
    }
}

/// As documented: deadpool checks a connection only at its next checkout, so locks stay until then.
#[tokio::test]
async fn dropped_pooled_transaction_locks_until_next_checkout() {
    let Some(engine) = server().await else { return };
    open(&engine).await;
    let (pool, mut admin) = (pool(&engine, 1), connect(&engine).await);
    let mut conn = pool.get().await.unwrap();
    begin_and_drop(&mut conn).await;
    drop(conn);
    let mut other = connect(&engine).await;
    let other = tokio::spawn(async move {
        let drawn =
            other.transaction(async |conn| Ok::<_, AnyError>(next_in::<i64>(conn, "invoices").await?));
        drawn.await.unwrap()
    });
    until_waiting(&mut admin).await;
    drop(pool.get().await.unwrap());
    assert_eq!(other.await.unwrap(), 1);
}

/// As documented: on a held connection the transaction stays open, and an apparent commit has no
/// effect.
#[tokio::test]
async fn dropped_transaction_on_held_connection_never_commits() {
    let Some(engine) = server().await else { return };
    open(&engine).await;
    let (mut held, mut other) = (connect(&engine).await, connect(&engine).await);
    begin_and_drop(&mut held).await;
    let inner = held.transaction(async |conn| Ok::<_, AnyError>(next_in::<i64>(conn, "invoices").await?));
    assert_eq!(inner.await.unwrap(), 2, "a savepoint in the transaction that was left");
    drop(held);
    let drawn = other.transaction(async |conn| Ok::<_, AnyError>(next_in::<i64>(conn, "invoices").await?));
    assert_eq!(drawn.await.unwrap(), 1);
}
