//! Rows, checked when they are read.
//!
//! A `u64` is stored as the signed integer of the same 64 bits: what is below 2^63 reads in the
//! `sqlite3` shell as what it is, and what is above reads as itself minus 2^64 (`u64::MAX` is -1).
//! Nothing is compared or added in SQL.

use idmill::store::{Bounds, Cursor, Identity, Listing, Page, SequenceInfo};
use idmill::{Error, ErrorKind, Result, SequenceName};

use super::table::{COLUMNS, FORMAT, Table};
use crate::{Answer, Row, Value};

const LATER: &str = "is in another format, perhaps a later version's";
/// Where a row of a page has its name as bytes.
const NAME_AS_BYTES: usize = 7;

impl Table {
    /// A row as a sequence, or what is wrong with it.
    ///
    /// # Errors
    /// [`StoreViolation`](ErrorKind::StoreViolation) for a row that cannot be;
    /// [`Unsupported`](ErrorKind::Unsupported) for one of another version.
    pub fn decode(&self, row: &Row) -> Result<SequenceInfo> {
        let name = text(row, 0);
        decode(row).map_err(|fault| {
            let kind = if fault == LATER { ErrorKind::Unsupported } else { ErrorKind::StoreViolation };
            Error::new(
                kind,
                format!("the row {name:?} of `{}` {fault}; nothing is reserved from it", self.name()),
            )
        })
    }

    /// A page of rows. Sorted here: in a database of UTF-16, SQLite's own order is another.
    pub fn listing(&self, page: &Page, answer: &Answer) -> Listing {
        let mut listing = Listing::default();
        for row in &answer.rows {
            listing.add(text(row, 0), self.decode(row));
        }
        listing.next = next_page(page, answer, NAME_AS_BYTES);
        listing.sorted()
    }

    /// Whether there is such a table; an error if there is one that is not of idmill's making.
    pub(super) fn is_there(&self, answer: &Answer) -> Result<bool> {
        let columns = columns(answer);
        if columns.is_empty() || columns == COLUMNS {
            return Ok(!columns.is_empty());
        }
        let message = format!(
            "the table `{}` is there, but it has the columns {columns}; name another with ?table=NAME, or table(NAME) in code",
            self.name()
        );
        Err(Error::new(ErrorKind::Conflict, message))
    }
}

/// Where the next page begins, if the rows fill this one. Each has its name as bytes in this column.
pub(super) fn next_page(page: &Page, answer: &Answer, name: usize) -> Option<Cursor> {
    let full = i32::try_from(answer.rows.len()).is_ok_and(|read| read == page.rows());
    match answer.rows.last().map(|last| last.get(name)) {
        Some(Value::Bytes(last)) if full => Some(Cursor::of_bytes(last)),
        _ => None,
    }
}

/// The names of the columns of a table; empty if it is not there.
pub(super) fn columns(answer: &Answer) -> String {
    let names: Vec<_> = answer.rows.iter().map(|row| text(row, 0)).collect();
    names.join(", ")
}

fn decode(row: &Row) -> Result<SequenceInfo, String> {
    let integer = |column: usize, what: &str| match row.get(column) {
        Value::Integer(value) => Ok(*value),
        _ => Err(format!("has no integer for {what}")),
    };
    if integer(6, "format")? != FORMAT {
        return Err(LATER.to_owned());
    }
    // Made legible, it would be another name.
    if matches!(row.get(0), Value::Bytes(_)) {
        return Err("has a name that is no UTF-8".to_owned());
    }
    let name = SequenceName::new(&text(row, 0)).map_err(|error| format!("has no valid name: {error}"))?;
    let (start, max) = (decode_u64(integer(2, "start")?), decode_u64(integer(3, "max")?));
    let bounds = Bounds::new(start, max).map_err(|_| format!("has bounds {start}..={max} without ids"))?;
    let next = match row.get(1) {
        Value::Null => None,
        _ => Some(decode_u64(integer(1, "next")?)),
    };
    if let Some(next) = next.filter(|next| !(start..=max).contains(next)) {
        return Err(format!("has next {next} outside its bounds {start}..={max}"));
    }
    let (incarnation, epoch) = (integer(4, "incarnation")?, integer(5, "epoch")?);
    if incarnation <= 0 || epoch < 0 {
        return Err(format!("has incarnation {incarnation} and epoch {epoch}, which never are"));
    }
    let identity = Identity { incarnation: decode_u64(incarnation), epoch: decode_u64(epoch) };
    Ok(SequenceInfo::stored(name, next, bounds, identity))
}

/// Text as it is, or whatever else there is, legibly.
pub(super) fn text(row: &Row, column: usize) -> String {
    match row.get(column) {
        Value::Text(text) => text.clone(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    }
}

fn decode_u64(stored: i64) -> u64 {
    stored.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        fn what_is_inserted_is_what_is_read(name in "\\PC{1,50}", a: u64, b: u64, offset: u64, all: bool, epoch in 0..=i64::MAX as u64) {
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
            (integers([15, 20, 10, 1, 0, 1]), "without ids"),
            (integers([15, 10, 20, 0, 0, 1]), "incarnation 0"),
            (integers([15, 10, 20, -3, 0, 1]), "incarnation -3"),
            (integers([15, 10, 20, 1, -1, 1]), "epoch -1"),
            (row("x".into(), 10, 20.into(), 1, 0, 1), "no integer for next"),
            (row("1.5".into(), 1, 20.into(), 1, 0, 1), "no integer for next"),
            (row(15.into(), 10, Value::Bytes(vec![0]), 1, 0, 1), "no integer for max"),
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
    fn a_name_that_is_no_text_is_not_made_one() {
        let table = Table::new("t").unwrap();
        let mut values = vec![Value::Bytes(vec![b'a', 0xff])];
        values.extend([1, 1, 9, 1, 0, 1].map(Value::Integer));
        let error = table.decode(&Row::new(values)).unwrap_err();
        assert!(
            error.to_string().contains("the row \"a\u{fffd}\" of `t` has a name that is no UTF-8"),
            "{error}"
        );
    }
}
