//! Rows as sequences: what is written of one, and how it is read and checked.

use idmill::store::{Bounds, Grant, Identity, Reserve, SequenceInfo};
use idmill::{Error, ErrorKind, Result, SequenceName};

use super::table::FORMAT;
use crate::Row;

/// `next` as it is stored.
pub(super) fn reached(info: &SequenceInfo) -> u128 {
    info.next.map_or_else(|| u128::from(info.bounds.max()) + 1, u128::from)
}

/// The values of a new row, of which the ids from there on were reserved last, if any were, in the order of
/// the columns but for the last two two.
pub(super) fn values(info: &SequenceInfo, from: Option<u64>) -> [String; 7] {
    let (bounds, identity) = (info.bounds, info.identity);
    [
        info.name.as_str().to_owned(),
        reached(info).to_string(),
        from.map(|from| from.to_string()).unwrap_or_default(),
        bounds.start().to_string(),
        bounds.max().to_string(),
        identity.incarnation.to_string(),
        identity.epoch.to_string(),
    ]
}

/// What [`Table::reserve`](super::Table::reserve) took, from the row as it left it.
pub(super) fn granted(row: &Row, request: &Reserve) -> Result<Grant> {
    let after = decode(row)?;
    if after.name != request.name {
        return Err(unsound(&after.name, "was reserved from instead of another"));
    }
    let from = row.text(7).and_then(|from| from.parse::<u64>().ok());
    let Some(from) = from.filter(|from| *from >= after.bounds.start()) else {
        return Err(unsound(&after.name, "does not say which ids were reserved"));
    };
    let mut before = after.clone();
    before.next = Some(from);
    let grant = before.grant(request.count, request.ceiling)?;
    if reached(&before) != reached(&after) {
        return Err(unsound(&after.name, "did not move as far as it was to: a trigger may have changed it"));
    }
    Ok(grant)
}

/// The name of a row.
pub(super) fn name(row: &Row) -> &str {
    row.text(0).unwrap_or_default()
}

/// A row as a sequence.
///
/// # Errors
/// [`ErrorKind::StoreViolation`] for what cannot be; [`ErrorKind::Unsupported`] for another version's.
pub(super) fn decode(row: &Row) -> Result<SequenceInfo> {
    let [name, next, start, max, incarnation, epoch, format] =
        std::array::from_fn(|column| row.text(column).unwrap_or_default());
    if format != FORMAT {
        let message = format!("the row {name:?} is in another format, perhaps a later version's");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let valid =
        SequenceName::new(name).map_err(|error| unsound(name, &format!("has no valid name: {error}")))?;
    let number = |text: &str, what: &str| {
        text.parse::<u128>().map_err(|_| unsound(name, &format!("has no id for {what}, but {text:?}")))
    };
    let (next, start, max) = (number(next, "next")?, number(start, "start")?, number(max, "max")?);
    let bounds = u64::try_from(start).ok().zip(u64::try_from(max).ok());
    let bounds = bounds.and_then(|(start, max)| Bounds::new(start, max).ok());
    let bounds = bounds.ok_or_else(|| unsound(name, &format!("has bounds {start}..={max}")))?;
    if next < start || next > max + 1 {
        return Err(unsound(name, &format!("has next {next} outside its bounds {start}..={max}")));
    }
    let parsed = |text: &str| text.parse::<i64>().ok().and_then(|value| u64::try_from(value).ok());
    let identity = parsed(incarnation).filter(|incarnation| *incarnation > 0).zip(parsed(epoch));
    let Some((incarnation, epoch)) = identity else {
        let fault = format!("has incarnation {incarnation} and epoch {epoch}, which never are");
        return Err(unsound(name, &fault));
    };
    let next = u64::try_from(next).ok().filter(|next| *next <= bounds.max());
    Ok(SequenceInfo::stored(valid, next, bounds, Identity { incarnation, epoch }))
}

fn unsound(name: &str, fault: &str) -> Error {
    Error::new(ErrorKind::StoreViolation, format!("the row {name:?} {fault}; nothing is reserved from it"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Value;

    proptest! {
        #[test]
        fn rows_read_back_as_written(text in "\\PC{1,50}", a: u64, b: u64, offset: u64, all: bool, epoch in 0..=i64::MAX as u64) {
            let Ok(name) = SequenceName::new(&text) else { return Ok(()) };
            let bounds = Bounds::new(a.min(b), a.max(b)).unwrap();
            let next = bounds.start() + offset % (bounds.max() - bounds.start()).saturating_add(1);
            let identity = Identity { epoch, ..Identity::fresh() };
            let info = SequenceInfo::stored(name, (!all).then_some(next), bounds, identity);
            let [name, next, _, start, max, incarnation, epoch] = values(&info, None);
            let row = [name, next, start, max, incarnation, epoch, FORMAT.to_owned()];
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
            ("x 5 20 1 0 1", "no id for next"),
            ("7.5 5 20 1 0 1", "no id for next"),
            ("7 -5 20 1 0 1", "no id for start"),
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
