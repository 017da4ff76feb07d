//! Errors of idmill as errors of diesel.

use std::error::Error as _;

use diesel::result::{DatabaseErrorInformation, DatabaseErrorKind, Error as DieselError};
use idmill::Error;

/// Converts an error for a transaction whose error type is diesel's, as in
/// `next_in(conn, "invoices").await.map_err(into_diesel)?`.
///
/// If diesel has a kind for the server's error, the result is a
/// [`DatabaseError`](DieselError::DatabaseError) of that kind, with the server's details: code that repeats a
/// transaction after a [`SerializationFailure`](DatabaseErrorKind::SerializationFailure) finds it. Any other
/// error becomes a [`QueryBuilderError`](DieselError::QueryBuilderError) that contains the
/// [`idmill::Error`]:
///
/// ```
/// use idmill_diesel::diesel::result::Error as DieselError;
/// use idmill_diesel::idmill::{self, ErrorKind};
///
/// let error = idmill_diesel::into_diesel(idmill::Error::from(ErrorKind::Exhausted));
/// let DieselError::QueryBuilderError(inner) = error else { panic!("no error of the server") };
/// let inner: &idmill::Error = inner.downcast_ref().unwrap();
/// assert_eq!(inner.kind(), ErrorKind::Exhausted);
/// ```
pub fn into_diesel(error: Error) -> DieselError {
    match of_server(&error) {
        Some((kind, _)) if !matches!(kind, DatabaseErrorKind::Unknown) => {
            DieselError::DatabaseError(kind, Box::new(Informed { message: error.to_string(), error }))
        }
        _ => DieselError::QueryBuilderError(Box::new(error)),
    }
}

type Information = dyn DatabaseErrorInformation + Send + Sync;

/// Returns the server's error that caused this one.
fn of_server(error: &Error) -> Option<(DatabaseErrorKind, &Information)> {
    match error.source()?.downcast_ref()? {
        DieselError::DatabaseError(kind, information) => Some((*kind, &**information)),
        _ => None,
    }
}

/// The message of idmill, with the details of the server.
struct Informed {
    message: String,
    error: Error,
}

impl Informed {
    fn server(&self) -> Option<&Information> {
        of_server(&self.error).map(|(_, information)| information)
    }
}

impl DatabaseErrorInformation for Informed {
    fn message(&self) -> &str {
        &self.message
    }

    fn details(&self) -> Option<&str> {
        self.server()?.details()
    }

    fn hint(&self) -> Option<&str> {
        self.server()?.hint()
    }

    fn table_name(&self) -> Option<&str> {
        self.server()?.table_name()
    }

    fn column_name(&self) -> Option<&str> {
        self.server()?.column_name()
    }

    fn constraint_name(&self) -> Option<&str> {
        self.server()?.constraint_name()
    }

    fn statement_position(&self) -> Option<i32> {
        self.server()?.statement_position()
    }
}
