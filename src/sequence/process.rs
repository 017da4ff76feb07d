//! Detection of forks.
//!
//! A forked process has a copy of all ids in memory, and would hand out the same ids. A draw is too cheap to
//! read the process id each time. Rarer operations check it: the watermark, the next segment, a caller that
//! waits, the actor.

use crate::error::{Error, ErrorKind};

/// The process in which a value was created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn current() -> Self {
        Self(std::process::id())
    }

    /// Returns another process than this one, like the parent of a fork.
    #[cfg(test)]
    pub(crate) fn another() -> Self {
        Self(!std::process::id())
    }

    /// Whether this process is another one: a fork of that process.
    pub(crate) fn is_another(self) -> bool {
        self.0 != std::process::id()
    }
}

/// Returns the error of calls that a forked process cannot make.
pub(crate) fn forked() -> Error {
    let message = "this process was forked from the one that opened the sequence; connect to the store again";
    Error::new(ErrorKind::Closed, message)
}
