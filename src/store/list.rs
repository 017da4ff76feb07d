//! Lists of sequences, a page at a time: a store can hold more of them than memory does.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::ops::Bound;

use super::SequenceInfo;
use crate::error::{Error, Operation, Result};
use crate::name::SequenceName;

/// Which part of a store's sequences [`Store::list`](super::Store::list) reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Page {
    /// Only sequences whose names begin with this; empty for all.
    pub prefix: String,
    /// Where the page before ended; `None` for the first page. It belongs to the store and
    /// the prefix that it came from.
    pub after: Option<Cursor>,
    /// How many rows to read, at least 1. A store may read a few more or less.
    pub limit: usize,
}

impl Page {
    /// How many rows a page reads unless told otherwise.
    pub const LIMIT: usize = 1000;

    /// The first page of the sequences whose names begin with `prefix`.
    pub fn of(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), after: None, limit: Self::LIMIT }
    }

    /// With another limit.
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }

    /// The page that begins where another ended; `None` for the first.
    #[must_use]
    pub fn after(mut self, cursor: impl Into<Option<Cursor>>) -> Self {
        self.after = cursor.into();
        self
    }

    /// The limit as a signed number, which many drivers want.
    pub fn rows(&self) -> i32 {
        i32::try_from(self.limit.max(1)).unwrap_or(i32::MAX)
    }

    /// The first text after all those that begin with the prefix, in the order of their
    /// bytes; `None` if there is none.
    pub fn end(&self) -> Option<String> {
        let mut end = self.prefix.clone();
        while let Some(last) = end.pop() {
            // The numbers of the surrogates are no characters.
            let next =
                if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(u32::from(last) + 1) };
            if let Some(next) = next {
                end.push(next);
                return Some(end);
            }
        }
        None
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::of("")
    }
}

/// Where a page ended. Only the store that made it can read it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Cursor(Box<str>);

impl Cursor {
    /// A cursor that reads so.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// What the store wrote.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A cursor for bytes that may be no text.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let mut hex = String::with_capacity(2 * bytes.len());
        for byte in bytes {
            // A String takes all.
            let _ = write!(hex, "{byte:02x}");
        }
        Self(hex.into())
    }

    /// The bytes of [`of_bytes`](Self::of_bytes).
    ///
    /// # Errors
    /// [`foreign`](Self::foreign) for a cursor that was not made of bytes.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        let digits = self.0.as_bytes().chunks(2);
        let bytes = digits.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
        bytes.collect::<Option<_>>().ok_or_else(|| self.foreign())
    }

    /// The error for a cursor of another store.
    pub fn foreign(&self) -> Error {
        Error::invalid(format!("{self:?} is not where a page of this store ended")).during(Operation::List)
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({})", self.0)
    }
}

/// A page of a store's sequences.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Listing {
    /// By name. Where a store keeps no order among names, the next page can hold
    /// names that belong before these.
    pub sequences: Vec<SequenceInfo>,
    /// What is stored among them, and cannot be read as a sequence.
    pub unreadable: Vec<Unreadable>,
    /// Where the next page begins; `None` if this was the last.
    pub next: Option<Cursor>,
}

/// Something that is stored where sequences are, and cannot be read as one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unreadable {
    /// Its name, as far as it has one.
    pub name: String,
    /// What is wrong with it.
    pub error: Error,
}

impl Unreadable {
    /// Something of this name, and what is wrong with it.
    pub fn new(name: impl Into<String>, error: Error) -> Self {
        Self { name: name.into(), error }
    }
}

impl Listing {
    /// These sequences, and where the next page begins; `None` if this is the last.
    pub fn new(sequences: Vec<SequenceInfo>, next: Option<Cursor>) -> Self {
        Self { sequences, unreadable: Vec::new(), next }
    }

    /// Adds what was read under this name.
    pub fn add(&mut self, name: impl Into<String>, row: Result<SequenceInfo>) {
        match row {
            Ok(info) => self.sequences.push(info),
            Err(error) => {
                let error = error.during(Operation::List);
                self.unreadable.push(Unreadable { name: name.into(), error });
            }
        }
    }

    /// Brings the sequences into their order; one that was read twice stays once.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.sequences.sort_by(|a, b| a.name.cmp(&b.name));
        self.sequences.dedup_by(|a, b| a.name == b.name);
        self
    }
}

/// The rows of a page, and where the next one begins.
pub fn page_of<'a, T>(
    rows: &'a BTreeMap<SequenceName, T>,
    page: &Page,
) -> (Vec<(&'a SequenceName, &'a T)>, Option<Cursor>) {
    let first = match &page.after {
        Some(after) => Bound::Excluded(after.as_str()),
        None => Bound::Included(page.prefix.as_str()),
    };
    let rest = rows.range::<str, _>((first, Bound::Unbounded));
    let mut rest = rest.filter(|(name, _)| name.starts_with(&page.prefix));
    let rows: Vec<_> = rest.by_ref().take(page.limit.max(1)).collect();
    let more = rest.next().and(rows.last());
    let next = more.map(|(last, _)| Cursor::new(last.as_str()));
    (rows, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_prefix_ends_where_no_text_begins_with_it(prefix in "\\PC{0,3}", rest in "\\PC{0,3}", other in "\\PC{0,5}") {
            let end = Page::of(prefix.clone()).end();
            let within = |text: &str| *text >= *prefix && end.as_deref().is_none_or(|end| text < end);
            let longer = [prefix.as_str(), &rest].concat();
            prop_assert!(within(&longer));
            prop_assert_eq!(within(&other), other.starts_with(&prefix));
        }

        #[test]
        fn bytes_survive_a_cursor(bytes: Vec<u8>) {
            prop_assert_eq!(Cursor::of_bytes(&bytes).bytes().unwrap(), bytes);
        }
    }

    #[test]
    fn the_edges_of_unicode_have_ends() {
        for (prefix, end) in [
            ("", None),
            ("a", Some("b")),
            ("a\u{d7ff}", Some("a\u{e000}")),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}", None),
        ] {
            assert_eq!(Page::of(prefix).end().as_deref(), end, "{prefix:?}");
        }
        assert_eq!(Cursor::new("xyz").bytes().unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
