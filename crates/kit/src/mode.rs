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

/// Advice for a table that is missing, when a store is opened or later.
pub const MISSING_TABLE: &str = "a store with `mode=rwc` (`Mode::Create`) creates it; correct its name or \
                                 restore it if it existed, or ids repeat";

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_read_only_mode_rejects_writes() {
        Mode::ReadWrite.must_write().unwrap();
        Mode::Create.must_write().unwrap();
        let denied = Mode::ReadOnly.must_write().unwrap_err();
        let message = "the store is read-only (`mode=ro`); open it with `mode=rw` (`Mode::ReadWrite`)";
        assert_eq!((denied.kind(), denied.to_string().as_str()), (ErrorKind::Denied, message));
    }

    #[test]
    fn existing_mode_keeps_all_but_the_creation() {
        let existing = [Mode::ReadOnly, Mode::ReadWrite, Mode::Create].map(Mode::existing);
        assert_eq!(existing, [Mode::ReadOnly, Mode::ReadWrite, Mode::ReadWrite]);
        assert_eq!(Mode::default(), Mode::Create);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn mode_is_serialized_as_its_word() {
        use serde::Deserialize as _;
        use serde::de::IntoDeserializer as _;
        use serde::de::value::{Error, StrDeserializer};

        for (mode, word) in [(Mode::ReadOnly, "ro"), (Mode::ReadWrite, "rw"), (Mode::Create, "rwc")] {
            let text: StrDeserializer<'_, Error> = word.into_deserializer();
            assert_eq!((Mode::deserialize(text).unwrap(), mode.to_string().as_str()), (mode, word));
        }
        let text: StrDeserializer<'_, Error> = "rx".into_deserializer();
        assert!(Mode::deserialize(text).unwrap_err().to_string().contains("ro, rw, rwc"));
    }
}
