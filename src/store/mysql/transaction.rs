//! Ids inside a transaction of the caller's: gapless, since they commit or roll back with it.

use std::marker::PhantomData;

use mysql_async::Transaction;

use super::classify::{Asked, Fault, failed};
use super::database::write;
use super::reserve::{first, read_to_write, taken};
use super::schema::{DEFAULT_TABLE, Table};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::Id;
use crate::name::SequenceName;
use crate::range::Range;
use crate::store::{Bounds, Reserve, SequenceInfo};

/// The next id of a sequence, inside the caller's transaction: [`InTransaction`]
/// with everything at its default.
///
/// ```no_run
/// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
/// use idmill::store::mysql::driver::{Pool, TxOpts, prelude::Queryable};
/// use idmill::store::mysql::{MysqlStore, next_in};
///
/// let pool = Pool::new("mysql://app:secret@localhost/shop");
/// MysqlStore::new(&pool).await?; // creates the table, once
///
/// let mut tx = pool.start_transaction(TxOpts::default()).await?;
/// let number: i64 = next_in(&mut tx, "invoices").await?;
/// tx.exec_drop("INSERT INTO invoices (number, total) VALUES (?, ?)", (number, 4200)).await?;
/// tx.commit().await?; // the number and the invoice, or neither
/// # Ok(()) }
/// ```
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub async fn next_in<T: Id>(transaction: &mut Transaction<'_>, name: &str) -> Result<T> {
    InTransaction::new(name)?.next(transaction).await
}

/// The next `count` ids of a sequence, inside the caller's transaction: [`InTransaction`]
/// with everything at its default.
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub async fn reserve_in<T: Id>(
    transaction: &mut Transaction<'_>,
    name: &str,
    count: u64,
) -> Result<Range<T>> {
    InTransaction::new(name)?.reserve(transaction, count).await
}

/// A sequence that is drawn from inside the caller's own transactions.
///
/// The ids commit with what they number, so there are no gaps: a transaction that rolls back gives its ids to
/// the next one. The price is that transactions which draw from one sequence run one after another, from the
/// first id to the commit: so draw late and commit soon. One round trip as a rule, at any isolation level.
///
/// The sequence is created on first use, in the same transaction; the table is not, since to create one would
/// commit: [`MysqlStore::new`](super::MysqlStore::new) does. It is looked for in the database that the
/// connection uses. The sequences are those of [`MysqlStore`](super::MysqlStore), and both may draw from one
/// without ever sharing an id, but then it has the gaps of the latter.
///
/// A commit is as durable as the server makes it: this is looked at by the store, and not here.
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
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a name that cannot be.
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

    /// Another table, as in [`MysqlOptions::table`](super::MysqlOptions::table).
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn table(mut self, table: &str) -> Result<Self> {
        self.table = Table::new(table)?;
        Ok(self)
    }

    /// The next id.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    pub async fn next(&self, transaction: &mut Transaction<'_>) -> Result<T> {
        let range = self.reserve(transaction, 1).await?;
        Ok(range.first().expect("a grant has as many ids as were asked for"))
    }

    /// The next `count` ids, exactly. After an error, and after this future was dropped, roll the transaction
    /// back: one that is committed all the same may have a gap.
    ///
    /// # Errors
    /// Nothing is taken in any of these cases. [`Exhausted`](crate::ErrorKind::Exhausted) if fewer than
    /// `count` ids are left; [`InvalidInput`](crate::ErrorKind::InvalidInput) if `count` is 0 or the type
    /// cannot hold the next id; [`Unavailable`](crate::ErrorKind::Unavailable) if others held the sequence
    /// for too long, the server chose this transaction to end a deadlock (as it may for those that create one
    /// sequence at the same time), or cannot be reached; [`NotFound`](crate::ErrorKind::NotFound) if there is
    /// no table; [`Denied`](crate::ErrorKind::Denied); [`StoreViolation`](crate::ErrorKind::StoreViolation)
    /// if what is stored cannot be.
    ///
    /// [`Conflict`](crate::ErrorKind::Conflict) if the server had ended the transaction before, after an
    /// error that it should have been rolled back for: the ids then are a gap.
    pub async fn reserve(&self, transaction: &mut Transaction<'_>, count: u64) -> Result<Range<T>> {
        let outcome = self.try_reserve(transaction, count).await;
        outcome.map(Range::cast).map_err(|error| error.of(&self.name).during(Operation::Reserve))
    }

    async fn try_reserve(&self, transaction: &mut Transaction<'_>, count: u64) -> Result<Range> {
        if count == 0 {
            return Err(Error::invalid("a range of no ids was asked for; ask for at least 1"));
        }
        let request = Reserve { name: self.name.clone(), count, ceiling: T::MAX, create: Some(self.bounds) };
        // A second time where another transaction has created the sequence meanwhile, and committed.
        for _ in 0..2 {
            if let Some(range) = self.advance(transaction, &request).await? {
                return Ok(range);
            }
            let seen = read_to_write(transaction, &self.table, &self.name).await;
            let range = match seen.map_err(within)?.transpose()? {
                Some(seen) => Some(self.last(transaction, &request, &seen).await?),
                None => self.create(transaction, &request).await?,
            };
            if let Some(range) = range {
                return Ok(range);
            }
        }
        let message = "a row of this sequence is there and cannot be seen: a unique index of somebody's, or another format";
        Err(Error::new(ErrorKind::Conflict, message))
    }

    async fn advance(&self, transaction: &mut Transaction<'_>, request: &Reserve) -> Result<Option<Range>> {
        let Some(update) = self.table.advance_any(request, T::MIN) else { return Ok(None) };
        let written = write(transaction, &update).await.map_err(within)?;
        taken(written, request.count, (T::MIN.max(1), request.ceiling)).map_err(within)
    }

    /// What [`advance`](Self::advance) does not take. The row is locked: nobody changes it in between.
    async fn last(
        &self,
        transaction: &mut Transaction<'_>,
        request: &Reserve,
        seen: &SequenceInfo,
    ) -> Result<Range> {
        let mut after = seen.clone();
        let grant = after.grant(request.count, request.ceiling)?;
        grant.must_fit(&request.name, request.count, T::MIN, request.ceiling)?;
        let written = write(transaction, &self.table.replace(seen, &after)).await.map_err(within)?;
        if written.rows == 1 {
            return Ok(grant.range);
        }
        Err(within(Fault::Answer(
            "a change of a row that is locked changed nothing; look for a trigger".to_owned(),
        )))
    }

    /// `None` if somebody else did.
    async fn create(&self, transaction: &mut Transaction<'_>, request: &Reserve) -> Result<Option<Range>> {
        let (info, grant) = first(request)?;
        grant.must_fit(&request.name, request.count, T::MIN, request.ceiling)?;
        match write(transaction, &self.table.insert(&info)).await {
            Ok(_) => Ok(Some(grant.range)),
            Err(fault) if fault.is_duplicate() => Ok(None),
            Err(fault) => Err(within(fault)),
        }
    }
}

fn within(fault: Fault) -> Error {
    failed(fault, Asked::InTransaction)
}
