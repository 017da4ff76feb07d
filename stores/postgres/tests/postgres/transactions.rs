//! Ids inside the caller's transactions.

use std::collections::BTreeSet;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use idmill::ErrorKind;
use idmill::store::Bounds;
use idmill::store::Store;
use idmill_postgres::{InTransaction, next_in, next_in_sql, reserve_in};
use tokio::time::timeout;

use crate::{client, ids, name, open, reserve, server};

/// Several clients write invoices concurrently, and some roll back: no number is missing or
/// duplicated.
#[tokio::test]
async fn rollbacks_leave_no_gaps() {
    let Some(engine) = server().await else { return };
    open(&engine).await;
    client(&engine).await.batch_execute("CREATE TABLE invoices (number bigint PRIMARY KEY)").await.unwrap();
    let mut running = Vec::new();
    for writer in 0..4 {
        let mut client = client(&engine).await;
        running.push(tokio::spawn(async move {
            for round in 0..25 {
                let tx = client.transaction().await.unwrap();
                let number: i64 = next_in(&tx, "invoices").await.unwrap();
                tx.execute("INSERT INTO invoices VALUES ($1)", &[&number]).await.unwrap();
                if (round + writer) % 3 == 0 {
                    tx.rollback().await.unwrap();
                } else {
                    tx.commit().await.unwrap();
                }
            }
        }));
    }
    for writer in running {
        writer.await.unwrap();
    }
    let rows = client(&engine).await.query("SELECT number FROM invoices", &[]).await.unwrap();
    let numbers: BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
    let count = i64::try_from(rows.len()).unwrap();
    assert!(count >= 60, "{count}");
    assert_eq!(numbers, (1..=count).collect());
}

/// A draw waits for the transaction that drew before it, and continues after its commit or rollback.
#[tokio::test]
async fn numbers_grow_in_the_order_of_the_commits() {
    let Some(engine) = server().await else { return };
    open(&engine).await;
    let (mut one, mut other) = (client(&engine).await, client(&engine).await);
    for (commits, first, second) in [(true, 1, 2), (false, 3, 3)] {
        let (before, after) = (one.transaction().await.unwrap(), other.transaction().await.unwrap());
        assert_eq!(next_in::<i64>(&before, "invoices").await.unwrap(), first);
        {
            let mut waiting = pin!(next_in::<i64>(&after, "invoices"));
            assert!(timeout(Duration::from_millis(300), &mut waiting).await.is_err(), "it did not wait");
            if commits {
                before.commit().await.unwrap();
            } else {
                before.rollback().await.unwrap();
            }
            assert_eq!(waiting.await.unwrap(), second);
        }
        after.commit().await.unwrap();
    }
}

#[tokio::test]
async fn a_refusal_leaves_the_transaction_as_it_was() {
    let Some(engine) = server().await else { return };
    let store = open(&engine).await;
    store.create(&name("few"), Bounds::new(1, 5).unwrap()).await.unwrap();
    let mut client = client(&engine).await;
    let tx = client.transaction().await.unwrap();
    assert_eq!(ids(reserve_in::<u64>(&tx, "few", 3).await.unwrap()), (1, 3));
    let error = reserve_in::<u64>(&tx, "few", 3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    assert_eq!(reserve_in::<u64>(&tx, "few", 0).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(ids(reserve_in::<u64>(&tx, "few", 2).await.unwrap()), (4, 5), "all or nothing");
    store.create(&name("large"), Bounds::new(1 << 40, 1 << 41).unwrap()).await.unwrap();
    let error = next_in::<i32>(&tx, "large").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    tx.commit().await.unwrap();
    assert_eq!(reserve(&store, "few", 1).await.unwrap_err().kind(), ErrorKind::Exhausted);
    let tx = client.transaction().await.unwrap();
    let elsewhere = InTransaction::<i64>::new("s").unwrap().table("missing").unwrap();
    let error = elsewhere.next(&tx).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    for advice in ["(`Mode::Create`) creates it", "restore it", "ids repeat"] {
        assert!(error.to_string().contains(advice), "{error}");
    }
}

/// The README's example, as a separate program.
#[tokio::test]
async fn published_sqlx_example_compiles_and_draws() {
    let Some(engine) = server().await else { return };
    let store = open(&engine).await;
    store.create(&name("invoices"), Bounds::new(1, 10).unwrap()).await.unwrap();
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = package.join("tests/postgres/sqlx/Cargo.toml");
    let sql = next_in_sql("public", "idmill_sequences").unwrap();
    let url = format!("postgres://postgres@{}/postgres", engine.address());
    let cargo = |arguments: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        let target = package.join("../../target/sqlx");
        cargo.args(arguments).args(["--quiet", "--locked", "--target-dir"]).arg(target);
        cargo.arg("--manifest-path").arg(&manifest);
        cargo
    };
    for (count, drawn) in [("1", "1"), ("4", "2"), ("6", "none"), ("5", "6")] {
        let output = cargo(&["run"]).args(["--", &url, &sql, "invoices", count]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), drawn, "{count}: {said}");
    }
}

#[tokio::test]
async fn published_sql_draws_like_the_driver() {
    let Some(engine) = server().await else { return };
    let store = open(&engine).await;
    let mut client = client(&engine).await;
    let sql = next_in_sql("public", "idmill_sequences").unwrap();
    let tx = client.transaction().await.unwrap();
    assert!(tx.query_opt(&sql, &[&"s", &1_i64]).await.unwrap().is_none(), "the sequence does not exist yet");
    store.create(&name("s"), Bounds::new(1, 10).unwrap()).await.unwrap();
    assert_eq!(tx.query_one(&sql, &[&"s", &1_i64]).await.unwrap().get::<_, i64>(0), 1);
    assert_eq!(next_in::<i64>(&tx, "s").await.unwrap(), 2);
    assert_eq!(tx.query_one(&sql, &[&"s", &4_i64]).await.unwrap().get::<_, i64>(0), 3);
    assert!(tx.query_opt(&sql, &[&"s", &5_i64]).await.unwrap().is_none(), "four are left");
    tx.commit().await.unwrap();
    assert_eq!(ids(reserve(&store, "s", 9).await.unwrap().range), (7, 10));
}

/// A clone of the table in another schema, such as one for a tenant, would begin at the first ids again.
#[tokio::test]
async fn cloned_table_on_the_path_is_a_conflict() {
    let Some(engine) = server().await else { return };
    let store = open(&engine).await;
    assert_eq!(ids(reserve(&store, "s", 3).await.unwrap().range), (1, 3));
    let mut client = client(&engine).await;
    let clone = "CREATE SCHEMA tenant7; CREATE TABLE tenant7.idmill_sequences (LIKE public.idmill_sequences INCLUDING ALL)";
    client.batch_execute(clone).await.unwrap();
    let tx = client.transaction().await.unwrap();
    tx.batch_execute("SET LOCAL search_path = tenant7, public").await.unwrap();
    for sequence in ["s", "new"] {
        let error = next_in::<i64>(&tx, sequence).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("\"tenant7\" and \"public\""), "{error}");
    }
    let named = InTransaction::<i64>::new("s").unwrap().schema("public").unwrap();
    assert_eq!(named.next(&tx).await.unwrap(), 4);
    let sql = next_in_sql("public", "idmill_sequences").unwrap();
    assert_eq!(tx.query_one(&sql, &[&"s", &1_i64]).await.unwrap().get::<_, i64>(0), 5);
    tx.commit().await.unwrap();
    // A temporary table is found before all schemas of the path.
    client.batch_execute("CREATE TEMP TABLE idmill_sequences (LIKE public.idmill_sequences)").await.unwrap();
    let tx = client.transaction().await.unwrap();
    let error = next_in::<i64>(&tx, "s").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    tx.rollback().await.unwrap();
    assert_eq!(ids(reserve(&store, "s", 1).await.unwrap().range), (6, 6));
}
