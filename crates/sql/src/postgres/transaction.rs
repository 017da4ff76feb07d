//! Draws inside a transaction of the caller.

use std::sync::Arc;

use idmill::store::Reserve;
use idmill::{IdRange, Result};
use idmill_kit::history::Failover;

use super::calls::Calls;
use super::history::in_transaction;
use super::table::Table;
use crate::Executor;
use crate::transaction::{Draws, FailsOver};

/// Uses a table without looking for it.
impl Draws for Calls {
    fn of_table(table: &str) -> Result<Self> {
        Table::new(None, table).map(Self::unopened)
    }

    fn in_table(self, table: &str) -> Result<Self> {
        let table = Table::new(self.table.schema(), table)?;
        Ok(self.over(table))
    }

    async fn draw<E: Executor>(&self, executor: &mut E, request: &Reserve, floor: u64) -> Result<IdRange> {
        Ok(self.reserve_with(executor, request, Some(floor)).await?.range)
    }
}

impl FailsOver for Calls {
    fn failover(self, failover: Failover) -> Self {
        Self { history: in_transaction(failover), reserves: Arc::default(), ..self }
    }
}

impl Calls {
    pub(crate) fn in_schema(self, schema: &str) -> Result<Self> {
        let table = self.table.in_schema(schema)?;
        Ok(self.over(table))
    }

    /// Uses another table, and discards the statements that were built.
    fn over(self, table: Table) -> Self {
        Self { table, witness: Arc::default(), reserves: Arc::default(), ..self }
    }
}
