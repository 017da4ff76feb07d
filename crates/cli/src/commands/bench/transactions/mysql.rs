//! Transactions of MySQL and MariaDB, each begun again for as long as the server
//! chooses it to end a deadlock.

use std::time::Duration;

use idmill::{Error, ErrorKind, Result};
use idmill_mysql::driver::{self, Pool, TxOpts};
use idmill_mysql::{InTransaction, MysqlOptions};
use tokio::runtime::Handle;

use super::Transactions;

/// How often one is begun again. A deadlock is possible where several create the sequence,
/// and so only at the beginning.
const ATTEMPTS: usize = 10;

pub(super) fn open(url: &str, sequence: &str) -> Result<Box<dyn Transactions>> {
    let options: MysqlOptions = url.parse()?;
    let ids = InTransaction::new(sequence)?.table(options.table_name())?;
    Ok(Box::new(Mysql { pool: options.pool()?, ids, runtime: Handle::current() }))
}

struct Mysql {
    pool: Pool,
    ids: InTransaction<u64>,
    runtime: Handle,
}

impl Transactions for Mysql {
    fn run(&self, values: u64, hold: Duration) -> Result<()> {
        self.runtime.block_on(async {
            for _ in 1..ATTEMPTS {
                match self.attempt(values, hold).await {
                    Err(error) if error.kind() == ErrorKind::Unavailable => {}
                    outcome => return outcome,
                }
            }
            self.attempt(values, hold).await
        })
    }
}

impl Mysql {
    async fn attempt(&self, values: u64, hold: Duration) -> Result<()> {
        let begun = self.pool.start_transaction(TxOpts::default()).await;
        let mut transaction = begun.map_err(|error| failed(ErrorKind::Unavailable, error))?;
        if let Err(error) = self.ids.reserve(&mut transaction, values).await {
            // What is wrong was said already.
            let _ = transaction.rollback().await;
            return Err(error);
        }
        tokio::time::sleep(hold).await;
        transaction.commit().await.map_err(|error| failed(ErrorKind::UnknownOutcome, error))
    }
}

fn failed(kind: ErrorKind, error: driver::Error) -> Error {
    Error::new(kind, "the transaction failed").because(error)
}
