//! How a trial ends.

use idmill::Error;

/// Why a trial did not pass.
#[derive(Debug)]
pub(super) enum Stop {
    Failed(String),
    /// A requirement of the trial is missing.
    Skipped(String),
}

/// The result of a trial.
pub(super) type Outcome<T = ()> = Result<T, Stop>;

/// An error that the trial does not expect.
impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(format!("unexpected error: {error} ({})", error.kind().as_str()))
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(format!("the suite itself: {error}"))
    }
}

impl From<tokio::task::JoinError> for Stop {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::Failed(panicked(error))
    }
}

pub(super) fn panicked(error: tokio::task::JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else { return "a task was cancelled".to_owned() };
    let said =
        panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a panic: {}", said.unwrap_or("without a message"))
}

/// Fails the trial.
macro_rules! fail {
    ($($message:tt)*) => {
        return Err($crate::outcome::Stop::Failed(format!($($message)*)))
    };
}

/// Fails the trial unless the condition holds.
macro_rules! check {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            $crate::outcome::fail!($($message)*);
        }
    };
}

pub(super) use {check, fail};
