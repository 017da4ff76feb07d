//! Reserving, on the server, in one round trip as a rule.
//!
//! 1. `UPDATE … SET next = LAST_INSERT_ID(next) + count`, under the condition that bounds and
//!    identity are those that are known, and that the ids fit. It is atomic on the one row, and
//!    its answer has the first id. In a transaction of the caller's the condition is on the row alone.
//! 2. If that changed nothing, the row is read. If it is missing, it is inserted with the first range
//!    taken; a process that loses that race begins again. If another server wrote it last, that is decided
//!    (`adopt.rs`), and step 1 may be done again. If it has fewer ids left than were asked for, or
//!    just as many, they are taken under the condition that nothing has changed. Otherwise something had
//!    changed, and step 1 is done again.
//!
//! Nothing is ever sent again unless the server said that it did nothing.

use idmill::store::{Reserve, SequenceInfo};
use idmill::{Error, ErrorKind, IdRange, Result, SequenceName};
use idmill_kit::history::Histories;

use super::classify::{failed, is_duplicate};
use super::history::History;
use super::run::{read, text, try_write, write};
use super::table::{Known, Table};
use crate::executor::to_write;
use crate::history::Seen;
use crate::rows::decide;
use crate::{Answer, Executor, Fault, Statement};

/// Where a row that is read to be written has the history that it was written in. The present one is behind
/// it.
const WAS_AT: usize = 7;

/// How often others may get in between before a call gives up. Each time one of them makes progress.
pub(super) const TRIES: usize = 200;

/// How often a row may be called a duplicate although there is none: it was removed each time, which is rare,
/// or another unique index refuses it.
pub(super) const DUPLICATES: usize = 3;

/// One reserve; with a floor, of all that was asked for and nothing below, in a transaction of the caller's. That
/// one knows nothing of the sequence before, and locks its row: nobody changes it in between.
pub(super) struct Reserving<'a> {
    pub(super) table: &'a Table,
    pub(super) history: History,
    pub(super) request: &'a Reserve,
    pub(super) floor: Option<u64>,
}

impl Reserving<'_> {
    /// Starts from what is known of the sequence, and leaves there what was found out.
    pub(super) async fn run<E: Executor>(
        &self,
        executor: &mut E,
        known: &mut Option<Known>,
    ) -> Result<IdRange> {
        let mut duplicates = 0;
        // In a transaction, a second time where another has created the sequence meanwhile, and committed, or
        // where another server had written it.
        for _ in 0..if E::IN_TRANSACTION { 2 } else { TRIES } {
            if let Some(range) = self.advance(executor, *known).await? {
                return Ok(range);
            }
            let Some(seen) = read_to_write(executor, self.table, &self.request.name).await? else {
                let (info, grant) = decide(None, self.request, self.floor)?;
                match try_write(executor, &self.table.insert(&info, self.history)).await {
                    Ok(_) => {
                        *known = Some(Known::of(&info));
                        return Ok(grant.range);
                    }
                    Err(fault) if is_duplicate(&fault) && duplicates < DUPLICATES => duplicates += 1,
                    Err(fault) => return Err(failed(fault, to_write::<E>())),
                }
                continue;
            };
            duplicates = 0;
            *known = Some(Known::of(&seen.info));
            if let Some(histories) = seen.moved().filter(|_| self.history.looks) {
                self.adopt(executor, &seen.info, histories).await?;
            } else if let Some(range) = self.last(executor, &seen.info).await? {
                return Ok(range);
            }
        }
        Err(if E::IN_TRANSACTION { unseen() } else { crowded() })
    }

    /// Takes what was asked for, if there is room for it and all is as it is known to be.
    async fn advance<E: Executor>(&self, executor: &mut E, known: Option<Known>) -> Result<Option<IdRange>> {
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
        let answer = executor.execute(statement).await;
        answer
            .and_then(|answer| taken(&answer, request.count, room))
            .map_err(|fault| failed(fault, to_write::<E>()))
    }

    /// Takes what step 1 does not: less than was asked for, or all up to the end, or the id 0. `None` if there
    /// is more, or no longer what was seen.
    async fn last<E: Executor>(&self, executor: &mut E, seen: &SequenceInfo) -> Result<Option<IdRange>> {
        let (after, grant) = decide(Some(seen.clone()), self.request, self.floor)?;
        let room = Known::of(seen).room(self.request).filter(|_| !E::IN_TRANSACTION);
        if room.is_some_and(|(low, high)| (low..=high).contains(&grant.range.start())) {
            return Ok(None);
        }
        let update = self.table.replace(seen, &after, &self.history.sets()) + &self.history.holds();
        let done = write(executor, &update).await?.changed == 1;
        if E::IN_TRANSACTION && !done {
            let message = "a change of a row that is locked changed nothing; look for a trigger";
            return Err(failed(Fault::Answer(message.to_owned()), to_write::<E>()));
        }
        Ok(done.then_some(grant.range))
    }

    /// Has a row of another history go on here, if it is still as it was seen. Later processes find it changed.
    async fn adopt<E: Executor>(
        &self,
        executor: &mut E,
        seen: &SequenceInfo,
        histories: Histories<'_>,
    ) -> Result<()> {
        let Self { table, history, .. } = *self;
        let after = history.failover.adopt(seen, histories)?;
        if write(executor, &table.adopt(seen, &after, histories.was, history)).await?.changed == 1 {
            history.failover.report(&seen.name, histories);
        }
        Ok(())
    }
}

/// The range that an answer speaks of. What cannot be an answer is refused: somebody's
/// trigger, or a proxy's invention.
fn taken(answer: &Answer, count: u64, (low, high): (u64, u64)) -> Result<Option<IdRange>, Fault> {
    if answer.changed == 0 {
        return Ok(None);
    }
    let first = answer.insert_id.unwrap_or(0);
    let range = IdRange::new(first, count);
    match range.filter(|_| answer.changed == 1 && (low..=high).contains(&first)) {
        Some(range) => Ok(Some(range)),
        None => Err(Fault::Answer(format!(
            "the answer is {} rows and the id {first}, where one row and an id from {low} to {high} can be; look for a trigger \
             on the table, or a proxy that does not pass LAST_INSERT_ID on",
            answer.changed
        ))),
    }
}

/// The row as it is, to decide a write by.
pub(super) async fn read_to_write<E: Executor>(
    executor: &mut E,
    table: &Table,
    name: &SequenceName,
) -> Result<Option<Seen>> {
    let found = read(executor, &table.select_to_write(name)).await?;
    let told = |row, column| text(row, column).map(str::to_owned);
    let seen =
        |row| Ok(Seen { info: table.decode(row)?, was: told(row, WAS_AT), here: told(row, WAS_AT + 1) });
    found.last().map(seen).transpose()
}

/// Others were always faster; nothing was done.
pub(super) fn crowded() -> Error {
    let message = format!(
        "others changed the sequence each of the {TRIES} times that this was tried, or a trigger undoes it; try again"
    );
    Error::new(ErrorKind::Unavailable, message)
}

/// In a transaction of the caller's.
fn unseen() -> Error {
    let message =
        "a row of this sequence is there and cannot be seen: a unique index of somebody's, or another format";
    Error::new(ErrorKind::Conflict, message)
}
