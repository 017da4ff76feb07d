//! SQLite's errors, sorted by what they say about the ids.
//!
//! Before COMMIT nothing has been reserved, whatever went wrong: the transaction is rolled back, or is when
//! its connection closes. So the kinds of [`classify`] only have to say whether another try may succeed.
//! After a failed COMMIT that question is open unless the transaction still is: see [`commit_failed`].

use std::error::Error as StdError;
use std::fmt;

use idmill::{Error, ErrorKind};
use idmill_kit::mode::GONE;

use super::codes as code;
use crate::{Asked, EngineError, Fault};

/// What a fault means. [`Asked::Write`] is a COMMIT: no other statement changes anything for good.
pub fn classify(fault: &Fault, asked: Asked) -> ErrorKind {
    match fault {
        Fault::Refused(error) => error.kind(),
        _ if asked == Asked::Write => ErrorKind::UnknownOutcome,
        Fault::Engine(error) => classify_code(error),
        Fault::Broken(_) | Fault::Silent(_) | Fault::Uncommitted => ErrorKind::Unavailable,
        // A statement that did not do what it says.
        Fault::Warned(_) | Fault::Answer(_) => ErrorKind::StoreViolation,
    }
}

fn classify_code(error: &EngineError) -> ErrorKind {
    let extended = extended(error);
    match code::primary(extended) {
        code::IOERR if extended == code::IOERR_CORRUPTFS => ErrorKind::StoreViolation,
        // Others are writing, recovering or changing the schema; or memory, disk space, file descriptors or
        // the disk itself are missing, all of which come back: worth another try.
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
        // The file was moved under its rollback journal.
        code::READONLY if extended == code::READONLY_DBMOVED => ErrorKind::StoreViolation,
        code::READONLY | code::PERM | code::AUTH => ErrorKind::Denied,
        // A check, a unique index or a trigger of somebody's refused the row.
        code::CONSTRAINT => ErrorKind::Conflict,
        code::NOLFS => ErrorKind::Unsupported,
        code::TOOBIG => ErrorKind::InvalidInput,
        code::ERROR if lacks_table(error) => ErrorKind::NotFound,
        code::ERROR if lacks_column(error) => ErrorKind::Conflict,
        // CORRUPT, NOTADB, and what only a bug in here can bring about.
        _ => ErrorKind::StoreViolation,
    }
}

/// For this SQLite has no code.
fn lacks_table(error: &EngineError) -> bool {
    error.message.starts_with("no such table")
}

fn lacks_column(error: &EngineError) -> bool {
    error.message.starts_with("no such column") || error.message.contains("has no column named")
}

/// Whether a statement failed because its table does not exist.
pub(super) fn is_missing_table(fault: &Fault) -> bool {
    engine(fault).is_some_and(lacks_table)
}

/// Whether others hold the file.
pub(super) fn is_busy(fault: &Fault) -> bool {
    engine(fault).is_some_and(|error| code::primary(extended(error)) == code::BUSY)
}

/// Whether a COMMIT or a ROLLBACK failed because there is no transaction.
pub(super) fn is_over(fault: &Fault) -> bool {
    engine(fault).is_some_and(|error| error.message.contains("no transaction is active"))
}

/// Whether after this fault of BEGIN certainly no transaction is open.
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

/// The error that a fault is, with what to do about it.
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

/// A fault of COMMIT. Where SQLite has left the transaction open (others hold the file, or a deferred
/// constraint is not met) and it was rolled back, nothing was reserved. In all other cases SQLite has
/// ended it; a frame or a journal may have reached the disk before the write or the sync that failed,
/// and a crash may bring it back.
pub fn commit_failed(fault: Fault, rolled_back: bool) -> Error {
    failed(fault, if rolled_back { Asked::InTransaction } else { Asked::Write })
}

/// The same error of opening a database; but where other files can be opened, it is this one or its directory
/// that may not be, and will not be the next time.
pub(super) fn refused(error: Error) -> Error {
    let cannot_open = cause(&error).is_some_and(|code| code::primary(code) == code::CANTOPEN);
    // Its own place is shown by who asks.
    if !(cannot_open && cfg!(unix) && std::fs::File::open("/dev/null").is_ok()) {
        return error;
    }
    let message = "the file cannot be opened, or not be created in its directory; make both readable and writable for this user, \
                   and so -wal and -shm beside it, which SQLite makes there to read as well; or name another place";
    Error::new(ErrorKind::Denied, message)
}

/// Whether an error of opening a database may be over in a moment: others hold the file. A disk that is full
/// does not become empty by waiting for other processes.
pub fn passes(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable && !cause(error).is_some_and(is_for_want_of_room)
}

const ROOM: &str = "make room on the disk, or in the user's share of it";

fn is_for_want_of_room(extended: i32) -> bool {
    // What SQLite says of a full disk; under its log and the log's index, and under a journal.
    code::primary(extended) == code::FULL || code::WRITES.contains(&extended)
}

fn remedy(fault: &Fault, kind: ErrorKind) -> Option<&'static str> {
    let extended = extended(engine(fault)?);
    Some(match (code::primary(extended), kind) {
        (code::BUSY, _) if extended == code::BUSY_SNAPSHOT => {
            "the transaction has read before it wrote, and another has written since: roll it back and begin it \
             again, best with BEGIN IMMEDIATE"
        }
        (code::BUSY | code::LOCKED, _) => "another connection holds it; try again, or raise busy_timeout",
        _ if is_for_want_of_room(extended) => ROOM,
        (code::IOERR, _) => "look at the disk and its file system",
        (code::CANTOPEN, _) => {
            "check that the file, -wal and -shm beside it, and the directory can be read and written"
        }
        (code::NOTADB, _) => "this file is not an SQLite database; name another",
        (code::CORRUPT, _) => "restore it from a backup, and raise the sequences above every id in use",
        (_, ErrorKind::Denied) => {
            "make the file, -wal and -shm beside it, and the directory writable for this user"
        }
        (_, ErrorKind::NotFound) => GONE,
        (code::ERROR, ErrorKind::Conflict) => "the table is not idmill's; name another with ?table=NAME",
        _ => return None,
    })
}

fn words(fault: &Fault) -> String {
    fault.words(|error| error.message.clone(), "the transaction was over before")
}

fn extended(error: &EngineError) -> i32 {
    error.code.parse().unwrap_or(code::ERROR)
}

/// The extended result code that an error of ours comes from.
fn cause(error: &Error) -> Option<i32> {
    let mut next = StdError::source(error);
    while let Some(cause) = next {
        if let Some(Cause(error)) = cause.downcast_ref() {
            return Some(extended(error));
        }
        next = cause.source();
    }
    None
}

/// The engine's error, as the cause of one of ours: in its own words, and with its code for [`passes`].
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
    fn errors_that_need_an_accident_are_sorted_by_their_code() {
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
        assert!(error.contains("-wal and -shm beside it"), "{error}");
    }

    #[test]
    fn what_is_no_error_of_the_engine_is_sorted_too() {
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
    fn what_the_driver_said_is_the_cause_as_it_is() {
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
