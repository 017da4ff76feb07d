//! The code that differs between SeaORM 2 and SeaORM 1.1. All other files are shared.

/// Holds the source of an error.
pub(crate) use std::sync::Arc as Source;

#[cfg(feature = "postgres")]
pub(crate) mod postgres {
    use std::sync::Arc;

    use sea_orm::{
        ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbErr, QueryResult, RuntimeErr, SqlxError,
        Statement,
    };

    /// The kinds of connections.
    pub(crate) use sea_orm::DatabaseConnectionType as Kind;

    /// Returns the kind of this connection.
    pub(crate) fn kind(connection: &DatabaseConnection) -> &Kind {
        &connection.inner
    }

    /// Runs a statement, and returns its rows.
    pub(crate) async fn rows(
        transaction: &DatabaseTransaction,
        statement: Statement,
    ) -> Result<Vec<QueryResult>, DbErr> {
        transaction.query_all_raw(statement).await
    }

    /// Returns the error of sqlx in an error of SeaORM, unless the error has other owners. SeaORM keeps none.
    pub(crate) fn sqlx_error(error: DbErr) -> Result<SqlxError, DbErr> {
        match error {
            DbErr::Query(RuntimeErr::SqlxError(error))
            | DbErr::Exec(RuntimeErr::SqlxError(error))
            | DbErr::Conn(RuntimeErr::SqlxError(error)) => {
                Arc::try_unwrap(error).map_err(|error| DbErr::Query(RuntimeErr::SqlxError(error)))
            }
            error => Err(error),
        }
    }

    /// Converts an error of sqlx to an error of SeaORM.
    pub(crate) fn db_err(error: SqlxError) -> DbErr {
        DbErr::Query(RuntimeErr::SqlxError(Arc::new(error)))
    }
}
