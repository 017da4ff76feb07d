//! Decodes rows.

use idmill::Result;
use idmill::store::{Cursor, SequenceInfo};
use idmill_kit::paging;

use super::run::{bytes, unsigned};
use super::table::Table;
use crate::rows::Stored;
use crate::{Row, Value};

impl Table {
    /// Decodes a row as a sequence. `next` is NULL once all ids are reserved.
    pub(super) fn decode(&self, row: &Row) -> Result<SequenceInfo> {
        let name = bytes(row, 0).ok_or("has no bytes for its name");
        let name = name.and_then(|name| str::from_utf8(name).map_err(|_| "has a name that is not UTF-8"));
        let (used_up, number) = (*row.get(1) == Value::Null, |column| unsigned(row, column).map(i128::from));
        Stored { row, table: Some(self.name()), name, used_up, number }.decode()
    }
}

/// Returns the cursor of a page's last row: the bytes of the name, which may be invalid UTF-8.
#[allow(clippy::unnecessary_wraps)] // other dialects need `None`
pub(super) fn cursor(row: &Row) -> Option<Cursor> {
    Some(paging::cursor(bytes(row, 0).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use idmill::store::{Bounds, Identity};

    use super::*;
    use proptest::prelude::*;

    fn table() -> Table {
        Table::new("t").unwrap()
    }

    fn digits(value: u64) -> Value {
        Value::Bytes(value.to_string().into())
    }

    /// Name, next, start, max, incarnation, epoch, format.
    fn row(name: impl Into<Value>, numbers: [Value; 6]) -> Row {
        let mut values = vec![name.into()];
        values.extend(numbers);
        Row::new(values)
    }

    fn whole() -> [Value; 6] {
        [11, 1, 100, 7, 2, 1].map(digits)
    }

    #[test]
    fn a_row_is_read_from_whatever_the_driver_makes_of_it() {
        let expected = table().decode(&row(Value::Bytes(b"s".into()), whole())).unwrap();
        assert_eq!((expected.name.as_str(), expected.next), ("s", Some(11)));
        assert_eq!(expected.bounds, Bounds::new(1, 100).unwrap());
        assert_eq!(expected.identity, Identity { incarnation: 7, epoch: 2 });
        let numbers = [11, 1, 100, 7, 2, 1].map(Value::Integer);
        assert_eq!(table().decode(&row("s", numbers)).unwrap(), expected);
        let texts = ["11", "1", "100", "7", "2", "1"].map(Value::from);
        assert_eq!(table().decode(&row("s", texts)).unwrap(), expected);
    }

    #[test]
    fn invalid_row_is_rejected_by_name() {
        let refusal = |name: Value, column: usize, value: Value| {
            let mut numbers = whole();
            if column > 0 {
                numbers[column - 1] = value;
            }
            let error = table().decode(&row(name, numbers)).unwrap_err();
            (error.kind(), error.to_string())
        };
        let named = || Value::from("s");
        for (name, column, value, says) in [
            (Value::Bytes(b"b\xff".into()), 0, Value::Null, "has a name that is not UTF-8"),
            (Value::Null, 0, Value::Null, "has no bytes for its name"),
            (Value::Integer(5), 0, Value::Null, "has no bytes for its name"),
            (Value::from(""), 0, Value::Null, "has no valid name"),
            (named(), 1, Value::from("x"), "has no whole number for next"),
            (named(), 1, Value::Integer(-1), "has no whole number for next"),
            (named(), 1, digits(101), "has next 101 outside its bounds 1..=100"),
            (named(), 1, digits(0), "has next 0 outside its bounds 1..=100"),
            (named(), 2, Value::Null, "has no whole number for start"),
            (named(), 2, digits(101), "has invalid bounds 101..=100"),
            (named(), 3, Value::from("18446744073709551616"), "has no whole number for max"),
            (named(), 4, digits(0), "has an invalid incarnation 0 or epoch 2"),
            (named(), 5, Value::from("1.5"), "has no whole number for epoch"),
            (named(), 6, Value::Null, "has no whole number for format"),
        ] {
            let (kind, message) = refusal(name, column, value);
            assert_eq!(kind, ErrorKind::StoreViolation, "{message}");
            assert!(message.contains(says) && message.contains("of `t`"), "{message}");
        }
        let (kind, message) = refusal(named(), 6, digits(2));
        assert_eq!(kind, ErrorKind::Unsupported, "{message}");
        assert!(message.contains("the row \"s\" of `t` is in another format"), "{message}");
    }

    #[test]
    fn a_row_that_is_too_short_is_refused() {
        assert_eq!(table().decode(&Row::default()).unwrap_err().kind(), ErrorKind::StoreViolation);
    }

    proptest! {
        /// Includes numbers above `i64::MAX`.
        #[test]
        fn every_number_is_read_as_it_was_written(start: u64, length: u64, offset: u64, incarnation in 1..=u64::MAX, epoch: u64) {
            let max = start.saturating_add(length);
            let next = start + offset % (max - start).max(1);
            let numbers = [next, start, max, incarnation, epoch, 1].map(digits);
            let info = table().decode(&row("s", numbers)).unwrap();
            prop_assert_eq!((info.next, info.bounds), (Some(next), Bounds::new(start, max).unwrap()));
            prop_assert_eq!(info.identity, Identity { incarnation, epoch });
        }

        #[test]
        fn nothing_in_a_row_has_it_panic(name: Vec<u8>, texts in proptest::array::uniform6("[0-9+-]{0,21}|.{0,4}")) {
            let _ = table().decode(&row(Value::Bytes(name), texts.map(Value::from)));
        }
    }
}
