//! How a statement fails, in words that no driver owns.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idmill::{Error, ErrorKind};

/// How a statement failed. The dialect says what it means for the ids: see `classify` in its module.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The engine answered with an error.
    Engine(EngineError),
    /// The connection broke, or the answer could not be read: the statement may have been carried out.
    Broken(Arc<dyn StdError + Send + Sync>),
    /// No answer within this time.
    Silent(Duration),
    /// The statement was not sent, or did certainly nothing, for this reason.
    Refused(Error),
    /// It is done, and nobody knows how well: what was said besides.
    Warned(String),
    /// Done, the engine said, but not committed; or the transaction was over before.
    Uncommitted,
    /// An answer that is none to what was asked.
    Answer(String),
}

/// An error that the engine answered with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EngineError {
    /// Its code, as the engine's reference lists it: an SQLSTATE of PostgreSQL, a number of MySQL, an
    /// extended result code of SQLite.
    pub code: String,
    /// The engine's words.
    pub message: String,
    /// How severe the engine calls it, where it does: PostgreSQL's `ERROR`, in its own language.
    pub severity: Option<String>,
    /// Whether the session ended with it (PostgreSQL's `FATAL` and `PANIC`).
    pub ends_session: bool,
    /// The driver's error, for who wants to see it.
    pub source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl EngineError {
    /// An error with this code and these words, after which the session goes on.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        let (code, message) = (code.into(), message.into());
        Self { code, message, severity: None, ends_session: false, source: None }
    }

    /// What the engine calls its severity.
    #[must_use]
    pub fn with_severity(mut self, severity: impl Into<String>) -> Self {
        self.severity = Some(severity.into());
        self
    }

    /// The session ended with it.
    #[must_use]
    pub fn ending_session(mut self) -> Self {
        self.ends_session = true;
        self
    }

    /// The driver's error that it was read from.
    #[must_use]
    pub fn because(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }
}

impl Fault {
    /// The connection broke, or the answer could not be read.
    pub fn broken(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::Broken(Arc::new(error))
    }

    /// The fault of a question that was asked after a write was sent. What the engine says of the question
    /// says nothing of the write, which may have been carried out.
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

    /// The error that it is: of this kind and in these words, with the driver's as its cause; or ours.
    pub(crate) fn into_error(self, kind: ErrorKind, message: String) -> Error {
        match self {
            Self::Refused(error) => error,
            Self::Broken(cause) | Self::Engine(EngineError { source: Some(cause), .. }) => {
                Error::new(kind, message).because_shared(cause)
            }
            _ => Error::new(kind, message),
        }
    }

    /// Of a connection that is in no transaction, with what to do: its type may be that of any connection.
    pub fn outside(remedy: &str) -> Self {
        let message = format!(
            "the connection is in no transaction, so that ids would be taken at once, with gaps: {remedy}"
        );
        Self::Refused(Error::invalid(message))
    }

    /// What it says; what the engine said of it, and of a transaction that was over, each dialect words itself.
    pub(crate) fn words(&self, engine: impl Fn(&EngineError) -> String, uncommitted: &str) -> String {
        match self {
            Self::Engine(error) => engine(error),
            Self::Broken(error) => chain(&**error),
            Self::Silent(time) => format!("no answer within {time:?}"),
            Self::Refused(error) => error.to_string(),
            Self::Warned(said) | Self::Answer(said) => said.clone(),
            Self::Uncommitted => uncommitted.to_owned(),
        }
    }

    /// The engine's code, if it answered with an error.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Engine(error) => Some(&error.code),
            _ => None,
        }
    }

    /// The engine's words, if it answered with an error.
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

/// An error and what caused it, as a line: a driver's own text often ends before the cause.
pub fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
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
    fn what_is_said_of_a_later_question_is_not_said_of_the_write() {
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
