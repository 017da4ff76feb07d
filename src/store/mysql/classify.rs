//! The driver's and the server's errors, sorted by what they say about the ids.
//!
//! Each statement is sent once and commits by itself, so that every error speaks of the one time that it was
//! sent. What is *not* certain to have left no trace is unknown: a statement that is interrupted may be so
//! while its commit waits for a replica, and is then there all the same.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use mysql_async::{DriverError, Error as Mysql, IoError, ServerError};

use crate::error::{Error, ErrorKind};
use crate::store::mode::GONE;

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Reaching the server: nothing was sent that could change anything.
    Connect,
    /// Nothing that changes anything.
    Read,
    /// A change.
    Write,
    /// A change that takes effect with the caller's transaction, and not if that is rolled back.
    InTransaction,
}

/// How a statement can fail.
#[derive(Debug)]
pub(super) enum Fault {
    Driver(Mysql),
    /// No answer within the store's own timeout.
    Silent(Duration),
    /// Done, it was said, but not committed.
    Uncommitted,
    /// An answer that is none to what was asked.
    Answer(String),
}

impl Fault {
    /// Whether there was such a row already.
    pub(super) fn is_duplicate(&self) -> bool {
        self.code() == Some(DUPLICATE)
    }

    fn code(&self) -> Option<u16> {
        match self {
            Self::Driver(Mysql::Server(error)) => Some(error.code),
            _ => None,
        }
    }
}

impl From<Mysql> for Fault {
    fn from(error: Mysql) -> Self {
        Self::Driver(error)
    }
}

const DUPLICATE: u16 = 1062;
/// `read_only`, `super_read_only` and other options that forbid; the read-only mode; a read-only transaction.
const READ_ONLY: [u16; 3] = [1290, 1836, 1792];

/// What an error means for who asked.
pub(super) fn classify(fault: &Fault, asked: Asked) -> ErrorKind {
    match fault {
        Fault::Driver(Mysql::Server(error)) => classify_code(error.code, asked),
        Fault::Driver(Mysql::Other(error)) => match error.downcast_ref::<Error>() {
            // Of our own making: what was found on a new connection.
            Some(ours) => ours.kind(),
            None => silent(asked),
        },
        Fault::Driver(Mysql::Url(_)) => ErrorKind::InvalidInput,
        Fault::Driver(Mysql::Driver(error)) => classify_driver(error, asked),
        Fault::Driver(Mysql::Io(error)) if asked == Asked::Connect && is_certificate(error) => {
            ErrorKind::Denied
        }
        Fault::Driver(Mysql::Io(_)) | Fault::Silent(_) => silent(asked),
        Fault::Uncommitted => match asked {
            // The server has rolled it back before, and took this for a statement of its own.
            Asked::InTransaction => ErrorKind::Conflict,
            _ => ErrorKind::UnknownOutcome,
        },
        Fault::Answer(_) => ErrorKind::StoreViolation,
    }
}

/// Whether the server's certificate was not accepted, or ours cannot be read.
fn is_certificate(error: &IoError) -> bool {
    match error {
        IoError::Tls(_) => true,
        IoError::Io(error) => error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
            .is_some_and(|error| matches!(error, rustls::Error::InvalidCertificate(_))),
    }
}

/// No answer, or none to the end.
fn silent(asked: Asked) -> ErrorKind {
    match asked {
        Asked::Write => ErrorKind::UnknownOutcome,
        // The server rolls back what its client has left.
        Asked::Connect | Asked::Read | Asked::InTransaction => ErrorKind::Unavailable,
    }
}

fn classify_driver(error: &DriverError, asked: Asked) -> ErrorKind {
    match error {
        DriverError::UnknownAuthPlugin { .. }
        | DriverError::MysqlOldPasswordDisabled
        | DriverError::CleartextPluginDisabled
        | DriverError::NoClientSslFlagFromServer
        | DriverError::CantParseServerVersion { .. }
        | DriverError::NamedPipesDisabled => ErrorKind::Unsupported,
        DriverError::FromValue { .. } | DriverError::FromRow { .. } => ErrorKind::StoreViolation,
        _ => silent(asked),
    }
}

/// The server's own: <https://mariadb.com/kb/en/mariadb-error-code-reference/> and MySQL's reference.
fn classify_code(code: u16, asked: Asked) -> ErrorKind {
    match code {
        // Rolled back, or not begun: no locks to be had (1205 waited too long, 1206 too many, 1213 a
        // deadlock, which Galera calls a conflict with another node too; 1020 changed since it was read), no
        // connections, no memory, no room.
        1020 | 1205 | 1206 | 1213 | 1637 | 3101 | 1040 | 1203 | 1226 | 1047 | 1021 | 1037 | 1038 | 1041
        | 1114 => ErrorKind::Unavailable,
        _ if READ_ONLY.contains(&code) => ErrorKind::Denied,
        // Of hosts, users, databases, tables, columns; 1129 for having failed too
        // often, 3159 for want of TLS.
        1044 | 1045 | 1129 | 1130 | 1142 | 1143 | 1227 | 1251 | 1370 | 1410 | 1698 | 1820 | 1862 | 3118
        | 3159 => ErrorKind::Denied,
        1046 => ErrorKind::InvalidInput,
        1049 | 1146 => ErrorKind::NotFound,
        // Other columns; somebody's unique index, check, foreign key or trigger.
        1054 | 1062 | 1136 | 1169 | 1348 | 1364 | 1369 | 1451 | 1452 | 1644 | 3819 | 4025 => {
            ErrorKind::Conflict
        }
        // No such setting or engine, or no such statement: not a server that this was made for.
        1193 | 1235 | 1286 | 1289 => ErrorKind::Unsupported,
        // A number that does not fit, or SQL that cannot be read.
        1064 | 1264 | 1366 | 1406 | 1690 => ErrorKind::StoreViolation,
        // 1180 (commit failed); 1053, 1317, 1927, 1969, 3024 (shut down, killed, out of time), perhaps while
        // it committed; and what is not known here.
        _ => silent(asked),
    }
}

/// An error for the caller.
pub(super) fn failed(fault: Fault, asked: Asked) -> Error {
    if let Fault::Driver(Mysql::Other(error)) = &fault
        && let Some(ours) = error.downcast_ref::<Error>()
    {
        return ours.clone();
    }
    let kind = classify(&fault, asked);
    let mut message = fault.to_string();
    if kind == ErrorKind::UnknownOutcome {
        message.push_str("; it may have been applied");
    }
    if let Some(remedy) = remedy(&fault, kind) {
        message.push_str("; ");
        message.push_str(remedy);
    }
    let error = Error::new(kind, message);
    match fault {
        Fault::Driver(source) => error.because(source),
        _ => error,
    }
}

fn remedy(fault: &Fault, kind: ErrorKind) -> Option<&'static str> {
    Some(match fault.code() {
        Some(1205) => "another transaction holds the sequence; try again, and let it commit sooner",
        Some(1020 | 1213) => "the server has rolled back the whole transaction: begin it again",
        Some(1040 | 1203 | 1226) => "let there be fewer connections, or raise the server's limit",
        Some(code) if READ_ONLY.contains(&code) => "write to the primary, and outside read-only transactions",
        Some(1044 | 1142 | 1143) => {
            "grant the user SELECT, INSERT, UPDATE and DELETE on the table, and CREATE for mode=rwc"
        }
        Some(1045 | 1698) => "check user and password",
        Some(3159) => "use tls=on",
        Some(1046) => "name one in the URL or in the options of the pool",
        Some(1049) => "create it",
        Some(1146) => GONE,
        Some(1054 | 1136) => "the table is not idmill's; name another with ?table=NAME",
        Some(1193) => "it must be MySQL or MariaDB with InnoDB",
        _ => match fault {
            Fault::Driver(Mysql::Io(_)) if kind == ErrorKind::Denied => {
                "name the authority that signed the server's certificate with ca=FILE"
            }
            Fault::Driver(Mysql::Driver(DriverError::NoClientSslFlagFromServer)) => {
                "set up TLS on the server, or use tls=off"
            }
            Fault::Uncommitted if kind == ErrorKind::Conflict => "roll it back and begin it again",
            _ => return None,
        },
    })
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(Mysql::Server(ServerError { code, message, .. })) => {
                write!(f, "the server says: {message} ({code})")
            }
            // The driver's own words repeat those of the cause.
            Self::Driver(error) => match error.source() {
                Some(cause) => write!(f, "{cause}"),
                None => write!(f, "{error}"),
            },
            Self::Silent(timeout) => write!(f, "no answer within {timeout:?}"),
            Self::Uncommitted => {
                f.write_str("the transaction is no longer open, or the statement was not committed")
            }
            Self::Answer(what) => f.write_str(what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: u16) -> Fault {
        Fault::Driver(Mysql::Server(ServerError { code, message: "said".into(), state: "HY000".into() }))
    }

    fn cut() -> Fault {
        Fault::Driver(Mysql::from(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)))
    }

    /// What a write, a statement in a transaction, and a read make of it.
    fn kinds(fault: &Fault) -> [ErrorKind; 3] {
        [Asked::Write, Asked::InTransaction, Asked::Read].map(|asked| classify(fault, asked))
    }

    #[test]
    fn what_may_have_been_applied_is_unknown() {
        use ErrorKind::{Unavailable, UnknownOutcome};
        let silent = [UnknownOutcome, Unavailable, Unavailable];
        // Shutdown, a failed commit, killed (statement, connection), out of time, and one that nobody knows.
        for code in [1053, 1180, 1317, 1927, 1969, 3024, 9999] {
            assert_eq!(kinds(&server(code)), silent, "{code}");
        }
        assert_eq!(kinds(&cut()), silent);
        assert_eq!(kinds(&Fault::Silent(Duration::from_secs(1))), silent);
        assert_eq!(kinds(&Fault::Driver(DriverError::PacketOutOfOrder.into())), silent);
        assert_eq!(classify(&Fault::Uncommitted, Asked::Write), UnknownOutcome);
        assert_eq!(classify(&cut(), Asked::Connect), Unavailable);
    }

    #[test]
    fn what_certainly_was_not_is_sorted_by_whether_it_will_pass() {
        use ErrorKind::{Conflict, Denied, InvalidInput, NotFound, StoreViolation, Unavailable, Unsupported};
        for (code, kind) in [
            (1020, Unavailable),
            (1205, Unavailable),
            (1213, Unavailable),
            (1047, Unavailable),
            (1040, Unavailable),
            (1114, Unavailable),
            (1290, Denied),
            (1836, Denied),
            (1792, Denied),
            (1045, Denied),
            (3159, Denied),
            (1046, InvalidInput),
            (1049, NotFound),
            (1146, NotFound),
            (1062, Conflict),
            (3819, Conflict),
            (4025, Conflict),
            (1193, Unsupported),
            (1690, StoreViolation),
        ] {
            assert_eq!(kinds(&server(code)), [kind; 3], "{code}");
        }
        assert!(server(1062).is_duplicate() && !cut().is_duplicate());
    }

    #[test]
    fn an_error_of_our_own_comes_back_as_it_was() {
        let ours = Error::new(ErrorKind::Unsupported, "not durable");
        let carried = failed(Fault::Driver(Mysql::Other(Box::new(ours))), Asked::Write);
        assert_eq!((carried.kind(), carried.to_string().as_str()), (ErrorKind::Unsupported, "not durable"));
    }

    #[test]
    fn an_unknown_outcome_says_that_it_is_one() {
        let error = failed(cut(), Asked::Write);
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
        assert!(error.to_string().contains("may have been applied"), "{error}");
        assert!(error.source().is_some());
    }
}
