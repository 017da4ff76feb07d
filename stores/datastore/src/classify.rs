//! Classifies Datastore's errors by their effect on ids.
//!
//! A failed read reserves no ids, so its error kind only has to show whether a retry may succeed. A commit
//! that the server rejects with a definite status was not applied. If a commit gets no reply, or an
//! indefinite status, its outcome is unknown.
//!
//! The API returns `ABORTED` and `ALREADY_EXISTS` as 409, and `FAILED_PRECONDITION` and `INVALID_ARGUMENT`
//! as 400. So errors are classified by status, and by HTTP code only if there is no status.

use std::error::Error as StdError;
use std::fmt;

use idmill::{Error, ErrorKind, Result};
use idmill_kit::{Swapped, advised, chain};
use serde_json::Value;

/// The reason why a request has no result.
pub(super) type Fault = idmill_kit::Fault<Refusal>;

/// An error reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    http: u16,
    /// A name of `google.rpc.Code`; empty if the reply is not from Datastore.
    status: String,
    message: String,
}

/// Returns the error kind of a rejected read.
fn classify(refusal: &Refusal) -> ErrorKind {
    match refusal.status.as_str() {
        "INVALID_ARGUMENT" | "OUT_OF_RANGE" => ErrorKind::InvalidInput,
        "UNAUTHENTICATED" | "PERMISSION_DENIED" => ErrorKind::Denied,
        "NOT_FOUND" => ErrorKind::NotFound,
        // The database is of another type, or is disabled.
        "FAILED_PRECONDITION" => ErrorKind::Conflict,
        "UNIMPLEMENTED" => ErrorKind::Unsupported,
        "DATA_LOSS" => ErrorKind::StoreViolation,
        "" => classify_http(refusal.http),
        // ABORTED, RESOURCE_EXHAUSTED, UNAVAILABLE, DEADLINE_EXCEEDED, INTERNAL, CANCELLED, UNKNOWN, and
        // statuses that may be added later.
        _ => ErrorKind::Unavailable,
    }
}

/// Returns the error kind of a reply from a proxy or from another kind of server.
fn classify_http(http: u16) -> ErrorKind {
    match http {
        401 | 403 | 407 => ErrorKind::Denied,
        404 => ErrorKind::NotFound,
        408 | 429 | 500.. => ErrorKind::Unavailable,
        _ => ErrorKind::StoreViolation,
    }
}

/// Classifies a rejected commit. Returns `Ok` if the store must read again, otherwise `Err` with the error
/// kind.
fn classify_commit(refusal: &Refusal) -> Result<ErrorKind, ErrorKind> {
    match refusal.status.as_str() {
        // The commit was not applied because of contention, or because the entity has changed since it was
        // read: it has another version, exists already, or was deleted.
        "ABORTED" | "FAILED_PRECONDITION" | "ALREADY_EXISTS" | "NOT_FOUND" => Ok(ErrorKind::Unavailable),
        "INVALID_ARGUMENT" | "OUT_OF_RANGE" | "UNAUTHENTICATED" | "PERMISSION_DENIED" | "UNIMPLEMENTED" => {
            Err(classify(refusal))
        }
        // Exceeded quotas are included: the documentation does not say that quotas are checked before the
        // commit.
        _ => Err(ErrorKind::UnknownOutcome),
    }
}

/// Converts the error of a read. No ids were reserved.
pub(super) fn read_failed(fault: Fault) -> Error {
    match fault {
        Fault::Server(refusal) => error(classify(&refusal), refusal),
        Fault::NotSent(error) | Fault::Violation(error) => error,
        Fault::Lost(source) => {
            Error::new(ErrorKind::Unavailable, format!("no valid reply from Datastore: {}", chain(&*source)))
                .because_shared(source)
        }
    }
}

/// Returns `Changed` if the commit was certainly not applied and the store must read again, otherwise an
/// error.
pub(super) fn commit_failed(fault: Fault) -> Result<Swapped<String>> {
    Err(match fault {
        Fault::Server(refusal) => match classify_commit(&refusal) {
            Ok(kind) => return Ok(Swapped::Changed(Some(error(kind, refusal)))),
            Err(kind) => error(kind, refusal),
        },
        Fault::NotSent(error) | Fault::Violation(error) => error,
        Fault::Lost(source) => Error::new(
            ErrorKind::UnknownOutcome,
            format!("no valid reply to the commit: {}; it may have been applied", chain(&*source)),
        )
        .because_shared(source),
    })
}

/// The fault of a request that was not sent, because there was no token or no connection.
pub(super) fn unreachable(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Fault {
    let source = source.into();
    let message = format!("cannot reach Datastore: {}", chain(&*source));
    Fault::NotSent(Error::new(ErrorKind::Unavailable, message).because(source))
}

fn error(kind: ErrorKind, refusal: Refusal) -> Error {
    advised(kind, &refusal, remedy(&refusal, kind)).because(refusal)
}

fn remedy(refusal: &Refusal, kind: ErrorKind) -> Option<&'static str> {
    Some(match (refusal.status.as_str(), kind) {
        ("UNAUTHENTICATED", _) => {
            "set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`"
        }
        (_, ErrorKind::Denied) => "grant the account the role roles/datastore.user on the project",
        ("RESOURCE_EXHAUSTED", _) => "the project exceeds its quota; raise it, or use larger steps",
        ("FAILED_PRECONDITION", ErrorKind::Conflict) => "use a Firestore database in Datastore mode",
        ("NOT_FOUND", ErrorKind::NotFound) => "check the project and the database in the URL",
        ("", ErrorKind::NotFound | ErrorKind::StoreViolation) => {
            "the server is not Datastore; check the address"
        }
        (_, ErrorKind::UnknownOutcome) => "the commit may have been applied",
        _ => return None,
    })
}

impl Refusal {
    /// Parses an error reply.
    pub(super) fn read(http: u16, body: &[u8]) -> Self {
        let answer: Value = serde_json::from_slice(body).unwrap_or_default();
        // A streaming front end wraps the error in a list.
        let error = answer.get(0).unwrap_or(&answer).get("error").unwrap_or(&Value::Null);
        let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
        Self { http, status: text("status"), message: text("message") }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status.as_str(), self.message.as_str()) {
            ("", _) => write!(f, "the server answered {} without a Datastore status", self.http),
            (status, "") => f.write_str(status),
            (status, message) => write!(f, "{status}: {}", message.trim_end_matches('.')),
        }
    }
}

impl StdError for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replies of the emulators: the HTTP code, the body, and the expected kinds for a read and for a
    /// commit.
    const ANSWERS: &[(u16, &str, ErrorKind, Result<ErrorKind, ErrorKind>)] = {
        use ErrorKind::{Conflict, InvalidInput, NotFound, StoreViolation, Unavailable, UnknownOutcome};
        &[
            (
                409,
                r#"{"error":{"code":409,"message":"too much contention on these datastore entities. please try again.","status":"ABORTED"}}"#,
                Unavailable,
                Ok(Unavailable),
            ),
            (
                409,
                r#"{"error":{"code":409,"message":"Transaction lock timeout.","status":"ABORTED"}}"#,
                Unavailable,
                Ok(Unavailable),
            ),
            (
                409,
                r#"{"error":{"code":409,"message":"entity already exists","status":"ALREADY_EXISTS"}}"#,
                Unavailable,
                Ok(Unavailable),
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"the stored version (3) does not match the required base version (2)","status":"FAILED_PRECONDITION"}}"#,
                Conflict,
                Ok(Unavailable),
            ),
            (
                404,
                r#"{"error":{"code":404,"message":"no entity to update","status":"NOT_FOUND"}}"#,
                NotFound,
                Ok(Unavailable),
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"The key path element name \"__x__\" is reserved.","status":"INVALID_ARGUMENT"}}"#,
                InvalidInput,
                Err(InvalidInput),
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"Payload isn't valid for request.","status":"INVALID_ARGUMENT"}}"#,
                InvalidInput,
                Err(InvalidInput),
            ),
            // Replies from another server, or from a failing front end.
            (404, "Not Found", NotFound, Err(UnknownOutcome)),
            (400, "<html>", StoreViolation, Err(UnknownOutcome)),
            (502, "", Unavailable, Err(UnknownOutcome)),
        ]
    };

    #[test]
    fn emulator_errors_are_classified() {
        for (http, body, read, commit) in ANSWERS {
            let refusal = Refusal::read(*http, body.as_bytes());
            assert_eq!(classify(&refusal), *read, "{body}");
            assert_eq!(classify_commit(&refusal), *commit, "{body}");
        }
    }

    #[test]
    fn other_statuses_are_classified_by_name() {
        use ErrorKind::{Denied, InvalidInput, StoreViolation, Unavailable, UnknownOutcome, Unsupported};
        for (status, read, commit) in [
            ("UNAUTHENTICATED", Denied, Denied),
            ("PERMISSION_DENIED", Denied, Denied),
            ("OUT_OF_RANGE", InvalidInput, InvalidInput),
            ("UNIMPLEMENTED", Unsupported, Unsupported),
            ("DATA_LOSS", StoreViolation, UnknownOutcome),
            ("RESOURCE_EXHAUSTED", Unavailable, UnknownOutcome),
            ("UNAVAILABLE", Unavailable, UnknownOutcome),
            ("DEADLINE_EXCEEDED", Unavailable, UnknownOutcome),
            ("INTERNAL", Unavailable, UnknownOutcome),
            ("CANCELLED", Unavailable, UnknownOutcome),
            ("UNKNOWN", Unavailable, UnknownOutcome),
            ("OF_NEXT_YEAR", Unavailable, UnknownOutcome),
        ] {
            let body = format!(r#"[{{"error": {{"status": "{status}", "message": "why."}}}}]"#);
            let refusal = Refusal::read(400, body.as_bytes());
            assert_eq!(read_failed(refusal.clone().into()).kind(), read, "{status}");
            let verdict = commit_failed(refusal.into());
            let Err(error) = verdict else { panic!("{status}: {verdict:?}") };
            assert_eq!(error.kind(), commit, "{status}");
            assert!(error.to_string().starts_with(&format!("{status}: why")), "{error}");
            assert!(StdError::source(&error).is_some());
        }
    }

    #[test]
    fn only_a_lost_commit_is_an_unknown_outcome() {
        let lost = || Fault::lost("cut");
        let unsent = || unreachable("refused");
        assert_eq!(read_failed(lost()).kind(), ErrorKind::Unavailable);
        assert_eq!(read_failed(unsent()).kind(), ErrorKind::Unavailable);
        let kind = |fault| match commit_failed(fault) {
            Err(error) => error.kind(),
            Ok(other) => panic!("{other:?}"),
        };
        assert_eq!(kind(lost()), ErrorKind::UnknownOutcome);
        assert_eq!(kind(unsent()), ErrorKind::Unavailable);
    }

    #[test]
    fn remedies_are_named() {
        for (http, body, remedy) in [
            (401, r#"{"error":{"status":"UNAUTHENTICATED"}}"#, "GOOGLE_APPLICATION_CREDENTIALS"),
            (403, r#"{"error":{"status":"PERMISSION_DENIED"}}"#, "roles/datastore.user"),
            (400, r#"{"error":{"status":"FAILED_PRECONDITION"}}"#, "Datastore mode"),
            (404, r#"{"error":{"status":"NOT_FOUND"}}"#, "project"),
            (404, "<html>", "the server is not Datastore"),
        ] {
            let error = read_failed(Refusal::read(http, body.as_bytes()).into());
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }
}
