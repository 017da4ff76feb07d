//! Why somebody may not.

use std::fmt;
use std::time::Duration;

use idmill::{ErrorKind, Status};

use super::Right;

/// Why somebody may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Nobody said who they are.
    Nobody,
    /// No token is this one.
    Wrong,
    /// The token was taken away since, or its time has passed.
    Ended,
    /// The token does not have the right, over any sequence.
    Right(Right),
    /// The token's patterns do not match the sequence.
    Sequence,
    /// More ids than the token may have in one request.
    Ids(u64),
    /// More requests than the token allows, until this time has passed.
    Rate(Duration),
    /// One command that counts as more requests than the token ever allows at once.
    Burst(u64),
    /// The token's connections hold too many bytes of commands that wait to be carried out.
    Memory,
    /// There are as many connections as the token allows.
    Connections(u32),
    /// The token has created as many sequences as it may, until this time has passed.
    Created(Duration),
    /// The token creates no sequences.
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("a token is required"),
            Self::Wrong => f.write_str("the token is not known here; it was mistyped, or taken away"),
            Self::Ended => f.write_str("the token has expired, or was taken away; ask for another"),
            Self::Right(right) => write!(f, "the token lacks the right `{right}`"),
            Self::Sequence => f.write_str("the token is not for this sequence"),
            Self::Ids(most) => write!(f, "the token allows {most} ids a request; take several times"),
            Self::Rate(wait) => {
                let wait = wait.as_millis() + 1;
                write!(
                    f,
                    "the token allows fewer requests a second; try again in {wait} ms, or ask for more ids at once"
                )
            }
            Self::Burst(most) => write!(f, "the token allows {most} requests at once; split the command"),
            Self::Memory => {
                f.write_str("commands that wait on the token's connections are too large; send smaller transactions")
            }
            Self::Connections(most) => {
                write!(f, "the token allows {most} connections, and there are as many; close one, or share it")
            }
            Self::Created(_) => write!(
                f,
                "the token has created as many sequences as it may in a day; try again in {} s, or have an operator create it",
                self.retry_after()
            ),
            Self::NoneNew => f.write_str(
                "there is no such sequence, and the token creates none; correct the name, or have an operator create it",
            ),
        }
    }
}
