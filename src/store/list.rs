//! Lists of sequences, a page at a time: a store can hold more of them than memory does.

use std::collections::BTreeMap;
use std::fmt;
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
