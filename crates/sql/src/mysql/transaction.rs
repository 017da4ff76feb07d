//! Draws inside a transaction of the caller: usually one round trip, at any isolation level. The
//! row is locked from the first id to the end of the transaction.

use idmill::store::Reserve;
use idmill::{IdRange, Result};
use idmill_kit::history::Failover;

use super::history::in_transaction;
use super::reserve::Reserving;
use super::table::Table;
use crate::Executor;
use crate::history::History;
use crate::transaction::{self, FailsOver};

/// A table in the database that the connection uses.
#[derive(Clone, Debug)]
pub struct Draws {
    table: Table,
    history: History,
}

impl transaction::Draws for Draws {
    fn of_table(table: &str) -> Result<Self> {
        Ok(Self { table: Table::new(table)?, history: in_transaction(Failover::default()) })
    }

    fn in_table(self, table: &str) -> Result<Self> {
        Ok(Self { table: Table::new(table)?, ..self })
    }

    async fn draw<E: Executor>(&self, executor: &mut E, request: &Reserve, floor: u64) -> Result<IdRange> {
        let reserving = Reserving { table: &self.table, history: self.history, request, floor: Some(floor) };
        let range = reserving.run(executor, &mut None).await?;
        if E::COUNTS_MATCHED {
            reserving.must_have_moved(executor, range).await?;
        }
        Ok(range)
    }
}

impl FailsOver for Draws {
    fn failover(self, failover: Failover) -> Self {
        Self { history: in_transaction(failover), ..self }
    }
}
