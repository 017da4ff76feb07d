//! Draws inside a transaction of the caller.

use std::sync::Arc;

use idmill::store::Reserve;
use idmill::{IdRange, Result};
use idmill_kit::history::Failover;

use super::calls::Calls;
use super::history::History;
use super::table::{DEFAULT_TABLE, Table};
use crate::transaction::{Draws, FailsOver};
use crate::{Executor, Timeout};

/// Uses a table without looking for it.
impl Draws for Calls {
    const DEFAULT_TABLE: &'static str = DEFAULT_TABLE;

    fn of_table(table: &str) -> Result<Self> {
        Table::new(None, table).map(Self::unopened)
    }

    fn in_table(self, table: &str) -> Result<Self> {
        let table = Table::new(self.table.schema(), table)?;
        Ok(self.over(table))
    }

    async fn draw<E: Executor>(&self, executor: &mut E, request: &Reserve, floor: u64) -> Result<IdRange> {
        Ok(self.reserve_with(executor, request, Some(floor), Timeout::Full).await?.range)
    }
}

impl FailsOver for Calls {
    fn failover(self, failover: Failover) -> Self {
        Self { history: History::in_transaction(failover), reserves: Arc::default(), ..self }
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
