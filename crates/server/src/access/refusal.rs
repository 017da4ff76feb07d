//! Reasons for which a request is refused.

use std::time::Duration;

use derive_more::Display;
use idmill::{ErrorKind, Status};

use super::Right;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No token was sent.
    #[display("a token is required")]
    Nobody,
    /// The token is unknown.
    #[display("the token is unknown: it was mistyped or removed; correct it, or ask for a new one")]
    Wrong,
    /// The token was removed, or has expired.
    #[display("the token has expired or was removed; ask for a new one")]
    Ended,
    /// The token lacks the right, for every sequence.
    #[display("the token lacks the right `{_0}`")]
    Right(Right),
    /// The token's patterns do not match the sequence.
    #[display("the token is not for this sequence")]
    Sequence,
    /// The request is for more ids than the token allows.
    #[display("the token allows {_0} ids per request; send several requests")]
    Ids(u64),
    /// The request rate is exceeded. Retry after this time.
    #[display(
        "the token's request rate is exceeded; retry in {} ms, or draw more ids per request",
        _0.as_millis() + 1
    )]
    Rate(Duration),
    /// The command counts as more requests than the token's burst.
    #[display("the token allows a burst of {_0} requests; split the command")]
    Burst(u64),
    /// Pending commands on the token's connections hold too many bytes.
    #[display("the pending commands of the token are too large; send smaller transactions")]
    Memory,
    /// The token has its maximum number of connections.
    #[display("the token allows {_0} connections, and all are open; close or share one")]
    Connections(u32),
    /// The token has created its maximum number of sequences. Retry after this time.
    #[display(
        "the token may create no more sequences for now; retry in {} s, or ask an operator to create this \
         one",
        self.retry_after()
    )]
    Created(Duration),
    /// The token may not create sequences.
    #[display(
        "there is no such sequence, and the token may not create it; correct the name, or ask an operator"
    )]
    NoneNew,
}

impl Refusal {
    /// Returns the reason as a metric label.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Nobody => "no_token",
            Self::Wrong => "wrong_token",
            Self::Ended => "ended_token",
            Self::Right(_) => "right",
            Self::Sequence => "sequence",
            Self::Ids(_) => "max_ids",
            Self::Rate(_) | Self::Burst(_) => "requests_per_second",
            Self::Memory => "memory",
            Self::Connections(_) => "max_connections",
            Self::Created(_) | Self::NoneNew => "new_sequences",
        }
    }

    /// Returns the kind of error.
    pub(crate) fn kind(self) -> ErrorKind {
        match self {
            Self::Rate(_) | Self::Memory | Self::Connections(_) | Self::Created(_) => ErrorKind::Overloaded,
            _ => ErrorKind::Denied,
        }
    }

    /// Returns whether the same request may succeed later.
    pub(crate) fn is_transient(self) -> bool {
        self.kind().status() == Status::Transient
    }

    /// Returns whether the refusal counts as an attempt to guess a token.
    pub(crate) fn is_guess(self) -> bool {
        matches!(self, Self::Wrong | Self::Ended)
    }

    /// Returns the number of seconds after which to retry.
    pub(crate) fn retry_after(self) -> u64 {
        match self {
            Self::Rate(wait) | Self::Created(wait) => wait.as_secs() + u64::from(wait.subsec_nanos() > 0),
            _ => 1,
        }
    }
}
