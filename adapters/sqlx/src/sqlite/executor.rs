//! Runs the statements of the dialect with sqlx.

use futures_util::TryStreamExt;
use idmill::{Error, ErrorKind};
use idmill_sql::{Answer, EngineError, Executor, Fault, Row, Statement, Value};
use sqlx::sqlite::{SqliteRow, SqliteValueRef};
use sqlx::{Either, Error as SqlxError, Executor as _, Row as _, SqliteConnection, TypeInfo, ValueRef};

use crate::version::sqlite::{Statement as Query, query};

/// A connection of the store.
#[derive(Debug)]
pub(super) struct Own(pub(super) SqliteConnection);

impl Executor for Own {
    const IN_TRANSACTION: bool = false;

    async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
        run(&mut self.0, &statement).await
    }
}

pub(super) async fn run(
    connection: &mut SqliteConnection,
    statement: &Statement<'_>,
) -> Result<Answer, Fault> {
    let mut query = query(&statement.sql).persistent(statement.again);
    for value in &statement.values {
        query = bound(query, value);
    }
    let (mut answers, mut rows, mut changed) = (connection.fetch_many(query), Vec::new(), 0);
    while let Some(answer) = answers.try_next().await.map_err(fault)? {
        match answer {
            Either::Left(done) => changed = done.rows_affected(),
            Either::Right(row) => rows.push(row_of(&row).map_err(fault)?),
        }
    }
    Ok(Answer::changed(if statement.writes { changed } else { 0 }, None).with_rows(rows))
}

fn bound<'a>(query: Query<'a>, value: &Value) -> Query<'a> {
    match value {
        Value::Null => query.bind(None::<i64>),
        Value::Integer(integer) => query.bind(*integer),
        Value::Text(text) => query.bind(text.clone()),
        Value::Bytes(bytes) => query.bind(bytes.clone()),
        _ => unreachable!("statements for SQLite do not bind this value"),
    }
}

fn row_of(row: &SqliteRow) -> Result<Row, SqlxError> {
    let values = (0..row.len()).map(|column| value(row, column));
    Ok(Row::new(values.collect::<Result<_, _>>()?))
}

/// Returns the stored value, whatever the declared type of the column is.
fn value(row: &SqliteRow, column: usize) -> Result<Value, SqlxError> {
    let raw: SqliteValueRef<'_> = row.try_get_raw(column)?;
    if raw.is_null() {
        return Ok(Value::Null);
    }
    let kind = raw.type_info().name().to_owned();
    Ok(match &*kind {
        "INTEGER" => Value::Integer(row.try_get_unchecked(column)?),
        "REAL" => Value::Text(row.try_get_unchecked::<f64, _>(column)?.to_string()),
        "TEXT" => {
            let bytes: Vec<u8> = row.try_get_unchecked(column)?;
            String::from_utf8(bytes).map_or_else(|error| Value::Bytes(error.into_bytes()), Value::Text)
        }
        _ => Value::Bytes(row.try_get_unchecked(column)?),
    })
}

/// Converts an error of the driver.
pub(super) fn fault(error: SqlxError) -> Fault {
    let said = error
        .as_database_error()
        .and_then(|said| Some((said.code()?.into_owned(), said.message().to_owned())));
    match (said, &error) {
        (Some((code, message)), _) => EngineError::new(code, message).because(error).into(),
        // The connection's thread has ended.
        (None, SqlxError::WorkerCrashed) => Fault::broken(error),
        // An invalid path.
        (None, SqlxError::Io(_) | SqlxError::Configuration(_)) => refused(ErrorKind::InvalidInput, error),
        _ => refused(ErrorKind::StoreViolation, error),
    }
}

fn refused(kind: ErrorKind, error: SqlxError) -> Fault {
    Fault::Refused(Error::new(kind, error.to_string()).because(error))
}

#[cfg(test)]
mod tests {
    use idmill_sql::Asked;
    use idmill_sql::sqlite::failed;
    use sqlx::Connection as _;

    use super::*;

    async fn memory() -> Own {
        Own(SqliteConnection::connect("sqlite::memory:").await.unwrap())
    }

    #[tokio::test]
    async fn values_round_trip_with_their_types() {
        let mut own = memory().await;
        own.execute(Statement::write("CREATE TABLE t (a INTEGER, b TEXT, c, d, e, f)", []).once())
            .await
            .unwrap();
        let values = [7.into(), "é".into(), Value::Bytes(vec![0, 255]), Value::Null, "9".into()];
        let inserted = Statement::write("INSERT INTO t VALUES (?1, ?2, ?3, ?4, ?5, 1.5)", values.clone());
        assert_eq!(own.execute(inserted).await.unwrap().changed, 1);
        let answer = own.execute(Statement::read("SELECT * FROM t", [])).await.unwrap();
        assert_eq!(answer.changed, 0, "it reads");
        let read: Vec<_> = (0..6).map(|column| answer.rows[0].get(column).clone()).collect();
        assert_eq!(read[..5], values);
        assert_eq!(read[5], "1.5".into());
        let odd = Statement::read("SELECT CAST(x'ff' AS TEXT)", []);
        assert_eq!(own.execute(odd).await.unwrap().rows[0].get(0), &Value::Bytes(vec![255]));
        let none = Statement::write("UPDATE t SET a = 1 WHERE a = 0", []);
        assert_eq!(own.execute(none).await.unwrap().changed, 0);
    }

    #[tokio::test]
    async fn errors_of_the_real_engine_are_classified() {
        let mut own = memory().await;
        own.execute(Statement::write("CREATE TABLE t (a CHECK (a > 0))", [])).await.unwrap();
        for (sql, kind) in [
            ("SELECT * FROM missing", ErrorKind::NotFound),
            ("UPDATE t SET next = 1", ErrorKind::Conflict),
            ("INSERT INTO t VALUES (0)", ErrorKind::Conflict),
            ("SELEKT", ErrorKind::StoreViolation),
        ] {
            let error =
                failed(own.execute(Statement::write(sql, [])).await.unwrap_err(), Asked::InTransaction);
            assert_eq!(error.kind(), kind, "{sql}: {error}");
        }
        let Err(error) = SqliteConnection::connect("sqlite:///no/where/at/all").await else {
            panic!("opened")
        };
        assert_eq!(failed(fault(error), Asked::Connect).kind(), ErrorKind::Unavailable);
    }
}
