//! Detection of forks.
//!
//! A forked process has a copy of all ids in memory, and would hand out the same ids. A draw is too cheap to
//! read the process id each time. Rarer operations check it: crossing the watermark, taking the next segment,
//! waiting, and each turn of the actor.

use crate::error::{Error, ErrorKind};

/// The process in which a value was created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn current() -> Self {
        Self(std::process::id())
    }

    /// Returns a process other than this one, like the parent of a fork.
    #[cfg(test)]
    pub(crate) fn another() -> Self {
        Self(!std::process::id())
    }

    /// Whether the current process is a fork of the recorded one.
    pub(crate) fn is_another(self) -> bool {
        self.0 != std::process::id()
    }
}

/// Returns the error of calls that a forked process cannot make.
pub(crate) fn forked() -> Error {
    let message = "this process was forked from the one that opened the sequence; connect to the store again";
    Error::new(ErrorKind::Closed, message)
}
