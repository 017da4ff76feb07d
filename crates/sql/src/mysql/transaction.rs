//! Draws inside a transaction of the caller: usually one round trip, at any isolation level. The
//! row is locked from the first id to the end of the transaction.

use idmill::store::Reserve;
use idmill::{IdRange, Result};
use idmill_kit::history::Failover;

use super::history::History;
use super::reserve::Reserving;
use super::table::{DEFAULT_TABLE, Table};
use crate::Executor;
use crate::transaction::{self, FailsOver};

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

    async fn draw<E: Executor>(&self, executor: &mut E, request: &Reserve, floor: u64) -> Result<IdRange> {
        let reserving = Reserving { table: &self.table, history: self.history, request, floor: Some(floor) };
        reserving.run(executor, &mut None).await
    }
}

impl FailsOver for Draws {
    fn failover(self, failover: Failover) -> Self {
        Self { history: History::in_transaction(failover), ..self }
    }
}
