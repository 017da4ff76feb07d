//! Converts values, rows and errors between `idmill-sql` and the driver.

use std::error::Error as _;
use std::io;

use idmill::ErrorKind;
use idmill_sql::{EngineError, Fault, Row, Value, chain, postgres};
use rustls::Error as TlsError;
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error as PgError, Row as PgRow};

/// A parameter of a statement and its type. Since the type is given, the statement need not be prepared.
/// Preparing would cost another round trip, and some poolers do not keep prepared statements.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

static NULL: Option<&str> = None;

/// The parameters of a statement, with this lock timeout.
pub(super) fn parameters<'a>(values: &'a [Value], lock_timeout: &'a &str) -> Vec<Parameter<'a>> {
    let parameter = |value: &'a Value| -> Parameter<'a> {
        match value {
            Value::Null => (&NULL, Type::TEXT),
            Value::Integer(integer) => (integer, Type::INT8),
            Value::Text(text) => (text, Type::TEXT),
            Value::Bytes(bytes) => (bytes, Type::BYTEA),
            Value::Texts(texts) => (texts, Type::TEXT_ARRAY),
            Value::Timeout => (lock_timeout, Type::TEXT),
            _ => unreachable!("statements for PostgreSQL do not bind this value"),
        }
    };
    values.iter().map(parameter).collect()
}

/// Converts a row, whose columns are all text.
pub(super) fn row_of(row: &PgRow) -> Row {
    let columns = 0..row.len();
    let text = |column| row.try_get(column).ok().flatten();
    Row::new(columns.map(|column| text(column).map_or(Value::Null, Value::Text)).collect())
}

/// Converts an error of a statement.
pub(super) fn fault_of(error: PgError) -> Fault {
    let Some(said) = error.as_db_error() else { return Fault::broken(error) };
    let fault = EngineError::new(said.code().code(), said.message()).with_severity(said.severity());
    let fault = if is_error(said) { fault } else { fault.ending_session() };
    Fault::Engine(fault.because(error))
}

/// Whether the session continues after the error.
pub(super) fn is_error(error: &DbError) -> bool {
    match error.parsed_severity() {
        Some(severity) => severity == Severity::Error,
        None => error.severity() == "ERROR",
    }
}

/// Converts an error of connecting. The driver describes the cause only in the error's text.
pub(super) fn unconnected(error: PgError) -> Fault {
    if error.as_db_error().is_some() {
        return fault_of(error);
    }
    let text = error.to_string();
    let kind = match tls_cause(&error) {
        Some(TlsError::InvalidCertificate(_)) => ErrorKind::Denied,
        _ if text.starts_with("invalid configuration") => ErrorKind::InvalidInput,
        _ if text.starts_with("invalid connection string") => ErrorKind::InvalidInput,
        _ if text.starts_with("authentication error") => ErrorKind::Denied,
        _ if chain(&error).contains("server does not support TLS") => ErrorKind::Unsupported,
        _ => ErrorKind::Unavailable,
    };
    postgres::unconnected(kind, error)
}

fn tls_cause(error: &PgError) -> Option<&TlsError> {
    error.source()?.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind::{
        Conflict, Denied, InvalidInput, NotFound, StoreViolation, Unavailable, UnknownOutcome, Unsupported,
    };
    use idmill_sql::Asked;
    use idmill_sql::postgres::{classify, failed, leaves_connection};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_postgres::error::SqlState;
    use tokio_postgres::{Client, Config, NoTls};

    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(body.len() + 4).unwrap();
        [&[kind], &len.to_be_bytes()[..], body].concat()
    }

    fn error_message(severity: &str, code: &str) -> Vec<u8> {
        let body = format!("S{severity}\0V{severity}\0C{code}\0Mtext of it\0\0");
        message(b'E', body.as_bytes())
    }

    /// Returns the error of a client whose server sends this answer to the first statement, or to the login
    /// with `at_once`.
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
    async fn missing_password_error_shows_the_url_form() {
        // AuthenticationCleartextPassword.
        let error = told(message(b'R', &[0, 0, 0, 3]), true).await;
        let error = failed(unconnected(error), Asked::Connect);
        assert_eq!(error.kind(), InvalidInput, "{error}");
        assert!(error.to_string().contains("postgres://USER:PASSWORD@HOST"), "{error}");
    }

    async fn run(client: &Client) -> Result<(), PgError> {
        client.query_typed("SELECT 1", &[]).await.map(drop)
    }

    /// Errors of a statement that writes. The tests in tests/postgres get the starred codes from PostgreSQL.
    #[tokio::test]
    async fn statement_errors_are_classified_by_code() {
        for (severity, code, kind) in [
            ("ERROR", "55P03", Unavailable),    // * lock timeout
            ("ERROR", "57014", Unavailable),    // * cancelled, statement timeout
            ("ERROR", "40001", Unavailable),    // * SERIALIZABLE; another commit was first
            ("ERROR", "40P01", Unavailable),    // * deadlock
            ("ERROR", "25006", Unavailable),    // * default_transaction_read_only; a standby
            ("ERROR", "53100", Unavailable),    // disk full
            ("ERROR", "53200", Unavailable),    // out of memory
            ("ERROR", "58030", Unavailable),    // a disk's error
            ("ERROR", "42501", Denied),         // *
            ("ERROR", "42P01", NotFound),       // *
            ("ERROR", "3F000", NotFound),       // no such schema
            ("ERROR", "42703", Conflict),       // * another program's table
            ("ERROR", "42809", Conflict),       // * a table and not a sequence
            ("ERROR", "23514", Conflict),       // * another table's CHECK
            ("ERROR", "P0001", Conflict),       // * a trigger's RAISE
            ("ERROR", "2BP01", Conflict),       // * used by a column's default
            ("ERROR", "22023", InvalidInput),   // MINVALUE above MAXVALUE
            ("ERROR", "22P05", InvalidInput),   // * not of the database's encoding
            ("ERROR", "42883", Unsupported),    // the function is missing
            ("ERROR", "XX001", StoreViolation), // corrupt
            // The server, or a pooler in front of it, cannot determine the outcome.
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
            let fault = fault_of(told(error_message(severity, code), false).await);
            assert_eq!(classify(&fault, Asked::Write), kind, "{severity} {code}");
            assert_eq!(
                leaves_connection(&fault),
                severity == "ERROR" && code != "25006",
                "{severity} {code}"
            );
            for asked in [Asked::Read, Asked::InTransaction] {
                let expected = if kind == UnknownOutcome { Unavailable } else { kind };
                assert_eq!(classify(&fault, asked), expected, "{severity} {code} {asked:?}");
            }
            let error = failed(fault, Asked::Write);
            assert!(error.to_string().contains(&format!("{severity} {code}: text of it")), "{error}");
            // The driver's error is available as the cause.
            let cause = error.source().and_then(|cause| cause.downcast_ref::<PgError>());
            assert_eq!(cause.and_then(PgError::code).map(SqlState::code), Some(code));
        }
    }

    #[tokio::test]
    async fn rejected_login_is_never_an_unknown_outcome() {
        for (code, kind) in [
            ("57P03", Unavailable), // starting up
            ("53300", Unavailable), // * too many clients
            ("57P01", Unavailable), // shutting down
            ("3D000", NotFound),    // * no such database
            ("28P01", Denied),      // * wrong password
            ("28000", Denied),      // * no entry in pg_hba.conf
            ("08P01", Unavailable), // a pooler that does not reach its server
        ] {
            let fault = unconnected(told(error_message("FATAL", code), true).await);
            assert_eq!(classify(&fault, Asked::Connect), kind, "{code}");
        }
        let refused = Config::new().host("127.0.0.1").port(1).user("u").connect(NoTls).await;
        let Err(refused) = refused else { panic!("port 1 answers") };
        let fault = unconnected(refused);
        assert_eq!(classify(&fault, Asked::Connect), Unavailable);
        assert!(failed(fault, Asked::Connect).to_string().contains("refused"));
    }

    #[tokio::test]
    async fn write_on_a_closed_or_garbled_connection_is_unknown() {
        for answer in [Vec::new(), b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), message(b'Z', b"I")] {
            let fault = fault_of(told(answer.clone(), false).await);
            assert_eq!(classify(&fault, Asked::Write), UnknownOutcome, "{answer:?}");
            assert_eq!(classify(&fault, Asked::Read), Unavailable, "{answer:?}");
            assert!(!leaves_connection(&fault));
        }
    }

    #[test]
    fn values_have_types_and_the_timeout_its_place() {
        let (texts, timeout) = (vec!["a".to_owned(), "b".to_owned()], "100ms");
        let values =
            ["s".into(), Value::Texts(texts), Value::Timeout, Value::Null, 7.into(), Value::Bytes(vec![0])];
        let parameters = parameters(&values, &timeout);
        let types: Vec<_> = parameters.iter().map(|(_, of)| of.clone()).collect();
        assert_eq!(types, [Type::TEXT, Type::TEXT_ARRAY, Type::TEXT, Type::TEXT, Type::INT8, Type::BYTEA]);
        assert_eq!(format!("{:?}", parameters[2].0), "\"100ms\"");
        assert_eq!(format!("{:?}", parameters[3].0), "None");
    }
}
