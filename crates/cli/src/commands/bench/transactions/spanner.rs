//! Transactions of Spanner, each begun again for as long as it is aborted.

use std::time::Duration;

use idmill::{Error, Result};
use idmill_spanner::{InTransaction, SequenceTransaction, SpannerOptions, SpannerStore, until_committed};
use tokio::runtime::Handle;

use super::Transactions;

pub(super) async fn open(url: &str, sequence: &str) -> Result<Box<dyn Transactions>> {
    let options: SpannerOptions = url.parse()?;
    let ids = InTransaction::new(sequence)?.table(options.table_name())?;
    let store = SpannerStore::open_with(options).await?;
    Ok(Box::new(Spanner { store, ids, runtime: Handle::current() }))
}

struct Spanner {
    store: SpannerStore,
    ids: InTransaction<i64>,
    runtime: Handle,
}

impl Transactions for Spanner {
    fn run(&self, values: u64, hold: Duration) -> Result<()> {
        self.runtime.block_on(until_committed(|| self.attempt(values, hold)))
    }
}

impl Spanner {
    /// Takes the ids one by one, as a program does that does not know how many it will need.
    async fn attempt(&self, values: u64, hold: Duration) -> Result<(), Error> {
        let mut transaction =
            SequenceTransaction::begun(self.store.client().begin_read_write_transaction().await)?;
        for _ in 0..values {
            transaction.next(&self.ids).await?;
        }
        tokio::time::sleep(hold).await;
        transaction.commit().await.map(drop)
    }
}
