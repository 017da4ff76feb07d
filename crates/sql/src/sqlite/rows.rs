//! Decodes and checks rows.
//!
//! An id is stored as the signed integer of the same 64 bits. The `sqlite3` shell shows values below 2^63
//! unchanged, and larger ones minus 2^64 (`u64::MAX` is -1). SQL neither compares nor adds ids.

use idmill::Result;
use idmill::store::{Cursor, Listing, Page, SequenceInfo};
use idmill_kit::paging;

use super::table::{COLUMNS, Table};
use crate::rows::{Stored, legible, listing};
use crate::witness::other_columns;
use crate::{Answer, Row, Value};

/// The column of a page's row that has the name as bytes.
const NAME_AS_BYTES: usize = 7;

impl Table {
    /// Decodes a row as a sequence.
    ///
    /// # Errors
    /// [`StoreViolation`](idmill::ErrorKind::StoreViolation) for an invalid row;
    /// [`Unsupported`](idmill::ErrorKind::Unsupported) for a row of another version.
    pub fn decode(&self, row: &Row) -> Result<SequenceInfo> {
        let number = |column| match row.get(column) {
            Value::Integer(stored) if (1..4).contains(&column) => Some(decode_u64(*stored).into()),
            Value::Integer(stored) => Some((*stored).into()),
            _ => None,
        };
        let text = legible(row, 0);
        // A lossy conversion would turn the bytes into another name.
        let is_text = !matches!(row.get(0), Value::Bytes(_));
        let name = if is_text { Ok(&*text) } else { Err("has a name that is not UTF-8") };
        let used_up = *row.get(1) == Value::Null;
        Stored { row, table: Some(self.name()), name, used_up, number }.decode()
    }

    /// Decodes a page of rows.
    pub fn listing(&self, page: &Page, answer: &Answer) -> Listing {
        listing(page, &answer.rows, |row| cursor(row, NAME_AS_BYTES), |row| self.decode(row))
    }

    /// Returns whether the table exists, or an error if it has other columns.
    pub(super) fn is_there(&self, answer: &Answer) -> Result<bool> {
        let columns = columns(answer);
        if columns.is_empty() || columns == COLUMNS {
            return Ok(!columns.is_empty());
        }
        Err(other_columns(self.name(), &columns))
    }
}

/// Returns the cursor of a page's last row: the bytes of the name in this column.
pub(super) fn cursor(row: &Row, name: usize) -> Option<Cursor> {
    match row.get(name) {
        Value::Bytes(bytes) => Some(paging::cursor(bytes)),
        _ => None,
    }
}

/// Joins the names of a table's columns; empty if there is no table.
pub(super) fn columns(answer: &Answer) -> String {
    let names: Vec<_> = answer.rows.iter().map(|row| legible(row, 0)).collect();
    names.join(", ")
}

fn decode_u64(stored: i64) -> u64 {
    stored.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use idmill::store::{Bounds, Identity};
    use idmill::{ErrorKind, SequenceName};

    use super::super::table::encode;
    use super::*;

    fn row(next: Value, start: i64, max: Value, incarnation: i64, epoch: i64, format: i64) -> Row {
        let rest = [incarnation, epoch, format].map(Value::Integer);
        Row::new([Value::from("s"), next, Value::Integer(start), max].into_iter().chain(rest).collect())
    }

    fn integers([next, start, max, incarnation, epoch, format]: [i64; 6]) -> Row {
        row(next.into(), start, max.into(), incarnation, epoch, format)
    }

    proptest! {
        #[test]
        fn integers_survive_and_read_naturally_below_2_to_the_63(value: u64) {
            let Value::Integer(stored) = encode(value) else { panic!("it is an integer") };
            prop_assert_eq!(decode_u64(stored), value);
            prop_assert_eq!(i128::from(stored) == i128::from(value), value < 1 << 63);
        }

        #[test]
        fn inserted_row_reads_back(name in "\\PC{1,50}", a: u64, b: u64, offset: u64, all: bool, epoch in 0..=i64::MAX as u64) {
            let Ok(name) = SequenceName::new(&name) else { return Ok(()) };
            let bounds = Bounds::new(a.min(b), a.max(b)).unwrap();
            let next = bounds.start() + offset % (bounds.max() - bounds.start()).saturating_add(1);
            let identity = Identity { epoch, ..Identity::fresh() };
            let info = SequenceInfo::stored(name, (!all).then_some(next), bounds, identity);
            let table = Table::new("t").unwrap();
            prop_assert_eq!(table.decode(&Row::new(table.insert(&info).values)).unwrap(), info);
        }
    }

    #[test]
    fn rows_that_cannot_be_are_named_and_refused() {
        let table = Table::new("t").unwrap();
        for (row, fault) in [
            (integers([5, 10, 20, 1, 0, 1]), "next 5 outside"),
            (integers([21, 10, 20, 1, 0, 1]), "next 21 outside"),
            (integers([-1, 10, 20, 1, 0, 1]), "next 18446744073709551615 outside"),
            (integers([15, 20, 10, 1, 0, 1]), "invalid bounds"),
            (integers([15, 10, 20, 0, 0, 1]), "incarnation 0"),
            (integers([15, 10, 20, -3, 0, 1]), "incarnation -3"),
            (integers([15, 10, 20, 1, -1, 1]), "epoch -1"),
            (row("x".into(), 10, 20.into(), 1, 0, 1), "no whole number for next"),
            (row("1.5".into(), 1, 20.into(), 1, 0, 1), "no whole number for next"),
            (row(15.into(), 10, Value::Bytes(vec![0]), 1, 0, 1), "no whole number for max"),
            (integers([15, 10, 20, 1, 0, 2]), "another format"),
        ] {
            let error = table.decode(&row).unwrap_err();
            let expected =
                if fault == "another format" { ErrorKind::Unsupported } else { ErrorKind::StoreViolation };
            assert_eq!(error.kind(), expected, "{row:?}");
            let text = error.to_string();
            assert!(text.contains(fault) && text.contains("\"s\""), "{row:?}: {error}");
        }
    }

    #[test]
    fn name_that_is_not_text_is_rejected() {
        let table = Table::new("t").unwrap();
        let mut values = vec![Value::Bytes(vec![b'a', 0xff])];
        values.extend([1, 1, 9, 1, 0, 1].map(Value::Integer));
        let error = table.decode(&Row::new(values)).unwrap_err();
        assert!(
            error.to_string().contains("the row \"a\u{fffd}\" of `t` has a name that is not UTF-8"),
            "{error}"
        );
    }
}
