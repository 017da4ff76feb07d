//! Ids inside a transaction of the caller's: gapless, since they commit or roll back with it.

use std::marker::PhantomData;

use tokio_postgres::Transaction;

use super::schema::{DEFAULT_TABLE, Table};
use super::{Fit, Runner, reserve};
use crate::error::{Error, Operation, Result};
use crate::id::Id;
use crate::name::SequenceName;
use crate::range::Range;
use crate::store::{Bounds, Reserve};

/// The next id of a sequence, inside the caller's transaction: [`InTransaction`]
/// with everything at its default.
///
/// ```no_run
/// # async fn demo(client: &mut idmill::store::postgres::driver::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use idmill::store::postgres::next_in;
///
/// let tx = client.transaction().await?;
/// let number: i64 = next_in(&tx, "invoices").await?;
/// tx.execute("INSERT INTO invoices VALUES ($1, 4200)", &[&number]).await?;
/// tx.commit().await?; // the number and the invoice, or neither
/// # Ok(()) }
/// ```
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub async fn next_in<T: Id>(transaction: &Transaction<'_>, name: &str) -> Result<T> {
    InTransaction::new(name)?.next(transaction).await
}

/// The next `count` ids of a sequence, inside the caller's transaction: [`InTransaction`]
/// with everything at its default.
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub async fn reserve_in<T: Id>(transaction: &Transaction<'_>, name: &str, count: u64) -> Result<Range<T>> {
    InTransaction::new(name)?.reserve(transaction, count).await
}

/// The statement with which any other driver draws from a sequence inside its own transaction: parameters
/// the name, as `text`, and how many ids, as `bigint`; one row with the first of them, as `bigint`, or
/// none if the sequence does not exist or has fewer left. What [`InTransaction`] says holds for it,
/// except that it creates nothing.
///
/// ```
/// let sql = idmill::store::postgres::next_in_sql("idmill_sequences")?;
/// // sqlx: let first: Option<i64> =
/// //     sqlx::query_scalar(AssertSqlSafe(sql)).bind("invoices").bind(1_i64).fetch_optional(&mut *tx).await?;
/// # assert!(sql.starts_with("UPDATE "));
/// # Ok::<(), idmill::Error>(())
/// ```
///
/// # Errors
/// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a name of a table that cannot be.
pub fn next_in_sql(table: &str) -> Result<String> {
    Ok(Table::new(None, table)?.published())
}

/// A sequence that is drawn from inside the caller's own transactions.
///
/// The ids commit with what they number, so there are no gaps, and they are ordered as the commits are: a
/// transaction that rolls back gives its ids to the next one. The price is that transactions which draw from
/// one sequence run one after another, each from its first id to its end. So draw late and commit soon; and
/// where one draws from several sequences, in the same order everywhere. A commit is as durable as the
/// caller's connection makes it.
///
/// The sequence is created on first use, in the same transaction; the table must be there, as any
/// [`PostgresStore`](super::PostgresStore) that was opened once has created it. Both may draw from one
/// sequence without ever sharing an id, but then it has the gaps of the latter.
///
/// READ COMMITTED, PostgreSQL's default, is the isolation to use. In a stricter one a transaction that
/// waited for another hears that it could not be serialised
/// ([`Unavailable`](crate::ErrorKind::Unavailable)), and has to begin again.
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
        let (name, table) = (SequenceName::new(name)?, Table::new(None, DEFAULT_TABLE)?);
        Ok(Self { name, bounds: Bounds::of::<T>(), table, of: PhantomData })
    }

    /// The bounds with which to create the sequence, should it not exist yet.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Another table, as in [`PostgresOptions::table`](super::PostgresOptions::table).
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn table(mut self, table: &str) -> Result<Self> {
        self.table = Table::new(self.table.schema(), table)?;
        Ok(self)
    }

    /// The schema of the table; without it, the `search_path` of the transaction finds the table.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn schema(mut self, schema: &str) -> Result<Self> {
        self.table = self.table.in_schema(Some(schema))?;
        Ok(self)
    }

    /// The next id.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    pub async fn next(&self, transaction: &Transaction<'_>) -> Result<T> {
        let range = self.reserve(transaction, 1).await?;
        Ok(range.first().expect("a grant has as many ids as were asked for"))
    }

    /// The next `count` ids, exactly. If this future was dropped, roll the transaction back: one that is
    /// committed all the same may have a gap.
    ///
    /// # Errors
    /// Nothing is taken in any of these cases. The transaction goes on after
    /// [`Exhausted`](crate::ErrorKind::Exhausted), if fewer than `count` ids are left, and
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), if `count` is 0 or the type cannot hold the next
    /// id; all others have ended it: [`Unavailable`](crate::ErrorKind::Unavailable) if it has to be begun
    /// again or the server cannot be reached; [`NotFound`](crate::ErrorKind::NotFound) if there is no
    /// table; [`Denied`](crate::ErrorKind::Denied); [`StoreViolation`](crate::ErrorKind::StoreViolation)
    /// if what is stored cannot be.
    pub async fn reserve(&self, transaction: &Transaction<'_>, count: u64) -> Result<Range<T>> {
        let outcome = self.try_reserve(transaction, count).await;
        outcome.map(Range::cast).map_err(|error| error.of(&self.name).during(Operation::Reserve))
    }

    async fn try_reserve(&self, transaction: &Transaction<'_>, count: u64) -> Result<Range> {
        if count == 0 {
            return Err(Error::invalid("a range of no ids was asked for; ask for at least 1"));
        }
        let request = Reserve { name: self.name.clone(), count, ceiling: T::MAX, create: Some(self.bounds) };
        let fit = Fit::Exactly { floor: T::MIN };
        Ok(reserve(&Runner::Transaction(transaction), &self.table, &request, fit).await?.range)
    }
}
