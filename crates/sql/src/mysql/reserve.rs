//! Reserving, on the server, in one round trip as a rule.
//!
//! 1. `UPDATE … SET next = LAST_INSERT_ID(next) + count`, under the condition that bounds and
//!    identity are those that are known, and that the ids fit. It is atomic on the one row, and
//!    its answer has the first id.
//! 2. If that changed nothing, the row is read. If it is missing, it is inserted with the first range
//!    taken; a process that loses that race begins again. If another server wrote it last, that is decided
//!    (`adopt.rs`), and step 1 may be done again. If it has fewer ids left than were asked for, or
//!    just as many, they are taken under the condition that nothing has changed. Otherwise something had
//!    changed, and step 1 is done again.
//!
//! Nothing is ever sent again unless the server said that it did nothing.

use idmill::store::{Grant, Reserve, SequenceInfo};
use idmill::{Error, ErrorKind, Range, Result, SequenceName};

use super::adopt::{Seen, adopt};
use super::classify::{failed, is_duplicate};
use super::history::History;
use super::run::{read, try_write, write};
use super::table::{Known, Table};
use crate::executor::to_write;
use crate::rows::first;
use crate::{Answer, Executor, Fault};

/// How often others may get in between before a call gives up. Each time one of them makes progress.
pub(super) const TRIES: usize = 200;

/// How often a row may be called a duplicate although there is none: it was removed each time, which is rare,
/// or another unique index refuses it.
pub(super) const DUPLICATES: usize = 3;

/// Reserves, starting from what is known of the sequence; leaves there what was found out.
pub(super) async fn reserve<E: Executor>(
    executor: &mut E,
    table: &Table,
    history: History,
    request: &Reserve,
    known: &mut Option<Known>,
) -> Result<Grant> {
    let mut duplicates = 0;
    for _ in 0..TRIES {
        if let Some(known) = *known
            && let Some(grant) = advance(executor, table, history, request, known).await?
        {
            return Ok(grant);
        }
        if let Some(seen) = read_to_write(executor, table, &request.name).await? {
            duplicates = 0;
            *known = Some(Known::of(&seen.info));
            if let Some(histories) = seen.differs(history) {
                adopt(executor, table, history, &seen.info, histories).await?;
                continue;
            }
            if let Some(grant) = last(executor, table, history, request, &seen.info).await? {
                return Ok(grant);
            }
            continue;
        }
        let (info, grant) = first(request)?;
        match try_write(executor, &table.insert(&info, history)).await {
            Ok(_) => {
                *known = Some(Known::of(&info));
                return Ok(grant);
            }
            Err(fault) if is_duplicate(&fault) && duplicates < DUPLICATES => duplicates += 1,
            Err(fault) => return Err(failed(fault, to_write::<E>())),
        }
    }
    Err(crowded())
}

/// Takes what was asked for, if there is room for it and all is as it is known to be.
async fn advance<E: Executor>(
    executor: &mut E,
    table: &Table,
    history: History,
    request: &Reserve,
    known: Known,
) -> Result<Option<Grant>> {
    let Some(room) = known.room(request) else { return Ok(None) };
    let answer = executor.execute(table.advance(request, known, room, history)).await;
    let answer = answer.map_err(|fault| failed(fault, to_write::<E>()))?;
    let taken = taken(&answer, request.count, room).map_err(|fault| failed(fault, to_write::<E>()))?;
    Ok(taken.map(|range| Grant::new(range, known.identity, known.bounds)))
}

/// The range that an answer speaks of. What cannot be an answer is refused: somebody's
/// trigger, or a proxy's invention.
pub(super) fn taken(answer: &Answer, count: u64, (low, high): (u64, u64)) -> Result<Option<Range>, Fault> {
    if answer.changed == 0 {
        return Ok(None);
    }
    let first = answer.insert_id.unwrap_or(0);
    let range = Range::new(first, count);
    match range.filter(|_| answer.changed == 1 && (low..=high).contains(&first)) {
        Some(range) => Ok(Some(range)),
        None => Err(Fault::Answer(format!(
            "the answer is {} rows and the id {first}, where one row and an id from {low} to {high} can be; look for a trigger \
             on the table, or a proxy that does not pass LAST_INSERT_ID on",
            answer.changed
        ))),
    }
}

/// Takes what step 1 does not: less than was asked for, or all up to the end, or the id 0. `None` if there is
/// more, or no longer what was seen.
async fn last<E: Executor>(
    executor: &mut E,
    table: &Table,
    history: History,
    request: &Reserve,
    seen: &SequenceInfo,
) -> Result<Option<Grant>> {
    let mut after = seen.clone();
    let grant = after.grant(request.count, request.ceiling)?;
    let room = Known::of(seen).room(request);
    if room.is_some_and(|(low, high)| (low..=high).contains(&grant.range.start())) {
        return Ok(None);
    }
    let update = table.replace(seen, &after, &history.sets()) + &history.holds();
    let answer = write(executor, &update).await?;
    Ok((answer.changed == 1).then_some(grant))
}

/// The row as it is, to decide a write by.
pub(super) async fn read_to_write<E: Executor>(
    executor: &mut E,
    table: &Table,
    name: &SequenceName,
) -> Result<Option<Seen>> {
    let found = read(executor, &table.select_to_write(name)).await?;
    found.last().map(|row| Seen::read(table, row)).transpose()
}

/// Others were always faster; nothing was done.
pub(super) fn crowded() -> Error {
    let message = format!(
        "others changed the sequence each of the {TRIES} times that this was tried, or a trigger undoes it; try again"
    );
    Error::new(ErrorKind::Unavailable, message)
}
