//! Connections to other databases than PostgreSQL.

use std::error::Error as _;

use idmill_sea_orm::idmill::{ErrorKind, Status};
use idmill_sea_orm::postgres::{PostgresStore, next_in};
use sea_orm::{
    Database, DatabaseConnection, DbBackend, DbErr, MockDatabase, MockExecResult, TransactionTrait,
};

fn mock(backend: DbBackend) -> DatabaseConnection {
    MockDatabase::new(backend).into_connection()
}

#[tokio::test]
async fn connection_to_another_database_is_rejected_with_remedy() {
    let sqlite = Database::connect("sqlite::memory:").await.unwrap();
    for (connection, said) in [
        (sqlite, "for SQLite (use `idmill_sqlx::sqlite`"),
        (mock(DbBackend::Sqlite), "for SQLite"),
        (mock(DbBackend::MySql), "for MySQL (use `idmill-mysql`"),
        (mock(DbBackend::Postgres), "a mock or a proxy"),
        (DatabaseConnection::default(), "`Database::connect`"),
    ] {
        let error = PostgresStore::from_connection(&connection).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[tokio::test]
async fn transaction_of_another_database_is_rejected_and_usable() {
    let sqlite = Database::connect("sqlite::memory:").await.unwrap();
    let tx = sqlite.begin().await.unwrap();
    let error = next_in::<i64>(&tx, "invoices").await.unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::InvalidInput, Some("invoices")), "{error}");
    assert!(error.to_string().contains("the transaction is for SQLite"), "{error}");
    tx.commit().await.unwrap();
}

/// A retry would never succeed.
#[tokio::test]
async fn mocked_transaction_is_a_permanent_error_with_remedy() {
    let answers = [MockExecResult::default(), MockExecResult::default()];
    for mock in [
        MockDatabase::new(DbBackend::Postgres),
        MockDatabase::new(DbBackend::Postgres).append_exec_results(answers),
        MockDatabase::new(DbBackend::Postgres).append_exec_errors([DbErr::Custom("of the test".to_owned())]),
    ] {
        let tx = mock.into_connection().begin().await.unwrap();
        let error = next_in::<i64>(&tx, "invoices").await.unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::InvalidInput, Status::Permanent), "{error}");
        assert!(
            error.to_string().contains("mock") && error.to_string().contains("real PostgreSQL"),
            "{error}"
        );
        assert!(error.source().and_then(|cause| cause.downcast_ref::<DbErr>()).is_some(), "{error:?}");
    }
}
