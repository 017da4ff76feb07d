//! The form in which errors are sent.

use idmill::{Error, ErrorKind, Operation, Status};
use serde::{Deserialize, Serialize};

/// An error of the store or the server. The status is included for clients that do not support the kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireError {
    /// The name of the [kind](ErrorKind).
    pub kind: String,
    /// The status, which shows whether a retry can succeed.
    pub status: Status,
    /// The name of the [operation](Operation), if it is known.
    pub operation: Option<String>,
    /// The name of the sequence, if the error is about one.
    pub sequence: Option<String>,
    /// The message, without the operation and the sequence.
    pub message: String,
}

impl WireError {
    /// Converts an error. Omits its causes, which belong in the server's log, and whether it refuses waiting
    /// callers.
    pub fn of(error: &Error) -> Self {
        Self {
            kind: error.kind().as_str().to_owned(),
            status: error.status(),
            operation: error.operation().map(|operation| operation.as_str().to_owned()),
            sequence: error.sequence().map(str::to_owned),
            message: error.message().to_owned(),
        }
    }

    /// Converts back to an error. An unknown kind is replaced by a kind with the same status.
    pub fn error(self) -> Error {
        let kind = self.kind.parse().unwrap_or(match self.status {
            Status::Transient => ErrorKind::Unavailable,
            Status::Permanent => ErrorKind::Unsupported,
            _ => ErrorKind::UnknownOutcome,
        });
        let mut error = Error::new(kind, self.message);
        if let Some(sequence) = self.sequence {
            error = error.of(&sequence);
        }
        match self.operation.and_then(|operation| operation.parse::<Operation>().ok()) {
            Some(operation) => error.during(operation),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_round_trips() {
        let bare = |kind| Error::new(kind, "some words");
        for kind in ErrorKind::ALL {
            for error in [
                Error::from(*kind),
                bare(*kind),
                bare(*kind).of("a`: b"),
                bare(*kind).during(Operation::GiveBack),
                bare(*kind).of("orders").during(Operation::Set).because("a cause"),
            ] {
                let arrived = WireError::of(&error).error();
                assert_eq!(arrived.to_string(), error.to_string());
                assert_eq!((arrived.kind(), arrived.operation()), (error.kind(), error.operation()));
                assert_eq!(arrived.sequence(), error.sequence());
            }
        }
    }

    #[test]
    fn unknown_kind_keeps_its_status() {
        for status in Status::ALL {
            let (kind, message) = ("eaten".to_owned(), "by a bear".to_owned());
            let fault = WireError { kind, status: *status, operation: None, sequence: None, message };
            assert_eq!(fault.error().status(), *status);
        }
    }
}
