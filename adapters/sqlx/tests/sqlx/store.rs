//! The store: its grants, and its errors for failing servers.

use std::time::Duration;

use idmill_sqlx::Mode;
use idmill_sqlx::driver::postgres::PgPoolOptions;
use idmill_sqlx::driver::{self as sqlx, Executor as _};
use idmill_sqlx::idmill::ErrorKind;
use idmill_sqlx::idmill::store::Store;
use idmill_sqlx::postgres::{Keeps, PostgresOptions, PostgresStore};
use idmill_testing::{eventually, holds};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::{admin, ids, open, options, patient, pool, request, reserve, server, sessions};

#[tokio::test]
async fn sequences_are_reserved_alone_and_in_batches() {
    let Some(engine) = server().await else { return };
    let store = open(&pool(&engine, 1)).await;
    assert_eq!(ids(reserve(&store, "a", 5).await.unwrap().range), (1, 5));
    let odd = "it's \\ \"$1\" é 💥";
    let batch = store.reserve_many(&[request("a", 2), request(odd, 3), request("c", 1)]).await;
    let granted: Vec<_> = batch.into_iter().map(|grant| ids(grant.unwrap().range)).collect();
    assert_eq!(granted, [(6, 7), (1, 3), (1, 1)]);
    let names: Vec<_> =
        store.list_all().await.unwrap().iter().map(|info| info.name.as_str().to_owned()).collect();
    assert_eq!(names.len(), 3);
    assert!(names.iter().any(|name| name == odd), "{names:?}");
    assert!(!format!("{store:?}").contains("service"), "{store:?}");
}

/// An existing schema whose name needs quotes.
#[tokio::test]
async fn a_schema_is_found_whatever_its_name_is() {
    let Some(engine) = server().await else { return };
    let admin = admin(&engine);
    admin
        .execute("CREATE SCHEMA \"it's $1\"; ALTER ROLE postgres SET search_path = \"it's $1\"")
        .await
        .unwrap();
    let store = open(&pool(&engine, 1)).await;
    for first in [1, 3] {
        assert_eq!(ids(reserve(&store, "s", 2).await.unwrap().range).0, first);
    }
    let sql = "SELECT count(*) FROM \"it's $1\".idmill_sequences";
    assert_eq!(sqlx::query_scalar::<_, i64>(sql).fetch_one(&admin).await.unwrap(), 1);
}

#[tokio::test]
async fn opening_makes_no_more_than_it_may() {
    let Some(engine) = server().await else { return };
    let pool = pool(&engine, 1);
    for mode in [Mode::ReadOnly, Mode::ReadWrite] {
        let error = PostgresStore::with_options(&pool, patient().mode(mode)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    open(&pool).await;
    let reader = PostgresStore::with_options(&pool, patient().mode(Mode::ReadOnly)).await.unwrap();
    assert_eq!(reserve(&reader, "s", 1).await.unwrap_err().kind(), ErrorKind::Denied);
    let other = PostgresStore::with_options(&pool, patient().table("numbers")).await.unwrap();
    assert_eq!(ids(reserve(&other, "s", 1).await.unwrap().range), (1, 1));
}

#[tokio::test]
async fn a_server_that_does_not_sync_is_refused_while_it_runs() {
    let Some(engine) = server().await else { return };
    let (pool, admin) = (pool(&engine, 1), admin(&engine));
    let store = open(&pool).await;
    reserve(&store, "s", 1).await.unwrap();
    admin.execute("ALTER SYSTEM SET fsync = off").await.unwrap();
    admin.execute("SELECT pg_reload_conf()").await.unwrap();
    let error = eventually("the store refuses", async || match reserve(&store, "s", 1).await {
        Ok(grant) => Err(grant),
        Err(error) => Ok(error),
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(PostgresStore::with_options(&pool, patient()).await.unwrap_err().kind(), ErrorKind::Conflict);
    let trusting = PostgresStore::with_options(&pool, patient().keeps(Keeps::Trust)).await.unwrap();
    reserve(&trusting, "s", 1).await.unwrap();
}

/// An idle connection is pinged before use, since a write on a closed one would have an unknown outcome.
#[tokio::test]
async fn idle_connection_closed_by_the_server_is_replaced() {
    let Some(engine) = server().await else { return };
    let (pool, admin) = (pool(&engine, 1), admin(&engine));
    let store = open(&pool).await;
    assert_eq!(ids(reserve(&store, "s", 1).await.unwrap().range), (1, 1));
    assert_eq!(sessions(&admin).await, 1, "it is kept");
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'service'";
    admin.execute(sql).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(ids(reserve(&store, "s", 1).await.unwrap().range), (2, 2));
}

#[tokio::test]
async fn failed_connection_reports_the_cause() {
    let Some(engine) = server().await else { return };
    let soon = PostgresOptions::new().timeout(Duration::from_secs(2));
    let missing = PgPoolOptions::new().connect_lazy_with(options(&engine).database("missing"));
    let error = PostgresStore::with_options(&missing, soon.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("cannot connect to 127.0.0.1:"), "{error}");
    for options in [soon.clone(), soon.share_pool()] {
        let nobody = PgPoolOptions::new().connect_lazy_with(crate::options(&engine).port(1));
        let error = PostgresStore::with_options(&nobody, options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("refused"), "{error}");
    }
}

/// A subscriber of the program that ignores all events.
struct Ignores;

impl Subscriber for Ignores {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The write is committed on this server, but may be lost in a failover: the driver only logs the server's
/// warning, and the store reads the log of a program with a subscriber.
#[tokio::test]
async fn commit_with_cancelled_standby_wait_is_unknown() {
    let _subscriber = tracing::subscriber::set_default(Ignores);
    let Some(engine) = server().await else { return };
    let (pool, admin) = (pool(&engine, 1), admin(&engine));
    let store = open(&pool).await;
    assert_eq!(ids(reserve(&store, "s", 1).await.unwrap().range), (1, 1));
    // The statements of `admin` must not wait for a standby.
    admin.execute("ALTER ROLE postgres SET synchronous_commit = local").await.unwrap();
    admin.execute("SET synchronous_commit = local; SELECT 1").await.unwrap();
    admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").await.unwrap();
    admin.execute("SELECT pg_reload_conf()").await.unwrap();
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move {
            loop {
                // The server can commit once more before it reloads its settings.
                if let Err(error) = reserve(&store, "s", 1).await {
                    return error;
                }
            }
        })
    };
    let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    eventually("a commit waits for the standby", async || {
        holds(sqlx::query_scalar::<_, i64>(cancel).fetch_one(&admin).await.unwrap() > 0, "none")
    })
    .await;
    let error = tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    assert!(error.to_string().contains("synchronous replication"), "{error}");
}
