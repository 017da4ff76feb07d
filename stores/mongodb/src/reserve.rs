//! Reserving, on the server, in one round trip as a rule.
//!
//! 1. `findAndModify` with `$inc`, under the condition that the ids fit. It is atomic on the one document.
//! 2. If that matched nothing, the document is read. If it is missing, it is inserted with the first range
//!    taken; a process that loses that race begins again. If it has fewer ids left than were asked for, they
//!    are taken under the condition that nothing has changed. Otherwise its max was not the expected one, and
//!    step 1 is done again with the one it has.
//!
//! Nothing is ever sent again unless the server said that it did nothing.

use idmill::Result;
use idmill::store::{Grant, Reserve, SequenceInfo};
use idmill_kit::{Asked, Contention, must_fit};

use super::classify::{Fault, failed};
use super::commands::{Commands, Session};
use super::schema;

/// How often a document may be called a duplicate although there is none: it was removed each time, which is
/// rare, or another unique index refuses it.
pub(super) const DUPLICATES: usize = 3;

/// Whether fewer ids than were asked for are of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// What is left of the sequence.
    UpTo,
    /// All of them or none, and none below this id.
    Exactly { floor: u64 },
}

impl Fit {
    fn floor(self) -> u64 {
        match self {
            Self::UpTo => 0,
            Self::Exactly { floor } => floor,
        }
    }

    /// Whether this grant may be taken.
    fn check(self, grant: &Grant, request: &Reserve) -> Result<()> {
        let Self::Exactly { floor } = self else { return Ok(()) };
        must_fit(grant, &request.name, request.count, floor, request.ceiling)
    }
}

/// Reserves; `hint` is the max that the sequence is thought to have.
pub(super) async fn reserve(
    commands: &Commands,
    mut session: Session<'_>,
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

/// The sequence as it is now.
async fn seen(commands: &Commands, session: Session<'_>, request: &Reserve) -> Result<Option<SequenceInfo>> {
    let asked = if session.is_some() { Asked::InTransaction } else { Asked::Read };
    let found = commands.find(session, schema::by_name(&request.name)).await;
    let found = found.map_err(|fault| failed(&fault, asked))?;
    found.map(|document| schema::decode(&document, &request.name)).transpose()
}

/// Creates the sequence with the first range taken; the inner error says that it was created meanwhile.
async fn begin(
    commands: &Commands,
    session: Session<'_>,
    request: &Reserve,
    fit: Fit,
) -> Result<Result<Grant, Fault>> {
    let mut info = SequenceInfo::new(request.name.clone(), schema::storable(request.creation()?)?);
    let grant = info.grant(request.count, request.ceiling)?;
    fit.check(&grant, request)?;
    let in_transaction = session.is_some();
    match commands.insert(session, schema::encode(&info)).await {
        Ok(()) => Ok(Ok(grant)),
        // A transaction has ended with that.
        Err(fault) if fault.is_duplicate() && !in_transaction => Ok(Err(fault)),
        Err(fault) => {
            let asked = if in_transaction { Asked::InTransaction } else { Asked::Write };
            Err(failed(&fault, asked))
        }
    }
}

/// Takes what is left, should that be less than was asked for; `None` if it is not, or no longer there.
async fn tail(
    commands: &Commands,
    session: Session<'_>,
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
