//! The types of fields that hold an [option](super::Entry).

use std::path::PathBuf;
use std::time::Duration;

use super::super::query::{UNITS, parse_duration};

/// A type that an option can have. An `Option` makes the value optional.
pub trait Typed: Sized {
    /// Parses the text of a URL.
    fn of(text: &str) -> Option<Self>;

    /// Returns the text for a URL; `None` if the value is unset.
    fn text(&self) -> Option<String>;

    /// Returns the unset value, if the type has one.
    fn unset() -> Option<Self> {
        None
    }
}

/// An enumeration whose values are written as words, such as `mode=ro`.
pub trait Word: Copy + PartialEq + 'static {
    /// Each value with its word and its meaning, for messages and the store's page. The meaning is empty if
    /// it is obvious.
    const WORDS: &'static [(Self, &'static str, &'static str)];

    /// Returns the word for this value.
    ///
    /// # Panics
    /// If the value is not one of [`WORDS`](Self::WORDS).
    fn word(self) -> &'static str {
        let known = Self::WORDS.iter().find(|(value, ..)| *value == self);
        known.map(|(_, word, _)| *word).expect("every value is in `WORDS`")
    }
}

impl Word for bool {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[(true, "true", ""), (false, "false", "")];
}

impl<W: Word> Typed for W {
    fn of(text: &str) -> Option<Self> {
        W::WORDS.iter().find(|(_, word, _)| *word == text).map(|(value, ..)| *value)
    }

    fn text(&self) -> Option<String> {
        Some(self.word().to_owned())
    }
}

impl Typed for Duration {
    fn of(text: &str) -> Option<Self> {
        parse_duration(text)
    }

    /// Uses the largest unit that divides the duration.
    fn text(&self) -> Option<String> {
        let nanos = self.as_nanos();
        let whole = UNITS.into_iter().find(|(_, unit)| nanos > 0 && nanos.is_multiple_of(*unit));
        Some(whole.map_or("0s".to_owned(), |(name, unit)| format!("{}{name}", nanos / unit)))
    }
}

macro_rules! whole {
    ($($number:ty),*) => {$(
        impl Typed for $number {
            fn of(text: &str) -> Option<Self> {
                if text.starts_with('+') { None } else { text.parse().ok() }
            }

            fn text(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )*};
}

whole!(u8, u16, u32, u64);

impl Typed for String {
    fn of(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }

    fn text(&self) -> Option<String> {
        Some(self.clone())
    }
}

/// A path that is not UTF-8 is printed lossily.
impl Typed for PathBuf {
    fn of(text: &str) -> Option<Self> {
        Some(text.into())
    }

    fn text(&self) -> Option<String> {
        Some(self.to_string_lossy().into_owned())
    }
}

impl<T: Typed> Typed for Option<T> {
    fn of(text: &str) -> Option<Self> {
        T::of(text).map(Some)
    }

    fn text(&self) -> Option<String> {
        self.as_ref().and_then(T::text)
    }

    fn unset() -> Option<Self> {
        Some(None)
    }
}

/// A field of a store's options, of any type that is [`Typed`].
pub trait Field {
    /// Returns the text for a URL; `None` if the value is unset.
    fn get(&self) -> Option<String>;

    /// Sets the value. Returns whether the field can hold it.
    fn set(&mut self, text: Option<&str>) -> bool;
}

impl<T: Typed> Field for T {
    fn get(&self) -> Option<String> {
        self.text()
    }

    fn set(&mut self, text: Option<&str>) -> bool {
        let value = text.map_or_else(T::unset, T::of);
        value.map(|value| *self = value).is_some()
    }
}
