//! PostgreSQL's errors, sorted by what they say about the ids.
//!
//! Each write here is one statement that commits by itself. An `ERROR` means that its transaction was
//! aborted, so nothing was reserved; `FATAL`, `PANIC` and a connection that ends can come after the commit
//! and before its confirmation. Servers that only speak the protocol, and poolers, have codes of their own:
//! what is not known to leave no trace is unknown.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use rustls::Error as TlsError;
use tokio_postgres::Error as PgError;
use tokio_postgres::error::{DbError, Severity};

use crate::error::{Error, ErrorKind};
use crate::store::mode::GONE;

/// What was being done when something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nothing yet.
    Connect,
    Read,
    Write,
    /// A write that takes effect only if the caller commits.
    InTransaction,
}

/// What went wrong.
#[derive(Debug)]
pub(super) enum Fault {
    Driver(PgError),
    /// No answer in this time.
    Silent(Duration),
    /// It was not begun, for this reason.
    Refused(Error),
    /// The answer came with a warning that the commit may not be where it should be.
    Warned(String),
}

impl From<PgError> for Fault {
    fn from(error: PgError) -> Self {
        Self::Driver(error)
    }
}

impl Fault {
    pub(super) fn code(&self) -> Option<&str> {
        match self {
            Self::Driver(error) => error.code().map(tokio_postgres::error::SqlState::code),
            _ => None,
        }
    }

    /// Whether the server has these words for it.
    fn says(&self, words: &str) -> bool {
        let Self::Driver(error) = self else { return false };
        error.as_db_error().is_some_and(|error| error.message().contains(words))
    }

    /// Whether the connection is as good as before: the server has answered, and listens.
    pub(super) fn leaves_connection(&self) -> bool {
        match self {
            Self::Driver(error) => error.as_db_error().is_some_and(|error| {
                // A server that may not write is best left for another.
                is_error(error) && error.code().code() != READ_ONLY
            }),
            Self::Silent(_) | Self::Warned(_) | Self::Refused(_) => false,
        }
    }
}

const READ_ONLY: &str = "25006";
/// `nextval` has come to the end of its sequence.
pub(super) const SEQUENCE_LIMIT: &str = "2200H";
pub(super) const UNDEFINED_TABLE: &str = "42P01";
/// What a block should hold is not there: the data are damaged, or the sequence was restarted, and its old
/// file went while it was read.
pub(super) const DATA_CORRUPTED: &str = "XX001";

/// What a failure means.
pub(super) fn classify(fault: &Fault, asked: Asked) -> ErrorKind {
    let kind = match fault {
        Fault::Driver(error) => of_driver(error, asked),
        Fault::Refused(error) => error.kind(),
        Fault::Silent(_) | Fault::Warned(_) => ErrorKind::UnknownOutcome,
    };
    match kind {
        ErrorKind::UnknownOutcome if asked != Asked::Write => ErrorKind::Unavailable,
        kind => kind,
    }
}

fn of_driver(error: &PgError, asked: Asked) -> ErrorKind {
    if let Some(error) = error.as_db_error() {
        return of_server(error, asked);
    }
    if asked == Asked::Connect {
        return of_connect(error);
    }
    if error.is_closed() || io_cause(error).is_some() {
        return ErrorKind::UnknownOutcome;
    }
    // An answer that cannot be read may stand for a commit all the same.
    ErrorKind::UnknownOutcome
}

/// The driver does not say more than its text does.
fn of_connect(error: &PgError) -> ErrorKind {
    let text = error.to_string();
    if let Some(TlsError::InvalidCertificate(_)) = tls_cause(error) {
        return ErrorKind::Denied;
    }
    if text.starts_with("invalid configuration") || text.starts_with("invalid connection string") {
        return ErrorKind::InvalidInput;
    }
    if text.starts_with("authentication error") {
        return ErrorKind::Denied;
    }
    if chain(error).contains("server does not support TLS") {
        return ErrorKind::Unsupported;
    }
    ErrorKind::Unavailable
}

fn of_server(error: &DbError, asked: Asked) -> ErrorKind {
    // While connecting, nothing was asked for: FATAL is how the server refuses.
    if asked == Asked::Connect || is_error(error) {
        return of_code(error.code().code());
    }
    ErrorKind::UnknownOutcome
}

fn is_error(error: &DbError) -> bool {
    match error.parsed_severity() {
        Some(severity) => severity == Severity::Error,
        None => error.severity() == "ERROR",
    }
}

/// By PostgreSQL's list of SQLSTATEs. Of any in the first arms the transaction was rolled back.
fn of_code(code: &str) -> ErrorKind {
    match code {
        // The client cannot be told: statement_completion_unknown, transaction_resolution_unknown.
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
        "58030" | "55P03" | "55006" | "57014" | "57P01" | "57P02" | "57P03"
        // serialization_failure, deadlock_detected; a standby, or default_transaction_read_only
        | "40001" | "40P01" | READ_ONLY => ErrorKind::Unavailable,
        // insufficient_resources: disk_full, out_of_memory, too_many_connections
        _ if code.starts_with("53") => ErrorKind::Unavailable,
        // integrity_constraint_violation: of somebody's making, since ours are checked before
        _ if code.starts_with("23") => ErrorKind::Conflict,
        _ => ErrorKind::UnknownOutcome,
    }
}

/// A failure as this crate's error.
pub(super) fn failed(fault: Fault, asked: Asked) -> Error {
    if let Fault::Refused(error) = fault {
        return error;
    }
    let kind = classify(&fault, asked);
    let mut message = describe(&fault);
    if let Some(remedy) = remedy(&fault, kind, asked) {
        let _ = write!(message, "; {remedy}");
    }
    let error = Error::new(kind, message);
    match fault {
        Fault::Driver(cause) => error.because(cause),
        _ => error,
    }
}

fn describe(fault: &Fault) -> String {
    match fault {
        Fault::Refused(error) => error.to_string(),
        Fault::Silent(patience) => format!("no answer within {patience:?}"),
        Fault::Warned(warning) => format!("committed, but with the warning {warning:?}"),
        Fault::Driver(error) => match error.as_db_error() {
            Some(error) => {
                let (severity, code) = (error.severity(), error.code().code());
                format!("{severity} {code}: {}", error.message())
            }
            None => chain(error),
        },
    }
}

/// The error and what caused it, since the driver's own text ends at "error connecting to server".
pub(super) fn chain(error: &PgError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            let _ = write!(text, ": {more}");
        }
        cause = error.source();
    }
    text
}

fn io_cause(error: &PgError) -> Option<&io::Error> {
    error.source()?.downcast_ref()
}

fn tls_cause(error: &PgError) -> Option<&TlsError> {
    io_cause(error)?.get_ref()?.downcast_ref()
}

fn remedy(fault: &Fault, kind: ErrorKind, asked: Asked) -> Option<&'static str> {
    Some(match (fault.code(), kind) {
        (Some("55P03"), _) => "another transaction holds the row; try again, or raise timeout=",
        (Some("53300"), _) => "raise max_connections, or close others",
        (Some("53100"), _) => "make room on the server's disk",
        (Some(READ_ONLY), _) if asked == Asked::InTransaction => {
            "the transaction is read-only, or the server a standby: begin it READ WRITE, on the primary"
        }
        (Some(READ_ONLY), _) => {
            "the server is a standby, or default_transaction_read_only is on for this user, database or server: name the \
             primary (or several hosts with target_session_attrs=read-write), or turn that off"
        }
        (_, ErrorKind::Unavailable) if asked == Asked::InTransaction => {
            "roll the transaction back; it can be begun again"
        }
        (Some("40001" | "40P01" | "57014"), ErrorKind::Unavailable) => "nothing was changed",
        (Some("3D000"), _) => "create the database, or name another",
        (Some("3F000"), _) => "create the schema, or name another with schema=NAME",
        (Some(UNDEFINED_TABLE), _) => GONE,
        (_, ErrorKind::UnknownOutcome) => "it may have been applied or not",
        (Some("28000" | "28P01"), _) => "check the user and its password",
        (Some("42501"), _) if fault.says("row-level security") => {
            "give the user policies for SELECT, INSERT, UPDATE and DELETE on the table, or BYPASSRLS"
        }
        (Some("42501"), _) => {
            "grant the user USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on the table"
        }
        (Some("42809"), _) => "what has this name is no sequence, but a table, say: choose another name",
        (Some("42703" | "42804" | "42P10"), _) => "the table is not idmill's; name another with table=NAME",
        (None, ErrorKind::Denied) => {
            "check the user, its password and the server's certificate (sslrootcert=FILE names another root)"
        }
        (None, ErrorKind::InvalidInput) => {
            "credentials are written `postgres://USER:PASSWORD@HOST:PORT/DATABASE`"
        }
        (None, ErrorKind::Unsupported) => "the server has no TLS: sslmode=prefer or disable does without",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind::{
        Conflict, Denied, InvalidInput, NotFound, StoreViolation, Unavailable, UnknownOutcome, Unsupported,
    };
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_postgres::{Client, Config, NoTls};

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(body.len() + 4).unwrap();
        [&[kind], &len.to_be_bytes()[..], body].concat()
    }

    fn error_message(severity: &str, code: &str) -> Vec<u8> {
        let body = format!("S{severity}\0V{severity}\0C{code}\0Mtext of it\0\0");
        message(b'E', body.as_bytes())
    }

    /// A server that lets everybody in and says this to the first statement; or, if it
    /// is to, to everybody at once.
    async fn told(answer: Vec<u8>, at_once: bool) -> PgError {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = [0; 4096];
            assert_ne!(stream.read(&mut heard).await.unwrap(), 0);
            if !at_once {
                let welcome = [message(b'R', &[0, 0, 0, 0]), message(b'Z', b"I")].concat();
                stream.write_all(&welcome).await.unwrap();
                assert_ne!(stream.read(&mut heard).await.unwrap(), 0);
            }
            stream.write_all(&answer).await.unwrap();
        });
        let mut config = Config::new();
        config.host("127.0.0.1").port(port).user("u");
        let outcome = match config.connect(NoTls).await {
            Err(error) => Err(error),
            Ok((client, connection)) => {
                tokio::spawn(async move { drop(connection.await) });
                run(&client).await
            }
        };
        served.await.unwrap();
        outcome.unwrap_err()
    }

    #[tokio::test]
    async fn a_password_that_is_asked_for_and_missing_is_said_where_to_write() {
        // AuthenticationCleartextPassword.
        let error = told(message(b'R', &[0, 0, 0, 3]), true).await;
        let error = failed(error.into(), Asked::Connect);
        assert_eq!(error.kind(), InvalidInput, "{error}");
        assert!(error.to_string().contains("postgres://USER:PASSWORD@HOST"), "{error}");
    }

    async fn run(client: &Client) -> Result<(), PgError> {
        client.query_typed("SELECT 1", &[]).await.map(drop)
    }

    /// As the server says it to a statement that writes; those with a star are heard from
    /// PostgreSQL itself in tests/postgres.
    #[tokio::test]
    async fn errors_of_a_statement_are_sorted_by_their_code() {
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
            // What the server itself does not know, or a pooler in front of it.
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
            let fault = Fault::Driver(told(error_message(severity, code), false).await);
            assert_eq!(classify(&fault, Asked::Write), kind, "{severity} {code}");
            assert_eq!(
                fault.leaves_connection(),
                severity == "ERROR" && code != "25006",
                "{severity} {code}"
            );
            for asked in [Asked::Read, Asked::InTransaction] {
                let expected = if kind == UnknownOutcome { Unavailable } else { kind };
                assert_eq!(classify(&fault, asked), expected, "{severity} {code} {asked:?}");
            }
            let error = failed(fault, Asked::Write);
            assert!(error.to_string().contains(&format!("{severity} {code}: text of it")), "{error}");
        }
    }

    #[tokio::test]
    async fn whoever_is_not_let_in_has_reserved_nothing() {
        for (code, kind) in [
            ("57P03", Unavailable), // starting up
            ("53300", Unavailable), // * too many clients
            ("57P01", Unavailable), // shutting down
            ("3D000", NotFound),    // * no such database
            ("28P01", Denied),      // * wrong password
            ("28000", Denied),      // * no entry in pg_hba.conf
            ("08P01", Unavailable), // a pooler that does not reach its server
        ] {
            let fault = Fault::Driver(told(error_message("FATAL", code), true).await);
            assert_eq!(classify(&fault, Asked::Connect), kind, "{code}");
        }
        let refused = Config::new().host("127.0.0.1").port(1).user("u").connect(NoTls).await;
        let Err(refused) = refused else { panic!("port 1 answers") };
        let fault = Fault::Driver(refused);
        assert_eq!(classify(&fault, Asked::Connect), Unavailable);
        assert!(failed(fault, Asked::Connect).to_string().contains("refused"));
    }

    #[tokio::test]
    async fn a_connection_that_ends_or_speaks_in_tongues_is_unknown() {
        for answer in [Vec::new(), b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), message(b'Z', b"I")] {
            let fault = Fault::Driver(told(answer.clone(), false).await);
            assert_eq!(classify(&fault, Asked::Write), UnknownOutcome, "{answer:?}");
            assert_eq!(classify(&fault, Asked::Read), Unavailable, "{answer:?}");
            assert!(!fault.leaves_connection());
        }
        for fault in [Fault::Silent(Duration::from_secs(1)), Fault::Warned("synchronous replication".into())]
        {
            assert_eq!(classify(&fault, Asked::Write), UnknownOutcome);
        }
    }
}
