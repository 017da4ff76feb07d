//! Draws inside a transaction of the caller's: one round trip as a rule, at any isolation level. The row is
//! locked from the first id to the end of the transaction.

use idmill::store::{Reserve, SequenceInfo};
use idmill::{Error, ErrorKind, Range, Result};
use idmill_kit::history::Failover;
use idmill_kit::must_fit;

use super::adopt::adopt;
use super::classify::{failed, is_duplicate};
use super::history::History;
use super::reserve::{read_to_write, taken};
use super::run::{try_write, write};
use super::table::{DEFAULT_TABLE, Table};
use crate::rows::first;
use crate::transaction::{self, FailsOver};
use crate::{Asked, Executor, Fault};

/// A table in the database that the connection uses.
#[derive(Clone, Debug)]
pub struct Draws {
    table: Table,
    history: History,
}

impl transaction::Draws for Draws {
    const DEFAULT_TABLE: &'static str = DEFAULT_TABLE;

    fn of_table(table: &str) -> Result<Self> {
        Ok(Self { table: Table::new(table)?, history: History::in_transaction(Failover::default()) })
    }

    fn in_table(self, table: &str) -> Result<Self> {
        Ok(Self { table: Table::new(table)?, ..self })
    }

    async fn draw<E: Executor>(&self, executor: &mut E, request: &Reserve, floor: u64) -> Result<Range> {
        // A second time where another transaction has created the sequence meanwhile, and committed, or where
        // another server had written it.
        for _ in 0..2 {
            if let Some(range) = self.advance(executor, request, floor).await? {
                return Ok(range);
            }
            let seen = read_to_write(executor, &self.table, &request.name).await?;
            if let Some((seen, histories)) =
                seen.as_ref().and_then(|seen| Some((seen, seen.differs(self.history)?)))
            {
                adopt(executor, &self.table, self.history, &seen.info, histories).await?;
                continue;
            }
            let range = match seen {
                Some(seen) => Some(self.last(executor, request, floor, &seen.info).await?),
                None => self.create(executor, request, floor).await?,
            };
            if let Some(range) = range {
                return Ok(range);
            }
        }
        let message = "a row of this sequence is there and cannot be seen: a unique index of somebody's, or another format";
        Err(Error::new(ErrorKind::Conflict, message))
    }
}

impl FailsOver for Draws {
    fn failover(self, failover: Failover) -> Self {
        Self { history: History::in_transaction(failover), ..self }
    }
}

impl Draws {
    async fn advance<E: Executor>(
        &self,
        transaction: &mut E,
        request: &Reserve,
        floor: u64,
    ) -> Result<Option<Range>> {
        let Some(update) = self.table.advance_any(request, floor, self.history) else { return Ok(None) };
        let answer = write(transaction, &update).await?;
        taken(&answer, request.count, (floor.max(1), request.ceiling)).map_err(within)
    }

    /// What [`advance`](Self::advance) does not take. The row is locked: nobody changes it in between.
    async fn last<E: Executor>(
        &self,
        transaction: &mut E,
        request: &Reserve,
        floor: u64,
        seen: &SequenceInfo,
    ) -> Result<Range> {
        let mut after = seen.clone();
        let grant = after.grant(request.count, request.ceiling)?;
        must_fit(&grant, &request.name, request.count, floor, request.ceiling)?;
        let update = self.table.replace(seen, &after, &self.history.sets());
        if write(transaction, &update).await?.changed == 1 {
            return Ok(grant.range);
        }
        let message = "a change of a row that is locked changed nothing; look for a trigger";
        Err(within(Fault::Answer(message.to_owned())))
    }

    /// `None` if somebody else did.
    async fn create<E: Executor>(
        &self,
        transaction: &mut E,
        request: &Reserve,
        floor: u64,
    ) -> Result<Option<Range>> {
        let (info, grant) = first(request)?;
        must_fit(&grant, &request.name, request.count, floor, request.ceiling)?;
        match try_write(transaction, &self.table.insert(&info, self.history)).await {
            Ok(_) => Ok(Some(grant.range)),
            Err(fault) if is_duplicate(&fault) => Ok(None),
            Err(fault) => Err(within(fault)),
        }
    }
}

fn within(fault: Fault) -> Error {
    failed(fault, Asked::InTransaction)
}
