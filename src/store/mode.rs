//! What opening a store may do.

use crate::error::Result;
use crate::store::url::query::refuse;

/// What opening a store may do to the database that it is kept in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// `ro`: look only. The table must exist, and of SQLite the file; everything that writes is
    /// [`Denied`](crate::ErrorKind::Denied).
    ReadOnly,
    /// `rw`: the table must exist, and of SQLite the file. Protects against a mistyped path, in which
    /// sequences would start anew, and needs no permission to change a schema.
    ReadWrite,
    /// `rwc`: the table is created where it does not exist, and of SQLite the file; on an emulator of
    /// Spanner, whose memory begins empty, so are the instance and the database.
    #[default]
    Create,
}

/// What to do about a table that is not there when a store is opened.
#[cfg_attr(not(any(feature = "mysql", feature = "postgres", feature = "sqlite")), allow(dead_code))]
pub(crate) const NEVER_MADE: &str = "if it was there before, correct its name, or restore it: made anew, it begins \
                                     every sequence at its start; if this is new, mode=rwc makes it";

/// What to do about a table that is gone from under a store.
pub(crate) const GONE: &str = "if it was there before, restore it: made anew, it begins every sequence at its start, \
                               and repeats the ids in use; if this is new, open the store with mode=rwc, which makes it";

impl Mode {
    pub(crate) fn parse(value: &str) -> Result<Self> {
        let modes = [Self::ReadOnly, Self::ReadWrite, Self::Create];
        let known = modes.into_iter().find(|mode| mode.as_str() == value);
        known.ok_or_else(|| {
            refuse(format!(
                "mode={value:?} is unknown; there are ro (look only), rw (must exist), rwc (may create)"
            ))
        })
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "ro",
            Self::ReadWrite => "rw",
            Self::Create => "rwc",
        }
    }

    /// The same, but creating nothing.
    pub(crate) fn existing(self) -> Self {
        match self {
            Self::Create => Self::ReadWrite,
            mode @ (Self::ReadWrite | Self::ReadOnly) => mode,
        }
    }
}
