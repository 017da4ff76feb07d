//! Classifies SQLite's errors by their effect on the ids.
//!
//! Before COMMIT nothing is reserved, whatever failed: the transaction is rolled back, at the latest when its
//! connection closes. So the kinds of [`classify`] only show whether a retry may succeed. After a failed
//! COMMIT the outcome is unknown unless the transaction is still open: see [`commit_failed`].

use std::error::Error as StdError;
use std::fmt;

use idmill::{Error, ErrorKind};
use idmill_kit::causes;
use idmill_kit::mode::MISSING_TABLE;

use super::codes as code;
use crate::{Asked, EngineError, Fault};

/// Returns the error kind of a fault. [`Asked::Write`] stands for COMMIT: no other statement makes a lasting
/// change to rows.
pub fn classify(fault: &Fault, asked: Asked) -> ErrorKind {
    match fault {
        Fault::Refused(error) => error.kind(),
        _ if asked == Asked::Write => ErrorKind::UnknownOutcome,
        Fault::Engine(error) => classify_code(error),
        Fault::Broken(_) | Fault::Silent(_) | Fault::Uncommitted => ErrorKind::Unavailable,
        // The statement did not have the expected effect.
        Fault::Warned(_) | Fault::Answer(_) => ErrorKind::StoreViolation,
    }
}

fn classify_code(error: &EngineError) -> ErrorKind {
    let extended = extended(error);
    match code::primary(extended) {
        code::IOERR if extended == code::IOERR_CORRUPTFS => ErrorKind::StoreViolation,
        // Others are writing, recovering or changing the schema; or memory, disk space, file descriptors or
        // the disk itself are unavailable. All these causes are temporary, so a retry can succeed.
        code::BUSY
        | code::LOCKED
        | code::PROTOCOL
        | code::SCHEMA
        | code::ABORT
        | code::INTERRUPT
        | code::NOMEM
        | code::FULL
        | code::CANTOPEN
        | code::IOERR => ErrorKind::Unavailable,
        // SQLite found, in a rollback journal mode, that the file was moved since it was opened.
        code::READONLY if extended == code::READONLY_DBMOVED => ErrorKind::StoreViolation,
        code::READONLY | code::PERM | code::AUTH => ErrorKind::Denied,
        // A user's check, unique index or trigger rejected the row.
        code::CONSTRAINT => ErrorKind::Conflict,
        code::NOLFS => ErrorKind::Unsupported,
        code::TOOBIG => ErrorKind::InvalidInput,
        code::ERROR if lacks_table(error) => ErrorKind::NotFound,
        code::ERROR if lacks_column(error) => ErrorKind::Conflict,
        // CORRUPT, NOTADB, and codes that a bug in idmill or a user's trigger can cause.
        _ => ErrorKind::StoreViolation,
    }
}

/// SQLite has no code for a missing table.
fn lacks_table(error: &EngineError) -> bool {
    error.message.starts_with("no such table")
}

fn lacks_column(error: &EngineError) -> bool {
    error.message.starts_with("no such column") || error.message.contains("has no column named")
}

/// Returns whether a statement failed because its table does not exist.
pub(super) fn is_missing_table(fault: &Fault) -> bool {
    engine(fault).is_some_and(lacks_table)
}

/// Returns whether others hold the file.
pub(super) fn is_busy(fault: &Fault) -> bool {
    engine(fault).is_some_and(|error| code::primary(extended(error)) == code::BUSY)
}

/// Returns whether a COMMIT or a ROLLBACK failed because there is no transaction.
pub(super) fn is_over(fault: &Fault) -> bool {
    engine(fault).is_some_and(|error| error.message.contains("no transaction is active"))
}

/// Returns whether certainly no transaction is open after this fault of BEGIN.
pub(super) fn has_not_begun(fault: &Fault) -> bool {
    match fault {
        Fault::Refused(_) => true,
        Fault::Engine(error) => !error.message.contains("within a transaction"),
        _ => false,
    }
}

fn engine(fault: &Fault) -> Option<&EngineError> {
    match fault {
        Fault::Engine(error) => Some(error),
        _ => None,
    }
}

/// Converts a fault to an error with advice.
pub fn failed(fault: Fault, asked: Asked) -> Error {
    let kind = classify(&fault, asked);
    let message = match (asked, remedy(&fault, kind)) {
        (Asked::Write, _) => format!("COMMIT failed: {}; it may have been applied", words(&fault)),
        (_, Some(remedy)) => format!("{}; {remedy}", words(&fault)),
        (_, None) => words(&fault),
    };
    let error = Error::new(kind, message);
    match fault {
        Fault::Refused(error) => error,
        Fault::Engine(engine) => error.because(Cause(engine)),
        Fault::Broken(driver) => error.because_shared(driver),
        _ => error,
    }
}

/// Converts a fault of COMMIT. If SQLite left the transaction open (others hold the file, or a deferred
/// constraint is violated) and it was rolled back, nothing was reserved. In all other cases except
/// [`Fault::Refused`] the outcome is unknown. A frame or a journal may have reached the disk before the write
/// or the sync that failed, and the recovery after a crash may use it.
pub fn commit_failed(fault: Fault, rolled_back: bool) -> Error {
    failed(fault, if rolled_back { Asked::InTransaction } else { Asked::Write })
}

/// Turns CANTOPEN into [`ErrorKind::Denied`] if other files can be opened: then this file or its
/// directory is not accessible, and a retry would not help.
pub(super) fn refused(error: Error) -> Error {
    let cannot_open = cause(&error).is_some_and(|code| code::primary(code) == code::CANTOPEN);
    // The caller adds the path.
    if !(cannot_open && cfg!(unix) && std::fs::File::open("/dev/null").is_ok()) {
        return error;
    }
    let message = "cannot open or create the file; make its directory, the file, -wal and -shm readable and \
                   writable for this user";
    Error::new(ErrorKind::Denied, message)
}

/// Returns whether an error of opening a database may soon pass, for example because others hold the file.
/// Waiting for other processes does not help if the disk is full.
pub fn passes(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable && !cause(error).is_some_and(is_for_want_of_room)
}

const ROOM: &str = "free space on the disk, or raise the user's quota";

fn is_for_want_of_room(extended: i32) -> bool {
    // A full disk is reported by FULL, or by the codes for the log, its index and a journal.
    code::primary(extended) == code::FULL || code::WRITES.contains(&extended)
}

fn remedy(fault: &Fault, kind: ErrorKind) -> Option<&'static str> {
    let extended = extended(engine(fault)?);
    Some(match (code::primary(extended), kind) {
        (code::BUSY, _) if extended == code::BUSY_SNAPSHOT => {
            "another connection wrote after this transaction's read; roll back, and begin again with BEGIN \
             IMMEDIATE"
        }
        (code::BUSY | code::LOCKED, _) => {
            "another connection holds the lock; end your thread's own write transaction before a draw, or raise \
             `busy_timeout`"
        }
        _ if is_for_want_of_room(extended) => ROOM,
        (code::IOERR, _) => "check the disk and its file system",
        (code::CANTOPEN, _) => {
            "make the file, its -wal and -shm, and the directory readable and writable for this user"
        }
        (code::NOTADB, _) => "the file is not an SQLite database; name another file",
        (code::CORRUPT, _) => "restore it from a backup, and raise the sequences above every id in use",
        (_, ErrorKind::Denied) => {
            "make the file, its -wal and -shm, and the directory writable for this user"
        }
        (_, ErrorKind::NotFound) => MISSING_TABLE,
        (code::ERROR, ErrorKind::Conflict) => {
            "the table is not idmill's; name another with `table=NAME` (`table(NAME)` in code)"
        }
        _ => return None,
    })
}

fn words(fault: &Fault) -> String {
    fault.words(|error| error.message.clone(), "the transaction was already closed")
}

fn extended(error: &EngineError) -> i32 {
    error.code.parse().unwrap_or(code::ERROR)
}

/// The extended result code that an error originates from.
fn cause(error: &Error) -> Option<i32> {
    causes(error).find_map(|cause| cause.downcast_ref()).map(|Cause(error)| extended(error))
}

/// The engine's error as the cause of an idmill error: its message, and its code for [`passes`].
#[derive(Debug)]
struct Cause(EngineError);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl StdError for Cause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MISUSE: i32 = 21;
    const BUSY_RECOVERY: i32 = code::extended(code::BUSY, 1);
    const READONLY_DIRECTORY: i32 = code::extended(code::READONLY, 6);
    const IOERR_READ: i32 = code::extended(code::IOERR, 1);
    const CORRUPT_INDEX: i32 = code::extended(code::CORRUPT, 3);

    fn engine(code: i32) -> Fault {
        EngineError::new(code.to_string(), "injected").into()
    }

    #[test]
    fn rare_errors_are_classified_by_code() {
        for (code, kind) in [
            (code::AUTH, ErrorKind::Denied),
            (code::PERM, ErrorKind::Denied),
            (READONLY_DIRECTORY, ErrorKind::Denied),
            (code::PROTOCOL, ErrorKind::Unavailable),
            (BUSY_RECOVERY, ErrorKind::Unavailable),
            (code::NOMEM, ErrorKind::Unavailable),
            (IOERR_READ, ErrorKind::Unavailable),
            (code::IOERR_CORRUPTFS, ErrorKind::StoreViolation),
            (CORRUPT_INDEX, ErrorKind::StoreViolation),
            (code::NOLFS, ErrorKind::Unsupported),
            (MISUSE, ErrorKind::StoreViolation),
        ] {
            for asked in [Asked::Connect, Asked::Read, Asked::InTransaction] {
                assert_eq!(classify(&engine(code), asked), kind, "{code}");
            }
        }
    }

    #[test]
    fn denied_write_names_the_files_beside_the_database() {
        let error = failed(engine(code::READONLY), Asked::InTransaction).to_string();
        assert!(error.contains("its -wal and -shm"), "{error}");
    }

    #[test]
    fn errors_of_the_driver_are_classified() {
        use ErrorKind::{Denied, StoreViolation, Unavailable, UnknownOutcome};
        for (fault, kind, of_commit) in [
            (Fault::broken(std::io::Error::other("cut")), Unavailable, UnknownOutcome),
            (Fault::Silent(Duration::from_secs(1)), Unavailable, UnknownOutcome),
            (Fault::Uncommitted, Unavailable, UnknownOutcome),
            (Fault::Answer("Query changed 0 rows".to_owned()), StoreViolation, UnknownOutcome),
            (Fault::Refused(Denied.into()), Denied, Denied),
        ] {
            assert_eq!(failed(fault.clone(), Asked::InTransaction).kind(), kind, "{fault:?}");
            assert_eq!(commit_failed(fault.clone(), true).kind(), kind, "{fault:?}");
            assert_eq!(commit_failed(fault.clone(), false).kind(), of_commit, "{fault:?}");
        }
    }

    #[test]
    fn driver_error_is_the_unchanged_cause() {
        let error = failed(Fault::broken(std::io::Error::other("cut")), Asked::InTransaction);
        assert!(error.source().is_some_and(<dyn StdError>::is::<std::io::Error>));
        let said = EngineError::new("5", "database is locked").because(std::io::Error::other("its own"));
        let error = failed(said.into(), Asked::InTransaction);
        let cause = error.source().and_then(StdError::source);
        assert!(cause.is_some_and(<dyn StdError>::is::<std::io::Error>));
    }

    #[test]
    fn a_failed_commit_is_unknown_unless_it_was_rolled_back() {
        let fault = || engine(code::IOERR_FSYNC);
        assert_eq!(commit_failed(fault(), false).kind(), ErrorKind::UnknownOutcome);
        assert_eq!(commit_failed(fault(), true).kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn who_opens_a_file_waits_for_others_and_not_for_the_disk() {
        for (code, waits) in [
            (code::BUSY, true),
            (IOERR_READ, true),
            (code::FULL, false),
            (code::IOERR_WRITE, false),
            (code::IOERR_SHMSIZE, false),
            (code::NOTADB, false),
        ] {
            let error = failed(engine(code), Asked::Connect);
            assert_eq!(passes(&error), waits, "{code}");
            let named = Error::new(error.kind(), format!("ids.db: {error}")).because(error);
            assert_eq!(passes(&named), waits, "{code}");
        }
        assert!(passes(&Error::new(ErrorKind::Unavailable, "others have it open")));
    }
}
