//! Short texts that a store keeps as the witness of another store.

use super::{Cursor, Unreadable};
use crate::error::{Operation, Result};
use crate::name::SequenceName;

/// A page of a store's [records](super::Store::swap_record).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Records {
    /// The records, in the store's order. If a store does not order names, the next page can contain names
    /// that sort before these.
    pub records: Vec<(SequenceName, String)>,
    /// Rows that cannot be read as a record.
    pub unreadable: Vec<Unreadable>,
    /// Where the next page begins; `None` if this was the last.
    pub next: Option<Cursor>,
}

impl Records {
    /// The maximum length of a record, in bytes.
    pub const LONGEST: usize = 1000;

    /// Creates a page from its records and the cursor of the next page; `None` if this is the last.
    pub fn new(records: Vec<(SequenceName, String)>, next: Option<Cursor>) -> Self {
        Self { records, unreadable: Vec::new(), next }
    }

    /// Adds a record, or the error of reading it.
    pub fn add(&mut self, name: &str, record: Result<String>) {
        match SequenceName::new(name).and_then(|valid| Ok((valid, record?))) {
            Ok(record) => self.records.push(record),
            Err(error) => {
                let error = error.during(Operation::List);
                self.unreadable.push(Unreadable { name: name.to_owned(), error });
            }
        }
    }
}
