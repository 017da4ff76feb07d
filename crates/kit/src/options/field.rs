//! What a field of a store's options has to be for an [`option`](super::option) to be kept in it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The value of an option, whatever the type of its field.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// None was given, or the one given is `none`.
    Unset,
    /// A whole number.
    Whole(u64),
    /// A time.
    Duration(Duration),
    /// A word, a name, a file.
    Text(String),
}

impl Value {
    /// As a URL has it, but for a duration, which a URL has in whole milliseconds.
    pub(super) fn exactly(&self) -> String {
        if let Self::Duration(duration) = self { exactly(*duration) } else { self.to_string() }
    }
}

/// As a URL has it; nothing for what is not set. Durations are rounded down to milliseconds.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset => Ok(()),
            Self::Whole(number) => number.fmt(f),
            Self::Duration(duration) => f.write_str(&in_millis(*duration)),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// In the largest unit of which it is a multiple; rounded down to milliseconds.
fn in_millis(duration: Duration) -> String {
    let millis = duration.as_millis();
    let units = [(3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let whole = units.into_iter().find(|(unit, _)| millis > 0 && millis.is_multiple_of(*unit));
    match whole {
        Some((unit, name)) => format!("{}{name}", millis / unit),
        None if millis == 0 => "0s".to_owned(),
        None => format!("{millis}ms"),
    }
}

/// The same, without being rounded.
fn exactly(duration: Duration) -> String {
    let whole = duration.subsec_nanos().is_multiple_of(1_000_000) && !duration.is_zero();
    if whole { in_millis(duration) } else { format!("{duration:?}") }
}

/// A type that an option can have. In an `Option`, it need not be given.
pub trait Typed: Sized {
    /// The value of an option as one of this type; `None` if there is no such.
    fn of(value: Value) -> Option<Self>;

    /// This as the value of an option.
    fn value(&self) -> Value;
}

/// An enumeration whose values are written as words, such as `mode=ro`.
pub trait Word: Copy + PartialEq + 'static {
    /// Each value with its word, and what that means, for messages and for the store's page; empty if it goes
    /// without saying.
    const WORDS: &'static [(Self, &'static str, &'static str)];

    /// The word for this value.
    ///
    /// # Panics
    /// If it is not one of [`WORDS`](Self::WORDS).
    fn word(self) -> &'static str {
        let known = Self::WORDS.iter().find(|(value, ..)| *value == self);
        known.map(|(_, word, _)| *word).expect("every value has its word")
    }
}

impl Word for bool {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[(true, "true", ""), (false, "false", "")];
}

impl<W: Word> Typed for W {
    fn of(value: Value) -> Option<Self> {
        let Value::Text(text) = value else { return None };
        W::WORDS.iter().find(|(_, word, _)| *word == text).map(|(value, ..)| *value)
    }

    fn value(&self) -> Value {
        Value::Text(self.word().to_owned())
    }
}

impl Typed for Duration {
    fn of(value: Value) -> Option<Self> {
        if let Value::Duration(duration) = value { Some(duration) } else { None }
    }

    fn value(&self) -> Value {
        Value::Duration(*self)
    }
}

macro_rules! whole {
    ($($number:ty),*) => {$(
        impl Typed for $number {
            fn of(value: Value) -> Option<Self> {
                if let Value::Whole(number) = value { Self::try_from(number).ok() } else { None }
            }

            fn value(&self) -> Value {
                Value::Whole(u64::from(*self))
            }
        }
    )*};
}

whole!(u8, u16, u32, u64);

impl Typed for String {
    fn of(value: Value) -> Option<Self> {
        if let Value::Text(text) = value { Some(text) } else { None }
    }

    fn value(&self) -> Value {
        Value::Text(self.clone())
    }
}

/// What of a path is not UTF-8 is not in a URL either.
impl Typed for PathBuf {
    fn of(value: Value) -> Option<Self> {
        String::of(value).map(Self::from)
    }

    fn value(&self) -> Value {
        Value::Text(self.to_string_lossy().into_owned())
    }
}

impl<T: Typed> Typed for Option<T> {
    fn of(value: Value) -> Option<Self> {
        if value == Value::Unset { Some(None) } else { T::of(value).map(Some) }
    }

    fn value(&self) -> Value {
        self.as_ref().map_or(Value::Unset, T::value)
    }
}

/// A field of a store's options, of any type that is [`Typed`].
pub trait Field {
    /// Its value.
    fn get(&self) -> Value;

    /// Sets it, and returns whether it can have this value.
    fn set(&mut self, value: Value) -> bool;
}

impl<T: Typed> Field for T {
    fn get(&self) -> Value {
        self.value()
    }

    fn set(&mut self, value: Value) -> bool {
        let Some(value) = T::of(value) else { return false };
        *self = value;
        true
    }
}
