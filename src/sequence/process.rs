//! Which process something was made in.
//!
//! A process that was forked has a copy of all that was in memory, and would hand out the same ids. What a
//! draw costs leaves no room to ask the system each time; but whatever is rarer than a draw asks: the
//! watermark, the next segment, a caller that waits, the actor.

use crate::error::{Error, ErrorKind};

/// The process in which this was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn current() -> Self {
        Self(std::process::id())
    }

    /// Another one than this, as a parent is to its child.
    #[cfg(test)]
    pub(crate) fn another() -> Self {
        Self(!std::process::id())
    }

    /// Whether this is another process: a fork of that one.
    pub(crate) fn is_another(self) -> bool {
        self.0 != std::process::id()
    }
}

/// The error of calls that a forked process cannot make.
pub(crate) fn forked() -> Error {
    let message =
        "this process was forked from the one that opened the sequence; connect to the store again in it";
    Error::new(ErrorKind::Closed, message)
}
