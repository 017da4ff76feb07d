//! Doubt after a failure: one rule for every store.

use std::error::Error as StdError;
use std::fmt::Display;

use idmill::{Error, ErrorKind};

/// A request to the server, as far as doubt depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the rule is about all of them")]
pub enum Asked {
    /// To accept a connection: nothing was sent that could change anything.
    Connect,
    /// To read: no failure leaves anything unknown.
    Read,
    /// To write.
    Write,
    /// To write what takes effect with the caller's transaction, and not if that is aborted: a server rolls back
    /// the transaction of a client that is gone.
    InTransaction,
}

impl Asked {
    /// The kind of a failure after which nobody knows whether the server did it.
    pub fn doubt(self) -> ErrorKind {
        if self == Self::Write { ErrorKind::UnknownOutcome } else { ErrorKind::Unavailable }
    }

    /// This kind, unless it says that an outcome is unknown where nothing can be.
    pub fn kind(self, kind: ErrorKind) -> ErrorKind {
        if kind == ErrorKind::UnknownOutcome { self.doubt() } else { kind }
    }
}

/// An error with the advice that follows its cause.
pub fn advised(kind: ErrorKind, said: impl Display, advice: Option<impl Display>) -> Error {
    Error::new(kind, advice.map_or_else(|| said.to_string(), |advice| format!("{said}; {advice}")))
}

/// An error and its causes. Many libraries' own text does not say why.
pub fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// What an error says, and then each of its causes that says more.
pub fn said(error: &(dyn StdError + 'static)) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for text in causes(error).map(ToString::to_string) {
        if !texts.iter().any(|known| known.contains(&text)) {
            texts.push(text);
        }
    }
    texts
}

/// The same as a line.
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
}
