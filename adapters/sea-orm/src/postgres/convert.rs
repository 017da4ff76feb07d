//! Converts statements, rows and errors between `idmill-sql` and SeaORM.

use idmill::Error;
use idmill_sql::{Fault, Row, Statement, Value};
use idmill_sqlx::postgres::fault_of as fault_of_sqlx;
use sea_orm::{DbBackend, DbErr, QueryResult, RuntimeErr, Statement as Sent, Value as Bound};

use crate::version::postgres::{db_err, sqlx_error};

/// Converts a statement with its values. The statement ignores its lock timeout: that of the caller's
/// transaction applies.
pub(super) fn sent(statement: &Statement<'_>) -> Sent {
    Sent::from_sql_and_values(DbBackend::Postgres, &*statement.sql, statement.values.iter().map(bound))
}

fn bound(value: &Value) -> Bound {
    match value {
        Value::Null => Bound::from(None::<String>),
        Value::Integer(integer) => Bound::from(*integer),
        Value::Text(text) => Bound::from(text.as_str()),
        Value::Bytes(bytes) => Bound::from(bytes.as_slice()),
        Value::Timeout => Bound::from(""),
        // Only batches have arrays, and they never run in a caller's transaction.
        _ => unreachable!("statements in a transaction do not bind this value"),
    }
}

/// Converts a row, whose columns are all text.
pub(super) fn row_of(row: &QueryResult) -> Row {
    let columns = 0..row.column_names().len();
    let text = |column| row.try_get_by_index(column).ok().flatten();
    Row::new(columns.map(|column| text(column).map_or(Value::Null, Value::Text)).collect())
}

/// Converts an error of a statement. SeaORM only wraps the error of sqlx, which contains the
/// server's.
pub(super) fn fault_of(error: DbErr) -> Fault {
    match sqlx_error(error) {
        Ok(error) => fault_of_sqlx(error),
        Err(
            error @ (DbErr::Query(RuntimeErr::Internal(_))
            | DbErr::Exec(RuntimeErr::Internal(_))
            | DbErr::Custom(_)),
        ) => mocked(error),
        Err(error) => Fault::broken(error),
    }
}

/// Only a mock or a proxy fails without an error of sqlx. A retry would fail again.
fn mocked(error: DbErr) -> Fault {
    let message = format!("{error}; a mock or a proxy cannot draw ids: test with a real PostgreSQL");
    Fault::Refused(Error::invalid(message).because(error))
}

/// Converts an error to an error of SeaORM, for functions that return `DbErr`, such as the closure of
/// [`TransactionTrait::transaction`](sea_orm::TransactionTrait::transaction).
///
/// The result is `DbErr::Query` with the error of [`into_sqlx`](idmill_sqlx::into_sqlx). That error has the
/// code and the kind of the database's error, if there is one. Its source is the [`idmill::Error`].
///
/// ```
/// use std::error::Error as _;
///
/// use idmill_sea_orm::idmill::{Error, ErrorKind};
/// use idmill_sea_orm::postgres::into_db_err;
/// use sea_orm::{DbErr, RuntimeErr};
///
/// let error = into_db_err(Error::from(ErrorKind::Exhausted));
/// let DbErr::Query(RuntimeErr::SqlxError(error)) = error else { panic!("{error}") };
/// let source = error.as_database_error().and_then(|error| error.source());
/// let error = source.and_then(|source| source.downcast_ref::<Error>()).unwrap();
/// assert_eq!(error.kind(), ErrorKind::Exhausted);
/// ```
pub fn into_db_err(error: Error) -> DbErr {
    db_err(idmill_sqlx::into_sqlx(error))
}

#[cfg(test)]
mod tests {
    use std::io;

    use idmill::ErrorKind::{InvalidInput, Unavailable};
    use idmill_sql::Asked;
    use idmill_sql::postgres::{classify, failed};
    use sea_orm::{ConnAcquireErr, SqlxError};

    use super::*;

    #[test]
    fn values_are_bound_as_texts() {
        let values = ["it's $1".into(), Value::Timeout, Value::Null, 7.into(), Value::Bytes(vec![0])];
        let sent = sent(&Statement::read("SELECT $1, $2, $3, $4, $5", values));
        assert_eq!(sent.sql, "SELECT $1, $2, $3, $4, $5");
        let bound = ["it's $1".into(), "".into(), Bound::String(None), 7i64.into(), vec![0u8].into()];
        assert_eq!(sent.values.unwrap().0, bound);
    }

    /// Errors of the server are covered by the integration tests.
    #[test]
    fn errors_not_from_the_server_are_classified() {
        let lost = || db_err(SqlxError::Io(io::Error::other("its words")));
        for (error, kind) in [
            (lost(), Unavailable),
            (DbErr::ConnectionAcquire(ConnAcquireErr::Timeout), Unavailable),
            (DbErr::Query(RuntimeErr::Internal("its words".to_owned())), InvalidInput),
            (DbErr::Exec(RuntimeErr::Internal("its words".to_owned())), InvalidInput),
            (DbErr::Custom("its words".to_owned()), InvalidInput),
        ] {
            let words = error.to_string();
            let fault = fault_of(error);
            assert_eq!(classify(&fault, Asked::InTransaction), kind, "{fault:?}");
            let error = failed(fault, Asked::InTransaction);
            assert!(error.to_string().contains(words.rsplit(": ").next().unwrap()), "{error}");
        }
    }
}
