//! Ids inside a transaction of the caller's: gapless, since they commit or roll back with it.

use std::marker::PhantomData;

use idmill::store::{Bounds, Reserve};
use idmill::{Error, Id, Operation, Range, Result, SequenceName};
use idmill_kit::history::Failover;

use super::calls::{Calls, Fit};
use super::history::History;
use super::table::{DEFAULT_TABLE, Table};
use crate::{Executor, Patience, must_be_within};

/// A sequence that is drawn from inside the caller's own transactions.
///
/// The ids commit with what they number, so there are no gaps, and they are ordered as the commits are: a
/// transaction that rolls back gives its ids to the next one. The price is that transactions which draw from
/// one sequence run one after another, each from its first id to its end. So draw late and commit soon; and
/// where one draws from several sequences, in the same order everywhere. A commit is as durable as the
/// caller's connection makes it.
///
/// The sequence is created on first use, in the same transaction; the table must be there, as any store that
/// was opened once has created it ([`Calls::open`]). Both may draw from one sequence without ever sharing an
/// id, but then it has the gaps of the latter.
///
/// READ COMMITTED, PostgreSQL's default, is the isolation to use. In a stricter one a transaction that
/// waited for another hears that it could not be serialised
/// ([`Unavailable`](idmill::ErrorKind::Unavailable)), and has to begin again.
#[derive(Clone, Debug)]
pub struct InTransaction<T> {
    name: SequenceName,
    bounds: Bounds,
    calls: Calls,
    of: PhantomData<fn() -> T>,
}

impl<T: Id> InTransaction<T> {
    /// The sequence of this name, in the table `idmill_sequences`, with the bounds of the id's type.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn new(name: &str) -> Result<Self> {
        let (name, table) = (SequenceName::new(name)?, Table::new(None, DEFAULT_TABLE)?);
        Ok(Self { name, bounds: Bounds::of::<T>(), calls: Calls::unopened(table), of: PhantomData })
    }

    /// The bounds with which to create the sequence, should it not exist yet.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Another table than `idmill_sequences`.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn table(mut self, table: &str) -> Result<Self> {
        self.calls.table = Table::new(self.calls.table.schema(), table)?;
        Ok(self)
    }

    /// The schema of the table; without it, the `search_path` of the transaction finds the table.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn schema(mut self, schema: &str) -> Result<Self> {
        self.calls.table = self.calls.table.in_schema(schema)?;
        Ok(self)
    }

    /// What happens if the sequence was last written on another cluster or timeline. Default
    /// [`Failover::Refuse`]. What is done about it commits or rolls back with the transaction. With
    /// [`Failover::Allow`] the server is not asked, so that no right to ask is needed.
    #[must_use]
    pub fn failover(mut self, failover: Failover) -> Self {
        self.calls.history = History::in_transaction(failover);
        self
    }

    /// The next id.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    pub async fn next<E: Executor>(&self, transaction: &mut E) -> Result<T> {
        let range = self.reserve(transaction, 1).await?;
        Ok(range.first().expect("a grant has as many ids as were asked for"))
    }

    /// The next `count` ids, exactly. If this future was dropped, roll the transaction back: one that is
    /// committed all the same may have a gap.
    ///
    /// # Errors
    /// Nothing is taken in any of these cases. The transaction goes on after
    /// [`Exhausted`](idmill::ErrorKind::Exhausted), if fewer than `count` ids are left;
    /// [`Conflict`](idmill::ErrorKind::Conflict), if the sequence was last written on another cluster or
    /// timeline, see [`failover`](Self::failover); and
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput), if `count` is 0 or the type cannot hold the next
    /// id; all others have ended it: [`Unavailable`](idmill::ErrorKind::Unavailable) if it has to be begun
    /// again or the server cannot be reached; [`NotFound`](idmill::ErrorKind::NotFound) if there is no
    /// table; [`Denied`](idmill::ErrorKind::Denied); [`StoreViolation`](idmill::ErrorKind::StoreViolation)
    /// if what is stored cannot be.
    pub async fn reserve<E: Executor>(&self, transaction: &mut E, count: u64) -> Result<Range<T>> {
        const { must_be_within::<E>() };
        let outcome = self.try_reserve(transaction, count).await;
        outcome.map(Range::cast).map_err(|error| error.of(&self.name).during(Operation::Reserve))
    }

    async fn try_reserve<E: Executor>(&self, transaction: &mut E, count: u64) -> Result<Range> {
        if count == 0 {
            return Err(Error::invalid("a range of no ids was asked for; ask for at least 1"));
        }
        let request = Reserve::new(self.name.clone(), count).ceiling(T::MAX).create(self.bounds);
        let fit = Fit::Exactly { floor: T::MIN };
        Ok(self.calls.reserve_with(transaction, &request, fit, Patience::Full).await?.range)
    }
}
