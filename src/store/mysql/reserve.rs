//! Reserving, on the server, in one round trip as a rule.
//!
//! 1. `UPDATE … SET next = LAST_INSERT_ID(next) + count`, under the condition that bounds and
//!    identity are those that are known, and that the ids fit. It is atomic on the one row, and
//!    its answer has the first id.
//! 2. If that changed nothing, the row is read. If it is missing, it is inserted with the first range
//!    taken; a process that loses that race begins again. If it has fewer ids left than were asked for, or
//!    just as many, they are taken under the condition that nothing has changed. Otherwise something had
//!    changed, and step 1 is done again.
//!
//! Nothing is ever sent again unless the server said that it did nothing.

use mysql_async::Conn;

use super::classify::{Asked, Fault, failed};
use super::database::{Database, Session, Written, rows, write};
use super::schema::{Known, Table, fresh};
use crate::error::{Error, ErrorKind, Result};
use crate::name::SequenceName;
use crate::range::Range;
use crate::store::{Grant, Reserve, SequenceInfo};

/// How often others may get in between before a call gives up. Each time one of them makes progress.
pub(super) const TRIES: usize = 200;

/// How often a row may be called a duplicate although there is none: it was removed each time, which is rare,
/// or another unique index refuses it.
pub(super) const DUPLICATES: usize = 3;

/// Reserves, starting from what is known of the sequence; leaves there what was found out.
pub(super) async fn reserve(
    database: &Database,
    connection: &mut Conn,
    request: &Reserve,
    known: &mut Option<Known>,
) -> Result<Grant> {
    let mut duplicates = 0;
    for _ in 0..TRIES {
        if let Some(known) = *known
            && let Some(grant) =
                database.within(Asked::Write, advance(connection, &database.table, request, known)).await?
        {
            return Ok(grant);
        }
        let read = read_to_write(connection, &database.table, &request.name);
        match database.within(Asked::Read, read).await?.transpose()? {
            None => {
                let (info, grant) = first(request)?;
                match database.attempt(write(connection, &database.table.insert(&info))).await {
                    Ok(_) => {
                        *known = Some(Known::of(&info));
                        return Ok(grant);
                    }
                    Err(fault) if fault.is_duplicate() && duplicates < DUPLICATES => duplicates += 1,
                    Err(fault) => return Err(failed(fault, Asked::Write)),
                }
            }
            Some(seen) => {
                duplicates = 0;
                *known = Some(Known::of(&seen));
                if let Some(grant) = last(database, connection, request, &seen).await? {
                    return Ok(grant);
                }
            }
        }
    }
    Err(crowded())
}

/// Takes what was asked for, if there is room for it and all is as it is known to be.
async fn advance<S: Session>(
    session: &mut S,
    table: &Table,
    request: &Reserve,
    known: Known,
) -> Result<Option<Grant>, Fault> {
    let Some(room) = known.room(request) else { return Ok(None) };
    let written = write(session, &table.advance(request, known, room)).await?;
    let Some(range) = taken(written, request.count, room)? else { return Ok(None) };
    Ok(Some(Grant { range, identity: known.identity, bounds: known.bounds }))
}

/// The range that an answer speaks of. What cannot be an answer is refused: somebody's
/// trigger, or a proxy's invention.
pub(super) fn taken(written: Written, count: u64, (low, high): (u64, u64)) -> Result<Option<Range>, Fault> {
    if written.rows == 0 {
        return Ok(None);
    }
    let first = written.insert_id.unwrap_or(0);
    let range = Range::new(first, count);
    match range.filter(|_| written.rows == 1 && (low..=high).contains(&first)) {
        Some(range) => Ok(Some(range)),
        None => Err(Fault::Answer(format!(
            "the answer is {} rows and the id {first}, where one row and an id from {low} to {high} can be; look for a trigger \
             on the table, or a proxy that does not pass LAST_INSERT_ID on",
            written.rows
        ))),
    }
}

/// A new sequence from which the first range is taken.
pub(super) fn first(request: &Reserve) -> Result<(SequenceInfo, Grant)> {
    let mut info = fresh(&request.name, request.creation()?);
    let grant = info.grant(request.count, request.ceiling)?;
    Ok((info, grant))
}

/// Takes what step 1 does not: less than was asked for, or all up to the end, or the id 0. `None` if there is
/// more, or no longer what was seen.
async fn last(
    database: &Database,
    connection: &mut Conn,
    request: &Reserve,
    seen: &SequenceInfo,
) -> Result<Option<Grant>> {
    let mut after = seen.clone();
    let grant = after.grant(request.count, request.ceiling)?;
    let room = Known::of(seen).room(request);
    if room.is_some_and(|(low, high)| (low..=high).contains(&grant.range.start())) {
        return Ok(None);
    }
    let replace = database.table.replace(seen, &after);
    let written = database.within(Asked::Write, write(connection, &replace)).await?;
    Ok((written.rows == 1).then_some(grant))
}

/// The row as it is, to decide a write by; the inner error says what is wrong with it.
pub(super) async fn read_to_write<S: Session>(
    session: &mut S,
    table: &Table,
    name: &SequenceName,
) -> Result<Option<Result<SequenceInfo>>, Fault> {
    let mut found = rows(session, &table.select_to_write(name)).await?;
    Ok(found.pop().map(|row| table.decode(row)))
}

/// Others were always faster; nothing was done.
pub(super) fn crowded() -> Error {
    let message = format!(
        "others changed the sequence each of the {TRIES} times that this was tried, or a trigger undoes it; try again"
    );
    Error::new(ErrorKind::Unavailable, message)
}
