//! Converts statements, rows and errors between `idmill-sql` and SeaORM.

use idmill_sql::{Fault, Row, Statement, Value};
use idmill_sqlx::postgres::fault_of as fault_of_sqlx;
use sea_orm::{DbBackend, DbErr, QueryResult, RuntimeErr, Statement as Sent, Value as Bound};

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
    match error {
        DbErr::Query(RuntimeErr::SqlxError(error))
        | DbErr::Exec(RuntimeErr::SqlxError(error))
        | DbErr::Conn(RuntimeErr::SqlxError(error)) => fault_of_sqlx(error),
        error => Fault::broken(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use idmill::ErrorKind::Unavailable;
    use idmill_sql::Asked;
    use idmill_sql::postgres::{classify, failed};
    use sea_orm::SqlxError;

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
    fn errors_not_from_the_server_are_broken_connections() {
        let lost = || SqlxError::Io(io::Error::other("its words"));
        for error in [
            DbErr::Query(RuntimeErr::SqlxError(lost())),
            DbErr::Exec(RuntimeErr::SqlxError(lost())),
            DbErr::Conn(RuntimeErr::SqlxError(lost())),
            DbErr::Query(RuntimeErr::Internal("its words".to_owned())),
            DbErr::Custom("its words".to_owned()),
        ] {
            let fault = fault_of(error);
            assert!(matches!(fault, Fault::Broken(_)), "{fault:?}");
            assert_eq!(classify(&fault, Asked::InTransaction), Unavailable);
            let error = failed(fault, Asked::InTransaction);
            assert!(error.to_string().contains("its words"), "{error}");
        }
    }
}
