//! Converts rows and errors of the driver to those of `idmill-sql`.

use idmill::ErrorKind;
use idmill_sql::{EngineError, Fault, Row, Value, chain, postgres};
use sqlx::postgres::{PgDatabaseError, PgRow, PgSeverity};
use sqlx::{Error as SqlxError, Row as _};

/// Converts a row, whose columns are all text.
pub(super) fn row_of(row: &PgRow) -> Row {
    let columns = 0..row.len();
    let text = |column| row.try_get(column).ok().flatten();
    Row::new(columns.map(|column| text(column).map_or(Value::Null, Value::Text)).collect())
}

/// Converts a driver error from a statement to a [`Fault`]. Adapters for libraries on top of sqlx can use
/// this function.
///
/// An error of the server becomes [`Fault::Engine`], with its SQLSTATE and severity. After any
/// other error the statement may have been executed.
pub fn fault_of(error: SqlxError) -> Fault {
    let Some(said) = said(&error) else { return Fault::broken(error) };
    let severity = said.severity();
    let fault = EngineError::new(said.code(), said.message()).with_severity(word(severity));
    let fault = if severity == PgSeverity::Error { fault } else { fault.ending_session() };
    Fault::Engine(fault.because(error))
}

fn said(error: &SqlxError) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

fn word(severity: PgSeverity) -> &'static str {
    match severity {
        PgSeverity::Panic => "PANIC",
        PgSeverity::Fatal => "FATAL",
        _ => "ERROR",
    }
}

/// Converts an error of connecting.
pub(super) fn unconnected(error: SqlxError) -> Fault {
    if said(&error).is_some() {
        return fault_of(error);
    }
    let kind = match &error {
        SqlxError::Configuration(_) => ErrorKind::InvalidInput,
        SqlxError::Tls(cause) if is_of_certificate(&chain(&**cause)) => ErrorKind::Denied,
        SqlxError::Tls(_) => ErrorKind::Unsupported,
        // rustls reports a failed handshake as an I/O error.
        SqlxError::Io(cause) if cause.get_ref().is_some_and(|cause| is_of_certificate(&chain(cause))) => {
            ErrorKind::Denied
        }
        _ => ErrorKind::Unavailable,
    };
    postgres::unconnected(kind, error)
}

/// The driver supports several TLS implementations, so only the text identifies the error.
fn is_of_certificate(text: &str) -> bool {
    text.contains("certificate")
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::io;

    use idmill::ErrorKind::{
        Conflict, Denied, InvalidInput, NotFound, StoreViolation, Unavailable, UnknownOutcome, Unsupported,
    };
    use idmill_sql::Asked;
    use idmill_sql::postgres::{classify, failed, leaves_connection};
    use sqlx::postgres::{PgConnectOptions, PgSslMode};
    use sqlx::{ConnectOptions, PgConnection};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::version::postgres::rows;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(body.len() + 4).unwrap();
        [&[kind], &len.to_be_bytes()[..], body].concat()
    }

    fn error_message(severity: &str, code: &str) -> Vec<u8> {
        let body = format!("S{severity}\0V{severity}\0C{code}\0Mtext of it\0\0");
        message(b'E', body.as_bytes())
    }

    fn options(port: u16) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(port)
            .username("u")
            .ssl_mode(PgSslMode::Disable)
    }

    async fn run(connection: &mut PgConnection) -> Result<(), SqlxError> {
        rows(connection, "SELECT 1").await.map(drop)
    }

    /// Returns the error of a client whose server sends this answer to the first statement, or to the login
    /// with `at_once`.
    async fn told(answer: Vec<u8>, at_once: bool) -> SqlxError {
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
        let outcome = match options(port).connect().await {
            Err(error) => Err(error),
            Ok(mut connection) => run(&mut connection).await,
        };
        served.await.unwrap();
        outcome.unwrap_err()
    }

    /// Errors of a statement that writes.
    #[tokio::test]
    async fn statement_errors_are_classified_by_code() {
        for (severity, code, kind) in [
            ("ERROR", "55P03", Unavailable),
            ("ERROR", "57014", Unavailable),
            ("ERROR", "40001", Unavailable),
            ("ERROR", "25006", Unavailable),
            ("ERROR", "53100", Unavailable),
            ("ERROR", "42501", Denied),
            ("ERROR", "42P01", NotFound),
            ("ERROR", "42703", Conflict),
            ("ERROR", "22P05", InvalidInput),
            ("ERROR", "42883", Unsupported),
            ("ERROR", "XX001", StoreViolation),
            ("ERROR", "40003", UnknownOutcome),
            ("ERROR", "ZZ999", UnknownOutcome),
            ("FATAL", "57P01", UnknownOutcome),
            ("FATAL", "53300", UnknownOutcome),
            ("PANIC", "58030", UnknownOutcome),
        ] {
            let fault = fault_of(told(error_message(severity, code), false).await);
            assert_eq!(classify(&fault, Asked::Write), kind, "{severity} {code}");
            let stays = severity == "ERROR" && code != "25006";
            assert_eq!(leaves_connection(&fault), stays, "{severity} {code}");
            let error = failed(fault, Asked::Write);
            assert!(error.to_string().contains(&format!("{severity} {code}: text of it")), "{error}");
            // The driver's error is available as the cause.
            let cause = error.source().and_then(|cause| cause.downcast_ref::<SqlxError>());
            let code_of =
                cause.and_then(SqlxError::as_database_error).and_then(sqlx::error::DatabaseError::code);
            assert_eq!(code_of.as_deref(), Some(code));
        }
    }

    #[tokio::test]
    async fn rejected_login_is_never_an_unknown_outcome() {
        for (code, kind) in [
            ("57P03", Unavailable),
            ("53300", Unavailable),
            ("3D000", NotFound),
            ("28P01", Denied),
            ("28000", Denied),
            ("08P01", Unavailable),
        ] {
            let fault = unconnected(told(error_message("FATAL", code), true).await);
            assert_eq!(classify(&fault, Asked::Connect), kind, "{code}");
        }
        let Err(refused) = options(1).connect().await else { panic!("port 1 answers") };
        let fault = unconnected(refused);
        assert_eq!(classify(&fault, Asked::Connect), Unavailable);
        assert!(failed(fault, Asked::Connect).to_string().contains("refused"));
    }

    #[test]
    fn tls_errors_of_the_driver_are_classified() {
        let said = |text: &str| io::Error::other(text.to_owned());
        for (error, kind) in [
            (SqlxError::Tls(Box::new(said("invalid peer certificate: UnknownIssuer"))), Denied),
            (SqlxError::Io(io::Error::other(said("invalid peer certificate: Expired"))), Denied),
            (SqlxError::Tls(Box::new(said("server does not support TLS"))), Unsupported),
            (SqlxError::Configuration(Box::new(said("no host"))), InvalidInput),
            (SqlxError::Io(said("reset")), Unavailable),
        ] {
            assert_eq!(failed(unconnected(error), Asked::Connect).kind(), kind);
        }
    }

    #[tokio::test]
    async fn write_on_a_closed_or_garbled_connection_is_unknown() {
        for answer in [Vec::new(), b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), message(b'1', b"")] {
            let fault = fault_of(told(answer.clone(), false).await);
            assert_eq!(classify(&fault, Asked::Write), UnknownOutcome, "{answer:?}");
            assert_eq!(classify(&fault, Asked::Read), Unavailable, "{answer:?}");
            assert!(!leaves_connection(&fault));
        }
    }
}
