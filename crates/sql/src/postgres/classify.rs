//! Classifies PostgreSQL's errors by their effect on the ids.
//!
//! Each write is one statement. An `ERROR` means that its transaction was aborted, so nothing was reserved.
//! `FATAL`, `PANIC` and a lost connection can occur between a commit and its confirmation. Poolers, and
//! servers that only implement the protocol, have their own codes. An outcome is unknown unless the statement
//! certainly had no effect.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::time::Duration;

use idmill::{Error, ErrorKind};
use idmill_kit::mode::MISSING_TABLE;

use crate::{Asked, EngineError, Fault, chain};

/// The server rejects writes: it is a standby, or a setting forbids them.
const READ_ONLY: &str = "25006";
/// Another transaction held the lock for longer than the lock timeout.
pub const LOCK_NOT_AVAILABLE: &str = "55P03";
/// The server is starting up or shutting down: a retry may succeed.
pub const CANNOT_CONNECT_NOW: &str = "57P03";
/// `nextval` reached the end of its sequence.
pub const SEQUENCE_LIMIT: &str = "2200H";
/// There is no table or sequence of this name.
pub const UNDEFINED_TABLE: &str = "42P01";
/// A block does not have the expected content. Either data are damaged, or the sequence was
/// restarted and its old file was removed during the read.
pub const DATA_CORRUPTED: &str = "XX001";

/// Returns the error kind of a fault.
pub fn classify(fault: &Fault, asked: Asked) -> ErrorKind {
    let kind = match fault {
        Fault::Engine(error) => of_engine(error, asked),
        Fault::Refused(error) => error.kind(),
        Fault::Uncommitted => ErrorKind::Conflict,
        Fault::Answer(_) => ErrorKind::StoreViolation,
        // An unreadable answer may confirm a commit.
        Fault::Broken(_) | Fault::Silent(_) | Fault::Warned(_) => ErrorKind::UnknownOutcome,
    };
    if kind == ErrorKind::UnknownOutcome { asked.doubt() } else { kind }
}

fn of_engine(error: &EngineError, asked: Asked) -> ErrorKind {
    // A server refuses a connection with FATAL before any statement is sent.
    if asked == Asked::Connect || !error.ends_session {
        return of_code(&error.code);
    }
    ErrorKind::UnknownOutcome
}

/// Returns whether to keep the connection: the server has answered, is ready and accepts writes.
pub fn leaves_connection(fault: &Fault) -> bool {
    match fault {
        // Close a connection to a server that rejects writes, so that the next may reach another
        // server.
        Fault::Engine(error) => !error.ends_session && error.code != READ_ONLY,
        _ => false,
    }
}

/// The query to run after [`is_read_only`], to find whether the server is a standby.
pub const IS_STANDBY: &str = "SELECT pg_is_in_recovery()::text";

/// Returns whether the server rejected a write because it is a standby, or because of a setting.
pub fn is_read_only(fault: &Fault) -> bool {
    fault.code() == Some(READ_ONLY)
}

/// Refines the fault with the answer to [`IS_STANDBY`]. For a standby, which may be promoted, the error is
/// transient, but callers do not wait. For a setting, the error is [`Denied`](ErrorKind::Denied).
pub fn read_only(fault: Fault, standby: Option<&str>) -> Fault {
    match standby {
        Some("true") => return Fault::Refused(failed(fault, Asked::Read).refusing_waiters()),
        Some("false") => {}
        _ => return fault,
    }
    let remedy = "`default_transaction_read_only` is on for this user, database or server; turn it off";
    let message = describe(&fault);
    Fault::Refused(fault.into_error(ErrorKind::Denied, message, Some(remedy)))
}

/// The fault if all connections of a store are in use, and none became free within this time.
pub fn busy(connections: usize, timeout: Duration) -> Fault {
    let message =
        format!("all {connections} connections of the store were in use for {timeout:?}; try again");
    Fault::Refused(Error::new(ErrorKind::Unavailable, message))
}

/// The fault if all connections of a pool shared with the caller are in use, and none became free within this
/// time. The cause can be a deadlock: callers that hold a connection while they draw. `own` describes how to
/// give the store its own connections, and `limit` names the setting that limits the pool.
pub fn exhausted(connections: usize, timeout: Duration, own: &str, limit: &str) -> Fault {
    let message = format!(
        "all {connections} connections were busy for {timeout:?}; draw before you take a connection, use \
         {own}, or raise {limit}"
    );
    Fault::Refused(Error::new(ErrorKind::Unavailable, message).refusing_waiters())
}

/// Returns whether a warning of a write concerns its commit: the wait for standbys was interrupted. The write
/// is committed on this server, but could be missing after a failover. Report such a warning as
/// [`Fault::Warned`].
pub fn is_of_commit(message: &str, code: &str) -> bool {
    code == "57P01" || message.contains("synchronous replication")
}

/// The fault of a failed connection for which the server returned no error. For `Denied`, `InvalidInput` and
/// `Unsupported` it has the driver's message and advice; for any other kind it becomes
/// [`Unavailable`](ErrorKind::Unavailable).
pub fn unconnected(kind: ErrorKind, error: impl StdError + Send + Sync + 'static) -> Fault {
    let mut message = chain(&error);
    let remedy = match kind {
        ErrorKind::Denied => {
            "check the user, its password and the server's certificate; for a private root certificate, set \
             `sslrootcert=FILE`"
        }
        ErrorKind::InvalidInput => "write credentials as `postgres://USER:PASSWORD@HOST:PORT/DATABASE`",
        ErrorKind::Unsupported => "the server does not support TLS; set `sslmode=prefer` or `disable`",
        _ => return Fault::broken(error),
    };
    let _ = write!(message, "; {remedy}");
    Fault::Refused(Error::new(kind, message).because(error))
}

/// Classifies by PostgreSQL's list of SQLSTATEs. All kinds except `UnknownOutcome` mean that the transaction
/// was rolled back.
fn of_code(code: &str) -> ErrorKind {
    match code {
        // The server cannot report the outcome: statement_completion_unknown,
        // transaction_resolution_unknown.
        "40003" | "08007" => ErrorKind::UnknownOutcome,
        // invalid_password, insufficient_privilege
        "28000" | "28P01" | "42501" => ErrorKind::Denied,
        // undefined_table, invalid_schema_name, invalid_catalog_name
        UNDEFINED_TABLE | "3F000" | "3D000" => ErrorKind::NotFound,
        // undefined_column, no unique index for ON CONFLICT, datatype_mismatch,
        // wrong_object_type, undefined_object
        "42703" | "42P10" | "42804" | "42809" | "42704"
        // duplicate_table, duplicate_object; a trigger's RAISE; with_check_option_violation;
        // dependent_objects_still_exist
        | "42P07" | "42710" | "P0001" | "44000" | "2BP01" => ErrorKind::Conflict,
        // undefined_function, feature_not_supported
        "42883" | "0A000" => ErrorKind::Unsupported,
        // untranslatable_character, character_not_in_repertoire, invalid_parameter_value
        "22P05" | "22021" | "22023" => ErrorKind::InvalidInput,
        "XX001" | "XX002" => ErrorKind::StoreViolation,
        // io_error; lock_not_available, object_in_use; query_canceled, admin_shutdown,
        // crash_shutdown, cannot_connect_now
        "58030" | LOCK_NOT_AVAILABLE | "55006" | "57014" | "57P01" | "57P02" | "57P03"
        // serialization_failure, deadlock_detected; a standby, or default_transaction_read_only
        | "40001" | "40P01" | READ_ONLY => ErrorKind::Unavailable,
        // insufficient_resources: disk_full, out_of_memory, too_many_connections
        _ if code.starts_with("53") => ErrorKind::Unavailable,
        // integrity_constraint_violation: a user's constraint, since ours are checked before
        _ if code.starts_with("23") => ErrorKind::Conflict,
        _ => ErrorKind::UnknownOutcome,
    }
}

/// Converts a fault to an error with advice.
pub fn failed(fault: Fault, asked: Asked) -> Error {
    let kind = classify(&fault, asked);
    let (message, remedy) = (describe(&fault), remedy(&fault, kind, asked));
    fault.into_error(kind, message, remedy)
}

/// Like [`failed`], for a statement that creates a table or a sequence: the missing privilege is CREATE.
pub fn not_created(fault: Fault, asked: Asked) -> Error {
    let is_schema = fault.message().is_some_and(|message| message.contains("for schema"));
    if fault.code() != Some("42501") || !is_schema {
        return failed(fault, asked);
    }
    let message = format!(
        "{}; grant the user CREATE on the schema, or create the object (`idmill schema` prints tables) and open \
         with `mode=rw`",
        describe(&fault)
    );
    Error::new(ErrorKind::Denied, message)
}

fn describe(fault: &Fault) -> String {
    let engine = |error: &EngineError| {
        let severity = if error.ends_session { "FATAL" } else { "ERROR" };
        let severity = error.severity.as_deref().unwrap_or(severity);
        format!("{severity} {}: {}", error.code, error.message)
    };
    let inside = "the client of the store is in a transaction, whose ROLLBACK would release reserved ids; \
                  the answer was rejected";
    match fault {
        Fault::Warned(warning) => format!("committed with the warning {warning:?}"),
        _ => fault.words(engine, inside),
    }
}

fn remedy(fault: &Fault, kind: ErrorKind, asked: Asked) -> Option<&'static str> {
    Some(match (fault.code(), kind) {
        (Some(LOCK_NOT_AVAILABLE), _) => {
            "another transaction has locked the row; try again (in a transaction: after ROLLBACK), or raise the timeout"
        }
        (Some("53300"), _) => "raise `max_connections`, or close other connections",
        (Some("53100"), _) => "free space on the server's disk",
        (Some(READ_ONLY), _) if asked == Asked::InTransaction => {
            "the transaction is read-only, or the server is a standby; begin a READ WRITE transaction on \
             the primary"
        }
        (Some(READ_ONLY), _) => {
            "the server is a standby, or read-only; name the primary, or several hosts and \
             `target_session_attrs=read-write`"
        }
        (_, ErrorKind::Unavailable) if asked == Asked::InTransaction => {
            "roll the transaction back and begin it again"
        }
        (Some("40001" | "40P01" | "57014"), ErrorKind::Unavailable) => "nothing was changed",
        (Some("3D000"), _) => "create the database, or name another",
        (Some("3F000"), _) => {
            "create the schema, or name another with `schema=NAME` (`schema(NAME)` in code)"
        }
        (Some(UNDEFINED_TABLE), _) => MISSING_TABLE,
        (_, ErrorKind::UnknownOutcome) => "the write may have been applied",
        (Some("28000" | "28P01"), _) => "check the user and its password",
        (Some("42501"), _)
            if fault.message().is_some_and(|message| message.contains("row-level security")) =>
        {
            "give the user policies for SELECT, INSERT, UPDATE and DELETE on the table, or BYPASSRLS"
        }
        (Some("42501"), _) => {
            "grant the user USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on the table"
        }
        (Some("42809"), _) => "another object, such as a table, has this name; choose another name",
        (Some("42703" | "42804" | "42P10"), _) => {
            "the table is not idmill's; name another with `table=NAME` (`table(NAME)` in code)"
        }
        _ if matches!(fault, Fault::Uncommitted) => "give the store its own client, or draw with `next_in`",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use idmill::ErrorKind::{
        Conflict, Denied, InvalidInput, NotFound, StoreViolation, Unavailable, UnknownOutcome, Unsupported,
    };

    use super::*;

    #[test]
    fn read_only_setting_is_denied_and_a_standby_is_not() {
        let refused =
            || Fault::from(EngineError::new("25006", "cannot execute UPDATE in a read-only transaction"));
        assert!(is_read_only(&refused()));
        for (standby, kind) in [(Some("true"), Unavailable), (None, Unavailable), (Some("false"), Denied)] {
            let error = failed(read_only(refused(), standby), Asked::Write);
            assert_eq!((error.kind(), error.refuses_waiters()), (kind, standby.is_some()), "{standby:?}");
            assert!(error.to_string().contains("ERROR 25006: cannot execute UPDATE"), "{error}");
        }
    }

    /// An error as the server reports it.
    fn said(severity: &str, code: &str) -> Fault {
        let error = EngineError::new(code, "text of it").with_severity(severity);
        Fault::Engine(if severity == "ERROR" { error } else { error.ending_session() })
    }

    #[test]
    fn missing_create_and_usage_rights_are_distinguished() {
        let denied = |message| Fault::from(EngineError::new("42501", message));
        let schema = || denied("permission denied for schema public");
        let (created, read) = (not_created(schema(), Asked::Read), failed(schema(), Asked::Read));
        assert!(
            created.kind() == Denied && created.to_string().contains("grant the user CREATE on the schema")
        );
        assert!(read.to_string().contains("grant the user USAGE on the schema"));
        let table = not_created(denied("permission denied for table t"), Asked::Read);
        assert!(table.to_string().contains("SELECT, INSERT, UPDATE and DELETE"));
    }

    /// Errors of a statement that writes. The tests of `idmill-postgres` get the starred codes from
    /// PostgreSQL.
    #[test]
    fn statement_errors_are_classified_by_code() {
        for (severity, code, kind) in [
            ("ERROR", "55P03", Unavailable),    // * lock timeout
            ("ERROR", "57014", Unavailable),    // * cancelled, statement timeout
            ("ERROR", "40001", Unavailable),    // * serialisable, and another was first
            ("ERROR", "40P01", Unavailable),    // * deadlock
            ("ERROR", "25006", Unavailable),    // * default_transaction_read_only; a standby
            ("ERROR", "53100", Unavailable),    // disk full
            ("ERROR", "53200", Unavailable),    // out of memory
            ("ERROR", "58030", Unavailable),    // a disk's error
            ("ERROR", "42501", Denied),         // *
            ("ERROR", "42P01", NotFound),       // *
            ("ERROR", "3F000", NotFound),       // no such schema
            ("ERROR", "42703", Conflict),       // * a table of others
            ("ERROR", "42809", Conflict),       // * a table and not a sequence
            ("ERROR", "23514", Conflict),       // * a check of others
            ("ERROR", "P0001", Conflict),       // * a trigger's RAISE
            ("ERROR", "2BP01", Conflict),       // * the default of a column
            ("ERROR", "22023", InvalidInput),   // MINVALUE above MAXVALUE
            ("ERROR", "22P05", InvalidInput),   // * not of the database's encoding
            ("ERROR", "42883", Unsupported),    // an older server's function
            ("ERROR", "XX001", StoreViolation), // corrupt
            // The server, or a pooler in front of it, cannot report the outcome.
            ("ERROR", "40003", UnknownOutcome),
            ("ERROR", "08007", UnknownOutcome),
            ("ERROR", "08006", UnknownOutcome),
            ("ERROR", "XX000", UnknownOutcome),
            ("ERROR", "ZZ999", UnknownOutcome),
            // The session ends, perhaps after the commit.
            ("FATAL", "57P01", UnknownOutcome), // * pg_terminate_backend
            ("FATAL", "57P02", UnknownOutcome), // another session crashed
            ("FATAL", "53300", UnknownOutcome),
            ("PANIC", "58030", UnknownOutcome),
        ] {
            let fault = said(severity, code);
            assert_eq!(classify(&fault, Asked::Write), kind, "{severity} {code}");
            let stays = severity == "ERROR" && code != "25006";
            assert_eq!(leaves_connection(&fault), stays, "{severity} {code}");
            for asked in [Asked::Read, Asked::InTransaction] {
                let expected = if kind == UnknownOutcome { Unavailable } else { kind };
                assert_eq!(classify(&fault, asked), expected, "{severity} {code} {asked:?}");
            }
            let error = failed(fault, Asked::Write);
            assert!(error.to_string().contains(&format!("{severity} {code}: text of it")), "{error}");
        }
    }

    #[test]
    fn rejected_login_is_never_an_unknown_outcome() {
        for (code, kind) in [
            ("57P03", Unavailable), // starting up
            ("53300", Unavailable), // * too many clients
            ("57P01", Unavailable), // shutting down
            ("3D000", NotFound),    // * no such database
            ("28P01", Denied),      // * wrong password
            ("28000", Denied),      // * no entry in pg_hba.conf
            ("08P01", Unavailable), // a pooler that does not reach its server
        ] {
            let fault = said("FATAL", code);
            assert_eq!(classify(&fault, Asked::Connect), kind, "{code}");
        }
        let refused = unconnected(Unavailable, io::Error::from(io::ErrorKind::ConnectionRefused));
        assert_eq!(classify(&refused, Asked::Connect), Unavailable);
        assert!(failed(refused, Asked::Connect).to_string().contains("refused"));
    }

    #[test]
    fn connection_error_adds_a_remedy_to_the_driver_text() {
        for (kind, remedy) in [
            (Denied, "sslrootcert=FILE"),
            (InvalidInput, "postgres://USER:PASSWORD@HOST"),
            (Unsupported, "sslmode=prefer"),
        ] {
            let error = failed(unconnected(kind, io::Error::other("its words")), Asked::Connect);
            assert_eq!(error.kind(), kind, "{error}");
            let text = error.to_string();
            assert!(text.contains("its words; ") && text.contains(remedy), "{error}");
        }
    }

    #[test]
    fn lost_or_silent_connection_is_an_unknown_outcome() {
        for fault in [
            Fault::broken(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Fault::Silent(Duration::from_secs(1)),
            Fault::Warned("synchronous replication".into()),
        ] {
            assert_eq!(classify(&fault, Asked::Write), UnknownOutcome, "{fault:?}");
            assert_eq!(classify(&fault, Asked::Read), Unavailable, "{fault:?}");
            assert!(!leaves_connection(&fault), "{fault:?}");
        }
    }

    #[test]
    fn uncommitted_range_is_not_used() {
        let error = failed(Fault::Uncommitted, Asked::Write);
        assert_eq!(error.kind(), Conflict);
        assert!(
            error.to_string().ends_with("give the store its own client, or draw with `next_in`"),
            "{error}"
        );
        assert!(!leaves_connection(&Fault::Uncommitted));
    }

    /// The driver's error is found as the cause, without a wrapper.
    #[test]
    fn the_driver_s_error_is_the_cause() {
        let engine = EngineError::new("42P01", "missing").because(io::Error::other("its words"));
        for fault in [Fault::from(engine), Fault::broken(io::Error::other("its words"))] {
            let error = failed(fault, Asked::Write);
            let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
            assert_eq!(cause.unwrap().to_string(), "its words");
        }
    }
}
