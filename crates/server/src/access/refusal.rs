//! Why somebody may not.

use std::time::Duration;

use derive_more::Display;
use idmill::{ErrorKind, Status};

use super::Right;

/// Why somebody may not.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Nobody said who they are.
    #[display("a token is required")]
    Nobody,
    /// No token is this one.
    #[display("the token is not known here; it was mistyped, or taken away")]
    Wrong,
    /// The token was taken away since, or its time has passed.
    #[display("the token has expired, or was taken away; ask for another")]
    Ended,
    /// The token does not have the right, over any sequence.
    #[display("the token lacks the right `{_0}`")]
    Right(Right),
    /// The token's patterns do not match the sequence.
    #[display("the token is not for this sequence")]
    Sequence,
    /// More ids than the token may have in one request.
    #[display("the token allows {_0} ids a request; take several times")]
    Ids(u64),
    /// More requests than the token allows, until this time has passed.
    #[display(
        "the token allows fewer requests a second; try again in {} ms, or ask for more ids at once",
        _0.as_millis() + 1
    )]
    Rate(Duration),
    /// One command that counts as more requests than the token ever allows at once.
    #[display("the token allows {_0} requests at once; split the command")]
    Burst(u64),
    /// The token's connections hold too many bytes of commands that wait to be carried out.
    #[display("commands that wait on the token's connections are too large; send smaller transactions")]
    Memory,
    /// There are as many connections as the token allows.
    #[display("the token allows {_0} connections, and there are as many; close one, or share it")]
    Connections(u32),
    /// The token has created as many sequences as it may, until this time has passed.
    #[display(
        "the token has created as many sequences as it may in a day; try again in {} s, or have an operator create it",
        self.retry_after()
    )]
    Created(Duration),
    /// The token creates no sequences.
    #[display(
        "there is no such sequence, and the token creates none; correct the name, or have an operator create it"
    )]
    NoneNew,
}

impl Refusal {
    /// As metrics name it.
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

    /// The library's kind of error that it is.
    pub(crate) fn kind(self) -> ErrorKind {
        match self {
            Self::Rate(_) | Self::Memory | Self::Connections(_) | Self::Created(_) => ErrorKind::Overloaded,
            _ => ErrorKind::Denied,
        }
    }

    /// Whether the same request may be allowed later.
    pub(crate) fn is_transient(self) -> bool {
        self.kind().status() == Status::Transient
    }

    /// Whether it may have been a guess.
    pub(crate) fn is_guess(self) -> bool {
        matches!(self, Self::Wrong | Self::Ended)
    }

    /// After how many seconds it is worth another try.
    pub(crate) fn retry_after(self) -> u64 {
        match self {
            Self::Rate(wait) | Self::Created(wait) => wait.as_secs() + u64::from(wait.subsec_nanos() > 0),
            _ => 1,
        }
    }
}
