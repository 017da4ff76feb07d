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

#[cfg(test)]
mod tests {
    use idmill::ErrorKind::{Denied, Overloaded};

    use super::*;

    /// All refusals, each with its metric label, its kind and the seconds after which to retry.
    const ALL: [(Refusal, &str, ErrorKind, u64); 14] = [
        (Refusal::Nobody, "no_token", Denied, 1),
        (Refusal::Wrong, "wrong_token", Denied, 1),
        (Refusal::Ended, "ended_token", Denied, 1),
        (Refusal::Right(Right::Draw), "right", Denied, 1),
        (Refusal::Sequence, "sequence", Denied, 1),
        (Refusal::Ids(100), "max_ids", Denied, 1),
        (Refusal::Rate(Duration::from_secs(2)), "requests_per_second", Overloaded, 2),
        (Refusal::Rate(Duration::from_nanos(2_000_000_001)), "requests_per_second", Overloaded, 3),
        (Refusal::Burst(10), "requests_per_second", Denied, 1),
        (Refusal::Memory, "memory", Overloaded, 1),
        (Refusal::Connections(2), "max_connections", Overloaded, 1),
        (Refusal::Created(Duration::from_secs(90)), "new_sequences", Overloaded, 90),
        (Refusal::Created(Duration::from_millis(90_001)), "new_sequences", Overloaded, 91),
        (Refusal::NoneNew, "new_sequences", Denied, 1),
    ];

    #[test]
    fn each_refusal_has_its_reason_kind_and_retry() {
        for (refusal, reason, kind, retry) in ALL {
            let told = (refusal.reason(), refusal.kind(), refusal.retry_after());
            assert_eq!(told, (reason, kind, retry), "{refusal:?}");
            assert_eq!(refusal.is_transient(), kind == Overloaded, "{refusal:?}");
            assert_eq!(refusal.is_guess(), matches!(refusal, Refusal::Wrong | Refusal::Ended), "{refusal:?}");
        }
    }

    #[test]
    fn waits_are_rounded_up_in_the_messages() {
        let text = |refusal: Refusal| refusal.to_string();
        assert!(text(Refusal::Rate(Duration::from_micros(41_500))).contains("; retry in 42 ms,"));
        assert!(text(Refusal::Created(Duration::from_millis(90_001))).contains("; retry in 91 s,"));
    }
}
