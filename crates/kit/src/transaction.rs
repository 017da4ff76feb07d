//! Ids for a transaction: exactly the requested number, or an error.

use idmill::store::Grant;
use idmill::{Error, ErrorKind, Id, IdRange, Result, SequenceName};

/// Rejects a grant that a transaction cannot use: with an id below `floor` (the least id of the caller's
/// type), or with fewer than `count` ids.
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) for an id below `floor`; [`Exhausted`](ErrorKind::Exhausted) for
/// too few ids.
pub fn must_fit(grant: &Grant, name: &SequenceName, count: u64, floor: u64, ceiling: u64) -> Result<()> {
    let first = grant.range.start();
    if first < floor {
        return Err(Error::invalid(format!("the next id is {first}, which does not fit the id type")));
    }
    let (left, last) = (grant.range.len(), grant.bounds.max().min(ceiling));
    if left < count {
        let message = format!(
            "exhausted: {count} ids requested, {left} left up to {last}; request fewer, raise `max`, or use a \
             wider id type"
        );
        return Err(Error::new(ErrorKind::Exhausted, message).of(name));
    }
    Ok(())
}

/// Converts the ids of a grant that [fits](must_fit) to the caller's type.
///
/// # Errors
/// [`StoreViolation`](ErrorKind::StoreViolation) if the type cannot hold all of them.
pub fn typed<T: Id>(range: IdRange) -> Result<IdRange<T>> {
    let typed = IdRange::new(range.start(), range.len());
    typed.ok_or_else(|| {
        let message = format!("the store granted {range}, which does not fit the id type");
        Error::new(ErrorKind::StoreViolation, message)
    })
}
