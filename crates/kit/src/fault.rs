//! The failure of a request: one rule for every driver.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use idmill::{Error, ErrorKind};

/// The reason why a request has no usable answer. `R` is an error that the server or its driver returned.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_enums, reason = "each store must handle a new fault")]
pub enum Fault<R> {
    /// The request was certainly not sent, for this reason.
    NotSent(Error),
    /// The server or its driver returned an error.
    Server(R),
    /// The request may have been executed, but has no valid answer, for this reason.
    Lost(Arc<dyn StdError + Send + Sync>),
    /// The answer must not be used, for this reason.
    Violation(Error),
}

impl<R> Fault<R> {
    /// Creates the fault of a request that was not sent, because the server is unavailable.
    pub fn not_sent(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::NotSent(Error::new(ErrorKind::Unavailable, reason))
    }

    /// Creates the fault of a request that may have been executed.
    pub fn lost(reason: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Lost(Arc::from(reason.into()))
    }

    /// Creates the fault of a request that was sent, but not answered in time.
    pub fn silent(timeout: Duration) -> Self {
        Self::lost(no_answer(timeout))
    }

    /// Returns the error kind: a request that may have been executed has an unknown outcome, unless it is a
    /// read. `of_server` classifies an error of the server.
    pub fn kind(&self, asked: Asked, of_server: impl FnOnce(&R) -> ErrorKind) -> ErrorKind {
        asked.kind(match self {
            Self::NotSent(error) | Self::Violation(error) => error.kind(),
            Self::Server(error) => of_server(error),
            Self::Lost(_) => ErrorKind::UnknownOutcome,
        })
    }

    /// Returns the error of the server.
    pub fn server(&self) -> Option<&R> {
        if let Self::Server(error) = self { Some(error) } else { None }
    }
}

impl<R> From<R> for Fault<R> {
    fn from(error: R) -> Self {
        Self::Server(error)
    }
}

impl<R: fmt::Display> fmt::Display for Fault<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(error) | Self::Violation(error) => error.fmt(f),
            Self::Server(error) => error.fmt(f),
            Self::Lost(reason) => f.write_str(&chain(&**reason)),
        }
    }
}

/// Describes a request that was not answered in time.
pub fn no_answer(timeout: Duration) -> String {
    format!("no answer within {timeout:?}")
}

/// The kind of request, which determines whether a failure leaves an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a new kind requires a change to `doubt`")]
pub enum Asked {
    /// Opening a connection: nothing was sent that could change data.
    Connect,
    /// A read: a failure leaves no unknown outcome.
    Read,
    /// A write.
    Write,
    /// A write that takes effect only if the caller's transaction commits. The server rolls back the
    /// transaction of a disconnected client.
    InTransaction,
}

impl Asked {
    /// Returns the error kind for a failure after which the server may have executed the request.
    pub fn doubt(self) -> ErrorKind {
        if self == Self::Write { ErrorKind::UnknownOutcome } else { ErrorKind::Unavailable }
    }

    /// Returns `kind`, except that `UnknownOutcome` becomes [`doubt`](Self::doubt).
    pub fn kind(self, kind: ErrorKind) -> ErrorKind {
        if kind == ErrorKind::UnknownOutcome { self.doubt() } else { kind }
    }
}

/// Creates an error whose message ends with advice.
pub fn advised(kind: ErrorKind, said: impl Display, advice: Option<impl Display>) -> Error {
    Error::new(kind, advice.map_or_else(|| said.to_string(), |advice| format!("{said}; {advice}")))
}

/// Returns an error and its causes. The text of many library errors omits the cause.
pub fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Returns the message of an error and of each cause that adds information.
pub fn said(error: &(dyn StdError + 'static)) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for text in causes(error).map(ToString::to_string) {
        if !texts.iter().any(|known| known.contains(&text)) {
            texts.push(text);
        }
    }
    texts
}

/// Joins the messages of [`said`] into one line.
pub fn chain(error: &(dyn StdError + 'static)) -> String {
    said(error).join(": ")
}

#[cfg(test)]
mod tests {
    use ErrorKind::{Conflict, StoreViolation, Unavailable, UnknownOutcome, Unsupported};

    use super::*;

    #[test]
    fn only_a_lost_write_has_an_unknown_outcome() {
        let error = Error::new;
        for (fault, text, write, read) in [
            (Fault::NotSent(error(Unsupported, "no route")), "no route", Unsupported, Unsupported),
            (Fault::not_sent("no route"), "no route", Unavailable, Unavailable),
            (Fault::from(Conflict), "conflict", Conflict, Conflict),
            (Fault::from(UnknownOutcome), "unknown_outcome", UnknownOutcome, Unavailable),
            (Fault::lost("cut"), "cut", UnknownOutcome, Unavailable),
            (Fault::silent(Duration::from_secs(1)), "no answer within 1s", UnknownOutcome, Unavailable),
            (Fault::Violation(error(StoreViolation, "no name")), "no name", StoreViolation, StoreViolation),
        ] {
            let kind = |asked| fault.kind(asked, |kind| *kind);
            assert_eq!(fault.server().is_some(), matches!(fault, Fault::Server(_)), "{fault}");
            assert_eq!(fault.to_string(), text);
            assert_eq!((kind(Asked::Write), kind(Asked::Read)), (write, read), "{fault}");
            assert_eq!((kind(Asked::InTransaction), kind(Asked::Connect)), (read, read), "{fault}");
        }
    }

    #[test]
    fn only_a_write_leaves_anything_unknown() {
        use ErrorKind::{Denied, Unavailable, UnknownOutcome};
        assert_eq!(Asked::Write.kind(UnknownOutcome), UnknownOutcome);
        for asked in [Asked::Connect, Asked::Read, Asked::InTransaction] {
            assert_eq!(asked.kind(UnknownOutcome), Unavailable);
            assert_eq!(asked.kind(Denied), Denied);
        }
    }

    #[test]
    fn chain_has_each_message_that_adds_information() {
        let inner = Error::new(ErrorKind::Unavailable, "no route");
        let middle = Error::new(ErrorKind::Unavailable, "connection failed: no route").because(inner);
        let outer = Error::new(ErrorKind::Unavailable, "cannot open").because(middle);
        assert_eq!(causes(&outer).count(), 3);
        assert_eq!(said(&outer), ["cannot open", "connection failed: no route"]);
        assert_eq!(chain(&outer), "cannot open: connection failed: no route");
    }

    #[test]
    fn advice_follows_the_message() {
        let advised = |advice: Option<&str>| advised(ErrorKind::Denied, "no access", advice);
        assert_eq!(
            (advised(None).kind(), advised(None).to_string()),
            (ErrorKind::Denied, "no access".to_owned())
        );
        assert_eq!(advised(Some("log in")).to_string(), "no access; log in");
    }
}
