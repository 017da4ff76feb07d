//! Runs the statements of the dialect with rusqlite.

use std::future::ready;

use idmill::{Error, ErrorKind};
use idmill_sql::{Answer, EngineError, Executor, Fault, Row, Statement, Value};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Error as SqliteError, Statement as Prepared, ToSql, params_from_iter};

/// A connection of the store.
#[derive(Debug)]
pub(super) struct Own(pub(super) Connection);

impl Executor for Own {
    const IN_TRANSACTION: bool = false;

    fn execute(&mut self, statement: Statement<'_>) -> impl Future<Output = Result<Answer, Fault>> + Send {
        ready(run(&self.0, &statement).map_err(fault))
    }
}

pub(super) fn run(db: &Connection, statement: &Statement<'_>) -> rusqlite::Result<Answer> {
    let rows = if statement.again {
        rows(&mut *db.prepare_cached(&statement.sql)?, &statement.values)?
    } else {
        rows(&mut db.prepare(&statement.sql)?, &statement.values)?
    };
    let changed = if statement.writes { db.changes() } else { 0 };
    Ok(Answer::changed(changed, None).with_rows(rows))
}

/// Reads all rows, so that the statement is finished.
fn rows(statement: &mut Prepared<'_>, values: &[Value]) -> rusqlite::Result<Vec<Row>> {
    let columns = statement.column_count();
    let mut rows = statement.query(params_from_iter(values.iter().map(Bound)))?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let values = (0..columns).map(|column| row.get_ref(column).map(value));
        all.push(Row::new(values.collect::<rusqlite::Result<_>>()?));
    }
    Ok(all)
}

/// A parameter of a statement.
struct Bound<'a>(&'a Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Integer(value) => ValueRef::Integer(*value),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
            other => {
                return Err(SqliteError::ToSqlConversionFailure(
                    format!("SQLite cannot bind {other:?}").into(),
                ));
            }
        }))
    }
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Integer(value),
        ValueRef::Real(value) => Value::Text(value.to_string()),
        ValueRef::Text(bytes) => match str::from_utf8(bytes) {
            Ok(text) => Value::from(text),
            Err(_) => Value::Bytes(bytes.to_vec()),
        },
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    }
}

/// Converts an error of the driver.
pub(super) fn fault(error: SqliteError) -> Fault {
    let code = match &error {
        SqliteError::SqliteFailure(code, _) | SqliteError::SqlInputError { error: code, .. } => {
            code.extended_code
        }
        SqliteError::NulError(_) | SqliteError::InvalidPath(_) => {
            return refused(ErrorKind::InvalidInput, error);
        }
        SqliteError::SqliteSingleThreadedMode => return refused(ErrorKind::Unsupported, error),
        // An invalid value or statement, which the driver itself rejected.
        _ => return refused(ErrorKind::StoreViolation, error),
    };
    EngineError::new(code.to_string(), error.to_string()).because(error).into()
}

fn refused(kind: ErrorKind, error: SqliteError) -> Fault {
    Fault::Refused(Error::new(kind, error.to_string()).because(error))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use idmill_sql::Asked;
    use idmill_sql::sqlite::failed;
    use rusqlite::OpenFlags;

    use super::*;

    fn on(path: &Path, sql: &str) -> SqliteError {
        let db = Connection::open(path).unwrap();
        db.busy_timeout(Duration::ZERO).unwrap();
        db.execute_batch(sql).unwrap_err()
    }

    fn with(setup: &str, sql: &str) -> SqliteError {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(setup).unwrap();
        db.execute_batch(sql).unwrap_err()
    }

    fn busy(dir: &Path) -> SqliteError {
        let path = dir.join("busy");
        let holder = Connection::open(&path).unwrap();
        holder.execute_batch("CREATE TABLE t (a); BEGIN EXCLUSIVE").unwrap();
        on(&path, "INSERT INTO t VALUES (1)")
    }

    fn stale_snapshot(dir: &Path) -> SqliteError {
        let path = dir.join("snapshot");
        let (a, b) = (Connection::open(&path).unwrap(), Connection::open(&path).unwrap());
        a.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (a); BEGIN; SELECT * FROM t").unwrap();
        b.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        a.execute_batch("INSERT INTO t VALUES (2)").unwrap_err()
    }

    fn read_only(dir: &Path) -> SqliteError {
        let path = dir.join("ro");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
        let db = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        db.execute_batch("INSERT INTO t VALUES (1)").unwrap_err()
    }

    fn moved(dir: &Path) -> SqliteError {
        let path = dir.join("moved");
        let db = Connection::open(&path).unwrap();
        db.execute_batch("CREATE TABLE t (a)").unwrap();
        std::fs::rename(&path, dir.join("elsewhere")).unwrap();
        db.execute_batch("INSERT INTO t VALUES (1)").unwrap_err()
    }

    fn corrupt(dir: &Path) -> SqliteError {
        let path = dir.join("corrupt");
        let sql = "PRAGMA page_size = 512; CREATE TABLE t (a); INSERT INTO t VALUES (zeroblob(5000))";
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[512..].fill(0xff);
        std::fs::write(&path, bytes).unwrap();
        on(&path, "UPDATE t SET a = 1")
    }

    fn not_a_database(dir: &Path) -> SqliteError {
        let path = dir.join("text");
        std::fs::write(&path, "this is a text, and by far too short for a database. ".repeat(50)).unwrap();
        on(&path, "CREATE TABLE t (a)")
    }

    fn locked() -> SqliteError {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").unwrap();
        let mut reader = db.prepare("SELECT a FROM t").unwrap();
        let mut rows = reader.query([]).unwrap();
        rows.next().unwrap();
        db.execute_batch("DROP TABLE t").unwrap_err()
    }

    fn wrong_type() -> SqliteError {
        let db = Connection::open_in_memory().unwrap();
        db.query_row("SELECT 'text'", [], |row| row.get::<_, i64>(0)).unwrap_err()
    }

    #[test]
    fn errors_of_the_real_engine_are_classified() {
        use ErrorKind::{Conflict, Denied, InvalidInput, NotFound, StoreViolation, Unavailable};
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let full = "CREATE TABLE t (a); PRAGMA max_page_count = 3";
        let table = [
            ("busy", busy(dir), Unavailable, "own write transaction"),
            ("snapshot", stale_snapshot(dir), Unavailable, "BEGIN IMMEDIATE"),
            ("locked", locked(), Unavailable, "own write transaction"),
            ("full", with(full, "INSERT INTO t VALUES (zeroblob(99999))"), Unavailable, "free space"),
            ("open", Connection::open(dir.join("no/where")).unwrap_err(), Unavailable, "directory"),
            ("read-only", read_only(dir), Denied, "writable"),
            ("moved", moved(dir), StoreViolation, ""),
            ("corrupt", corrupt(dir), StoreViolation, "backup"),
            ("text", not_a_database(dir), StoreViolation, "name another"),
            ("no table", with("", "SELECT * FROM t"), NotFound, "restore it"),
            ("no column", with("CREATE TABLE t (a)", "UPDATE t SET next = 1"), Conflict, "`table="),
            ("no column", with("CREATE TABLE t (a)", "INSERT INTO t (next) VALUES (1)"), Conflict, "`table="),
            ("check", with("CREATE TABLE t (a CHECK (a > 0))", "INSERT INTO t VALUES (0)"), Conflict, ""),
            ("syntax", with("", "SELEKT"), StoreViolation, ""),
            ("type", wrong_type(), StoreViolation, ""),
            ("NUL", Connection::open("a\0b").unwrap_err(), InvalidInput, ""),
        ];
        for (what, error, kind, hint) in table {
            let shown = format!("{what}: {error:?}");
            let sorted = failed(fault(error), Asked::InTransaction);
            assert_eq!(sorted.kind(), kind, "{shown}");
            assert!(sorted.to_string().contains(hint), "{shown}: {sorted}");
            assert!(std::error::Error::source(&sorted).is_some());
        }
    }
}
