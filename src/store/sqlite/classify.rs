//! SQLite's errors, sorted by what they say about the ids.
//!
//! Before COMMIT nothing has been reserved, whatever went wrong: the transaction is rolled back, or is when
//! its connection closes. So the kinds of [`classify`] only have to say whether another try may succeed.
//! After a failed COMMIT that question is open unless the transaction still is: see [`commit_failed`].

use rusqlite::{Error as SqliteError, ErrorCode, ffi};

use crate::error::{Error, ErrorKind};
use crate::store::mode::GONE;

pub(super) type Sql<T> = rusqlite::Result<T>;

/// What an error of any statement but COMMIT means.
pub(super) fn classify(error: &SqliteError) -> ErrorKind {
    match error {
        SqliteError::SqliteFailure(..) | SqliteError::SqlInputError { .. } => classify_code(error),
        SqliteError::NulError(_) | SqliteError::InvalidPath(_) => ErrorKind::InvalidInput,
        SqliteError::SqliteSingleThreadedMode => ErrorKind::Unsupported,
        // A value of another type than was written, a statement that did not do what it says.
        _ => ErrorKind::StoreViolation,
    }
}

fn classify_code(error: &SqliteError) -> ErrorKind {
    match error.sqlite_error_code().unwrap_or(ErrorCode::Unknown) {
        ErrorCode::SystemIoFailure if extended(error) == ffi::SQLITE_IOERR_CORRUPTFS => {
            ErrorKind::StoreViolation
        }
        // Others are writing, recovering or changing the schema; or memory, disk space, file descriptors or
        // the disk itself are missing, all of which come back: worth another try.
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::FileLockingProtocolFailed
        | ErrorCode::SchemaChanged
        | ErrorCode::OperationAborted
        | ErrorCode::OperationInterrupted
        | ErrorCode::OutOfMemory
        | ErrorCode::DiskFull
        | ErrorCode::CannotOpen
        | ErrorCode::SystemIoFailure => ErrorKind::Unavailable,
        // The file was moved under its rollback journal.
        ErrorCode::ReadOnly if extended(error) == ffi::SQLITE_READONLY_DBMOVED => ErrorKind::StoreViolation,
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => {
            ErrorKind::Denied
        }
        // A check, a unique index or a trigger of somebody's refused the row.
        ErrorCode::ConstraintViolation => ErrorKind::Conflict,
        ErrorCode::NoLargeFileSupport => ErrorKind::Unsupported,
        ErrorCode::TooBig => ErrorKind::InvalidInput,
        ErrorCode::Unknown if is_missing_table(error) => ErrorKind::NotFound,
        ErrorCode::Unknown if is_missing_column(error) => ErrorKind::Conflict,
        // DatabaseCorrupt, NotADatabase, and what only a bug in here can bring about.
        _ => ErrorKind::StoreViolation,
    }
}

/// Whether a statement failed because its table does not exist: for this SQLite has no code.
pub(super) fn is_missing_table(error: &SqliteError) -> bool {
    message(error).is_some_and(|message| message.starts_with("no such table"))
}

/// Whether others hold the file.
pub(super) fn is_busy(error: &SqliteError) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

fn is_missing_column(error: &SqliteError) -> bool {
    message(error)
        .is_some_and(|text| text.starts_with("no such column") || text.contains("has no column named"))
}

/// An error of any statement but COMMIT: nothing was reserved.
pub(super) fn failed(error: SqliteError) -> Error {
    let kind = classify(&error);
    let message = match remedy(&error, kind) {
        Some(remedy) => format!("{error}; {remedy}"),
        None => error.to_string(),
    };
    Error::new(kind, message).because(error)
}

/// The same error of opening a database; but where other files can be opened, it is this one or its directory
/// that may not be, and will not be the next time.
pub(super) fn refused(error: Error) -> Error {
    use std::error::Error as _;

    let cause = error.source().and_then(|source| source.downcast_ref::<SqliteError>());
    let cannot_open = cause.and_then(SqliteError::sqlite_error_code) == Some(ErrorCode::CannotOpen);
    // Its own place is shown by `at_path`.
    if !(cannot_open && cfg!(unix) && std::fs::File::open("/dev/null").is_ok()) {
        return error;
    }
    let message = "the file cannot be opened, or not be created in its directory; make both readable and writable for this user, \
                   or name another place";
    Error::new(ErrorKind::Denied, message)
}

/// An error of COMMIT. Where SQLite has left the transaction open (others hold the file, or a deferred
/// constraint is not met) and it was rolled back, nothing was reserved. In all other cases SQLite has
/// ended it; a frame or a journal may have reached the disk before the write or the sync that failed,
/// and a crash may bring it back.
pub(super) fn commit_failed(error: SqliteError, rolled_back: bool) -> Error {
    if rolled_back {
        return failed(error);
    }
    Error::new(ErrorKind::UnknownOutcome, format!("COMMIT failed: {error}; it may have been applied"))
        .because(error)
}

const ROOM: &str = "make room on the disk, or in the user's share of it";
const WRITES: [i32; 5] = [
    ffi::SQLITE_IOERR_SHMSIZE,
    ffi::SQLITE_IOERR_SHMMAP,
    ffi::SQLITE_IOERR_WRITE,
    ffi::SQLITE_IOERR_FSYNC,
    ffi::SQLITE_IOERR_TRUNCATE,
];

/// Whether an error of opening is the disk's: waiting for other processes does not help.
pub(super) fn wants_room(error: &Error) -> bool {
    let mut causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.any(|cause| cause.downcast_ref::<SqliteError>().is_some_and(is_for_want_of_room))
}

fn is_for_want_of_room(error: &SqliteError) -> bool {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => true,
        // What SQLite says of a full disk under its log and the log's index, and under a journal.
        Some(ErrorCode::SystemIoFailure) => WRITES.contains(&extended(error)),
        _ => false,
    }
}

fn remedy(error: &SqliteError, kind: ErrorKind) -> Option<&'static str> {
    Some(match (error.sqlite_error_code()?, kind) {
        (ErrorCode::DatabaseBusy, _) if extended(error) == ffi::SQLITE_BUSY_SNAPSHOT => {
            "the transaction has read before it wrote, and another has written since: roll it back and begin it \
             again, best with BEGIN IMMEDIATE"
        }
        (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => {
            "another connection holds it; try again, or raise busy_timeout"
        }
        _ if is_for_want_of_room(error) => ROOM,
        (ErrorCode::SystemIoFailure, _) => "look at the disk and its file system",
        (ErrorCode::CannotOpen, _) => "check that the file and its directory can be read and written",
        (ErrorCode::NotADatabase, _) => "this file is not an SQLite database; name another",
        (ErrorCode::DatabaseCorrupt, _) => {
            "restore it from a backup, and raise the sequences above every id in use"
        }
        (_, ErrorKind::Denied) => "make the file and its directory writable for this user",
        (_, ErrorKind::NotFound) => GONE,
        (ErrorCode::Unknown, ErrorKind::Conflict) => {
            "the table is not idmill's; name another with ?table=NAME"
        }
        _ => return None,
    })
}

fn extended(error: &SqliteError) -> i32 {
    error.sqlite_error().map_or(0, |error| error.extended_code)
}

fn message(error: &SqliteError) -> Option<&str> {
    match error {
        SqliteError::SqliteFailure(_, message) => message.as_deref(),
        SqliteError::SqlInputError { msg, .. } => Some(msg),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::{Connection, OpenFlags};
    use std::path::Path;
    use std::time::Duration;

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
    fn errors_of_the_real_engine_are_sorted() {
        use ErrorKind::{Conflict, Denied, InvalidInput, NotFound, StoreViolation, Unavailable};
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let full = "CREATE TABLE t (a); PRAGMA max_page_count = 3";
        let table = [
            ("busy", busy(dir), Unavailable, "busy_timeout"),
            ("snapshot", stale_snapshot(dir), Unavailable, "BEGIN IMMEDIATE"),
            ("locked", locked(), Unavailable, "try again"),
            ("full", with(full, "INSERT INTO t VALUES (zeroblob(99999))"), Unavailable, "make room"),
            ("open", Connection::open(dir.join("no/where")).unwrap_err(), Unavailable, "directory"),
            ("read-only", read_only(dir), Denied, "writable"),
            ("moved", moved(dir), StoreViolation, ""),
            ("corrupt", corrupt(dir), StoreViolation, "backup"),
            ("text", not_a_database(dir), StoreViolation, "name another"),
            ("no table", with("", "SELECT * FROM t"), NotFound, "if this is new"),
            ("no column", with("CREATE TABLE t (a)", "UPDATE t SET next = 1"), Conflict, "?table"),
            ("no column", with("CREATE TABLE t (a)", "INSERT INTO t (next) VALUES (1)"), Conflict, "?table"),
            ("check", with("CREATE TABLE t (a CHECK (a > 0))", "INSERT INTO t VALUES (0)"), Conflict, ""),
            ("syntax", with("", "SELEKT"), StoreViolation, ""),
            ("type", wrong_type(), StoreViolation, ""),
            ("NUL", Connection::open("a\0b").unwrap_err(), InvalidInput, ""),
        ];
        for (what, error, kind, hint) in table {
            let shown = format!("{what}: {error:?}");
            let sorted = failed(error);
            assert_eq!(sorted.kind(), kind, "{shown}");
            assert!(sorted.to_string().contains(hint), "{shown}: {sorted}");
            assert!(std::error::Error::source(&sorted).is_some());
        }
    }

    #[test]
    fn errors_that_need_an_accident_are_sorted_by_their_code() {
        for (code, kind) in [
            (ffi::SQLITE_AUTH, ErrorKind::Denied),
            (ffi::SQLITE_PERM, ErrorKind::Denied),
            (ffi::SQLITE_READONLY_DIRECTORY, ErrorKind::Denied),
            (ffi::SQLITE_PROTOCOL, ErrorKind::Unavailable),
            (ffi::SQLITE_BUSY_RECOVERY, ErrorKind::Unavailable),
            (ffi::SQLITE_NOMEM, ErrorKind::Unavailable),
            (ffi::SQLITE_IOERR_READ, ErrorKind::Unavailable),
            (ffi::SQLITE_IOERR_CORRUPTFS, ErrorKind::StoreViolation),
            (ffi::SQLITE_CORRUPT_INDEX, ErrorKind::StoreViolation),
            (ffi::SQLITE_NOLFS, ErrorKind::Unsupported),
            (ffi::SQLITE_MISUSE, ErrorKind::StoreViolation),
        ] {
            let error = SqliteError::SqliteFailure(ffi::Error::new(code), None);
            assert_eq!(classify(&error), kind, "{error}");
        }
    }

    #[test]
    fn a_failed_commit_is_unknown_unless_it_was_rolled_back() {
        let error = || SqliteError::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_FSYNC), None);
        assert_eq!(commit_failed(error(), false).kind(), ErrorKind::UnknownOutcome);
        assert_eq!(commit_failed(error(), true).kind(), ErrorKind::Unavailable);
    }
}
