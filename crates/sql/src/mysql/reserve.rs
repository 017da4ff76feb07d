//! Reserves ids on the server, usually in one round trip.
//!
//! 1. `UPDATE … SET next = LAST_INSERT_ID(next) + count`, on condition that the ids fit and that bounds and
//!    identity are the cached ones. The statement is atomic, and its answer has the first id. In a
//!    transaction of the caller, nothing is cached: the ids only have to fit the row's own bounds.
//! 2. If step 1 changed nothing, the row is read.
//!    - If it is missing and the request may create it, it is inserted with the first range taken. If another
//!      process inserts the row first, step 1 is repeated.
//!    - If another server wrote it last, the failover policy applies (`adopt`), and step 1 may be
//!      repeated.
//!    - If it has at most the requested number of ids left, they are taken on condition that the
//!      row is unchanged.
//!    - Otherwise nothing was cached or the row had changed, and step 1 is repeated.
//!
//! A statement is sent again only if the server reported that it had no effect.

use idmill::store::{Reserve, SequenceInfo};
use idmill::{Error, ErrorKind, IdRange, Result, SequenceName};
use idmill_kit::decide;
use idmill_kit::history::Histories;

use super::classify::{failed, is_duplicate};
use super::run::{read, text};
use super::table::{Fixed, HISTORY, Table};
use crate::executor::to_write;
use crate::history::{History, RowHistory};
use crate::{Answer, Executor, Fault, Statement};

/// The position of the row's history, in a row that is read before a write. The current history
/// follows it.
const WAS_AT: usize = 7;

/// The number of tries before a call gives up because others changed the row. Each time, another
/// caller makes progress.
pub(super) const TRIES: usize = 200;

/// How often an insert may fail as a duplicate although no row is found. Either the row was removed
/// each time, which is rare, or another unique index rejects it.
pub(super) const DUPLICATES: usize = 3;

/// One reserve. In a transaction of the caller it has a floor: it takes exactly the requested number of ids,
/// none below the floor. Such a reserve has no cached state, and its read locks the row, so the row does not
/// change before the write.
pub(super) struct Reserving<'a> {
    pub(super) table: &'a Table,
    pub(super) history: History,
    pub(super) request: &'a Reserve,
    pub(super) floor: Option<u64>,
}

impl Reserving<'_> {
    /// Starts from the cached state of the sequence, and updates it.
    pub(super) async fn run<E: Executor>(
        &self,
        executor: &mut E,
        known: &mut Option<Fixed>,
    ) -> Result<IdRange> {
        let mut duplicates = 0;
        // In a transaction, the second pass is needed if another transaction has just created the
        // sequence and committed, or if another server had written it.
        for _ in 0..if E::IN_TRANSACTION { 2 } else { TRIES } {
            if let Some(range) = self.advance(executor, *known).await? {
                return Ok(range);
            }
            let Some(seen) = read_to_write(executor, self.table, &self.request.name).await? else {
                let (info, grant) = decide(None, self.request, self.floor)?;
                match self.history.try_write(executor, &self.table.insert(&info, self.history)).await {
                    Ok(_) => {
                        *known = Some(Fixed::of(&info));
                        return Ok(grant.range);
                    }
                    Err(fault) if is_duplicate(&fault) && duplicates < DUPLICATES => duplicates += 1,
                    Err(fault) => return Err(failed(fault, to_write::<E>())),
                }
                continue;
            };
            duplicates = 0;
            *known = Some(Fixed::of(&seen.info));
            if let Some(histories) = seen.moved().filter(|_| self.history.here.is_some()) {
                self.adopt(executor, &seen.info, histories).await?;
            } else if let Some(range) = self.last(executor, &seen.info).await? {
                return Ok(range);
            }
        }
        Err(if E::IN_TRANSACTION { unseen() } else { crowded() })
    }

    /// Takes the requested ids if they fit and the row matches the cached state.
    async fn advance<E: Executor>(&self, executor: &mut E, known: Option<Fixed>) -> Result<Option<IdRange>> {
        let Self { table, history, request, floor } = *self;
        let step = match floor {
            None => known.and_then(|known| {
                let room = known.room(request)?;
                Some((table.advance(request, known, room, history), room))
            }),
            Some(floor) => table
                .advance_any(request, floor, history)
                .map(|sql| (Statement::write(sql, []), (floor.max(1), request.ceiling))),
        };
        let Some((statement, room)) = step else { return Ok(None) };
        let answer = history.send(executor, statement).await;
        answer
            .and_then(|answer| taken(&answer, request.count, room))
            .map_err(|fault| failed(fault, to_write::<E>()))
    }

    /// Takes ids that step 1 cannot: fewer than requested, all up to the end, or the id 0. Returns
    /// `None` if more ids are left or the row has changed.
    async fn last<E: Executor>(&self, executor: &mut E, seen: &SequenceInfo) -> Result<Option<IdRange>> {
        let (after, grant) = decide(Some(seen.clone()), self.request, self.floor)?;
        let room = Fixed::of(seen).room(self.request).filter(|_| !E::IN_TRANSACTION);
        if room.is_some_and(|(low, high)| (low..=high).contains(&grant.range.start())) {
            return Ok(None);
        }
        let history = self.history;
        let update = self.table.replace(seen, &after, &history.sets(), history) + &history.holds(HISTORY);
        let done = history.write(executor, &update).await?.changed == 1;
        if E::IN_TRANSACTION && !done {
            return Err(undone::<E>());
        }
        Ok(done.then_some(grant.range))
    }

    /// Checks that a write in a transaction was not undone by a trigger.
    pub(super) async fn must_have_moved<E: Executor>(&self, executor: &mut E, range: IdRange) -> Result<()> {
        let seen = read_to_write(executor, self.table, &self.request.name).await?;
        let moved = seen.is_some_and(|seen| seen.info.reached() == range.end());
        if moved { Ok(()) } else { Err(undone::<E>()) }
    }

    /// Moves a row of another history to the current one, if it is still as it was read. Later processes then
    /// find the row in the current history.
    async fn adopt<E: Executor>(
        &self,
        executor: &mut E,
        seen: &SequenceInfo,
        histories: Histories<'_>,
    ) -> Result<()> {
        let Self { table, history, .. } = *self;
        let after = history.failover.adopt(seen, histories)?;
        if history.write(executor, &table.adopt(seen, &after, histories.was, history)).await?.changed == 1 {
            history.failover.report(&seen.name, histories);
        }
        Ok(())
    }
}

fn undone<E: Executor>() -> Error {
    let message = "an update of a locked row changed nothing; check triggers on the table";
    failed(Fault::Answer(message.to_owned()), to_write::<E>())
}

/// Returns the range in an answer. An impossible answer is rejected: it comes from a trigger or a
/// proxy.
fn taken(answer: &Answer, count: u64, (low, high): (u64, u64)) -> Result<Option<IdRange>, Fault> {
    if answer.changed == 0 {
        return Ok(None);
    }
    let first = answer.insert_id.unwrap_or(0);
    let range = IdRange::new(first, count);
    match range.filter(|_| answer.changed == 1 && (low..=high).contains(&first)) {
        Some(range) => Ok(Some(range)),
        None => Err(Fault::Answer(format!(
            "{} rows changed, id {first} returned; expected 1 row, id {low} to {high}; check triggers and \
             LAST_INSERT_ID in proxies",
            answer.changed
        ))),
    }
}

/// Reads the current row, as the basis of a write.
pub(super) async fn read_to_write<E: Executor>(
    executor: &mut E,
    table: &Table,
    name: &SequenceName,
) -> Result<Option<RowHistory>> {
    let found = read(executor, &table.select_to_write(name)).await?;
    let told = |row, column| text(row, column).map(str::to_owned);
    let seen = |row| {
        Ok(RowHistory { info: table.decode(row)?, was: told(row, WAS_AT), here: told(row, WAS_AT + 1) })
    };
    found.last().map(seen).transpose()
}

/// The error after too many concurrent changes; nothing was reserved.
pub(super) fn crowded() -> Error {
    let message =
        format!("other processes, or a trigger, changed the sequence in each of {TRIES} attempts; try again");
    Error::new(ErrorKind::Unavailable, message)
}

/// The error in a transaction of the caller if the row can be neither inserted nor read.
fn unseen() -> Error {
    let message = "the row cannot be inserted or read, because of another unique index; \
                   use a table created by idmill";
    Error::new(ErrorKind::Conflict, message)
}
