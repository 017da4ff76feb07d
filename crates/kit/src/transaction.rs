//! Decides reserves. A transaction gets exactly the requested number of ids, or an error.

use idmill::store::{Grant, Reserve, SequenceInfo};
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

/// Decides a reserve from a sequence as it was seen, or from a new one. Returns the sequence after the grant,
/// and the grant. A grant for a transaction has a floor: it has exactly the requested number of ids, none
/// below the floor.
///
/// # Errors
/// [`NotFound`](ErrorKind::NotFound) if the sequence is missing and must exist;
/// [`Exhausted`](ErrorKind::Exhausted) if no id is left; the errors of [`must_fit`].
pub fn decide(
    seen: Option<SequenceInfo>,
    request: &Reserve,
    floor: Option<u64>,
) -> Result<(SequenceInfo, Grant)> {
    let mut info = match seen {
        Some(info) => info,
        None => SequenceInfo::new(request.name.clone(), request.creation()?),
    };
    let grant = info.grant(request.count, request.ceiling)?;
    fits(&grant, request, floor)?;
    Ok((info, grant))
}

/// Checks the grant by [`must_fit`] if there is a floor.
///
/// # Errors
/// Those of [`must_fit`].
pub fn fits(grant: &Grant, request: &Reserve, floor: Option<u64>) -> Result<()> {
    floor.map_or(Ok(()), |floor| must_fit(grant, &request.name, request.count, floor, request.ceiling))
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

    #[test]
    fn reserve_takes_from_the_stored_sequence_or_a_new_one() {
        let request = Reserve::new(SequenceName::new("s").unwrap(), 5).ceiling(100);
        assert_eq!(decide(None, &request, None).unwrap_err().kind(), ErrorKind::NotFound);
        let create = request.clone().create(Bounds::new(1, 7).unwrap());
        let (stored, grant) = decide(None, &create, None).unwrap();
        assert_eq!((stored.next, grant.range.len()), (Some(6), 5));
        let (after, grant) = decide(Some(stored.clone()), &request, None).unwrap();
        assert_eq!((after.next, grant.range.len()), (None, 2));
        let few = decide(Some(stored), &request, Some(0)).unwrap_err();
        assert_eq!(few.kind(), ErrorKind::Exhausted);
    }
}
