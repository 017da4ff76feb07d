//! Converts the driver's errors and values to those of `idmill-sql`.

use std::error::Error as StdError;
use std::fmt;

use idmill::{Error, ErrorKind};
use idmill_sql::mysql::failed;
use idmill_sql::{Asked, EngineError, Fault, Row, Value};
use mysql_async::{DriverError, Error as Mysql, IoError};

/// Converts an error of a statement.
pub(super) fn fault(error: Mysql) -> Fault {
    match error {
        Mysql::Server(ref said) => {
            EngineError::new(said.code.to_string(), said.message.clone()).because(error).into()
        }
        Mysql::Other(other) => match other.downcast::<Carried>() {
            Ok(carried) => carried.0,
            Err(other) => Fault::broken(Mysql::Other(other)),
        },
        Mysql::Url(_) => refused(ErrorKind::InvalidInput, error, None),
        Mysql::Driver(DriverError::NoClientSslFlagFromServer) => {
            refused(ErrorKind::Unsupported, error, Some("set up TLS on the server, or set `tls=false`"))
        }
        Mysql::Driver(
            DriverError::UnknownAuthPlugin { .. }
            | DriverError::MysqlOldPasswordDisabled
            | DriverError::CleartextPluginDisabled
            | DriverError::CantParseServerVersion { .. }
            | DriverError::NamedPipesDisabled,
        ) => refused(ErrorKind::Unsupported, error, None),
        Mysql::Driver(DriverError::FromValue { .. } | DriverError::FromRow { .. }) => {
            Fault::Answer(words(&error))
        }
        Mysql::Driver(_) | Mysql::Io(_) => Fault::broken(error),
    }
}

/// Converts an error of connecting: no statement of a call was sent.
pub(super) fn connecting(error: Mysql) -> Fault {
    match &error {
        Mysql::Io(cause) if is_certificate(cause) => {
            let remedy = "set `ca=FILE` to the CA certificate";
            refused(ErrorKind::Denied, error, Some(remedy))
        }
        _ => fault(error),
    }
}

/// An error that the driver detected before it sent a statement.
fn refused(kind: ErrorKind, error: Mysql, remedy: Option<&str>) -> Fault {
    let words = words(&error);
    let message = remedy.map_or_else(|| words.clone(), |remedy| format!("{words}; {remedy}"));
    Fault::Refused(Error::new(kind, message).because(error))
}

/// Returns only the cause's message, because the driver's message repeats it.
fn words(error: &Mysql) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Whether the server's certificate was rejected, or the CA file has invalid content.
fn is_certificate(error: &IoError) -> bool {
    match error {
        IoError::Tls(_) => true,
        IoError::Io(error) => error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
            .is_some_and(|error| matches!(error, rustls::Error::InvalidCertificate(_))),
    }
}

/// Carries a fault through the driver unchanged.
#[derive(Debug)]
pub(super) struct Carried(Fault);

impl Carried {
    pub(super) fn by_driver(fault: Fault) -> Mysql {
        // An unexpected answer is not a failure to connect.
        let fault = match fault {
            Fault::Answer(_) => Fault::Refused(failed(fault, Asked::Connect)),
            other => other,
        };
        Mysql::Other(Box::new(Self(fault)))
    }

    /// Returns the carried [`Fault::Refused`], if there is one.
    pub(super) fn refusal(error: &Mysql) -> Option<&Error> {
        let Mysql::Other(other) = error else { return None };
        match other.downcast_ref::<Self>() {
            Some(Self(Fault::Refused(ours))) => Some(ours),
            _ => None,
        }
    }
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl StdError for Carried {}

/// Converts a parameter of a prepared statement.
pub(super) fn parameter(value: &Value) -> mysql_async::Value {
    match value {
        Value::Unsigned(number) => mysql_async::Value::UInt(*number),
        Value::Bytes(bytes) => mysql_async::Value::Bytes(bytes.clone()),
        other => unreachable!("statements for MySQL do not bind the value {other:?}"),
    }
}

/// Converts a row of the driver.
pub(super) fn row(row: mysql_async::Row) -> Row {
    Row::new(row.unwrap().into_iter().map(value).collect())
}

fn value(value: mysql_async::Value) -> Value {
    match value {
        mysql_async::Value::NULL => Value::Null,
        mysql_async::Value::Bytes(bytes) => Value::Bytes(bytes),
        mysql_async::Value::Int(number) => Value::Integer(number),
        mysql_async::Value::UInt(number) => {
            i64::try_from(number).map_or_else(|_| Value::Text(number.to_string()), Value::Integer)
        }
        other => Value::Text(other.as_sql(true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use idmill_sql::mysql::{classify, is_duplicate};
    use mysql_async::ServerError;

    fn server(code: u16) -> Mysql {
        Mysql::Server(ServerError { code, message: "said".into(), state: "HY000".into() })
    }

    fn cut() -> Mysql {
        Mysql::from(std::io::Error::from(std::io::ErrorKind::UnexpectedEof))
    }

    /// The kinds for a write, for a statement in a transaction, and for a read.
    fn kinds(error: Mysql) -> [ErrorKind; 3] {
        let fault = fault(error);
        [Asked::Write, Asked::InTransaction, Asked::Read].map(|asked| classify(&fault, asked))
    }

    #[test]
    fn possibly_applied_writes_are_unknown() {
        use ErrorKind::{Unavailable, UnknownOutcome};
        let silent = [UnknownOutcome, Unavailable, Unavailable];
        assert_eq!(kinds(server(1317)), silent);
        assert_eq!(kinds(cut()), silent);
        assert_eq!(kinds(DriverError::PacketOutOfOrder.into()), silent);
        assert_eq!(kinds(DriverError::ConnectionClosed.into()), silent);
        assert_eq!(kinds(Mysql::Other("somebody's".into())), silent);
        assert_eq!(classify(&connecting(cut()), Asked::Connect), Unavailable);
    }

    #[test]
    fn unapplied_errors_are_classified_by_number_and_cause() {
        use ErrorKind::{InvalidInput, NotFound, Unavailable, Unsupported};
        for (error, kind) in [
            (server(1213), Unavailable),
            (server(1290), Unavailable),
            (server(1146), NotFound),
            (mysql_async::UrlError::Invalid.into(), InvalidInput),
            (DriverError::UnknownAuthPlugin { name: "x".into() }.into(), Unsupported),
            (DriverError::NoClientSslFlagFromServer.into(), Unsupported),
        ] {
            let said = error.to_string();
            assert_eq!(kinds(error), [kind; 3], "{said}");
        }
        assert!(is_duplicate(&fault(server(1062))) && !is_duplicate(&fault(cut())));
        let unreadable = DriverError::FromValue { value: mysql_async::Value::NULL };
        assert_eq!(kinds(unreadable.into()), [ErrorKind::StoreViolation; 3]);
    }

    #[test]
    fn rejected_certificate_is_denied_while_connecting() {
        let not_valid = || {
            let cause = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
            Mysql::from(std::io::Error::other(cause))
        };
        let error = failed(connecting(not_valid()), Asked::Connect);
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.to_string().ends_with("to the CA certificate"), "{error}");
        assert_eq!(classify(&fault(not_valid()), Asked::Write), ErrorKind::UnknownOutcome);
    }

    #[test]
    fn own_error_is_returned_unchanged() {
        let ours = Error::new(ErrorKind::Unsupported, "not durable");
        let through = Carried::by_driver(Fault::Refused(ours));
        assert!(Carried::refusal(&through).is_some() && Carried::refusal(&cut()).is_none());
        let carried = failed(fault(through), Asked::Write);
        assert_eq!((carried.kind(), carried.to_string().as_str()), (ErrorKind::Unsupported, "not durable"));
    }

    #[test]
    fn unknown_outcome_is_stated_in_the_message() {
        let error = failed(fault(cut()), Asked::Write);
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
        assert!(error.to_string().ends_with("; the write may have been applied"), "{error}");
        assert!(!error.to_string().contains("Input/output error: Input/output error"), "{error}");
    }

    #[test]
    fn the_cause_is_the_driver_s_own_error() {
        for error in [cut(), server(1146), DriverError::NoClientSslFlagFromServer.into()] {
            let error = failed(fault(error), Asked::Write);
            assert!(error.source().is_some_and(<dyn StdError>::is::<Mysql>), "{error:?}");
        }
    }

    #[test]
    fn values_round_trip() {
        use mysql_async::Value as Theirs;
        for (theirs, ours) in [
            (Theirs::NULL, Value::Null),
            (Theirs::Bytes(b"\xff".into()), Value::Bytes(b"\xff".into())),
            (Theirs::Int(-1), Value::Integer(-1)),
            (Theirs::UInt(7), Value::Integer(7)),
            (Theirs::UInt(u64::MAX), Value::Text(u64::MAX.to_string())),
        ] {
            assert_eq!(value(theirs), ours);
        }
    }
}
