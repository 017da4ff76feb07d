//! What opening a store may do.

use idmill::{Error, ErrorKind, Result};

use super::options::Word;

idmill::named! {
    /// What opening a store may do to the database that it is kept in.
    #[derive(Default)]
    pub enum Mode, "mode" {
        /// `ro`: look only. The table must exist, and so must the file of SQLite. Every write is
        /// [`Denied`](idmill::ErrorKind::Denied).
        ReadOnly = "ro",
        /// `rw`: the table must exist, and so must the file of SQLite. This protects from a mistyped path, where
        /// sequences would start anew, and needs no permission to change a schema.
        ReadWrite = "rw",
        /// `rwc`: creates the table if it does not exist, and with SQLite also the file. On an emulator of
        /// Spanner, whose memory begins empty, it also creates the instance and the database.
        #[default]
        Create = "rwc",
    }
}

/// What to do about a table that is not there when a store is opened.
pub const NEVER_MADE: &str = "if it was there before, correct its name, or restore it: made anew, it begins \
                              every sequence at its start; if this is new, mode=rwc makes it (Mode::Create in code)";

/// What to do about a table that is gone from under a store.
pub const GONE: &str = "if it was there before, restore it: made anew, it begins every sequence at its \
                        start, and repeats the ids in use; if this is new, open the store with mode=rwc \
                        (Mode::Create), which makes it";

impl Word for Mode {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::ReadOnly, Self::ReadOnly.as_str(), "look only"),
        (Self::ReadWrite, Self::ReadWrite.as_str(), "must exist"),
        (Self::Create, Self::Create.as_str(), "may create"),
    ];
}

impl Mode {
    /// Whether anything may be changed.
    ///
    /// # Errors
    /// [`Denied`](idmill::ErrorKind::Denied) if not.
    pub fn must_write(self) -> Result<()> {
        if self == Self::ReadOnly {
            let message =
                "the store was opened to look only, with mode=ro; open it with mode=rw (Mode::ReadWrite)";
            return Err(Error::new(ErrorKind::Denied, message));
        }
        Ok(())
    }

    /// The same mode, except that it creates nothing.
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
