//! Classifies the server's errors by their effect on the ids.
//!
//! Each statement is sent once, so every error concerns a single execution. An outcome is unknown unless the
//! statement certainly had *no* effect. For example, a statement can be interrupted while its commit waits
//! for a replica, and still be committed.

use std::error::Error as StdError;

use idmill::{Error, ErrorKind};
use idmill_kit::mode::MISSING_TABLE;

use crate::{Asked, EngineError, Fault, chain};

const DUPLICATE: &str = "1062";
/// `read_only`, `super_read_only` and other options that forbid writes; the read-only mode; a read-only
/// transaction. A former primary returns these errors after a failover, until the address leads to the new
/// primary.
const READ_ONLY: [u16; 3] = [1290, 1836, 1792];

/// Returns whether a unique index rejected the row.
pub fn is_duplicate(fault: &Fault) -> bool {
    fault.code() == Some(DUPLICATE)
}

/// Returns whether to keep the connection: `false` if the server denied access or is read-only. The adapter
/// must also close broken and silent connections. After a failover, a connection to a server that refused may
/// lead to a replica, and the next one to the primary.
pub fn leaves_connection(fault: &Fault) -> bool {
    let read_only = number(fault).is_some_and(|code| READ_ONLY.contains(&code));
    !read_only && classify(fault, Asked::Read) != ErrorKind::Denied
}

/// Returns the error kind of a fault.
pub fn classify(fault: &Fault, asked: Asked) -> ErrorKind {
    match fault {
        Fault::Engine(_) => classify_code(number(fault).unwrap_or_default(), asked),
        Fault::Refused(error) => error.kind(),
        Fault::Uncommitted => match asked {
            // The server had already rolled back the transaction, and ran this statement outside
            // it.
            Asked::InTransaction => ErrorKind::Conflict,
            _ => ErrorKind::UnknownOutcome,
        },
        Fault::Answer(_) => ErrorKind::StoreViolation,
        Fault::Broken(_) | Fault::Silent(_) | Fault::Warned(_) => asked.doubt(),
    }
}

fn number(fault: &Fault) -> Option<u16> {
    fault.code()?.parse().ok()
}

/// Codes of the server: <https://mariadb.com/kb/en/mariadb-error-code-reference/> and MySQL's
/// reference.
fn classify_code(code: u16, asked: Asked) -> ErrorKind {
    match code {
        // The statement or the transaction was rolled back, or not begun. Lock errors: 1205 lock wait
        // timeout, 1206 too many locks, 1213 a deadlock or, in Galera, a conflict with another node; 1020 the
        // row was changed. The others: 1637 too many transactions, 3101 rolled back by a plugin, 1047 a
        // Galera node that is not ready; no connections, no memory, no disk space.
        1020 | 1205 | 1206 | 1213 | 1637 | 3101 | 1040 | 1203 | 1226 | 1047 | 1021 | 1037 | 1038 | 1041
        | 1114 => ErrorKind::Unavailable,
        _ if READ_ONLY.contains(&code) => ErrorKind::Unavailable,
        // No access for the host or user, or to the database, table or column; 1129 too many failed
        // connections, 3159 TLS is required.
        1044 | 1045 | 1129 | 1130 | 1142 | 1143 | 1227 | 1251 | 1370 | 1410 | 1698 | 1820 | 1862 | 3118
        | 3159 => ErrorKind::Denied,
        1046 => ErrorKind::InvalidInput,
        1049 | 1146 => ErrorKind::NotFound,
        // The table has other columns, or a user's unique index, check, foreign key or trigger rejected the
        // row.
        1054 | 1062 | 1136 | 1169 | 1348 | 1364 | 1369 | 1451 | 1452 | 1644 | 3819 | 4025 => {
            ErrorKind::Conflict
        }
        // The server does not support the setting, engine or statement.
        1193 | 1235 | 1286 | 1289 => ErrorKind::Unsupported,
        // A number out of range, or invalid SQL.
        1064 | 1264 | 1366 | 1406 | 1690 => ErrorKind::StoreViolation,
        // 1180 (commit failed); 1053, 1317, 1927, 1969, 3024 (shutdown, killed, timeout), possibly
        // during the commit; and unknown codes.
        _ => asked.doubt(),
    }
}

/// Converts a fault to an error with advice.
pub fn failed(fault: Fault, asked: Asked) -> Error {
    let kind = classify(&fault, asked);
    let (message, remedy) = (words(&fault), remedy(&fault, kind));
    fault.into_error(kind, message, remedy)
}

fn remedy(fault: &Fault, kind: ErrorKind) -> Option<&'static str> {
    Some(match number(fault) {
        Some(1205) => {
            "another transaction has locked the sequence; try again, and commit that transaction sooner"
        }
        Some(1020 | 1213) => "the server rolled back the transaction of this statement; begin it again",
        Some(1040 | 1203 | 1226) => "use fewer connections, or raise the server's limit",
        // This code is for any option that forbids a statement.
        Some(1290) if !words(fault).contains("read") => "change that option of the server",
        Some(code) if READ_ONLY.contains(&code) => "write to the primary, outside read-only transactions",
        Some(1044 | 1142 | 1143) => {
            "grant the user SELECT, INSERT, UPDATE and DELETE on the table, and CREATE for `mode=rwc` \
             (`Mode::Create`)"
        }
        Some(1045 | 1698) => "check the user and its password",
        Some(3159) => "use tls=true",
        Some(1046) => "name a database in the URL or in the options of the pool",
        Some(1049) => "create it",
        Some(1146) => MISSING_TABLE,
        Some(1054 | 1136) => {
            "the table is not idmill's; name another with `table=NAME` (`table(NAME)` in code)"
        }
        Some(1193) => "use MySQL or MariaDB with InnoDB",
        _ if kind == ErrorKind::UnknownOutcome => "the write may have been applied",
        _ if kind == ErrorKind::Conflict && matches!(fault, Fault::Uncommitted) => {
            "roll the transaction back and begin it again"
        }
        _ => return None,
    })
}

fn words(fault: &Fault) -> String {
    match fault {
        Fault::Broken(error) => plain(&**error),
        _ => fault.words(
            |EngineError { code, message, .. }| format!("the server returned: {message} ({code})"),
            "the transaction is closed, or the statement was not committed",
        ),
    }
}

/// A driver's message often repeats the cause's message, which is clearer.
fn plain(error: &(dyn StdError + 'static)) -> String {
    match error.source() {
        Some(cause) if error.to_string().contains(&cause.to_string()) => cause.to_string(),
        _ => chain(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;
    use std::time::Duration;

    fn server(code: u16) -> Fault {
        EngineError::new(code.to_string(), "said").into()
    }

    fn cut() -> Fault {
        Fault::broken(std::io::Error::from(std::io::ErrorKind::UnexpectedEof))
    }

    /// The kinds for a write, for a statement in a transaction, and for a read.
    fn kinds(fault: &Fault) -> [ErrorKind; 3] {
        [Asked::Write, Asked::InTransaction, Asked::Read].map(|asked| classify(fault, asked))
    }

    #[test]
    fn possibly_applied_writes_are_unknown() {
        use ErrorKind::{Unavailable, UnknownOutcome};
        let silent = [UnknownOutcome, Unavailable, Unavailable];
        // Shutdown, a failed commit, killed (statement, connection), timeout, and an unknown code.
        for code in [1053, 1180, 1317, 1927, 1969, 3024, 9999] {
            assert_eq!(kinds(&server(code)), silent, "{code}");
        }
        assert_eq!(kinds(&cut()), silent);
        assert_eq!(kinds(&Fault::Silent(Duration::from_secs(1))), silent);
        assert_eq!(kinds(&Fault::Warned("half of it".into())), silent);
        assert_eq!(kinds(&EngineError::new("HY000", "no number").into()), silent);
        assert_eq!(classify(&Fault::Uncommitted, Asked::Write), UnknownOutcome);
        assert_eq!(classify(&Fault::Uncommitted, Asked::InTransaction), ErrorKind::Conflict);
        assert_eq!(classify(&cut(), Asked::Connect), Unavailable);
    }

    #[test]
    fn rejected_writes_are_classified_by_error_code() {
        use ErrorKind::{Conflict, Denied, InvalidInput, NotFound, StoreViolation, Unavailable, Unsupported};
        for (code, kind) in [
            (1020, Unavailable),
            (1205, Unavailable),
            (1213, Unavailable),
            (1047, Unavailable),
            (1040, Unavailable),
            (1114, Unavailable),
            (1290, Unavailable),
            (1836, Unavailable),
            (1792, Unavailable),
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
        assert!(is_duplicate(&server(1062)) && !is_duplicate(&cut()));
    }

    #[test]
    fn connection_to_a_refusing_server_is_not_reused() {
        assert!([1290, 1836, 1792, 1142].iter().all(|code| !leaves_connection(&server(*code))));
        assert!([1205, 1062, 1146].iter().all(|code| leaves_connection(&server(*code))));
    }

    #[test]
    fn own_error_is_returned_unchanged() {
        let ours = Error::new(ErrorKind::Unsupported, "not durable");
        let carried = failed(Fault::Refused(ours), Asked::Write);
        assert_eq!((carried.kind(), carried.to_string().as_str()), (ErrorKind::Unsupported, "not durable"));
    }

    #[test]
    fn unknown_outcome_is_stated_in_the_message() {
        let error = failed(cut(), Asked::Write);
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
        assert!(error.to_string().contains("may have been applied"), "{error}");
        assert!(error.source().is_some());
    }

    #[test]
    fn server_error_has_text_code_and_remedy() {
        for (code, asked, text) in [
            (
                1205,
                Asked::Write,
                "the server returned: said (1205); another transaction has locked the sequence; try again, and commit that transaction sooner",
            ),
            (
                1213,
                Asked::InTransaction,
                "the server returned: said (1213); the server rolled back the transaction of this statement; begin it again",
            ),
            (1317, Asked::Write, "the server returned: said (1317); the write may have been applied"),
            (1193, Asked::Read, "the server returned: said (1193); use MySQL or MariaDB with InnoDB"),
            (3159, Asked::Connect, "the server returned: said (3159); use tls=true"),
        ] {
            assert_eq!(failed(server(code), asked).to_string(), text);
        }
        let ended = failed(Fault::Uncommitted, Asked::InTransaction).to_string();
        assert!(
            ended.ends_with("was not committed; roll the transaction back and begin it again"),
            "{ended}"
        );
        let silent = failed(Fault::Silent(Duration::from_secs(2)), Asked::Read).to_string();
        assert_eq!(silent, "no answer within 2s");
    }

    /// A driver's error, which must be returned as the cause.
    #[derive(Debug)]
    struct Driver(&'static str, std::io::Error);

    impl fmt::Display for Driver {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl StdError for Driver {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.1)
        }
    }

    #[test]
    fn driver_error_is_the_source_and_its_text_appears_once() {
        for (says, text) in [("input/output: reset", "reset"), ("it broke", "it broke: reset")] {
            let error = failed(Fault::broken(Driver(says, std::io::Error::other("reset"))), Asked::Read);
            assert_eq!(error.to_string(), text);
            assert!(error.source().is_some_and(<dyn StdError>::is::<Driver>));
        }
        let said = EngineError::new("1146", "no such table").because(Driver("x", std::io::Error::other("y")));
        let error = failed(said.into(), Asked::Read);
        assert!(
            error.kind() == ErrorKind::NotFound && error.source().is_some_and(<dyn StdError>::is::<Driver>)
        );
    }
}
