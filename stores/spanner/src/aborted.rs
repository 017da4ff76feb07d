//! Errors of the caller's own transactions, and the detection of aborts.

use std::fmt;
use std::ops::Deref;

use gcloud_gax::grpc::{Code, Status};
use gcloud_gax::retry::TryAs;
use gcloud_spanner::client::Error as ClientError;
use gcloud_spanner::session::SessionError;
use idmill::Error;

use crate::classify::{client_failed, commit_failed, no_session, status_of};

/// Error type for closures of the driver's `read_write_transaction`.
///
/// `?` converts an [`idmill::Error`] and the driver's errors to this type, and this type to an
/// [`idmill::Error`]. The driver retries a transaction if the closure's error contains an abort, and it
/// also finds an abort in this type.
#[derive(Clone, Debug)]
pub struct TransactionError(Error);

impl Deref for TransactionError {
    type Target = Error;

    fn deref(&self) -> &Error {
        &self.0
    }
}

impl fmt::Display for TransactionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for TransactionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl TryAs<Status> for TransactionError {
    fn try_as(&self) -> Option<&Status> {
        status_of(&self.0)
    }
}

impl From<Error> for TransactionError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<TransactionError> for Error {
    fn from(error: TransactionError) -> Self {
        error.0
    }
}

/// The driver also uses this conversion for the error of a COMMIT, so every status is treated as a failed
/// COMMIT.
impl From<Status> for TransactionError {
    fn from(status: Status) -> Self {
        Self(commit_failed(status))
    }
}

/// Converts errors of other driver calls in the same transaction. A status is treated as a failed COMMIT,
/// because it may be one.
impl From<ClientError> for TransactionError {
    fn from(error: ClientError) -> Self {
        Self(match error {
            ClientError::GRPC(status) => commit_failed(status),
            other => client_failed(other),
        })
    }
}

impl From<SessionError> for TransactionError {
    fn from(error: SessionError) -> Self {
        Self(no_session(error))
    }
}

/// An error that may be an abort, for [`until_committed`](crate::until_committed). An aborted transaction
/// was certainly not applied, and must be run again from its beginning.
pub trait Abort {
    /// Returns whether the error is an abort.
    fn is_abort(&self) -> bool;
}

impl Abort for Status {
    fn is_abort(&self) -> bool {
        self.code() == Code::Aborted
    }
}

impl Abort for Error {
    fn is_abort(&self) -> bool {
        status_of(self).is_some_and(Abort::is_abort)
    }
}

impl Abort for TransactionError {
    fn is_abort(&self) -> bool {
        self.0.is_abort()
    }
}

impl Abort for ClientError {
    fn is_abort(&self) -> bool {
        self.try_as().is_some_and(Abort::is_abort)
    }
}
