//! The condition that a caller waits for.

/// The condition that a caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// To get this number of ids.
    Ids(u64),
    /// That memory has this number of ids.
    Level(u64),
}

impl Want {
    /// Returns how many ids memory and a grant must have together.
    pub(crate) fn needs(self) -> u64 {
        match self {
            Self::Ids(ids) | Self::Level(ids) => ids,
        }
    }

    /// Returns how many ids the caller gets.
    pub(crate) fn gets(self) -> u64 {
        match self {
            Self::Ids(ids) => ids,
            Self::Level(_) => 0,
        }
    }
}
