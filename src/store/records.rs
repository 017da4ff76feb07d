//! Short texts that a store keeps beside its sequences, for the witness of another store.

use super::{Cursor, Unreadable};
use crate::error::{Operation, Result};
use crate::name::SequenceName;

/// A page of a store's [records](super::Store::swap_record).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Records {
    /// Each name and what is kept under it. Where a store keeps no order among names, the next page can hold
    /// names that belong before these.
    pub records: Vec<(SequenceName, String)>,
    /// What is stored among them, and cannot be read as a record.
    pub unreadable: Vec<Unreadable>,
    /// Where the next page begins; `None` if this was the last.
    pub next: Option<Cursor>,
}

impl Records {
    /// How many bytes a record has at most.
    pub const LONGEST: usize = 1000;

    /// These records, and where the next page begins; `None` if this is the last.
    pub fn new(records: Vec<(SequenceName, String)>, next: Option<Cursor>) -> Self {
        Self { records, unreadable: Vec::new(), next }
    }

    /// Adds what was read under this name, or what is wrong with it.
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
