//! Rows as sequences: encodes, decodes and checks them.

use std::fmt::Display;

use idmill::Result;
use idmill::store::{Cursor, Grant, Page, Reserve, SequenceInfo};
use idmill_kit::{InvalidRow, paging};

use crate::rows::Stored;
use crate::{Row, Value};

/// The values of a new row, in the order of the columns except the last two. `from` is the first id
/// of the last reserve, if ids were reserved.
pub(super) fn values(info: &SequenceInfo, from: Option<u64>) -> [String; 7] {
    let (bounds, identity) = (info.bounds, info.identity);
    [
        info.name.as_str().to_owned(),
        info.reached().to_string(),
        from.map(|from| from.to_string()).unwrap_or_default(),
        bounds.start().to_string(),
        bounds.max().to_string(),
        identity.incarnation.to_string(),
        identity.epoch.to_string(),
    ]
}

/// Converts parameters to text, and appends the lock timeout.
pub(super) fn asks(parameters: &[&(dyn Display + Sync)]) -> Vec<Value> {
    let texts = parameters.iter().map(|parameter| Value::from(parameter.to_string()));
    texts.chain([Value::Timeout]).collect()
}

/// The parameters of a page: the last name of the previous page, the prefix and the number of rows.
pub(super) fn of_page(page: &Page) -> [Value; 3] {
    let after = page.after.as_ref().map_or("", Cursor::as_str);
    [after.into(), page.prefix.as_str().into(), paging::limit(page).to_string().into()]
}

/// Returns the range that [`Table::reserve`](super::Table::reserve) took, from the updated row.
pub(super) fn granted(row: &Row, request: &Reserve) -> Result<Grant> {
    let after = decode(row)?;
    let unsound =
        |fault: &str| Err(InvalidRow::from(fault).of(format_args!("the row {:?}", after.name.as_str())));
    if after.name != request.name {
        return unsound("was returned for another sequence");
    }
    let from = row.text(7).and_then(|from| from.parse::<u64>().ok());
    let Some(from) = from.filter(|from| *from >= after.bounds.start()) else {
        return unsound("does not show the reserved ids");
    };
    let mut before = after.clone();
    before.next = Some(from);
    let grant = before.grant(request.count, request.ceiling)?;
    if before.reached() != after.reached() {
        return unsound("was not advanced by the requested count; check triggers on the table");
    }
    Ok(grant)
}

/// Returns the name of a row.
pub(super) fn name(row: &Row) -> &str {
    row.text(0).unwrap_or_default()
}

/// Returns the cursor of a page's last row.
#[allow(clippy::unnecessary_wraps)] // other dialects need `None`
pub(super) fn cursor(row: &Row) -> Option<Cursor> {
    Some(Cursor::new(name(row)))
}

/// Decodes a row as a sequence. `next` is `max + 1` once all ids are reserved.
///
/// # Errors
/// [`StoreViolation`](idmill::ErrorKind::StoreViolation) for an invalid row;
/// [`Unsupported`](idmill::ErrorKind::Unsupported) for a row of another version.
pub(super) fn decode(row: &Row) -> Result<SequenceInfo> {
    let number = |column| row.text(column)?.parse().ok();
    let used_up = number(1).is_some_and(|next: i128| number(3).is_some_and(|max| next == max + 1));
    Stored { row, table: None, name: Ok(name(row)), used_up, number }.decode()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use idmill::store::{Bounds, Identity};

    use idmill::{ErrorKind, SequenceName};

    use super::*;
    use crate::rows::FORMAT;

    proptest! {
        #[test]
        fn rows_read_back_as_written(text in "\\PC{1,50}", a: u64, b: u64, offset: u64, all: bool, epoch in 0..=i64::MAX as u64) {
            let Ok(name) = SequenceName::new(&text) else { return Ok(()) };
            let bounds = Bounds::new(a.min(b), a.max(b)).unwrap();
            let next = bounds.start() + offset % (bounds.max() - bounds.start()).saturating_add(1);
            let identity = Identity { epoch, ..Identity::fresh() };
            let info = SequenceInfo::stored(name, (!all).then_some(next), bounds, identity);
            let [name, next, _, start, max, incarnation, epoch] = values(&info, None);
            let row = [name, next, start, max, incarnation, epoch, FORMAT.to_string()];
            prop_assert_eq!(decode(&Row::new(row.map(Value::from).into())).unwrap(), info);
        }
    }

    #[test]
    fn rows_that_cannot_be_are_named_and_refused() {
        for (row, fault) in [
            ("4 5 20 1 0 1", "next 4 outside"),
            ("22 5 20 1 0 1", "next 22 outside"),
            ("7 20 5 1 0 1", "bounds 20..=5"),
            ("7 5 18446744073709551616 1 0 1", "bounds 5..=18446744073709551616"),
            ("x 5 20 1 0 1", "no whole number for next"),
            ("7.5 5 20 1 0 1", "no whole number for next"),
            ("7 -5 20 1 0 1", "bounds -5..=20"),
            ("7 5 20 0 0 1", "incarnation 0"),
            ("7 5 20 1 -1 1", "epoch -1"),
            ("7 5 20 1 0 2", "another format"),
        ] {
            let texts = std::iter::once("s").chain(row.split(' ')).map(Value::from);
            let error = decode(&Row::new(texts.collect())).unwrap_err();
            let expected =
                if fault == "another format" { ErrorKind::Unsupported } else { ErrorKind::StoreViolation };
            assert_eq!(error.kind(), expected, "{row}");
            assert!(error.to_string().contains(fault) && error.to_string().contains("\"s\""), "{error}");
        }
    }
}
