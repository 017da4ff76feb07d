//! Reserves ids, usually in one round trip.
//!
//! 1. The store sends `findAndModify` with `$inc`, on condition that the ids fit. The server checks the
//!    condition and increments the counter atomically.
//! 2. If no document matched, the store reads the sequence's document. If this document is missing, the store
//!    inserts one with the first range already taken, or begins again if another process was faster. If fewer
//!    ids are left than requested, the store takes them on condition that the document is unchanged.
//!    Otherwise the stored max differs from the expected max, or the document has changed, and the store
//!    repeats the first step with the stored max.
//!
//! A command is resent only if the server reported that it did not apply the first attempt.

use idmill::Result;
use idmill::store::{Grant, Reserve, SequenceInfo};
use idmill_kit::{Contention, decide};

use super::connection::{Commands, TxSession};
use super::schema;

/// Maximum number of retries after an insert failed as a duplicate although the document is missing. Either
/// the document was removed each time, which is rare, or another unique index rejects it.
pub(super) const DUPLICATES: usize = 3;

/// Reserves ids; `hint` is the expected max of the sequence. A reserve for a transaction has a `floor`: see
/// [`decide`].
pub(super) async fn reserve(
    commands: &Commands,
    mut session: TxSession<'_>,
    request: &Reserve,
    hint: Option<u64>,
    floor: Option<u64>,
) -> Result<Grant> {
    request.create.map(schema::storable).transpose()?;
    let (mut max, mut duplicates) = (hint.unwrap_or_else(|| schema::likely_max(request)), 0);
    let mut contest = Contention::new().begin();
    loop {
        if let Some(guard) = schema::with_room(request, max.min(request.ceiling), floor.unwrap_or(0)) {
            let advance = schema::advance(request.count);
            if let Some(document) = commands.modify(session.as_deref_mut(), guard, advance).await? {
                return schema::advanced(&document, request);
            }
        }
        let found = commands.find(session.as_deref_mut(), schema::by_name(&request.name)).await?;
        match found.map(|document| schema::decode(&document, &request.name)).transpose()? {
            None => match begin(commands, session.as_deref_mut(), request, floor).await? {
                Ok(grant) => return Ok(grant),
                Err(duplicate) if duplicates >= DUPLICATES => return Err(duplicate),
                Err(_) => duplicates += 1,
            },
            Some(seen) => {
                duplicates = 0;
                max = seen.bounds.max();
                if let Some(grant) = tail(commands, session.as_deref_mut(), request, &seen, floor).await? {
                    return Ok(grant);
                }
            }
        }
        contest.lost(None).await?;
    }
}

/// Creates the sequence with the first range taken. Returns the inner error if the insert was a duplicate.
async fn begin(
    commands: &Commands,
    session: TxSession<'_>,
    request: &Reserve,
    floor: Option<u64>,
) -> Result<Result<Grant>> {
    let fresh = SequenceInfo::new(request.name.clone(), schema::storable(request.creation()?)?);
    let (info, grant) = decide(Some(fresh), request, floor)?;
    let in_transaction = session.is_some();
    match commands.insert(session, schema::encode(&info)).await? {
        None => Ok(Ok(grant)),
        // In a transaction, a duplicate is not retried, because the error has aborted the transaction.
        Some(duplicate) if in_transaction => Err(duplicate),
        Some(duplicate) => Ok(Err(duplicate)),
    }
}

/// Takes the remaining ids if they are fewer than requested. Returns `None` if enough ids are left, or if
/// the document has changed.
async fn tail(
    commands: &Commands,
    session: TxSession<'_>,
    request: &Reserve,
    seen: &SequenceInfo,
    floor: Option<u64>,
) -> Result<Option<Grant>> {
    let (after, grant) = decide(Some(seen.clone()), request, floor)?;
    if grant.range.len() == request.count {
        return Ok(None);
    }
    let modified = commands.modify(session, schema::unchanged(seen), schema::replace(&after)).await?;
    Ok(modified.map(|_| grant))
}
