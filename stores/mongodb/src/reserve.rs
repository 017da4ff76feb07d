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
use idmill_kit::{Asked, Contention, must_fit};

use super::classify::{Fault, failed, is_duplicate};
use super::commands::{Commands, TxSession};
use super::schema;

/// Maximum number of retries after an insert failed as a duplicate although the document is missing. Either
/// the document was removed each time, which is rare, or another unique index rejects it.
pub(super) const DUPLICATES: usize = 3;

/// Whether a grant may have fewer ids than requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Yes: take up to the requested number of ids.
    UpTo,
    /// No: take the requested number of ids, all at or above `floor`, or fail.
    Exactly { floor: u64 },
}

impl Fit {
    fn floor(self) -> u64 {
        match self {
            Self::UpTo => 0,
            Self::Exactly { floor } => floor,
        }
    }

    /// Returns an error if this grant may not be taken.
    fn check(self, grant: &Grant, request: &Reserve) -> Result<()> {
        let Self::Exactly { floor } = self else { return Ok(()) };
        must_fit(grant, &request.name, request.count, floor, request.ceiling)
    }
}

/// Reserves ids; `hint` is the expected max of the sequence.
pub(super) async fn reserve(
    commands: &Commands,
    mut session: TxSession<'_>,
    request: &Reserve,
    hint: Option<u64>,
    fit: Fit,
) -> Result<Grant> {
    let asked = if session.is_some() { Asked::InTransaction } else { Asked::Write };
    request.create.map(schema::storable).transpose()?;
    let (mut max, mut duplicates) = (hint.unwrap_or_else(|| schema::likely_max(request)), 0);
    let mut contest = Contention::new().begin();
    loop {
        if let Some(guard) = schema::with_room(request, max.min(request.ceiling), fit.floor()) {
            let advance = schema::advance(request.count);
            let outcome = commands.modify(session.as_deref_mut(), guard, advance).await;
            if let Some(document) = outcome.map_err(|fault| failed(&fault, asked))? {
                return schema::advanced(&document, request);
            }
        }
        match seen(commands, session.as_deref_mut(), request).await? {
            None => match begin(commands, session.as_deref_mut(), request, fit).await? {
                Ok(grant) => return Ok(grant),
                Err(fault) if duplicates >= DUPLICATES => return Err(failed(&fault, asked)),
                Err(_) => duplicates += 1,
            },
            Some(seen) => {
                duplicates = 0;
                max = seen.bounds.max();
                if let Some(grant) = tail(commands, session.as_deref_mut(), request, &seen, fit).await? {
                    return Ok(grant);
                }
            }
        }
        contest.lost(None).await?;
    }
}

/// Reads the current state of the sequence.
async fn seen(
    commands: &Commands,
    session: TxSession<'_>,
    request: &Reserve,
) -> Result<Option<SequenceInfo>> {
    let asked = if session.is_some() { Asked::InTransaction } else { Asked::Read };
    let found = commands.find(session, schema::by_name(&request.name)).await;
    let found = found.map_err(|fault| failed(&fault, asked))?;
    found.map(|document| schema::decode(&document, &request.name)).transpose()
}

/// Creates the sequence with the first range taken. Returns the inner error if the insert was a duplicate.
async fn begin(
    commands: &Commands,
    session: TxSession<'_>,
    request: &Reserve,
    fit: Fit,
) -> Result<Result<Grant, Fault>> {
    let mut info = SequenceInfo::new(request.name.clone(), schema::storable(request.creation()?)?);
    let grant = info.grant(request.count, request.ceiling)?;
    fit.check(&grant, request)?;
    let in_transaction = session.is_some();
    match commands.insert(session, schema::encode(&info)).await {
        Ok(()) => Ok(Ok(grant)),
        // In a transaction, a duplicate is not retried, because the error has aborted the transaction.
        Err(fault) if is_duplicate(&fault) && !in_transaction => Ok(Err(fault)),
        Err(fault) => {
            let asked = if in_transaction { Asked::InTransaction } else { Asked::Write };
            Err(failed(&fault, asked))
        }
    }
}

/// Takes the remaining ids if they are fewer than requested. Returns `None` if enough ids are left, or if
/// the document has changed.
async fn tail(
    commands: &Commands,
    session: TxSession<'_>,
    request: &Reserve,
    seen: &SequenceInfo,
    fit: Fit,
) -> Result<Option<Grant>> {
    let mut after = seen.clone();
    let grant = after.grant(request.count, request.ceiling)?;
    fit.check(&grant, request)?;
    if grant.range.len() == request.count {
        return Ok(None);
    }
    let asked = if session.is_some() { Asked::InTransaction } else { Asked::Write };
    let outcome = commands.modify(session, schema::unchanged(seen), schema::replace(&after)).await;
    Ok(outcome.map_err(|fault| failed(&fault, asked))?.map(|_| grant))
}
