//! The failure of a request: one rule for every driver.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idmill::{Error, ErrorKind};

use super::{Asked, chain};

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
}
