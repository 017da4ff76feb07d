//! Classifies the driver's errors by their effect on ids.
//!
//! Cassandra has many errors for an unfinished conditional write. After nearly all these errors, the write
//! may have been applied, or another request may complete it later. Only a write that never began is
//! certainly not applied. The write never began if the error occurred before sending, if the server rejected
//! the statement, or after `Unavailable` for lack of a *serial* quorum, which is checked before the first
//! round. The number of replicas that replied does not show whether the write began.

use idmill::{Error, ErrorKind};
use idmill_kit::{Asked, advised};
use scylla::errors::{DbError, ExecutionError, NewSessionError, PrepareError, RequestAttemptError};
use scylla::frame::types::Consistency;

/// Returns the error kind of a failed statement.
pub(super) fn classify(error: &ExecutionError, asked: Asked) -> ErrorKind {
    match error {
        // The values do not fit the columns, so this is not an idmill table.
        ExecutionError::BadQuery(_) => ErrorKind::Conflict,
        // The driver has no node to send the statement to.
        ExecutionError::EmptyPlan | ExecutionError::ConnectionPoolError(_) => ErrorKind::Unavailable,
        ExecutionError::PrepareError(error) => classify_prepare(error),
        ExecutionError::LastAttemptError(error) => classify_attempt(error, asked),
        // After RequestTimeout, the outcome is unknown: the driver stopped waiting. The remaining variants
        // occur after a schema change or a `USE`.
        _ => asked.doubt(),
    }
}

/// Returns the error kind of a failed prepare. No statement was executed.
fn classify_prepare(error: &PrepareError) -> ErrorKind {
    match error {
        PrepareError::AllAttemptsFailed { first_attempt } => classify_attempt(first_attempt, Asked::Read),
        _ => ErrorKind::Unavailable,
    }
}

/// Returns the error kind of a failed connect.
fn classify_connect(error: &NewSessionError) -> ErrorKind {
    match error {
        NewSessionError::EmptyKnownNodesList | NewSessionError::IllegalConfig(_) => ErrorKind::InvalidInput,
        // The driver reports wrong credentials only in the text of the last attempt.
        NewSessionError::MetadataError(error) if is_denied(&error.to_string()) => ErrorKind::Denied,
        _ => ErrorKind::Unavailable,
    }
}

fn is_denied(message: &str) -> bool {
    ["uthentication", "credentials", "password"].iter().any(|word| message.contains(word))
}

fn classify_attempt(error: &RequestAttemptError, asked: Asked) -> ErrorKind {
    match error {
        RequestAttemptError::SerializationError(_)
        | RequestAttemptError::CqlRequestSerialization(_)
        // The statement was evicted from the server, and the table has changed since it was prepared.
        | RequestAttemptError::RepreparedIdChanged { .. } => ErrorKind::Conflict,
        RequestAttemptError::UnableToAllocStreamId => ErrorKind::Unavailable,
        RequestAttemptError::DbError(error, message) => classify_server(error, message, asked),
        // The connection broke, or the reply cannot be decoded.
        _ => asked.doubt(),
    }
}

fn classify_server(error: &DbError, message: &str, asked: Asked) -> ErrorKind {
    match error {
        DbError::Unavailable { consistency: Consistency::Serial | Consistency::LocalSerial, .. }
        | DbError::RateLimitReached { rejected_by_coordinator: true, .. }
        | DbError::Unprepared { .. } => ErrorKind::Unavailable,
        DbError::Invalid | DbError::SyntaxError | DbError::ConfigError => classify_refused(message),
        DbError::AuthenticationError | DbError::Unauthorized => ErrorKind::Denied,
        DbError::AlreadyExists { .. } => ErrorKind::AlreadyExists,
        // The outcome is unknown after timeouts and failures, `Overloaded` (which can also hit the commit
        // of an accepted write), a missing quorum for the commit, and undocumented errors.
        _ => asked.doubt(),
    }
}

/// Classifies a rejected statement. The server gives the reason only as text.
fn classify_refused(message: &str) -> ErrorKind {
    let says = |words: &str| message.contains(words);
    let unknown = ["unconfigured table", "does not exist", "doesn't exist", "non-existent keyspace"];
    if unknown.into_iter().any(says) {
        ErrorKind::NotFound
    } else if says("ablets") || says("not supported") || says("not yet supported") {
        ErrorKind::Unsupported
    } else {
        ErrorKind::Conflict
    }
}

/// Converts the error of a statement, and adds advice.
pub(super) fn failed(error: ExecutionError, asked: Asked) -> Error {
    let kind = classify(&error, asked);
    describe(kind, &error).because(error)
}

/// Converts a connect error and adds the hosts, which the driver's message omits.
pub(super) fn connect_failed(error: NewSessionError, hosts: &[String]) -> Error {
    let said = format!("cannot connect to {}: {error}", hosts.join(", "));
    if let Some((kind, remedy)) = of_tls(&said) {
        return advised(kind, said, Some(remedy)).because(error);
    }
    describe(classify_connect(&error), said).because(error)
}

/// Detects TLS errors, which the driver reports only as text.
fn of_tls(said: &str) -> Option<(ErrorKind, &'static str)> {
    let says = |words: &str| said.contains(words);
    if says("invalid peer certificate") {
        let remedy = "set `ca=FILE` to the CA certificate; the node's certificate must be for its address \
                      or a host of the URL";
        Some((ErrorKind::Denied, remedy))
    } else if says("received fatal alert") {
        Some((ErrorKind::Denied, "if the nodes require a certificate, set `cert=FILE&key=FILE`"))
    } else if says("received corrupt message") {
        Some((ErrorKind::Unsupported, "if the nodes do not use TLS, remove `tls`, `ca`, `cert` and `key`"))
    } else {
        None
    }
}

fn describe(kind: ErrorKind, said: impl std::fmt::Display) -> Error {
    let remedy = Some(match kind {
        ErrorKind::UnknownOutcome => "it may have been applied, or may still be applied",
        ErrorKind::Denied => {
            "grant SELECT and MODIFY on the tables (CREATE on the keyspace to create them), or correct the \
             credentials"
        }
        ErrorKind::NotFound => "check whether the table was dropped",
        ErrorKind::Conflict => {
            "name another table with `table=NAME` if the table is not idmill's, or correct `create_keyspace`"
        }
        ErrorKind::Unsupported => {
            "lightweight transactions are required; for ScyllaDB create the keyspace with `tablets = \
             {'enabled': false}`"
        }
        _ => return Error::new(kind, said.to_string()),
    });
    advised(kind, said, remedy)
}

#[cfg(test)]
mod tests {
    use scylla::errors::{BrokenConnectionErrorKind, WriteType};

    use super::*;

    fn server(error: DbError, message: &str) -> ExecutionError {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, message.to_owned()))
    }

    fn unavailable(consistency: Consistency) -> DbError {
        DbError::Unavailable { consistency, required: 2, alive: 1 }
    }

    fn timeout(consistency: Consistency, write_type: WriteType) -> DbError {
        DbError::WriteTimeout { consistency, received: 1, required: 2, write_type }
    }

    /// Uses error texts and fields as returned by Cassandra 5.0.9.
    #[test]
    fn conditional_write_errors_are_classified() {
        use ErrorKind::*;
        let cut = BrokenConnectionErrorKind::ChannelError.into();
        for (error, expected) in [
            (
                server(unavailable(Consistency::Serial), "Cannot achieve consistency level SERIAL"),
                Unavailable,
            ),
            (
                server(
                    unavailable(Consistency::LocalSerial),
                    "Cannot achieve consistency level LOCAL_SERIAL",
                ),
                Unavailable,
            ),
            (
                server(unavailable(Consistency::Quorum), "Cannot achieve consistency level QUORUM"),
                UnknownOutcome,
            ),
            (server(timeout(Consistency::Serial, WriteType::Cas), "Operation timed out"), UnknownOutcome),
            (server(timeout(Consistency::Quorum, WriteType::Simple), "Operation timed out"), UnknownOutcome),
            (
                ExecutionError::LastAttemptError(RequestAttemptError::BrokenConnectionError(cut)),
                UnknownOutcome,
            ),
            (ExecutionError::RequestTimeout(std::time::Duration::from_secs(5)), UnknownOutcome),
            (server(DbError::Overloaded, "Too many in flight hints"), UnknownOutcome),
            (server(DbError::ServerError, "java.lang.RuntimeException"), UnknownOutcome),
            (
                server(
                    DbError::Other(0x1700),
                    "CAS operation result is unknown - proposal accepted by 1 but not a quorum.",
                ),
                UnknownOutcome,
            ),
            (server(DbError::Invalid, "Undefined column name x in table k.t"), Conflict),
            (server(DbError::Invalid, "unconfigured table t"), NotFound),
            (server(DbError::Invalid, "Keyspace 'k' does not exist"), NotFound),
            (server(DbError::Invalid, "Keyspace 'k' doesn't exist"), NotFound),
            (
                server(
                    DbError::Invalid,
                    "Cannot use LightWeight Transactions for table k.t: LWT is not yet supported with tablets",
                ),
                Unsupported,
            ),
            (
                server(
                    DbError::Unauthorized,
                    "User u has no MODIFY permission on <table k.t> or any of its parents",
                ),
                Denied,
            ),
            (ExecutionError::EmptyPlan, Unavailable),
            (ExecutionError::LastAttemptError(RequestAttemptError::UnableToAllocStreamId), Unavailable),
        ] {
            assert_eq!(classify(&error, Asked::Write), expected, "{error}");
            let read = if expected == UnknownOutcome { Unavailable } else { expected };
            assert_eq!(classify(&error, Asked::Read), read, "{error}");
        }
    }
}
