//! The bounds of a sequence.

use crate::error::{Error, Operation, Result};
use crate::id::Id;

/// The first and the last id of a sequence, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    start: u64,
    max: u64,
}

impl Bounds {
    /// Creates bounds for ids from `start` to `max`, both inclusive.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if `start > max`.
    pub fn new(start: u64, max: u64) -> Result<Self> {
        if start > max {
            let message = format!("start {start} is larger than max {max}; a sequence needs at least one id");
            return Err(Error::invalid(message).during(Operation::Configure));
        }
        Ok(Self { start, max })
    }

    /// Returns the default bounds for this id type: 1, or its smallest value if larger, to its largest.
    pub fn of<T: Id>() -> Self {
        // A type that only holds 0 has a sequence of that one id.
        Self { start: T::MIN.max(1).min(T::MAX), max: T::MAX }
    }

    /// Returns the first id.
    pub fn start(self) -> u64 {
        self.start
    }

    /// Returns the last id, inclusive.
    pub fn max(self) -> u64 {
        self.max
    }
}
