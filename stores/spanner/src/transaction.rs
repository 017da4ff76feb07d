//! Ids inside a transaction of the caller's: gapless, since they commit or roll back with it.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use gcloud_googleapis::spanner::v1::Mutation;
use gcloud_spanner::statement::Statement;
use gcloud_spanner::transaction::Transaction;
use gcloud_spanner::transaction_rw::{CommitResult, ReadWriteTransaction};
use idmill::store::{Bounds, SequenceInfo};
use idmill::{Error, ErrorKind, Id, IdRange, Operation, Result, SequenceName};
use idmill_kit::{must_fit, typed};

use super::aborted::Abort;
use super::classify::{commit_failed, failed};
use super::database::{Failure, commit_once, query_once, read_for_update, while_it_passes};
use super::schema::{DEFAULT_TABLE, Layout, Stored, Table};

/// The next id of a sequence, inside the caller's transaction: [`InTransaction`]
/// with everything at its default.
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
/// Those of [`InTransaction::reserve`].
pub async fn next_in<T: Id>(transaction: &mut ReadWriteTransaction, name: &str) -> Result<T> {
    InTransaction::new(name)?.next(transaction).await
}

/// The next `count` ids of a sequence, inside the caller's transaction: [`InTransaction`]
/// with everything at its default.
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub async fn reserve_in<T: Id>(
    transaction: &mut ReadWriteTransaction,
    name: &str,
    count: u64,
) -> Result<IdRange<T>> {
    InTransaction::new(name)?.reserve(transaction, count).await
}

/// A sequence that is drawn from inside the caller's own transactions.
///
/// The ids commit with what they number, so there are no gaps: a transaction that is rolled back or aborted
/// gives its ids to the next one. The price is that transactions which draw from one sequence run one after
/// another, from the draw to their commit.
///
/// Each call reads the row with its lock, and writes it by DML: two round trips. What DML wrote is read back
/// in the same transaction, so any number of calls may follow each other. Where one transaction draws often,
/// [`SequenceTransaction`] reads and writes once.
///
/// The table must exist ([`SpannerStore::ddl`](super::SpannerStore::ddl)); the sequence is
/// created on first use. It may be shared with a [`SpannerStore`](super::SpannerStore), but then
/// it has the gaps of the latter.
#[derive(Clone, Debug)]
pub struct InTransaction<T> {
    name: SequenceName,
    bounds: Bounds,
    table: Table,
    of: PhantomData<fn() -> T>,
}

impl<T: Id> InTransaction<T> {
    /// The sequence of this name, in the table `idmill_sequences`, with the bounds of the id's type.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a name that cannot be.
    pub fn new(name: &str) -> Result<Self> {
        let (name, table) = (SequenceName::new(name)?, Table::new(DEFAULT_TABLE)?);
        Ok(Self { name, bounds: Bounds::of::<T>(), table, of: PhantomData })
    }

    /// The bounds with which to create the sequence, should it not exist yet.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Another table, as in [`SpannerOptions::table`](super::SpannerOptions::table).
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a name that cannot be.
    pub fn table(mut self, table: &str) -> Result<Self> {
        self.table = Table::new(table)?;
        Ok(self)
    }

    /// The next id.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    pub async fn next(&self, transaction: &mut ReadWriteTransaction) -> Result<T> {
        self.reserve(transaction, 1).await.map(only)
    }

    /// The next `count` ids, exactly.
    ///
    /// The future, if it is dropped, may have taken ids already: roll the transaction back.
    ///
    /// # Errors
    /// Nothing is taken in any of these cases. [`Exhausted`](ErrorKind::Exhausted) if fewer than `count` ids
    /// are left; [`InvalidInput`](ErrorKind::InvalidInput) if `count` is 0 or the type cannot hold the next
    /// id; [`Unavailable`](ErrorKind::Unavailable) if Spanner aborted the transaction, which is then to be
    /// run again (the driver's `read_write_transaction` and [`until_committed`] do), or cannot be reached;
    /// [`NotFound`](ErrorKind::NotFound) without the table; [`Denied`](ErrorKind::Denied);
    /// [`StoreViolation`](ErrorKind::StoreViolation) if what is stored cannot be.
    pub async fn reserve(&self, transaction: &mut ReadWriteTransaction, count: u64) -> Result<IdRange<T>> {
        let reserving = async {
            let stored = read_for_update(transaction, &self.table, &self.name).await?;
            let mut drawn = self.drawn(stored)?;
            let range = self.take(&mut drawn, count)?;
            self.write_now(transaction, &drawn).await?;
            typed(range)
        };
        reserving.await.map_err(|error| self.named(error))
    }

    async fn write_now(&self, transaction: &mut ReadWriteTransaction, drawn: &Drawn) -> Result<()> {
        let statement = if drawn.exists {
            self.table.advance_now(&drawn.info)
        } else {
            self.table.insert_now(&drawn.info, drawn.layout)
        };
        match transaction.update_with_option(statement, query_once()).await.map_err(failed)? {
            1 => Ok(()),
            rows => {
                let message = format!("the row was locked, but writing it changed {rows} rows");
                Err(Error::new(ErrorKind::StoreViolation, message))
            }
        }
    }

    /// What a transaction starts from.
    fn drawn(&self, stored: Stored) -> Result<Drawn> {
        let (exists, layout) = (stored.info.is_some(), stored.layout);
        let info = match stored.info {
            Some(info) => info,
            None => self.table.fresh(&self.name, self.bounds, layout)?,
        };
        Ok(Drawn { info, layout, exists, changed: false })
    }

    /// The next `count` ids, exactly; or none, and nothing has changed.
    fn take(&self, drawn: &mut Drawn, count: u64) -> Result<IdRange> {
        if count == 0 {
            return Err(Error::invalid("a range of no ids was asked for; ask for at least 1"));
        }
        let mut info = drawn.info.clone();
        let grant = info.grant(count, T::MAX)?;
        must_fit(&grant, &self.name, count, T::MIN, T::MAX)?;
        (drawn.info, drawn.changed) = (info, true);
        Ok(grant.range)
    }

    fn named(&self, error: Error) -> Error {
        error.of(&self.name).during(Operation::Reserve)
    }
}

fn only<T: Id>(range: IdRange<T>) -> T {
    range.first().expect("a grant has as many ids as were asked for")
}

/// Where a sequence stands inside a transaction.
#[derive(Clone, Debug)]
struct Drawn {
    info: SequenceInfo,
    layout: Layout,
    exists: bool,
    changed: bool,
}

impl Drawn {
    fn write(&self, table: &Table) -> Mutation {
        if self.exists { table.advance(&self.info) } else { table.insert(&self.info, self.layout) }
    }
}

/// A transaction that draws several ids, of one or more sequences: each sequence is read once, by its first
/// draw, and written once, with the commit, however many ids are drawn.
///
/// It takes the driver's transaction over, and is committed through [`commit`](Self::commit) alone, which
/// adds where the sequences stand: a draw cannot be left out of the commit, nor be made past what this
/// transaction knows. What else a transaction does is done through it: [`update`](Self::update),
/// [`buffer_write`](Self::buffer_write), and reads as on the driver's own.
///
/// Dropped without a commit, nothing is written, and Spanner releases the locks after its idle time of 10 s;
/// [`rollback`](Self::rollback) does it at once.
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
    drawn: BTreeMap<(Table, SequenceName), Drawn>,
}

impl SequenceTransaction {
    /// Takes a transaction over. What [`InTransaction`] drew in it before is seen; for what was done with the
    /// sequences' rows by mutations, which Spanner does not read back, this is too late.
    pub fn new(transaction: ReadWriteTransaction) -> Self {
        Self { transaction, drawn: BTreeMap::new() }
    }

    /// The same, over what the driver made of beginning one.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) and others, if it could not be begun.
    pub fn begun(
        outcome: std::result::Result<ReadWriteTransaction, gcloud_spanner::client::Error>,
    ) -> Result<Self> {
        outcome.map(Self::new).map_err(super::classify::client_failed)
    }

    /// The next id.
    ///
    /// # Errors
    /// Those of [`InTransaction::reserve`].
    pub async fn next<T: Id>(&mut self, sequence: &InTransaction<T>) -> Result<T> {
        self.reserve(sequence, 1).await.map(only)
    }

    /// The next `count` ids, exactly. Waits for Spanner only if it is the first draw of this sequence.
    ///
    /// # Errors
    /// Those of [`InTransaction::reserve`].
    pub async fn reserve<T: Id>(&mut self, sequence: &InTransaction<T>, count: u64) -> Result<IdRange<T>> {
        let reserving = async {
            let key = (sequence.table.clone(), sequence.name.clone());
            if !self.drawn.contains_key(&key) {
                let stored = read_for_update(&mut self.transaction, &sequence.table, &sequence.name).await?;
                self.drawn.insert(key.clone(), sequence.drawn(stored)?);
            }
            let drawn = self.drawn.get_mut(&key).expect("it was read");
            sequence.take(drawn, count).and_then(typed)
        };
        reserving.await.map_err(|error| sequence.named(error))
    }

    /// Runs a statement that writes; how many rows it changed.
    ///
    /// # Errors
    /// Nothing has been committed. [`Unavailable`](ErrorKind::Unavailable) if the transaction was aborted.
    pub async fn update(&mut self, statement: Statement) -> Result<i64> {
        self.transaction.update(statement).await.map_err(failed)
    }

    /// Adds mutations to the commit.
    pub fn buffer_write(&mut self, mutations: Vec<Mutation>) {
        self.transaction.buffer_write(mutations);
    }

    /// Commits, once: the ids that were drawn and all else, or nothing.
    ///
    /// Dropping the future leaves open whether it was committed.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if Spanner aborted it: certainly nothing was written,
    /// run it again; [`UnknownOutcome`](ErrorKind::UnknownOutcome) if the commit was not answered: look
    /// for what it wrote before running it again; [`Conflict`](ErrorKind::Conflict) and others if
    /// Spanner refused what was written.
    pub async fn commit(mut self) -> Result<CommitResult> {
        let changed = self.drawn.iter().filter(|(_, drawn)| drawn.changed);
        let writes = changed.map(|((table, _), drawn)| drawn.write(table)).collect();
        self.transaction.buffer_write(writes);
        match self.transaction.end(Ok::<_, Failure>(()), Some(commit_once())).await {
            Ok((result, ())) => Ok(result),
            Err(Failure::Driver(status)) => Err(commit_failed(*status)),
            Err(other) => unreachable!("a commit fails with a status, not {other:?}"),
        }
    }

    /// Gives everything up: the ids go to the next transaction. If Spanner cannot be reached, it forgets the
    /// transaction by itself, later.
    pub async fn rollback(mut self) {
        let gone = Failure::Ours(Error::from(ErrorKind::Closed));
        let _ = self.transaction.end(Err::<(), _>(gone), Some(commit_once())).await;
    }
}

/// Reads, as on the driver's own transaction.
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

impl fmt::Debug for SequenceTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SequenceTransaction").field("drawn", &self.drawn).finish_non_exhaustive()
    }
}

/// Runs `transaction`, again and again, for as long as Spanner aborts it, with pauses that grow and have
/// jitter; any other outcome is returned. An abort is certain to have changed nothing. The driver's own loop
/// gives up after five aborts, which a contended sequence reaches.
///
/// It goes on until it is dropped: bound it with a timeout around it.
///
/// # Errors
/// The first error that is not an abort.
pub async fn until_committed<R, E: Abort, F>(transaction: impl FnMut() -> F) -> std::result::Result<R, E>
where
    // Not an async closure: a task that awaits one cannot be spawned yet.
    F: Future<Output = std::result::Result<R, E>>,
{
    while_it_passes(Abort::is_abort, Duration::MAX, transaction).await
}
