//! The errors of a caller's own transactions, and which of them say that Spanner aborted it.

use std::fmt;
use std::ops::Deref;

use gcloud_gax::grpc::{Code, Status};
use gcloud_gax::retry::TryAs;
use gcloud_spanner::client::Error as ClientError;
use gcloud_spanner::session::SessionError;
use idmill::Error;

use crate::classify::{client_failed, commit_failed, no_session, status_of};

/// The error of a closure for the driver's `read_write_transaction`: what idmill says, with what the driver
/// wants to know.
///
/// It comes from an [`idmill::Error`] and from the driver's errors by `?`, and becomes an [`idmill::Error`]
/// the same way. The driver runs a transaction again if it finds an abort in the closure's error; so it does
/// in this one.
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

/// The driver hands over the error of a COMMIT this way too, so that every error is read as if it were one.
impl From<Status> for TransactionError {
    fn from(status: Status) -> Self {
        Self(commit_failed(status))
    }
}

/// For what is done with the driver beside the draws. Read as if it were the error of a COMMIT, which it may
/// be.
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

/// An error that can say that Spanner aborted the transaction: certainly not applied, and to be run again
/// from its beginning. For [`until_committed`](crate::until_committed).
pub trait Abort {
    /// Whether it says so.
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
