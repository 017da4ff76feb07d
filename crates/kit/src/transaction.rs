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

#[cfg(test)]
mod tests {
    use super::*;
    use idmill::store::{Bounds, Identity};

    #[test]
    fn grant_must_have_every_id_within_the_type() {
        let name = SequenceName::new("s").unwrap();
        let range = IdRange::new(10, 5).unwrap();
        let grant = Grant::new(range, Identity::fresh(), Bounds::new(1, 14).unwrap());
        must_fit(&grant, &name, 5, 10, 100).unwrap();
        let low = must_fit(&grant, &name, 5, 11, 100).unwrap_err();
        let message = "the next id is 10, which does not fit the id type";
        assert_eq!((low.kind(), low.to_string().as_str()), (ErrorKind::InvalidInput, message));
        for (ceiling, last) in [(100, 14), (12, 12)] {
            let few = must_fit(&grant, &name, 6, 10, ceiling).unwrap_err();
            let message = format!(
                "`s`: exhausted: 6 ids requested, 5 left up to {last}; request fewer, raise `max`, or use a wider id type"
            );
            assert_eq!((few.kind(), few.to_string()), (ErrorKind::Exhausted, message));
        }
    }

    #[test]
    fn ids_that_do_not_fit_the_type_are_a_violation() {
        let fits = typed::<i32>(IdRange::new(2_147_483_646, 2).unwrap()).unwrap();
        assert_eq!((fits.start(), fits.len()), (2_147_483_646, 2));
        let range = IdRange::new(2_147_483_646, 3).unwrap();
        let error = typed::<i32>(range).unwrap_err();
        let message = format!("the store granted {range}, which does not fit the id type");
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::StoreViolation, message));
    }
}
