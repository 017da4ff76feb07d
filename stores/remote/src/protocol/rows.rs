//! Pages of sequences and of records.

use idmill::SequenceName;
use idmill::store;
use idmill::store::{Cursor, Listing, SequenceInfo, Unreadable};
use serde::{Deserialize, Serialize};

use super::WireError;

/// A page of sequences, as in [`Listing`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the fields of `Listing`
pub struct Rows {
    pub sequences: Vec<SequenceInfo>,
    pub unreadable: Vec<Row>,
    pub next: Option<Cursor>,
}

/// A page of records, as in [`store::Records`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the fields of `Records`
pub struct Records {
    pub records: Vec<(SequenceName, String)>,
    pub unreadable: Vec<Row>,
    pub next: Option<Cursor>,
}

/// A row that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The name of the row, empty if it has none.
    pub name: String,
    /// The error of decoding the row.
    pub fault: WireError,
}

impl Rows {
    /// Keeps the rows whose names the client may see.
    pub fn of(listing: Listing, is_seen: impl Fn(&str) -> bool) -> Self {
        let sequences = listing.sequences.into_iter().filter(|info| is_seen(&info.name)).collect();
        Self { sequences, unreadable: Row::all(listing.unreadable, is_seen), next: listing.next }
    }
}

impl Records {
    /// Keeps the rows whose names the client may see.
    pub fn of(records: store::Records, is_seen: impl Fn(&str) -> bool) -> Self {
        let kept = records.records.into_iter().filter(|(name, _)| is_seen(name)).collect();
        Self { records: kept, unreadable: Row::all(records.unreadable, is_seen), next: records.next }
    }
}

impl Row {
    fn all(unreadable: Vec<Unreadable>, is_seen: impl Fn(&str) -> bool) -> Vec<Self> {
        let seen = unreadable.into_iter().filter(|row| is_seen(&row.name));
        seen.map(|Unreadable { name, error, .. }| Self { name, fault: WireError::of(&error) }).collect()
    }
}

impl From<Rows> for Listing {
    fn from(rows: Rows) -> Self {
        let mut listing = Self::new(rows.sequences, rows.next);
        for Row { name, fault } in rows.unreadable {
            listing.add(name, Err(fault.error()));
        }
        listing
    }
}

impl From<Records> for store::Records {
    fn from(page: Records) -> Self {
        let mut records = Self::new(page.records, page.next);
        for Row { name, fault } in page.unreadable {
            records.add(&name, Err(fault.error()));
        }
        records
    }
}
