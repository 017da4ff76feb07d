//! Errors of a real server, and the resulting errors of the stores.

use idmill::store::{Page, Pages, Store};
use idmill::{Error, ErrorKind};
use idmill_postgres::{InTransaction, NativeSequences, PostgresStore, next_in};
use idmill_testing::eventually;

use crate::{client, name, open, request, reserve, schemes, server, until_waiting, url};

fn is(error: &Error, kind: ErrorKind, code: &str) {
    assert_eq!(error.kind(), kind, "{code}: {error}");
    assert!(error.to_string().contains(code), "{code}: {error}");
}

#[tokio::test]
async fn rules_of_others_are_conflicts() {
    let Some(engine) = server().await else { return };
    let (store, admin) = (open(&engine).await, client(&engine).await);
    reserve(&store, "s", 10).await.unwrap();
    admin.batch_execute("ALTER TABLE idmill_sequences ADD CONSTRAINT few CHECK (next < 50)").await.unwrap();
    is(&reserve(&store, "s", 100).await.unwrap_err(), ErrorKind::Conflict, "23514");
    let raises = "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$; \
                  CREATE TRIGGER no BEFORE UPDATE ON idmill_sequences FOR EACH ROW EXECUTE FUNCTION no()";
    admin.batch_execute(raises).await.unwrap();
    is(&reserve(&store, "s", 1).await.unwrap_err(), ErrorKind::Conflict, "P0001");
    let several = store.reserve_many(&[request("s", 1)]).await.remove(0);
    is(&several.unwrap_err(), ErrorKind::Conflict, "P0001");
    admin
        .batch_execute("DROP TABLE idmill_sequences; CREATE TABLE other (name text, next int)")
        .await
        .unwrap();
    is(&reserve(&store, "s", 1).await.unwrap_err(), ErrorKind::NotFound, "42P01");
    let mut client = client(&engine).await;
    let tx = client.transaction().await.unwrap();
    let other = InTransaction::<i64>::new("s").unwrap().table("other").unwrap();
    is(&other.next(&tx).await.unwrap_err(), ErrorKind::Conflict, "42703");
    let native = NativeSequences::open(&url(&engine, "&sequences=native")).await.unwrap();
    is(&reserve(&native, "other", 1).await.unwrap_err(), ErrorKind::Conflict, "has this name");
    admin.batch_execute("CREATE TABLE rows (id serial)").await.unwrap();
    is(&native.remove(&name("rows_id_seq"), None).await.unwrap_err(), ErrorKind::Conflict, "2BP01");
    // A failure before the commit leaves the store unchanged.
    assert_eq!(native.list_all().await.unwrap().len(), 1);
}

#[tokio::test]
async fn serialization_failures_and_deadlocks_are_unavailable() {
    let Some(engine) = server().await else { return };
    let store = open(&engine).await;
    for sequence in ["a", "b"] {
        reserve(&store, sequence, 1).await.unwrap();
    }
    let (mut one, mut two, watcher) = (client(&engine).await, client(&engine).await, client(&engine).await);
    let strict = one.transaction().await.unwrap();
    strict.batch_execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
    reserve(&store, "a", 1).await.unwrap();
    is(&next_in::<i64>(&strict, "a").await.unwrap_err(), ErrorKind::Unavailable, "40001");
    strict.rollback().await.unwrap();

    let (first, second) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
    next_in::<i64>(&first, "a").await.unwrap();
    next_in::<i64>(&second, "b").await.unwrap();
    let (crossed, waited) = tokio::join!(next_in::<i64>(&first, "b"), async {
        until_waiting(&watcher, 1).await;
        next_in::<i64>(&second, "a").await
    });
    let failed = [crossed, waited].into_iter().filter_map(Result::err).collect::<Vec<_>>();
    assert_eq!(failed.len(), 1);
    is(&failed[0], ErrorKind::Unavailable, "40P01");
}

#[tokio::test]
async fn rejected_logins_report_the_reason() {
    let Some(engine) = server().await else { return };
    let admin = client(&engine).await;
    open(&engine).await;
    let roles = "CREATE ROLE crowd LOGIN SUPERUSER; CREATE ROLE reader LOGIN SUPERUSER; \
                 ALTER ROLE reader SET default_transaction_read_only = on; \
                 CREATE ROLE locked LOGIN PASSWORD 'secret'; CREATE ROLE barred LOGIN; CREATE ROLE few LOGIN CONNECTION LIMIT 0";
    admin.batch_execute(roles).await.unwrap();
    let file = engine.dir().join("data/pg_hba.conf");
    let rules = std::fs::read_to_string(&file).unwrap();
    let ours = "host all locked 127.0.0.1/32 scram-sha-256\nhost all barred 127.0.0.1/32 reject\n";
    std::fs::write(&file, format!("{ours}{rules}")).unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let as_user = |user: &str| url(&engine, "&mode=rw").replace("//postgres@", &format!("//{user}@"));
    // The server reloads its rules a moment later.
    eventually("the server rejects a barred user", async || {
        PostgresStore::open(&as_user("barred")).await.map_or(Ok(()), Err)
    })
    .await;
    for (user, kind, code) in [
        ("locked:wrong", ErrorKind::Denied, "28P01"),
        ("locked", ErrorKind::InvalidInput, "password missing"),
        ("barred", ErrorKind::Denied, "28000"),
        ("few", ErrorKind::Unavailable, "53300"),
    ] {
        let error = PostgresStore::open(&as_user(user)).await.unwrap_err();
        is(&error, kind, code);
        assert!(!format!("{error:?}").contains("wrong"), "{error:?}");
    }
    let reader = PostgresStore::open(&as_user("reader")).await.unwrap();
    let error = reserve(&reader, "s", 1).await.unwrap_err();
    is(&error, ErrorKind::Denied, "25006");
    assert!(error.to_string().contains("default_transaction_read_only"), "{error}");
    PostgresStore::open(&as_user("locked:secret")).await.unwrap();
}

#[tokio::test]
async fn a_name_that_the_database_cannot_hold_is_refused() {
    let Some(engine) = server().await else { return };
    let admin = client(&engine).await;
    admin.batch_execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0").await.unwrap();
    let store = PostgresStore::open(&url(&engine, "").replace("/postgres?", "/latin?")).await.unwrap();
    assert_eq!(reserve(&store, "größe", 1).await.unwrap().range.start(), 1);
    is(&reserve(&store, "☃", 1).await.unwrap_err(), ErrorKind::InvalidInput, "22P05");
}

#[tokio::test]
async fn a_row_that_cannot_be_read_hides_no_other() {
    let Some(engine) = server().await else { return };
    let (store, admin) = (open(&engine).await, client(&engine).await);
    for sequence in ["a", "b", "c"] {
        reserve(&store, sequence, 10).await.unwrap();
    }
    let later = "ALTER TABLE idmill_sequences DROP CONSTRAINT idmill_sequences_format_check; \
                 UPDATE idmill_sequences SET format = 2 WHERE name = 'b'";
    admin.batch_execute(later).await.unwrap();
    let mut pages = Pages::new(&store, Page::default().limit(2));
    let first = pages.next().await.unwrap().unwrap();
    assert_eq!((&*first.sequences[0].name, first.unreadable.len()), ("a", 1));
    assert_eq!(first.unreadable[0].name, "b");
    assert_eq!(first.unreadable[0].error.kind(), ErrorKind::Unsupported);
    assert_eq!(&*pages.next().await.unwrap().unwrap().sequences[0].name, "c");
    assert!(pages.next().await.unwrap().is_none());
}

#[tokio::test]
async fn missing_privileges_name_the_schema() {
    let Some(engine) = server().await else { return };
    let admin = client(&engine).await;
    let setup = "CREATE ROLE newcomer LOGIN; CREATE SCHEMA theirs; GRANT USAGE ON SCHEMA theirs TO newcomer";
    admin.batch_execute(setup).await.unwrap();
    let url = url(&engine, "&schema=theirs").replace("//postgres", "//newcomer");
    let open = async || PostgresStore::open(&url).await;
    let error = open().await.unwrap_err().to_string();
    assert!(
        error.contains("for schema theirs") && error.contains("grant the user CREATE on the schema"),
        "{error}"
    );
    admin.batch_execute(&schemes().parse(&url).unwrap().ddl().unwrap().unwrap()).await.unwrap();
    let error = open().await.unwrap().inspect(&name("s")).await.unwrap_err().to_string();
    assert!(error.contains(r#"the table is "theirs"."idmill_sequences""#), "{error}");
}
