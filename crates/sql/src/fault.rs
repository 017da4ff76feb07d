//! How a statement can fail, independent of the driver.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idmill::{Error, ErrorKind};

use crate::Row;

/// How a statement failed. `classify` in each dialect's module maps it to an error kind.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The engine returned an error.
    Engine(EngineError),
    /// The connection broke, or the answer could not be read. The statement may have been executed.
    Broken(Arc<dyn StdError + Send + Sync>),
    /// There was no answer within this time.
    Silent(Duration),
    /// The statement was not sent, or certainly had no effect, for this reason.
    Refused(Error),
    /// The statement was executed, but its durability is unknown. Contains the engine's warning.
    Warned(String),
    /// The engine reported success but did not commit; or the transaction had already ended.
    Uncommitted,
    /// The answer does not fit the statement.
    Answer(String),
}

/// An error that the engine returned.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EngineError {
    /// Its code as in the engine's reference: an SQLSTATE of PostgreSQL, an error number of MySQL,
    /// an extended result code of SQLite.
    pub code: String,
    /// The engine's message.
    pub message: String,
    /// The severity, if the engine has one: PostgreSQL's `ERROR`, in the server's language.
    pub severity: Option<String>,
    /// Whether the error ended the session (PostgreSQL's `FATAL` and `PANIC`).
    pub ends_session: bool,
    /// The driver's error.
    pub source: Option<Arc<dyn StdError + Send + Sync>>,
    /// The rows that the engine returned before the error.
    pub rows: Vec<Row>,
}

impl EngineError {
    /// Creates an error with this code and message. The session continues after it.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        let (code, message) = (code.into(), message.into());
        Self { code, message, severity: None, ends_session: false, source: None, rows: Vec::new() }
    }

    /// Sets the severity.
    #[must_use]
    pub fn with_severity(mut self, severity: impl Into<String>) -> Self {
        self.severity = Some(severity.into());
        self
    }

    /// Marks the error as one that ended the session.
    #[must_use]
    pub fn ending_session(mut self) -> Self {
        self.ends_session = true;
        self
    }

    /// Sets the driver's error as the source.
    #[must_use]
    pub fn because(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }
}

impl Fault {
    /// Creates a fault for a broken connection or an unreadable answer.
    pub fn broken(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::Broken(Arc::new(error))
    }

    /// Converts the fault of a query that followed a write. The engine's error for the query does
    /// not describe the write, which may have been executed.
    #[must_use]
    pub fn after_write(self) -> Self {
        match self {
            Self::Engine(EngineError { source: Some(source), .. }) => Self::Broken(source),
            Self::Engine(error) => {
                Self::Broken(Box::<dyn StdError + Send + Sync>::from(error.to_string()).into())
            }
            Self::Refused(error) => Self::broken(error),
            other => other,
        }
    }

    /// Converts the fault to an error of this kind and message, with advice, and with the driver's error as
    /// its cause. [`Fault::Refused`] keeps its own error.
    pub(crate) fn into_error(self, kind: ErrorKind, message: String, remedy: Option<&str>) -> Error {
        let message = match remedy {
            Some(remedy) => format!("{message}; {remedy}"),
            None => message,
        };
        match self {
            Self::Refused(error) => error,
            Self::Broken(cause) | Self::Engine(EngineError { source: Some(cause), .. }) => {
                Error::new(kind, message).because_shared(cause)
            }
            _ => Error::new(kind, message),
        }
    }

    /// Creates the fault for a connection that is in no transaction; `remedy` explains what to do. The type
    /// system cannot rule out such a connection, since a library may use one type for connections and
    /// transactions.
    pub fn outside(remedy: &str) -> Self {
        let message = format!(
            "the connection is not in a transaction, so each reserve would commit immediately: {remedy}"
        );
        Self::Refused(Error::invalid(message))
    }

    /// Describes the fault. `engine` formats the engine's error; `uncommitted` is the text for
    /// `Fault::Uncommitted`.
    pub(crate) fn words(&self, engine: impl Fn(&EngineError) -> String, uncommitted: &str) -> String {
        match self {
            Self::Engine(error) => engine(error),
            Self::Broken(error) => idmill_kit::chain(&**error),
            Self::Silent(time) => idmill_kit::no_answer(*time),
            Self::Refused(error) => error.to_string(),
            Self::Warned(said) | Self::Answer(said) => said.clone(),
            Self::Uncommitted => uncommitted.to_owned(),
        }
    }

    /// Returns the engine's code if it returned an error.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Engine(error) => Some(&error.code),
            _ => None,
        }
    }

    /// Returns the engine's message if it returned an error.
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Engine(error) => Some(&error.message),
            _ => None,
        }
    }
}

impl From<EngineError> for Fault {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_after_the_write_is_a_broken_connection() {
        let cancelled = || EngineError::new("57014", "canceling statement due to statement timeout");
        for fault in [
            Fault::Engine(cancelled()),
            Fault::Engine(cancelled().because(std::io::Error::other("the driver's"))),
            Fault::Refused(Error::new(ErrorKind::Unavailable, "no connection is free")),
        ] {
            assert!(matches!(fault.after_write(), Fault::Broken(_)));
        }
        assert!(matches!(Fault::Uncommitted.after_write(), Fault::Uncommitted));
    }
}
