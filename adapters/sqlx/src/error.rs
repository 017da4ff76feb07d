//! Errors of idmill as errors of sqlx.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use idmill::Error;
use sqlx::error::{DatabaseError, ErrorKind};

/// Converts an error to an error of sqlx, for functions that return `sqlx::Error`, such as the closure of
/// [`Connection::transaction`](sqlx::Connection::transaction).
///
/// The result is `sqlx::Error::Database`. Its `code` and `kind` are those of the database's error, if there
/// is one. Its source is the [`idmill::Error`].
///
/// ```
/// use std::error::Error as _;
///
/// use idmill_sqlx::idmill::{Error, ErrorKind};
/// use idmill_sqlx::into_sqlx;
///
/// let error = into_sqlx(Error::from(ErrorKind::Exhausted));
/// let source = error.as_database_error().and_then(|error| error.source());
/// let error = source.and_then(|source| source.downcast_ref::<Error>()).unwrap();
/// assert_eq!(error.kind(), ErrorKind::Exhausted);
/// ```
pub fn into_sqlx(error: Error) -> sqlx::Error {
    sqlx::Error::Database(Box::new(Wrapped { message: error.to_string(), error }))
}

#[derive(Debug)]
struct Wrapped {
    error: Error,
    message: String,
}

impl Wrapped {
    /// The error of the database that caused this one.
    fn cause(&self) -> Option<&dyn DatabaseError> {
        self.error.source()?.downcast_ref::<sqlx::Error>()?.as_database_error()
    }
}

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Wrapped {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.error)
    }
}

impl DatabaseError for Wrapped {
    fn message(&self) -> &str {
        &self.message
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        self.cause()?.code()
    }

    fn as_error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn StdError + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn StdError + Send + Sync + 'static> {
        self
    }

    fn constraint(&self) -> Option<&str> {
        self.cause()?.constraint()
    }

    fn table(&self) -> Option<&str> {
        self.cause()?.table()
    }

    fn kind(&self) -> ErrorKind {
        self.cause().map_or(ErrorKind::Other, DatabaseError::kind)
    }
}
