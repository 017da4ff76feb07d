//! Ids inside the caller's own transaction. These ids are gapless, because they commit or roll back with the
//! transaction.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use gcloud_googleapis::spanner::v1::Mutation;
use gcloud_spanner::statement::Statement;
use gcloud_spanner::transaction::Transaction;
use gcloud_spanner::transaction_rw::{CommitResult, ReadWriteTransaction};
use idmill::store::{Bounds, Reserve, SequenceInfo};
use idmill::{Error, ErrorKind, Id, IdRange, Operation, Result, SequenceName};
use idmill_kit::{decide, typed};

use super::aborted::Abort;
use super::classify::{commit_failed, failed};
use super::connection::{NotCommitted, commit_once, query_once, read_for_update, while_it_passes};
use super::schema::{DEFAULT_TABLE, Stored, Table};

/// Reserves the next id of a sequence inside your transaction. Uses [`InTransaction`] with its default
/// settings.
///
/// ```no_run
/// use idmill_spanner::gcloud_spanner::{client::Client, statement::Statement};
/// use idmill_spanner::next_in;
///
/// # async fn demo(client: Client) -> idmill::Result<()> {
/// client
///     .read_write_transaction(|tx| {
///         Box::pin(async move {
///             let number: i64 = next_in(tx, "invoices").await?;
///             let mut insert = Statement::new("INSERT INTO invoices (number) VALUES (@number)");
///             insert.add_param("number", &number);
///             tx.update(insert).await?;
///             Ok::<_, idmill_spanner::TransactionError>(()) // the number and the invoice, or neither
///         })
///     })
///     .await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// Returns the errors of [`InTransaction::reserve`].
pub async fn next_in<T: Id>(transaction: &mut ReadWriteTransaction, name: &str) -> Result<T> {
    InTransaction::new(name)?.next(transaction).await
}

/// Reserves the next `count` ids of a sequence inside your transaction. Uses [`InTransaction`] with its
/// default settings.
///
/// # Errors
/// Returns the errors of [`InTransaction::reserve`].
pub async fn reserve_in<T: Id>(
    transaction: &mut ReadWriteTransaction,
    name: &str,
    count: u64,
) -> Result<IdRange<T>> {
    InTransaction::new(name)?.reserve(transaction, count).await
}

/// Reserves ids of a sequence inside your own transactions.
///
/// The ids commit with the rows that use them, so there are no gaps: the ids of a rolled back or aborted
/// transaction go to the next transaction. The cost is that transactions on one sequence run one after
/// another, from the reserve to the commit.
///
/// Each call needs two round trips: it reads the row with a lock, and writes it by DML. The same
/// transaction can read its own DML writes, so it can make any number of calls. If one transaction reserves
/// often, use [`SequenceTransaction`], which reads and writes once.
///
/// The table must exist ([`SpannerStore::ddl`](super::SpannerStore::ddl)), and the sequence is created on
/// first use. A [`SpannerStore`](super::SpannerStore) can use the same sequence, but its reserves leave
/// gaps.
#[derive(Clone, Debug)]
pub struct InTransaction<T> {
    name: SequenceName,
    bounds: Bounds,
    table: Table,
    of: PhantomData<fn() -> T>,
}

impl<T: Id> InTransaction<T> {
    /// Creates a handle for the sequence of this name, in the table `idmill_sequences`, with the bounds of
    /// the id's type.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](ErrorKind::InvalidInput) if the name is invalid.
    pub fn new(name: &str) -> Result<Self> {
        let (name, table) = (SequenceName::new(name)?, Table::new(DEFAULT_TABLE)?);
        Ok(Self { name, bounds: Bounds::of::<T>(), table, of: PhantomData })
    }

    /// Sets the bounds with which the sequence is created if it does not exist.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Sets the table, as in [`SpannerOptions::table`](super::SpannerOptions::table).
    ///
    /// # Errors
    /// Returns [`InvalidInput`](ErrorKind::InvalidInput) if the name is invalid.
    pub fn table(mut self, table: &str) -> Result<Self> {
        self.table = Table::new(table)?;
        Ok(self)
    }

    /// Reserves the next id.
    ///
    /// # Errors
    /// Returns the errors of [`reserve`](Self::reserve).
    pub async fn next(&self, transaction: &mut ReadWriteTransaction) -> Result<T> {
        self.reserve(transaction, 1).await.map(only)
    }

    /// Reserves exactly the next `count` ids.
    ///
    /// If the future is dropped, roll the transaction back: ids may already have been taken.
    ///
    /// # Errors
    /// No ids are taken in any of these cases if you roll back.
    ///
    /// - [`Exhausted`](ErrorKind::Exhausted) if fewer than `count` ids are left.
    /// - [`InvalidInput`](ErrorKind::InvalidInput) if `count` is 0 or the next id is below the type's
    ///   smallest.
    /// - [`Unavailable`](ErrorKind::Unavailable) if Spanner cannot be reached, or has aborted the
    ///   transaction. Run an aborted transaction again, as the driver's `read_write_transaction` and
    ///   [`until_committed`] do.
    /// - [`NotFound`](ErrorKind::NotFound) if the table is missing.
    /// - [`Denied`](ErrorKind::Denied) if a permission is missing.
    /// - [`StoreViolation`](ErrorKind::StoreViolation) if the stored row is invalid.
    pub async fn reserve(&self, transaction: &mut ReadWriteTransaction, count: u64) -> Result<IdRange<T>> {
        let reserving = async {
            let stored = read_for_update(transaction, &self.table, &self.name).await?;
            let (info, range) = self.take(&stored, None, count)?;
            self.write_now(transaction, &stored, &info).await?;
            typed(range)
        };
        reserving.await.map_err(|error| self.named(error))
    }

    async fn write_now(
        &self,
        transaction: &mut ReadWriteTransaction,
        stored: &Stored,
        info: &SequenceInfo,
    ) -> Result<()> {
        let statement = match stored.info {
            Some(_) => self.table.advance_now(info),
            None => self.table.insert_now(info, stored.layout),
        };
        match transaction.update_with_option(statement, query_once()).await.map_err(failed)? {
            1 => Ok(()),
            rows => {
                let message = format!("the row was locked, but its update changed {rows} rows");
                Err(Error::new(ErrorKind::StoreViolation, message))
            }
        }
    }

    /// Takes exactly the next `count` ids. Returns the sequence after the draw. `drawn` is its state after
    /// the earlier draws of the transaction, if any.
    fn take(
        &self,
        stored: &Stored,
        drawn: Option<&SequenceInfo>,
        count: u64,
    ) -> Result<(SequenceInfo, IdRange)> {
        if count == 0 {
            return Err(Error::invalid("a range of 0 ids was requested; request at least 1"));
        }
        let info = match drawn.or(stored.info.as_ref()) {
            Some(info) => info.clone(),
            None => self.table.fresh(&self.name, self.bounds, stored.layout)?,
        };
        let request = Reserve::new(self.name.clone(), count).ceiling(T::MAX);
        let (info, grant) = decide(Some(info), &request, Some(T::MIN))?;
        Ok((info, grant.range))
    }

    fn named(&self, error: Error) -> Error {
        error.of(&self.name).during(Operation::Reserve)
    }
}

fn only<T: Id>(range: IdRange<T>) -> T {
    range.first().expect("a grant has the requested number of ids")
}

/// A transaction that reserves several ids, from one or more sequences. Each sequence is read once, at the
/// first draw from it, and written once, with the commit.
///
/// This type owns the driver's transaction. Only [`commit`](Self::commit) can commit it, together with the
/// new positions of the sequences, so no draw is left out of the commit. For other work in the transaction,
/// use [`update`](Self::update), [`buffer_write`](Self::buffer_write), and the driver's read methods.
///
/// If the transaction is dropped without a commit, nothing is written, and Spanner releases the locks after
/// 10 s of idle time. [`rollback`](Self::rollback) releases the locks immediately.
///
/// ```no_run
/// use idmill_spanner::gcloud_spanner::{client::Client, statement::Statement};
/// use idmill_spanner::{InTransaction, SequenceTransaction, until_committed};
///
/// # async fn demo(client: Client) -> idmill::Result<()> {
/// let invoices = InTransaction::<i64>::new("invoices")?;
/// until_committed(|| async {
///     let begun = client.begin_read_write_transaction().await;
///     let mut tx = SequenceTransaction::begun(begun)?;
///     for _ in 0..3 {
///         let mut insert = Statement::new("INSERT INTO invoices (number) VALUES (@number)");
///         insert.add_param("number", &tx.next(&invoices).await?);
///         tx.update(insert).await?;
///     }
///     tx.commit().await
/// })
/// .await?;
/// # Ok(()) }
/// ```
pub struct SequenceTransaction {
    transaction: ReadWriteTransaction,
    /// Each sequence as it was read, and after the last draw.
    drawn: BTreeMap<(Table, SequenceName), (Stored, Option<SequenceInfo>)>,
}

impl SequenceTransaction {
    /// Takes over a transaction. Draws then see earlier draws by [`InTransaction`], but not earlier mutations
    /// of sequence rows: a Spanner transaction cannot read its buffered mutations.
    pub fn new(transaction: ReadWriteTransaction) -> Self {
        Self { transaction, drawn: BTreeMap::new() }
    }

    /// Takes over the transaction that the driver's begin call returned.
    ///
    /// # Errors
    /// Returns [`Unavailable`](ErrorKind::Unavailable) or another error if the transaction could not begin.
    pub fn begun(
        outcome: std::result::Result<ReadWriteTransaction, gcloud_spanner::client::Error>,
    ) -> Result<Self> {
        outcome.map(Self::new).map_err(super::classify::client_failed)
    }

    /// Reserves the next id.
    ///
    /// # Errors
    /// Returns the errors of [`InTransaction::reserve`].
    pub async fn next<T: Id>(&mut self, sequence: &InTransaction<T>) -> Result<T> {
        self.reserve(sequence, 1).await.map(only)
    }

    /// Reserves exactly the next `count` ids. Only the first draw from a sequence waits for Spanner.
    ///
    /// # Errors
    /// Returns the errors of [`InTransaction::reserve`].
    pub async fn reserve<T: Id>(&mut self, sequence: &InTransaction<T>, count: u64) -> Result<IdRange<T>> {
        let reserving = async {
            let key = (sequence.table.clone(), sequence.name.clone());
            let (stored, drawn) = match self.drawn.entry(key) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let stored = read_for_update(&mut self.transaction, &sequence.table, &sequence.name);
                    new.insert((stored.await?, None))
                }
            };
            let (info, range) = sequence.take(stored, drawn.as_ref(), count)?;
            *drawn = Some(info);
            typed(range)
        };
        reserving.await.map_err(|error| sequence.named(error))
    }

    /// Runs a DML statement. Returns the number of changed rows.
    ///
    /// # Errors
    /// Returns [`Unavailable`](ErrorKind::Unavailable) if the transaction was aborted. After any error,
    /// nothing has been committed.
    pub async fn update(&mut self, statement: Statement) -> Result<i64> {
        self.transaction.update(statement).await.map_err(failed)
    }

    /// Adds mutations to the commit.
    pub fn buffer_write(&mut self, mutations: Vec<Mutation>) {
        self.transaction.buffer_write(mutations);
    }

    /// Commits the reserved ids and all other writes atomically. The commit is sent once.
    ///
    /// If the future is dropped, the transaction may or may not be committed.
    ///
    /// # Errors
    /// - [`Unavailable`](ErrorKind::Unavailable) if Spanner aborted the transaction. Nothing was written; run
    ///   it again.
    /// - [`UnknownOutcome`](ErrorKind::UnknownOutcome) if the commit got no reply. Check whether the
    ///   transaction's writes are stored before you run the transaction again.
    /// - [`Conflict`](ErrorKind::Conflict) or another error if Spanner rejected the writes.
    pub async fn commit(mut self) -> Result<CommitResult> {
        for ((table, name), (stored, drawn)) in &self.drawn {
            let after = drawn.as_ref().or(stored.info.as_ref());
            self.transaction.buffer_write(table.write(name, stored, after)?);
        }
        match self.transaction.end(Ok::<_, NotCommitted>(()), Some(commit_once())).await {
            Ok((result, ())) => Ok(result),
            Err(NotCommitted::Driver(status)) => Err(commit_failed(*status)),
            Err(other) => unreachable!("a failed commit has a status, not {other:?}"),
        }
    }

    /// Rolls the transaction back, so its ids go to the next transaction. If Spanner cannot be reached, it
    /// rolls the transaction back later, when the idle time is over.
    pub async fn rollback(mut self) {
        let gone = NotCommitted::Ours(Error::from(ErrorKind::Closed));
        let _ = self.transaction.end(Err::<(), _>(gone), Some(commit_once())).await;
    }
}

/// Provides the read methods of the driver's transaction.
impl Deref for SequenceTransaction {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        &self.transaction
    }
}

impl DerefMut for SequenceTransaction {
    fn deref_mut(&mut self) -> &mut Transaction {
        &mut self.transaction
    }
}

idmill_kit::debug_fields!(SequenceTransaction | this | drawn = this.drawn);

/// Runs `transaction` until Spanner does not abort it, with growing pauses and jitter. An aborted transaction
/// was certainly not applied. The driver's own loop fails after six aborts, which can happen on a contended
/// sequence.
///
/// There is no limit on the number of attempts: use a timeout around the call.
///
/// # Errors
/// Returns the first error that is not an abort.
pub async fn until_committed<R, E: Abort, F>(transaction: impl FnMut() -> F) -> std::result::Result<R, E>
where
    // Not an async closure, because a task that awaits an async closure cannot be spawned yet.
    F: Future<Output = std::result::Result<R, E>>,
{
    while_it_passes(Abort::is_abort, Duration::MAX, transaction).await
}
