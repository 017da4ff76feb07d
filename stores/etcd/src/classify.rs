//! Classifies etcd's errors by their effect on ids.
//!
//! A failed read reserves nothing. A transaction was certainly not applied only if it was not sent, or etcd
//! rejected it with a definite error. After etcd's own timeouts, an answer from another server, or no answer,
//! the outcome is unknown. The outcome is also unknown if the database is full: the transaction that fills
//! the database is applied, but gets the same error as later, rejected transactions. A gRPC code proves
//! little, because connections and proxies use the same codes.

use std::error::Error as StdError;

use idmill::{Error, ErrorKind};
use idmill_kit::{advised, causes};
use tonic::{Code, ConnectError, Status};

pub(super) const OVERTAKEN: &str =
    "the transaction was not answered, and its key has changed since: it may have been applied";

/// Why a request has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// Never sent.
    Unsent(Box<dyn StdError + Send + Sync>),
    /// An error answer.
    Refused(Box<Status>),
    /// Possibly sent, but without a valid answer.
    Lost(Box<dyn StdError + Send + Sync>),
    /// An answer that must not be used.
    Violation(Error),
}

/// What an error answer means for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Not applied, and every member would reject it.
    Refused(ErrorKind),
    /// Not applied. Another member may be able to serve it.
    Elsewhere,
    /// Not applied, because the token has expired.
    Expired,
    /// Not applied because the database is full, or applied and the database is now full.
    Full,
    /// It may have been applied.
    Open,
}

/// What to do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Not applied: any request may be sent to another member.
    Elsewhere,
    /// Do not resend: not applied, [settled](Failure::is_settled), or an unusable answer.
    Final,
    /// It may have been applied.
    Open,
}

impl Failure {
    /// Adds the member's address.
    pub(super) fn at(self, address: &str) -> Self {
        let told = |source: Box<dyn StdError + Send + Sync>| format!("{address}: {}", chain(&*source)).into();
        match self {
            Self::Unsent(source) => Self::Unsent(told(source)),
            Self::Lost(source) => Self::Lost(told(source)),
            other => other,
        }
    }

    pub(super) fn fate(&self) -> Fate {
        match self {
            Self::Unsent(_) => Fate::Elsewhere,
            Self::Lost(_) => Fate::Open,
            Self::Violation(_) => Fate::Final,
            Self::Refused(status) => match classify(status.code(), status.message()) {
                Meaning::Elsewhere => Fate::Elsewhere,
                Meaning::Refused(_) | Meaning::Expired | Meaning::Full => Fate::Final,
                Meaning::Open => Fate::Open,
            },
        }
    }

    /// Whether a new log-in may help.
    pub(super) fn is_expired(&self) -> bool {
        matches!(self, Self::Refused(status) if classify(status.code(), status.message()) == Meaning::Expired)
    }

    /// Whether a later read shows the outcome: the answer leaves it open, but the transaction will not be
    /// applied later.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self, Self::Refused(status) if classify(status.code(), status.message()) == Meaning::Full)
    }

    /// Converts the failure of a log-in that precedes a request: the request itself was not sent.
    pub(super) fn beforehand(self) -> Self {
        match (self.fate(), self) {
            (Fate::Open, Self::Lost(source)) => Self::Unsent(source),
            (Fate::Open, Self::Refused(status)) => Self::Unsent(status),
            (_, failure) => failure,
        }
    }
}

/// Converts the client's error.
impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        if causes(&status).any(<dyn StdError>::is::<ConnectError>) {
            return Self::Unsent(status.into());
        }
        // An error returned by a server has no local cause.
        if status.source().is_some() { Self::Lost(status.into()) } else { Self::Refused(status.into()) }
    }
}

/// Matches the texts of etcd 3.4 to 3.6.
fn classify(code: Code, message: &str) -> Meaning {
    let Some(said) = message.strip_prefix("etcdserver: ") else { return Meaning::Open };
    match (code, said) {
        (_, "invalid auth token" | "revision of auth store is old") => Meaning::Expired,
        // Rejected before the proposal. "Too many requests": the member applies entries more slowly than
        // they arrive.
        (Code::Unavailable, "no leader" | "not capable" | "rpc not supported for learner")
        | (Code::ResourceExhausted, "too many requests") => Meaning::Elsewhere,
        (Code::ResourceExhausted, "mvcc: database space exceeded") => Meaning::Full,
        (Code::DataLoss, "corrupt cluster") => Meaning::Refused(ErrorKind::StoreViolation),
        (
            _,
            "user name is empty"
            | "user name not found"
            | "authentication failed, invalid user ID or password"
            | "authentication is not enabled"
            | "permission denied",
        ) => Meaning::Refused(ErrorKind::Denied),
        (Code::InvalidArgument, _) => Meaning::Refused(ErrorKind::InvalidInput),
        (Code::Unimplemented, _) => Meaning::Refused(ErrorKind::Unsupported),
        // Timeouts, a leader change, a stopping server, and new errors.
        _ => Meaning::Open,
    }
}

/// The error kind of a read that failed with an indefinite error, such as an error of a server that is not
/// etcd.
fn classify_stranger(code: Code) -> ErrorKind {
    match code {
        Code::Unimplemented => ErrorKind::Unsupported,
        Code::Unauthenticated | Code::PermissionDenied => ErrorKind::Denied,
        _ => ErrorKind::Unavailable,
    }
}

/// Converts the error of a read: nothing was reserved.
pub(super) fn read_failed(failure: Failure) -> Error {
    match failure {
        Failure::Violation(error) => error,
        Failure::Unsent(source) => unreachable(&*source),
        Failure::Lost(source) => {
            let said = chain(&*source);
            // A server with another protocol will fail the same way on a retry.
            let (kind, remedy) = if said.contains("frame with invalid size") {
                (ErrorKind::Unsupported, STRANGER)
            } else {
                (ErrorKind::Unavailable, "")
            };
            Error::new(kind, format!("etcd did not answer: {said}{remedy}"))
        }
        Failure::Refused(status) => match classify(status.code(), status.message()) {
            Meaning::Open => refused(classify_stranger(status.code()), &status),
            // A read writes nothing, so its outcome is known.
            Meaning::Full => refused(ErrorKind::Conflict, &status),
            meaning => refused(kind(meaning), &status),
        },
    }
}

/// Converts the error of a transaction.
pub(super) fn write_failed(failure: Failure) -> Error {
    match failure {
        Failure::Violation(error) => error,
        Failure::Unsent(source) => unreachable(&*source),
        Failure::Lost(source) => Error::new(
            ErrorKind::UnknownOutcome,
            format!("etcd did not answer: {}; {MAYBE}", chain(&*source)),
        ),
        Failure::Refused(status) => refused(kind(classify(status.code(), status.message())), &status),
    }
}

const STRANGER: &str = "; the server is not etcd, or it uses TLS: check the address and its port, or set \
                        `tls=true`";
const MAYBE: &str = "it may have been applied";

fn kind(meaning: Meaning) -> ErrorKind {
    match meaning {
        Meaning::Refused(kind) => kind,
        Meaning::Elsewhere => ErrorKind::Unavailable,
        Meaning::Expired => ErrorKind::Denied,
        Meaning::Full | Meaning::Open => ErrorKind::UnknownOutcome,
    }
}

fn unreachable(source: &(dyn StdError + Send + Sync + 'static)) -> Error {
    // Include the error only as text: as a source, it would print in debug form, and expose a type of a
    // library that the client does not export.
    let said = chain(source);
    let (kind, remedy) = if said.contains("invalid peer certificate") {
        (
            ErrorKind::Denied,
            "; set `ca=FILE` to the CA certificate, and check that the server's certificate is for this host",
        )
    } else if said.contains("tls handshake eof") || said.contains("corrupt message") {
        (ErrorKind::Unavailable, "; if the server does not use TLS, remove `tls`, `ca`, `cert` and `key`")
    } else {
        (ErrorKind::Unavailable, "")
    };
    Error::new(kind, format!("cannot reach etcd: {said}{remedy}"))
}

fn refused(kind: ErrorKind, status: &Status) -> Error {
    let said = match status.message() {
        "" => format!("{:?}, without a message", status.code()),
        message => message.to_owned(),
    };
    advised(kind, said, remedy(kind, status.message()))
}

fn remedy(kind: ErrorKind, message: &str) -> Option<&'static str> {
    Some(match (message.strip_prefix("etcdserver: "), kind) {
        (Some("mvcc: database space exceeded"), ErrorKind::UnknownOutcome) => {
            "it may have been applied; compact and defragment etcd, or raise its quota, then run `etcdctl \
             alarm disarm`"
        }
        (Some("mvcc: database space exceeded"), _) => {
            "compact and defragment etcd, or raise its quota, then run `etcdctl alarm disarm`"
        }
        (Some("corrupt cluster"), _) => {
            "replace the member whose data differs, then run `etcdctl alarm disarm`"
        }
        (Some("user name is empty"), _) => "write `USER:PASSWORD@` before the host",
        (Some("authentication is not enabled"), _) => {
            "remove `USER:PASSWORD@`, or enable authentication with `etcdctl auth enable`"
        }
        (Some("permission denied"), _) => "grant the user's role readwrite on the prefix",
        (Some("request is too large"), _) => "use shorter names, or raise `--max-request-bytes`",
        (None, ErrorKind::Unsupported) => "the server is not etcd; check the address",
        (_, ErrorKind::UnknownOutcome) => MAYBE,
        _ => return None,
    })
}

/// The text of an error with its causes, since `transport error` does not explain anything. For a
/// [`Status`], it has only the message, since a status also prints its code and metadata.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let text = |error: &(dyn StdError + 'static)| match error.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => error.to_string(),
    };
    let mut texts: Vec<_> = causes(error).map(text).filter(|text| !text.is_empty()).collect();
    texts.dedup();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Statuses of etcd, with their kinds for a read and for a transaction.
    const STATUSES: &[(Code, &str, ErrorKind, ErrorKind, Fate)] = {
        use ErrorKind::{
            Conflict, Denied, InvalidInput, StoreViolation, Unavailable, UnknownOutcome, Unsupported,
        };
        use Fate::{Elsewhere, Final, Open};
        &[
            (Code::Unavailable, "etcdserver: no leader", Unavailable, Unavailable, Elsewhere),
            (
                Code::Unavailable,
                "etcdserver: rpc not supported for learner",
                Unavailable,
                Unavailable,
                Elsewhere,
            ),
            (Code::ResourceExhausted, "etcdserver: too many requests", Unavailable, Unavailable, Elsewhere),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                Conflict,
                UnknownOutcome,
                Final,
            ),
            (Code::DataLoss, "etcdserver: corrupt cluster", StoreViolation, StoreViolation, Final),
            (Code::InvalidArgument, "etcdserver: user name is empty", Denied, Denied, Final),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                Denied,
                Denied,
                Final,
            ),
            (Code::FailedPrecondition, "etcdserver: authentication is not enabled", Denied, Denied, Final),
            (Code::PermissionDenied, "etcdserver: permission denied", Denied, Denied, Final),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Denied, Denied, Final),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", Denied, Denied, Final),
            (Code::InvalidArgument, "etcdserver: request is too large", InvalidInput, InvalidInput, Final),
            (Code::InvalidArgument, "etcdserver: key is not provided", InvalidInput, InvalidInput, Final),
            (Code::Unavailable, "etcdserver: request timed out", Unavailable, UnknownOutcome, Open),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to previous leader failure",
                Unavailable,
                UnknownOutcome,
                Open,
            ),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to connection lost",
                Unavailable,
                UnknownOutcome,
                Open,
            ),
            (Code::Unavailable, "etcdserver: leader changed", Unavailable, UnknownOutcome, Open),
            (Code::Unavailable, "etcdserver: server stopped", Unavailable, UnknownOutcome, Open),
            (Code::DeadlineExceeded, "context deadline exceeded", Unavailable, UnknownOutcome, Open),
            (Code::Cancelled, "context canceled", Unavailable, UnknownOutcome, Open),
            (Code::Unknown, "raft: proposal dropped", Unavailable, UnknownOutcome, Open),
            // Not an etcd error: it comes from a proxy, which may have forwarded the request.
            (Code::Unavailable, "", Unavailable, UnknownOutcome, Open),
            (Code::PermissionDenied, "h2 protocol error", Denied, UnknownOutcome, Open),
            (Code::Unauthenticated, "who are you", Denied, UnknownOutcome, Open),
            (Code::InvalidArgument, "no", Unavailable, UnknownOutcome, Open),
            (Code::ResourceExhausted, "h2 protocol error", Unavailable, UnknownOutcome, Open),
            (Code::Unimplemented, "unknown service etcdserverpb.KV", Unsupported, UnknownOutcome, Open),
        ]
    };

    #[test]
    fn statuses_are_classified() {
        for (code, message, read, write, fate) in STATUSES {
            let failure = || Failure::from(Status::new(*code, *message));
            assert_eq!(read_failed(failure()).kind(), *read, "{message}");
            assert_eq!(write_failed(failure()).kind(), *write, "{message}");
            assert_eq!(failure().fate(), *fate, "{message}");
            // `UnknownOutcome` is used if and only if the transaction may have been applied.
            let is_open = *fate == Fate::Open || failure().is_settled();
            assert_eq!(*write == ErrorKind::UnknownOutcome, is_open, "{message}");
            assert_ne!(failure().beforehand().fate(), Fate::Open, "{message}");
        }
    }

    #[test]
    fn only_a_lost_write_is_an_unknown_outcome() {
        let (lost, unsent) = (|| Failure::Lost("cut".into()), || Failure::Unsent("refused".into()));
        assert_eq!(read_failed(lost()).kind(), ErrorKind::Unavailable);
        assert_eq!(write_failed(lost()).kind(), ErrorKind::UnknownOutcome);
        assert_eq!(read_failed(unsent()).kind(), ErrorKind::Unavailable);
        assert_eq!(write_failed(unsent()).kind(), ErrorKind::Unavailable);
        assert!(matches!(lost().beforehand(), Failure::Unsent(_)));
    }

    #[test]
    fn remedies_are_named() {
        for (code, message, remedy) in [
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "alarm disarm"),
            (Code::InvalidArgument, "etcdserver: user name is empty", "USER:PASSWORD@"),
            (Code::PermissionDenied, "etcdserver: permission denied", "readwrite"),
            (Code::Unimplemented, "unknown service", "is not etcd"),
            (Code::Unavailable, "", "Unavailable, without a message"),
        ] {
            let error = read_failed(Status::new(code, message).into());
            assert!(error.to_string().contains(remedy), "{error}");
        }
        let open = write_failed(Status::new(Code::Unavailable, "etcdserver: request timed out").into());
        assert!(open.to_string().contains(MAYBE), "{open}");
    }
}
