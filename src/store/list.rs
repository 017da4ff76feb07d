//! Paged lists of sequences: a store can keep more of them than fit in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

use super::SequenceInfo;
use crate::error::{Error, Operation, Result};
use crate::name::SequenceName;

/// A request for a page of a store's sequences, for [`Store::list`](super::Store::list).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Page {
    /// Only sequences whose names begin with this prefix; empty for all.
    pub prefix: String,
    /// Where the previous page ended; `None` for the first page. A cursor is only valid for the store and the
    /// prefix that it came from.
    pub after: Option<Cursor>,
    /// How many rows to read, at least 1. A store may return more, or fewer.
    pub limit: usize,
}

impl Page {
    /// The default number of rows per page.
    pub const LIMIT: usize = 1000;

    /// Returns the first page of the sequences whose names begin with `prefix`.
    pub fn of(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), after: None, limit: Self::LIMIT }
    }

    /// Sets the number of rows.
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }

    /// Sets the cursor at which the page begins; `None` for the first page.
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

/// Where a page ended. Use it only with the store that created it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Cursor(Box<str>);

impl Cursor {
    /// Creates a cursor from its text.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the cursor's text.
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
    /// The sequences, ordered by name. If a store does not order names, the next page can contain names that
    /// sort before these.
    pub sequences: Vec<SequenceInfo>,
    /// Rows that cannot be read as a sequence.
    pub unreadable: Vec<Unreadable>,
    /// Where the next page begins; `None` if this was the last.
    pub next: Option<Cursor>,
}

/// A stored row that cannot be read as a sequence.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unreadable {
    /// Its stored name or key, which may be invalid.
    pub name: String,
    /// Why it cannot be read.
    pub error: Error,
}

impl Unreadable {
    /// Creates an unreadable row from its name and error.
    pub fn new(name: impl Into<String>, error: Error) -> Self {
        Self { name: name.into(), error }
    }
}

impl Listing {
    /// Creates a page from its sequences and the cursor of the next page; `None` if this is the last.
    pub fn new(sequences: Vec<SequenceInfo>, next: Option<Cursor>) -> Self {
        Self { sequences, unreadable: Vec::new(), next }
    }

    /// Adds a sequence, or the error of reading its row.
    pub fn add(&mut self, name: impl Into<String>, row: Result<SequenceInfo>) {
        match row {
            Ok(info) => self.sequences.push(info),
            Err(error) => {
                let error = error.during(Operation::List);
                self.unreadable.push(Unreadable { name: name.into(), error });
            }
        }
    }

    /// Sorts the sequences by name and removes duplicates.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.sequences.sort_by(|a, b| a.name.cmp(&b.name));
        self.sequences.dedup_by(|a, b| a.name == b.name);
        self
    }
}

/// Returns the rows of a page and the cursor of the next page.
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
