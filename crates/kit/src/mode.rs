//! Read-only, read-write, or create.

use idmill::{Error, ErrorKind, Result};

use super::options::Word;

idmill::string_enum! {
    /// The access that a store has to its database.
    #[derive(Default)]
    pub enum Mode, "mode" {
        /// `ro`: read-only. The table must exist, and so must the SQLite file. Every write fails with
        /// [`Denied`](idmill::ErrorKind::Denied).
        ReadOnly = "ro",
        /// `rw`: the table must exist, and so must the SQLite file. A mistyped path is an error and does not
        /// start new sequences. Needs no permission to change the schema.
        ReadWrite = "rw",
        /// `rwc`: creates the table and the SQLite file if they do not exist. On a Spanner emulator, which
        /// starts empty, it also creates the instance and the database.
        #[default]
        Create = "rwc",
    }
}

/// Advice for a table that is missing when the store is opened.
pub const NEVER_MADE: &str =
    "correct its name or restore it; for a new store, `mode=rwc` (`Mode::Create`) creates it";

/// Advice for a table that disappears while the store is open.
pub const GONE: &str = "restore it; `mode=rwc` (`Mode::Create`) would create an empty table, which hands \
                        out ids that are already in use";

impl Word for Mode {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::ReadOnly, Self::ReadOnly.as_str(), "read-only"),
        (Self::ReadWrite, Self::ReadWrite.as_str(), "must exist"),
        (Self::Create, Self::Create.as_str(), "may create"),
    ];
}

impl Mode {
    /// Checks that writes are allowed.
    ///
    /// # Errors
    /// [`Denied`](idmill::ErrorKind::Denied) in read-only mode.
    pub fn must_write(self) -> Result<()> {
        if self == Self::ReadOnly {
            let message = "the store is read-only (`mode=ro`); open it with `mode=rw` (`Mode::ReadWrite`)";
            return Err(Error::new(ErrorKind::Denied, message));
        }
        Ok(())
    }

    /// Returns the same mode without permission to create.
    #[must_use]
    pub fn existing(self) -> Self {
        match self {
            Self::Create => Self::ReadWrite,
            mode @ (Self::ReadWrite | Self::ReadOnly) => mode,
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Mode {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Mode {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<str>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}
