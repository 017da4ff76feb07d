//! The table of options by functions, until every store declares its own.

use super::super::query::{self, Printed};
use super::super::refuse;
use super::field::{Field, Value};
use super::{Described, Kind};
use idmill::{Error, Result};

/// The options of a store whose options are an `O`, in the order in which they are printed.
#[derive(Debug)]
pub struct Table<O: 'static>(pub &'static [TableEntry<O>]);

/// One option.
#[derive(Debug)]
pub struct TableEntry<O> {
    about: Described,
    field: fn(&mut O) -> &mut dyn Field,
}

/// An option.
pub const fn option(key: &'static str, kind: Kind, default: &'static str) -> Described {
    Described { key, kind, default, means: "" }
}

impl Described {
    /// What it means.
    #[must_use]
    pub const fn means(self, means: &'static str) -> Self {
        Self { means, ..self }
    }

    /// Where its value is.
    pub const fn field<O>(self, field: fn(&mut O) -> &mut dyn Field) -> TableEntry<O> {
        TableEntry { about: self, field }
    }
}
impl<O: Clone> Table<O> {
    /// The same options with every default in its field. Fields of options without a default stay as they
    /// are.
    ///
    /// # Panics
    /// If the table has a default that it would not take from a URL, or not into the field.
    #[must_use]
    pub fn with_defaults(&self, mut options: O) -> O {
        for entry in self.0.iter().filter(|entry| !entry.about.default.is_empty()) {
            let set = entry.set(&mut options, entry.about.default);
            assert!(set.is_ok(), "{}={} cannot be the default", entry.about.key, entry.about.default);
        }
        options
    }

    /// Reads what follows the question mark of a URL, percent-decoded.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an option that is not in the table, that is given
    /// twice, or whose value cannot be used. The message says what can.
    pub fn read(&self, query: &str, options: O) -> Result<O> {
        query::read(query, options, |mut options, key, value| {
            if self.set(&mut options, key, value)? { Ok(options) } else { Err(self.unknown(key)) }
        })
    }

    /// Sets the option `key`, and returns whether there is one.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a value that cannot be used.
    pub fn set(&self, options: &mut O, key: &str, value: &str) -> Result<bool> {
        let Some(entry) = self.0.iter().find(|entry| entry.about.key == key) else { return Ok(false) };
        entry.set(options, value).map(|()| true)
    }

    /// Checks all values, as [`read`](Self::read) does. For those that setters gave.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn check(&self, options: &O) -> Result<()> {
        let mut options = options.clone();
        let mut wrong = self.0.iter().filter_map(|entry| {
            let value = entry.value(&mut options);
            (!entry.about.fits(&value)).then(|| entry.about.refuse(&value.exactly()))
        });
        wrong.next().map_or(Ok(()), Err)
    }

    /// The options that are not at their defaults, as the end of a URL.
    pub fn print(&self, options: &O) -> Printed {
        self.print_after(Printed::default(), options)
    }

    /// The same, after what was printed already.
    #[must_use]
    pub fn print_after(&self, printed: Printed, options: &O) -> Printed {
        let mut options = options.clone();
        self.0.iter().fold(printed, |printed, entry| {
            let value = entry.about.text(&entry.value(&mut options));
            printed.given(entry.about.key, (value != entry.about.default).then_some(value))
        })
    }

    /// The error for an option that there is not, with those that there are.
    pub fn unknown(&self, key: &str) -> Error {
        refuse(format!("unknown option `{key}`; there are {}", self.known()))
    }

    /// All options with their defaults, or with what they take, for messages: `timeout=5s, ca=FILE`.
    pub fn known(&self) -> String {
        let known = self
            .0
            .iter()
            .map(|TableEntry { about: it, .. }| format!("{}={}", it.key, it.kind.hint(it.default)));
        known.collect::<Vec<_>>().join(", ")
    }
}

impl<O> TableEntry<O> {
    fn set(&self, options: &mut O, text: &str) -> Result<()> {
        let value = self.about.kind.read(text).filter(|value| self.about.fits(value));
        let set = value.is_some_and(|value| (self.field)(options).set(value));
        if set { Ok(()) } else { Err(self.about.refuse(text)) }
    }

    fn value(&self, options: &mut O) -> Value {
        (self.field)(options).get()
    }
}

impl<O: Clone> Table<O> {
    /// No longer.
    pub fn documented(&self, _: &str, _: &str) {}
}
