//! Classifies Spanner's errors by their effect on ids.
//!
//! Nothing is written before COMMIT: mutations are buffered in the client, and rows written by DML are
//! visible only to their own transaction. So [`classify`] only has to decide whether a retry may succeed.
//! For a failed COMMIT, see [`commit_failed`].

use gcloud_gax::conn::Error as ConnectionError;
use gcloud_gax::grpc::{Code, Status};
use gcloud_spanner::client::Error as ClientError;
use gcloud_spanner::session::SessionError;
use idmill::{Error, ErrorKind};
use idmill_kit::mode::MISSING_TABLE;
use idmill_kit::{advised, chain};

/// Returns the error kind of a failed request other than COMMIT.
pub(super) fn classify(status: &Status) -> ErrorKind {
    let says = |words: &str| status.message().contains(words);
    match status.code() {
        // The server deletes sessions that are idle for an hour. The driver replaces a deleted session.
        Code::NotFound if says("Session not found") => ErrorKind::Unavailable,
        Code::NotFound => ErrorKind::NotFound,
        Code::InvalidArgument if is_missing_table(status) => ErrorKind::NotFound,
        Code::FailedPrecondition if is_too_long(status) => ErrorKind::InvalidInput,
        // The SQL is fixed, so it is invalid only if another program created the table. The other codes
        // come from a check constraint, a unique index, a NOT NULL column, or a program that inserts
        // without reading first.
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange | Code::AlreadyExists => {
            ErrorKind::Conflict
        }
        Code::PermissionDenied | Code::Unauthenticated => ErrorKind::Denied,
        Code::Unimplemented => ErrorKind::Unsupported,
        Code::DataLoss => ErrorKind::StoreViolation,
        // Aborted transactions, network errors, and busy servers. The driver reports a broken connection as
        // `Code::Unknown`.
        Code::Aborted
        | Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::ResourceExhausted
        | Code::Internal
        | Code::Unknown
        | Code::Ok => ErrorKind::Unavailable,
    }
}

/// Returns whether a request failed because the table does not exist.
pub(super) fn is_missing_table(status: &Status) -> bool {
    matches!(status.code(), Code::InvalidArgument | Code::NotFound)
        && status.message().contains("Table not found")
}

/// Returns whether a request failed because the instance or the database does not exist.
pub(super) fn is_missing_database(status: &Status) -> bool {
    let missing = |what: &str| status.message().contains(what);
    status.code() == Code::NotFound && (missing("Database not found") || missing("Instance not found"))
}

fn is_too_long(status: &Status) -> bool {
    status.message().contains("exceeds the maximum size limit")
}

/// Returns whether a failed COMMIT was certainly not applied, because Spanner itself rejected it.
///
/// The list excludes codes that the network, a proxy or the driver may produce after the request was sent.
fn is_refusal(code: Code) -> bool {
    matches!(
        code,
        Code::Aborted
            | Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
    )
}

/// Converts the error of a request other than COMMIT. No ids were reserved.
pub(super) fn failed(status: Status) -> Error {
    let kind = classify(&status);
    // Only the first line is used: the others contain the SQL.
    let message = status.message().lines().next().unwrap_or_default();
    let said = format!("Spanner: {message} ({:?})", status.code());
    advised(kind, said, remedy(&status, kind)).because(status)
}

/// Returns whether a schema change was rejected temporarily, because of another schema change or a
/// transaction. Only the text shows this, because permanent errors have the same code.
pub(super) fn is_schema_busy(status: &Status) -> bool {
    status.code() == Code::FailedPrecondition && status.message().contains("concurrent schema change")
}

/// Converts the error of creating a table, a database or an instance. `InvalidArgument` means that the name
/// is invalid.
pub(super) fn not_created(status: Status) -> Error {
    if is_schema_busy(&status) {
        return Error::new(ErrorKind::Unavailable, format!("Spanner: {}", status.message())).because(status);
    }
    if status.code() != Code::InvalidArgument {
        return failed(status);
    }
    let message = format!("Spanner: {}; choose another name", status.message());
    Error::new(ErrorKind::InvalidInput, message).because(status)
}

/// Converts the error of COMMIT, which the store never resends. The commit may have been applied unless
/// Spanner rejected it.
pub(super) fn commit_failed(status: Status) -> Error {
    if is_refusal(status.code()) {
        return failed(status);
    }
    let message =
        format!("the commit failed: {} ({:?}); it may have been applied", status.message(), status.code());
    Error::new(ErrorKind::UnknownOutcome, message).because(status)
}

/// Converts an error of the session pool, which occurs before the request is sent.
pub(super) fn no_session(error: SessionError) -> Error {
    match error {
        SessionError::GRPC(status) => failed(status),
        other => Error::new(ErrorKind::Unavailable, format!("cannot get a Spanner session: {other}"))
            .because(other),
    }
}

/// Converts an error of the client outside COMMIT.
pub(super) fn client_failed(error: ClientError) -> Error {
    match error {
        ClientError::GRPC(status) => failed(status),
        ClientError::InvalidSession(error) => no_session(error),
        ClientError::Connection(error) => no_connection(error, "Spanner"),
        ClientError::InvalidConfig(_) => Error::invalid(error.to_string()).because(error),
        ClientError::ParseError(_) => Error::new(ErrorKind::StoreViolation, error.to_string()).because(error),
    }
}

/// Converts the error of connecting to this server.
pub(super) fn no_connection(error: ConnectionError, server: &str) -> Error {
    let (kind, what) = match &error {
        ConnectionError::Auth(_) => (ErrorKind::Denied, "no access token for"),
        ConnectionError::TonicTransport(_) => (ErrorKind::Unavailable, "no connection to"),
        ConnectionError::InvalidEmulatorHOST(_) => (ErrorKind::InvalidInput, "invalid emulator address"),
    };
    Error::new(kind, format!("{what} {server}: {}", chain(&error))).because(error)
}

fn remedy(status: &Status, kind: ErrorKind) -> Option<&'static str> {
    Some(match (status.code(), kind) {
        (Code::Aborted, _) => "nothing was written; run the transaction again, after a pause",
        (_, ErrorKind::NotFound) if is_missing_table(status) => MISSING_TABLE,
        (_, ErrorKind::NotFound) if is_missing_database(status) => "create the database first",
        (_, ErrorKind::InvalidInput) => {
            "the table's column `name` is too narrow for this name; shorten the name, or widen the column to \
             STRING(200)"
        }
        (_, ErrorKind::Denied) => "grant the account the role Cloud Spanner Database User",
        (Code::InvalidArgument, _) => {
            "the table is not a table of sequences; name another with `?table=NAME`"
        }
        (Code::FailedPrecondition | Code::OutOfRange | Code::AlreadyExists, _) => {
            "a constraint or index of the table rejected the row"
        }
        _ => return None,
    })
}

/// Returns the status from Spanner, if the error has one as its source.
pub(super) fn status_of(error: &Error) -> Option<&Status> {
    std::error::Error::source(error)?.downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aborted::Abort as _;

    /// Exact messages of the emulator (1.5.28) and the driver (1.9). The tests in `tests/spanner` reproduce
    /// the emulator's messages.
    const SEEN: [(Code, &str, ErrorKind, &str); 14] = [
        (Code::InvalidArgument, "Table not found: nowhere [at 1:46]", ErrorKind::NotFound, "restore it"),
        (Code::NotFound, "Table not found: nowhere", ErrorKind::NotFound, "restore it"),
        (
            Code::NotFound,
            "Database not found: projects/p/instances/i/databases/d",
            ErrorKind::NotFound,
            "database",
        ),
        (Code::NotFound, "Instance not found: projects/p/instances/i", ErrorKind::NotFound, "database"),
        (Code::NotFound, "Session not found: projects/p/…/sessions/s", ErrorKind::Unavailable, ""),
        (Code::InvalidArgument, "Unrecognized name: name [at 1:66]", ErrorKind::Conflict, "?table"),
        (
            Code::FailedPrecondition,
            "New value exceeds the maximum size limit for this column: sequences.name, size: 100, limit: 64.",
            ErrorKind::InvalidInput,
            "shorten",
        ),
        (
            Code::FailedPrecondition,
            "A new row in table t does not specify a non-null value for NOT NULL column: x",
            ErrorKind::Conflict,
            "rejected",
        ),
        (
            Code::OutOfRange,
            "Check constraint `t`.`c` is violated for key {String(\"s\")}",
            ErrorKind::Conflict,
            "rejected",
        ),
        (
            Code::AlreadyExists,
            "UNIQUE violation on index one,  duplicate key: {Int64(1)} in this transaction.",
            ErrorKind::Conflict,
            "rejected",
        ),
        (
            Code::Aborted,
            "Transaction 7 aborted due to active transaction 9.",
            ErrorKind::Unavailable,
            "again",
        ),
        (Code::Unavailable, "tcp connect error", ErrorKind::Unavailable, ""),
        (Code::Cancelled, "Timeout expired", ErrorKind::Unavailable, ""),
        (Code::Unknown, "transport error", ErrorKind::Unavailable, ""),
    ];

    #[test]
    fn errors_of_emulator_and_driver_are_classified() {
        for (code, message, kind, hint) in SEEN {
            let sorted = failed(Status::new(code, message));
            assert_eq!(sorted.kind(), kind, "{code:?} {message}");
            assert!(sorted.to_string().contains(message), "{sorted}");
            assert!(sorted.to_string().contains(hint), "{message}: {sorted}");
            assert!(std::error::Error::source(&sorted).is_some());
        }
    }

    #[test]
    fn status_codes_the_emulator_never_returns_are_classified() {
        for (code, kind) in [
            (Code::PermissionDenied, ErrorKind::Denied),
            (Code::Unauthenticated, ErrorKind::Denied),
            (Code::Unimplemented, ErrorKind::Unsupported),
            (Code::DataLoss, ErrorKind::StoreViolation),
            (Code::ResourceExhausted, ErrorKind::Unavailable),
            (Code::DeadlineExceeded, ErrorKind::Unavailable),
            (Code::Internal, ErrorKind::Unavailable),
        ] {
            assert_eq!(classify(&Status::new(code, "")), kind, "{code:?}");
        }
    }

    #[test]
    fn failed_commit_is_unknown_unless_spanner_rejects_it() {
        let open = [1, 2, 4, 8, 13, 14, 15].map(Code::from_i32);
        for code in (1..=16).map(Code::from_i32) {
            let unknown = commit_failed(Status::new(code, "x")).kind() == ErrorKind::UnknownOutcome;
            assert_eq!(unknown, open.contains(&code), "{code:?}");
        }
        assert!(commit_failed(Status::new(Code::Aborted, "")).is_abort());
        assert!(!commit_failed(Status::new(Code::Unavailable, "")).is_abort());
    }

    #[test]
    fn connection_errors_are_classified() {
        let error = no_connection(ConnectionError::InvalidEmulatorHOST("a b".into()), "a b");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(no_session(SessionError::SessionGetTimeout).kind(), ErrorKind::Unavailable);
        assert_eq!(no_session(SessionError::FailedToCreateSession).kind(), ErrorKind::Unavailable);
        let invalid = ClientError::InvalidConfig("too many sessions".into());
        assert_eq!(client_failed(invalid).kind(), ErrorKind::InvalidInput);
    }
}
