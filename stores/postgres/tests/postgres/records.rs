//! Records: when their table is created, and when it is not.

use idmill::ErrorKind;
use idmill::store::{Page, Store};
use idmill_postgres::{PostgresOptions, PostgresStore};

use crate::{client, name, open, schemes, server, url};

#[tokio::test]
async fn their_table_is_made_for_the_first_of_them() {
    let Some(engine) = server().await else { return };
    let (store, s, admin) = (open(&engine).await, name("s"), client(&engine).await);
    let there = "SELECT to_regclass('idmill_witness') IS NOT NULL";
    assert_eq!(store.record(&s).await.unwrap(), None);
    assert_eq!(store.list_records(&Page::default()).await.unwrap().records, []);
    assert!(!store.swap_record(&s, Some("a"), "b").await.unwrap());
    assert!(!admin.query_one(there, &[]).await.unwrap().get::<_, bool>(0));
    let existing = schemes().open(&url(&engine, "&existing=true")).await.unwrap();
    let error = existing.swap_record(&s, None, "a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let ddl = schemes().parse(&url(&engine, "&schema=public")).unwrap().witness_ddl().unwrap().unwrap();
    assert!(error.to_string().contains(&ddl), "{error}");
    // Concurrent swaps: each tries to create the table, and exactly one writes the record.
    let stores = [open(&engine).await, open(&engine).await, open(&engine).await, store];
    let racing = stores.iter().map(|store| store.swap_record(&s, None, "a"));
    let written = futures_util::future::join_all(racing).await;
    assert_eq!(written.into_iter().filter(|written| *written.as_ref().unwrap()).count(), 1);
    assert!(existing.swap_record(&s, Some("a"), "b").await.unwrap());
    let look = schemes().open(&url(&engine, "&mode=ro")).await.unwrap();
    assert_eq!(look.record(&s).await.unwrap().as_deref(), Some("b"));
    let error = look.swap_record(&s, Some("b"), "c").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn unsafe_or_foreign_witness_table_is_rejected() {
    let Some(engine) = server().await else { return };
    let (store, s, admin) = (open(&engine).await, name("s"), client(&engine).await);
    for (table, hint) in [
        ("UNLOGGED TABLE idmill_witness (name text PRIMARY KEY, record text)", "SET LOGGED"),
        ("TABLE idmill_witness (name text PRIMARY KEY, other text)", "its columns are name, other"),
        ("VIEW idmill_witness AS SELECT 's' AS name, 'a' AS record", "its columns are name, record"),
    ] {
        admin.batch_execute(&format!("CREATE {table}")).await.unwrap();
        for error in [
            store.record(&s).await.unwrap_err(),
            store.swap_record(&s, None, "a").await.unwrap_err(),
            store.list_records(&Page::default()).await.unwrap_err(),
        ] {
            assert!(error.kind() == ErrorKind::Conflict && error.to_string().contains(hint), "{error}");
        }
        let kind = if table.starts_with("VIEW") { "VIEW" } else { "TABLE" };
        admin.batch_execute(&format!("DROP {kind} idmill_witness")).await.unwrap();
    }
    assert!(store.swap_record(&s, None, "a").await.unwrap());
    // A dropped table is not an empty table.
    admin.batch_execute("DROP TABLE idmill_witness").await.unwrap();
    assert_eq!(store.record(&s).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_client_in_a_transaction_of_the_caller_s_writes_none() {
    let Some(engine) = server().await else { return };
    let given = std::sync::Arc::new(client(&engine).await);
    let (store, s) =
        (PostgresStore::from_client(given.clone(), PostgresOptions::default()).await.unwrap(), name("s"));
    assert!(store.swap_record(&s, None, "a").await.unwrap());
    given.batch_execute("BEGIN").await.unwrap();
    let error = store.swap_record(&s, Some("a"), "b").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    given.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(store.record(&s).await.unwrap().as_deref(), Some("a"));
}
