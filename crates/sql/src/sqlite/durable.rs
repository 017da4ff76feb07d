//! Pragmas that make a commit survive a power failure. They are set on a connection and read back.

use idmill::{Error, ErrorKind, Result};

use super::classify::failed;
use crate::rows::legible;
use crate::{Asked, Executor, Statement, Value};

/// FULL, plus a sync of the directory: without the sync, a deleted rollback journal can reappear
/// after a power failure and undo a commit whose ids are in use. In WAL mode EXTRA is the same as
/// FULL.
const EXTRA: i64 = 3;
const DURABLE: [(&str, i64); 3] = [("synchronous", EXTRA), ("fullfsync", 1), ("checkpoint_fullfsync", 1)];
/// The durable modes. OFF and MEMORY, which only a connection sets, are not durable.
const JOURNALS: [&str; 4] = ["wal", "delete", "truncate", "persist"];

/// Makes a commit on this connection survive a power failure, or rejects the database. With
/// `may_create`, an empty database gets a write-ahead log. The journal mode of an existing database
/// is not changed.
///
/// Do not call it within a transaction: there SQLite rejects `synchronous`, and ignores the other pragmas.
///
/// # Errors
/// [`Unsupported`](ErrorKind::Unsupported) if commits would not be durable; any other error if the
/// database cannot be used.
pub async fn make_durable<E: Executor>(db: &mut E, may_create: bool) -> Result<()> {
    for (pragma, value) in DURABLE {
        run(db, Statement::write(format!("PRAGMA {pragma} = {value}"), []).once()).await?;
    }
    if may_create && number(db, "page_count").await? == Value::Integer(0) {
        // On a file system without support for WAL the mode stays as it was, which is durable too.
        run(db, Statement::write("PRAGMA journal_mode = WAL", []).once()).await?;
    }
    verify_durable(db).await
}

/// Rejects a connection on which a commit would not survive a power failure.
///
/// # Errors
/// The errors of [`make_durable`].
pub async fn verify_durable<E: Executor>(db: &mut E) -> Result<()> {
    let journal = journal(db).await?;
    if !JOURNALS.contains(&journal.as_str()) {
        return Err(not_durable(&format!("journal_mode is {journal}")));
    }
    for (pragma, value) in DURABLE {
        match number(db, pragma).await? {
            Value::Integer(found) if found == value => {}
            Value::Integer(found) => {
                return Err(not_durable(&format!("{pragma} is {found} although {value} was set")));
            }
            other => return Err(not_durable(&format!("{pragma} is {other:?} although {value} was set"))),
        }
    }
    Ok(())
}

/// Returns the journal mode of the connection.
pub(super) async fn journal<E: Executor>(db: &mut E) -> Result<String> {
    let answer = run(db, Statement::read("PRAGMA journal_mode", []).once()).await?;
    Ok(answer.rows.first().map(|row| legible(row, 0).into_owned()).unwrap_or_default())
}

/// Sets how long statements of this connection wait for others. The maximum is 24 days, since
/// SQLite counts milliseconds in 31 bits.
pub(super) async fn be_patient<E: Executor>(db: &mut E, millis: u128) -> Result<()> {
    let millis = millis.min(i32::MAX as u128);
    run(db, Statement::write(format!("PRAGMA busy_timeout = {millis}"), []).once()).await.map(drop)
}

async fn number<E: Executor>(db: &mut E, pragma: &str) -> Result<Value> {
    let answer = run(db, Statement::read(format!("PRAGMA {pragma}"), []).once()).await?;
    Ok(answer.rows.first().map_or(Value::Null, |row| row.get(0).clone()))
}

async fn run<E: Executor>(db: &mut E, statement: Statement<'_>) -> Result<crate::Answer> {
    db.execute(statement).await.map_err(|fault| failed(fault, Asked::Connect))
}

fn not_durable(why: &str) -> Error {
    let message = format!(
        "a commit would not survive a crash, because {why}; remove journal_mode=OFF or MEMORY, or use another file or build"
    );
    Error::new(ErrorKind::Unsupported, message)
}
