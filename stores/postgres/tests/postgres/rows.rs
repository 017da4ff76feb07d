//! Rows of a table.

use std::sync::Arc;

use idmill::store::{Bounds, Change, GiveBack, Page, Reserve, Store};
use idmill::{ErrorKind, IdRange, Status};
use idmill_kit::Target as _;
use idmill_postgres::driver::Config;
use idmill_postgres::{Mode, PostgresOptions, PostgresStore};
use idmill_testing::{eventually, holds};

use crate::{
    client, ids, inspect, name, open, request, reserve, schemes, server, until_set, until_waiting, url,
};

/// Two writers of one row: the second waits, and then continues from the row as the first left it.
#[tokio::test]
async fn waiting_reserve_continues_after_the_other_one() {
    let Some(engine) = server().await else { return };
    let (store, mut other) = (open(&engine).await, client(&engine).await);
    reserve(&store, "s", 10).await.unwrap();
    let watcher = client(&engine).await;
    for (commit, first) in [(true, 111), (false, 121)] {
        let tx = other.transaction().await.unwrap();
        tx.execute("UPDATE idmill_sequences SET next = next + 100", &[]).await.unwrap();
        let waiting = store.clone();
        let granted = tokio::spawn(async move { waiting.reserve(&request("s", 10)).await });
        until_waiting(&watcher, 1).await;
        if commit {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(ids(granted.await.unwrap().unwrap().range), (first, first + 9), "{commit}");
    }
}

#[tokio::test]
async fn batch_creates_missing_and_reports_exhausted_sequences() {
    let Some(engine) = server().await else { return };
    let store = open(&engine).await;
    store.create(&name("full"), Bounds::new(1, 3).unwrap()).await.unwrap();
    reserve(&store, "full", 3).await.unwrap();
    reserve(&store, "there", 3).await.unwrap();
    let asked = [request("new", 5), request("full", 5), request("there", 5), request("there", 1)];
    let answers = store.reserve_many(&asked[..3]).await;
    assert_eq!(ids(answers[0].clone().unwrap().range), (1, 5));
    assert_eq!(answers[1].clone().unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(ids(answers[2].clone().unwrap().range), (4, 8));
    // A duplicate name is reserved twice.
    let answers = store.reserve_many(&asked[2..]).await;
    assert_eq!(ids(answers[0].clone().unwrap().range), (9, 13));
    assert_eq!(ids(answers[1].clone().unwrap().range), (14, 14));
}

#[tokio::test]
async fn the_last_ids_of_u64_are_exact_and_can_be_given_back() {
    let Some(engine) = server().await else { return };
    let store = open(&engine).await;
    let bounds = Bounds::new(u64::MAX - 9, u64::MAX).unwrap();
    let info = store.create(&name("s"), bounds).await.unwrap();
    assert_eq!(ids(reserve(&store, "s", 4).await.unwrap().range), (u64::MAX - 9, u64::MAX - 6));
    assert_eq!(ids(reserve(&store, "s", u64::MAX).await.unwrap().range), (u64::MAX - 5, u64::MAX));
    assert_eq!(inspect(&store, "s").await.next, None);
    assert_eq!(reserve(&store, "s", 1).await.unwrap_err().kind(), ErrorKind::Exhausted);

    let back =
        |from: u64, len, identity| GiveBack::new(name("s"), identity, IdRange::new(from, len).unwrap());
    let mut stranger = info.identity;
    stranger.epoch += 1;
    for refused in [back(u64::MAX - 2, 2, info.identity), back(u64::MAX - 2, 3, stranger)] {
        assert!(!store.give_back(&refused).await.unwrap(), "{refused:?}");
    }
    assert!(store.give_back(&back(u64::MAX - 2, 3, info.identity)).await.unwrap());
    assert!(!store.give_back(&back(u64::MAX - 2, 3, info.identity)).await.unwrap(), "given back twice");
    assert_eq!(inspect(&store, "s").await.next, Some(u64::MAX - 2));
    assert_eq!(ids(reserve(&store, "s", 9).await.unwrap().range), (u64::MAX - 2, u64::MAX));
}

#[tokio::test]
async fn rolled_back_write_is_unavailable_cut_write_is_unknown() {
    let Some(engine) = server().await else { return };
    let mut other = client(&engine).await;
    let store = open(&engine).await;
    reserve(&store, "s", 10).await.unwrap();
    let impatient = PostgresStore::open(&url(&engine, "").replace("20s", "10s")).await.unwrap();
    let watcher = client(&engine).await;
    for (ends, waiting, kind, says) in [
        ("", &impatient, ErrorKind::Unavailable, "55P03"),
        ("pg_cancel_backend", &store, ErrorKind::Unavailable, "57014"),
        ("pg_terminate_backend", &store, ErrorKind::UnknownOutcome, "57P01"),
    ] {
        let tx = other.transaction().await.unwrap();
        tx.execute("SELECT FROM idmill_sequences FOR UPDATE", &[]).await.unwrap();
        let waiting = waiting.clone();
        let outcome = tokio::spawn(async move { waiting.reserve(&request("s", 10)).await });
        until_waiting(&watcher, 1).await;
        if !ends.is_empty() {
            let sql = format!("SELECT {ends}(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'");
            // Repeat: the store waits briefly for the lock, then retries with a longer timeout. In between,
            // no statement waits.
            eventually(ends, async || {
                let is_over = outcome.is_finished() || watcher.execute(&sql, &[]).await.unwrap() > 0;
                holds(is_over, "no statement waits for a lock")
            })
            .await;
        }
        let error = outcome.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        tx.rollback().await.unwrap();
    }
    assert_eq!(
        ids(reserve(&store, "s", 10).await.unwrap().range),
        (11, 20),
        "the failed reserves took no ids"
    );
}

/// The store's commits wait for the disk, even for a role whose commits do not.
#[tokio::test]
async fn a_grant_is_on_the_disk_whatever_the_role_s_settings_are() {
    let Some(engine) = server().await else { return };
    let admin = client(&engine).await;
    let lazy = "ALTER ROLE postgres SET synchronous_commit = off; ALTER ROLE postgres SET lock_timeout = '1ms'; \
                ALTER SYSTEM SET wal_writer_delay = '10s'";
    for statement in lazy.split(';') {
        admin.batch_execute(statement).await.unwrap();
    }
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let store = open(&engine).await;
    store.create(&name("s"), Bounds::new(1, 1_000_000).unwrap()).await.unwrap();
    let mut last = 0;
    for _ in 0..20 {
        last = ids(reserve(&store, "s", 10).await.unwrap().range).1;
        store.reserve_many(&[request("s", 5)]).await.remove(0).unwrap();
    }
    let granted = last + 5;
    engine.kill();
    engine.restart().await;
    assert!(ids(reserve(&open(&engine).await, "s", 1).await.unwrap().range).0 > granted);
}

#[tokio::test]
async fn unsafe_durability_is_rejected_with_the_remedy() {
    let Some(engine) = server().await else { return };
    let admin = client(&engine).await;
    for setting in ["fsync", "full_page_writes"] {
        admin.batch_execute(&format!("ALTER SYSTEM SET {setting} = off")).await.unwrap();
        admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        until_set(&engine, setting, "off").await;
        let error = PostgresStore::open(&url(&engine, "")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains(&format!("set {setting} = on")), "{error}");
        let native = schemes().open(&url(&engine, "&sequences=native")).await.unwrap_err();
        assert_eq!(native.kind(), ErrorKind::Conflict);
        admin.batch_execute(&format!("ALTER SYSTEM RESET {setting}")).await.unwrap();
        admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        until_set(&engine, setting, "on").await;
    }
    open(&engine).await;
    admin
        .batch_execute("ALTER TABLE idmill_sequences SET UNLOGGED; CREATE TABLE other (a int)")
        .await
        .unwrap();
    for (options, kind, remedy) in [
        ("", ErrorKind::Conflict, "SET LOGGED"),
        ("&table=other", ErrorKind::Conflict, "name another with `table=NAME`"),
        ("&table=missing&mode=rw", ErrorKind::NotFound, "mode=rwc"),
        ("&schema=nowhere", ErrorKind::NotFound, "schema=NAME"),
        ("&sslmode=require", ErrorKind::Unsupported, "does not support TLS"),
    ] {
        let error = PostgresStore::open(&url(&engine, options)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{options}: {error}");
        assert!(error.to_string().contains(remedy), "{options}: {error}");
    }
    let error = PostgresStore::open(&url(&engine, "").replace("/postgres?", "/none?")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains(&engine.address().to_string()), "{error}");
}

#[tokio::test]
async fn missing_privileges_and_read_only_writes_are_denied() {
    let Some(engine) = server().await else { return };
    let store = open(&engine).await;
    reserve(&store, "s", 1).await.unwrap();
    client(&engine).await.batch_execute("CREATE ROLE guest LOGIN").await.unwrap();
    let guest = url(&engine, "&mode=rw").replace("//postgres@", "//guest@");
    let guest = PostgresStore::open(&guest).await.unwrap();
    let error = reserve(&guest, "s", 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("grant the user"), "{error}");
    let looking: PostgresOptions = url(&engine, "").parse().unwrap();
    let looking = PostgresStore::open_with(looking.mode(Mode::ReadOnly)).await.unwrap();
    assert_eq!(inspect(&looking, "s").await.next, Some(2));
    assert_eq!(reserve(&looking, "s", 1).await.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(looking.remove(&name("s"), None).await.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn a_client_of_the_caller_s_serves_until_it_is_closed() {
    let Some(engine) = server().await else { return };
    let own = Arc::new(client(&engine).await);
    let store = PostgresStore::from_client(own, PostgresOptions::default()).await.unwrap();
    let all = (0..20).map(|_| async { reserve(&store, "s", 5).await.unwrap().range.start() });
    let mut starts = futures_all(all).await;
    starts.sort_unstable();
    assert_eq!(starts, (0..20).map(|n| 1 + 5 * n).collect::<Vec<_>>());
    engine.kill();
    engine.restart().await;
    // The first call may be sent before the driver detects the closed connection.
    let error = reserve(&store, "s", 1).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed | ErrorKind::UnknownOutcome), "{error}");
    let closed = reserve(&store, "s", 1).await.unwrap_err();
    assert_eq!((closed.kind(), closed.status()), (ErrorKind::Closed, Status::Permanent));
    assert!(closed.to_string().contains("from_config"), "{closed}");
}

#[tokio::test]
async fn store_with_a_config_reconnects() {
    let Some(engine) = server().await else { return };
    let address = engine.address();
    let mut config = Config::new();
    config.host(address.ip().to_string()).port(address.port()).user("postgres").dbname("postgres");
    let store = PostgresStore::from_config(config, PostgresOptions::default()).await.unwrap();
    assert_eq!(ids(reserve(&store, "s", 3).await.unwrap().range), (1, 3));
    let ours = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL";
    client(&engine).await.batch_execute(ours).await.unwrap();
    // The store may detect the closed connection only after it has sent a statement.
    let first = match reserve(&store, "s", 3).await {
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
            reserve(&store, "s", 3).await.unwrap()
        }
        Ok(grant) => grant,
    };
    assert!(first.range.start() > 3);
}

/// A sequence that a policy hides must not look missing.
#[tokio::test]
async fn hidden_rows_are_an_error_and_not_absent() {
    let Some(engine) = server().await else { return };
    let store = open(&engine).await;
    for sequence in ["seen", "hidden"] {
        reserve(&store, sequence, 3).await.unwrap();
        store.swap_record(&name(sequence), None, "record").await.unwrap();
    }
    let secure = |table: &str| {
        format!(
            "GRANT ALL ON {table} TO tenant; ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; \
             CREATE POLICY visible ON {table} USING (name <> 'hidden')"
        )
    };
    let roles = "CREATE ROLE tenant LOGIN; GRANT EXECUTE ON FUNCTION pg_control_system() TO tenant; ";
    let tables = ["idmill_sequences", "idmill_witness"].map(secure).join("; ");
    client(&engine).await.batch_execute(&format!("{roles}{tables}")).await.unwrap();
    let options = PostgresOptions::parse(&url(&engine, "").replace("//postgres@", "//tenant@")).unwrap();
    let store = PostgresStore::open_with(options.clone()).await.unwrap();
    assert_eq!(ids(reserve(&store, "seen", 1).await.unwrap().range), (4, 4));
    let hidden = name("hidden");
    for error in [
        store.list(&Page::default()).await.unwrap_err(),
        store.inspect(&hidden).await.unwrap_err(),
        reserve(&store, "hidden", 1).await.unwrap_err(),
        store.reserve(&Reserve::new(hidden.clone(), 1)).await.unwrap_err(),
        store.set(&hidden, Change::new().next(9)).await.unwrap_err(),
        store.remove(&hidden, None).await.unwrap_err(),
        store.record(&hidden).await.unwrap_err(),
        store.list_records(&Page::default()).await.unwrap_err(),
        options.refused().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("give the user BYPASSRLS"), "{error}");
    }
}

/// The row can be read, but not moved to this server's history.
#[tokio::test]
async fn row_hidden_from_update_is_not_adopted_for_long() {
    let Some(engine) = server().await else { return };
    reserve(&open(&engine).await, "s", 3).await.unwrap();
    let policy = "CREATE ROLE tenant LOGIN; GRANT EXECUTE ON FUNCTION pg_control_system() TO tenant; \
                  UPDATE idmill_sequences SET history = 'elsewhere'; GRANT ALL ON idmill_sequences TO tenant; \
                  ALTER TABLE idmill_sequences ENABLE ROW LEVEL SECURITY; \
                  CREATE POLICY reads ON idmill_sequences FOR SELECT USING (true)";
    client(&engine).await.batch_execute(policy).await.unwrap();
    let tenant = url(&engine, "&failover=allow").replace("//postgres@", "//tenant@");
    let error = reserve(&PostgresStore::open(&tenant).await.unwrap(), "s", 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("a policy for UPDATE"), "{error}");
}

async fn futures_all<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut done = Vec::new();
    for one in all {
        done.push(one.await);
    }
    done
}
