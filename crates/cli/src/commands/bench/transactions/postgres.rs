//! Transactions of PostgreSQL, on a connection for each thread.

use std::cell::RefCell;
use std::time::Duration;

use idmill::{Error, ErrorKind, Result};
use idmill_postgres::driver::{self, Client};
use idmill_postgres::{InTransaction, PostgresOptions};
use thread_local::ThreadLocal;
use tokio::runtime::Handle;

use super::Transactions;

pub(super) fn open(url: &str, sequence: &str) -> Result<Box<dyn Transactions>> {
    let options: PostgresOptions = url.parse()?;
    let mut ids = InTransaction::new(sequence)?.table(options.table_name())?;
    if let Some(schema) = options.schema_name() {
        ids = ids.schema(schema)?;
    }
    Ok(Box::new(Postgres { options, ids, clients: ThreadLocal::new(), runtime: Handle::current() }))
}

struct Postgres {
    options: PostgresOptions,
    ids: InTransaction<u64>,
    clients: ThreadLocal<RefCell<Client>>,
    runtime: Handle,
}

impl Transactions for Postgres {
    fn run(&self, values: u64, hold: Duration) -> Result<()> {
        let client = self.clients.get_or_try(|| self.runtime.block_on(self.connect()))?;
        self.runtime.block_on(self.attempt(&mut client.borrow_mut(), values, hold))
    }
}

impl Postgres {
    async fn connect(&self) -> Result<RefCell<Client>> {
        let client = self.options.client().await?;
        // As durable as the store itself.
        client.batch_execute("SET synchronous_commit = on").await.map_err(failed)?;
        Ok(RefCell::new(client))
    }

    /// Takes all ids at once: each statement is a round trip, for which the others wait.
    async fn attempt(&self, client: &mut Client, values: u64, hold: Duration) -> Result<()> {
        let transaction = client.transaction().await.map_err(failed)?;
        self.ids.reserve(&transaction, values).await?;
        tokio::time::sleep(hold).await;
        transaction.commit().await.map_err(failed)
    }
}

fn failed(error: driver::Error) -> Error {
    Error::new(ErrorKind::StoreViolation, "the transaction failed").because(error)
}
