//! The error kind of a request without a reply: one rule for every store.

use std::error::Error as StdError;
use std::fmt::Display;

use idmill::{Error, ErrorKind};

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
    use super::*;

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
