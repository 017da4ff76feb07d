//! Decodes and checks the rows of sequences. Dialects differ in how they write numbers and names.

use std::borrow::Cow;

use idmill::store::{Cursor, Listing, Page, SequenceInfo};
use idmill::{Result, SequenceName};
use idmill_kit::{Fill, InvalidRow, Numbers, paging};

use crate::{Row, Value};

/// The layout of a row. Rows of another version can be removed, but are neither written nor read.
pub(crate) const FORMAT: i64 = 1;

/// A row of a sequence: name, next, start, max, incarnation, epoch and format, in this order.
pub(crate) struct Stored<'a, N> {
    pub(crate) row: &'a Row,
    /// Its table for messages, if the dialect names it.
    pub(crate) table: Option<&'a str>,
    /// Its name, or the fault of the name.
    pub(crate) name: Result<&'a str, &'a str>,
    /// Whether `next` means that all ids are reserved.
    pub(crate) used_up: bool,
    /// Returns the integer in a column, if it has one.
    pub(crate) number: N,
}

impl<N: Fn(usize) -> Option<i128>> Stored<'_, N> {
    /// # Errors
    /// [`StoreViolation`](idmill::ErrorKind::StoreViolation) for an invalid row;
    /// [`Unsupported`](idmill::ErrorKind::Unsupported) for a row of another version.
    pub(crate) fn decode(&self) -> Result<SequenceInfo> {
        self.try_decode().map_err(|fault| {
            let of = self.table.map(|table| format!(" of `{table}`")).unwrap_or_default();
            fault.of(format_args!("the row {:?}{of}", legible(self.row, 0)))
        })
    }

    fn try_decode(&self) -> Result<SequenceInfo, InvalidRow> {
        let whole = |column: usize, what: &str| {
            (self.number)(column).ok_or_else(|| format!("has no whole number for {what}"))
        };
        if whole(6, "format")? != i128::from(FORMAT) {
            return Err(InvalidRow::Format);
        }
        let name = SequenceName::new(self.name?).map_err(|error| format!("has no valid name: {error}"))?;
        let next = if self.used_up { None } else { Some(whole(1, "next")?) };
        let (start, max) = (whole(2, "start")?, whole(3, "max")?);
        let (incarnation, epoch) = (whole(4, "incarnation")?, whole(5, "epoch")?);
        Numbers { next, start, max, incarnation, epoch }.of(name)
    }
}

/// Returns a column as readable text, whatever its type.
pub(crate) fn legible(row: &Row, column: usize) -> Cow<'_, str> {
    match row.get(column) {
        Value::Text(text) => text.into(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes),
        other => format!("{other:?}").into(),
    }
}

/// Builds a page. `cursor` returns the cursor of a row.
pub(crate) fn page_of<P: Fill>(
    page: &Page,
    rows: &[Row],
    cursor: impl Fn(&Row) -> Option<Cursor>,
    decode: impl Fn(&Row) -> Result<P::Row>,
) -> P {
    let next = rows.last().filter(|_| paging::is_full(page, rows.len())).and_then(cursor);
    P::of(next, rows.iter().map(|row| (legible(row, 0), decode(row))))
}

/// Builds a page of sequences. The rows are sorted here, since an SQLite database in UTF-16 sorts
/// differently.
pub(crate) fn listing(
    page: &Page,
    rows: &[Row],
    cursor: impl Fn(&Row) -> Option<Cursor>,
    decode: impl Fn(&Row) -> Result<SequenceInfo>,
) -> Listing {
    page_of::<Listing>(page, rows, cursor, decode).sorted()
}
