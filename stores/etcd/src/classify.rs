//! Classifies etcd's errors by their effect on ids.
//!
//! A failed read reserves nothing. A transaction was certainly not applied only if it was not sent, or etcd
//! rejected it with a definite error. After etcd's own timeouts, an answer from another server, or no answer,
//! the outcome is unknown. The outcome is also unknown if the database is full: the transaction that fills
//! the database is applied, but gets the same error as later, rejected transactions. A gRPC code proves
//! little, because connections and proxies use the same codes.

use std::error::Error as StdError;

use idmill::{Error, ErrorKind};
use idmill_kit::{Asked, advised, causes};
use tonic::{Code, ConnectError, Status};

pub(super) const OVERTAKEN: &str =
    "the transaction was not answered, and its key has changed since: it may have been applied";

/// Why a request has no result.
pub(super) type Fault = idmill_kit::Fault<Box<Status>>;

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
    /// Do not resend: not applied, [settled](is_settled), or an unusable answer.
    Final,
    /// It may have been applied.
    Open,
}

pub(super) fn fate(fault: &Fault) -> Fate {
    match fault {
        Fault::NotSent(_) => Fate::Elsewhere,
        Fault::Lost(_) => Fate::Open,
        Fault::Violation(_) => Fate::Final,
        Fault::Server(status) => match classify(status) {
            Meaning::Elsewhere => Fate::Elsewhere,
            Meaning::Refused(_) | Meaning::Expired | Meaning::Full => Fate::Final,
            Meaning::Open => Fate::Open,
        },
    }
}

/// Whether a new log-in may help.
pub(super) fn is_expired(fault: &Fault) -> bool {
    fault.server().is_some_and(|status| classify(status) == Meaning::Expired)
}

/// Whether a later read shows the outcome: the answer leaves it open, but the transaction will not be
/// applied later.
pub(super) fn is_settled(fault: &Fault) -> bool {
    fault.server().is_some_and(|status| classify(status) == Meaning::Full)
}

/// Converts the fault of a log-in that precedes a request: the request itself was not sent.
pub(super) fn beforehand(fault: Fault) -> Fault {
    match (fate(&fault), fault) {
        (Fate::Open, Fault::Lost(source)) => not_sent(&chain(&*source)),
        (Fate::Open, Fault::Server(status)) => not_sent(&chain(&*status)),
        (_, fault) => fault,
    }
}

/// Converts the client's error for a member at this address.
pub(super) fn of_status(address: &str, status: Status) -> Fault {
    if causes(&status).any(<dyn StdError>::is::<ConnectError>) {
        return unreachable(address, &status);
    }
    // An error returned by a server has no local cause.
    if status.source().is_none() {
        return Fault::Server(status.into());
    }
    Fault::lost(format!("{address}: {}", chain(&status)))
}

/// The fault of a request that never reached the member at this address.
pub(super) fn unreachable(address: &str, source: &(dyn StdError + 'static)) -> Fault {
    not_sent(&format!("{address}: {}", chain(source)))
}

/// Matches the texts of etcd 3.4 to 3.6.
fn classify(status: &Status) -> Meaning {
    let Some(said) = status.message().strip_prefix("etcdserver: ") else { return Meaning::Open };
    match (status.code(), said) {
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

/// Converts the fault of a read, after which nothing was reserved, or of a transaction.
pub(super) fn failed(fault: Fault, asked: Asked) -> Error {
    let is_write = asked == Asked::Write;
    match fault {
        Fault::NotSent(error) | Fault::Violation(error) => error,
        Fault::Lost(source) => {
            let said = chain(&*source);
            let (kind, remedy) = if is_write {
                (ErrorKind::UnknownOutcome, Some(MAYBE))
            } else if said.contains("frame with invalid size") {
                // A server with another protocol will fail the same way on a retry.
                (ErrorKind::Unsupported, Some(STRANGER))
            } else {
                (ErrorKind::Unavailable, None)
            };
            advised(kind, format!("etcd did not answer: {said}"), remedy)
        }
        Fault::Server(status) => {
            let kind = match classify(&status) {
                Meaning::Refused(kind) => kind,
                Meaning::Elsewhere => ErrorKind::Unavailable,
                Meaning::Expired => ErrorKind::Denied,
                Meaning::Full | Meaning::Open if is_write => ErrorKind::UnknownOutcome,
                // A read writes nothing, so its outcome is known.
                Meaning::Full => ErrorKind::Conflict,
                Meaning::Open => classify_stranger(status.code()),
            };
            let said = match status.message() {
                "" => format!("{:?}, without a message", status.code()),
                message => message.to_owned(),
            };
            advised(kind, said, remedy(kind, status.message()))
        }
    }
}

const STRANGER: &str =
    "the server is not etcd, or it uses TLS: check the address and its port, or set `tls=true`";
const MAYBE: &str = "it may have been applied";

/// The fault of a request that was never sent. It has the error only as text: as a source, it would print in
/// debug form, and expose a type of a library that the client does not export.
pub(super) fn not_sent(said: &str) -> Fault {
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
    Fault::NotSent(Error::new(kind, format!("cannot reach etcd: {said}{remedy}")))
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

    fn failed_read(fault: Fault) -> Error {
        failed(fault, Asked::Read)
    }

    fn failed_write(fault: Fault) -> Error {
        failed(fault, Asked::Write)
    }

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
            let fault = || of_status("h:1", Status::new(*code, *message));
            assert_eq!(failed_read(fault()).kind(), *read, "{message}");
            assert_eq!(failed_write(fault()).kind(), *write, "{message}");
            assert_eq!(super::fate(&fault()), *fate, "{message}");
            // `UnknownOutcome` is used if and only if the transaction may have been applied.
            let is_open = *fate == Fate::Open || is_settled(&fault());
            assert_eq!(*write == ErrorKind::UnknownOutcome, is_open, "{message}");
            assert_ne!(super::fate(&beforehand(fault())), Fate::Open, "{message}");
        }
    }

    #[test]
    fn only_a_lost_write_is_an_unknown_outcome() {
        let (lost, unsent) = (|| Fault::lost("cut"), || not_sent("refused"));
        assert_eq!(failed_read(lost()).kind(), ErrorKind::Unavailable);
        assert_eq!(failed_write(lost()).kind(), ErrorKind::UnknownOutcome);
        assert_eq!(failed_read(unsent()).kind(), ErrorKind::Unavailable);
        assert_eq!(failed_write(unsent()).kind(), ErrorKind::Unavailable);
        assert!(matches!(beforehand(lost()), Fault::NotSent(_)));
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
            let error = failed_read(of_status("h:1", Status::new(code, message)));
            assert!(error.to_string().contains(remedy), "{error}");
        }
        let open =
            failed_write(of_status("h:1", Status::new(Code::Unavailable, "etcdserver: request timed out")));
        assert!(open.to_string().contains(MAYBE), "{open}");
    }
}
