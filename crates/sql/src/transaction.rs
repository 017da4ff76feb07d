//! Ids inside a transaction of the caller's: gapless, since they commit or roll back with it.

use std::fmt;
use std::marker::PhantomData;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use idmill::store::{Bounds, Reserve};
use idmill::{Error, Id, IdRange, Operation, Result, SequenceName};
use idmill_kit::history::Failover;
use idmill_kit::typed;

use crate::{Executor, must_be_within};

/// A table that ids are drawn from inside the caller's own transactions, in a dialect.
pub trait Draws: Clone + fmt::Debug {
    /// The table, unless another is named.
    const DEFAULT_TABLE: &'static str;

    /// The table of this name.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    fn of_table(table: &str) -> Result<Self>;

    /// The same of another table.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    fn in_table(self, table: &str) -> Result<Self>;

    /// All the ids that are asked for, the first no less than `floor`.
    fn draw<E: Executor>(
        &self,
        executor: &mut E,
        request: &Reserve,
        floor: u64,
    ) -> impl Future<Output = Result<IdRange>>;
}

/// A table whose rows say which server wrote them last.
pub trait FailsOver: Draws {
    /// The same, with this policy for a row that another server wrote.
    #[must_use]
    fn failover(self, failover: Failover) -> Self;
}

/// Of a library whose futures are awaited.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_enums, reason = "only a name")]
pub enum Awaited {}

/// Of a library that blocks.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_enums, reason = "only a name")]
pub enum Blocking {}

/// A library whose transactions ids are drawn in: an adapter's name for it.
pub trait Library<How = Awaited> {
    /// Its transaction, as the caller passes it.
    type Transaction<'a>;
    /// What runs statements in it.
    type Within<'a>: Executor;

    /// Runs statements in a transaction of the caller's.
    fn within(transaction: Self::Transaction<'_>) -> Self::Within<'_>;
}

/// A sequence that is drawn from inside the caller's own transactions.
///
/// The ids commit with what they number, so there are no gaps, and they are ordered as the commits are: a
/// transaction that rolls back gives its ids to the next one. The price is that transactions which draw from
/// one sequence run one after another, each from its first id to its end. So draw late and commit soon; and
/// where one draws from several sequences, in the same order everywhere. A commit is as durable as the
/// caller's connection makes it.
///
/// The sequence is created on first use, in the same transaction. It is that of a store over the same table,
/// and both may draw from one sequence without ever sharing an id, but then it has the gaps of the latter.
///
/// A table of PostgreSQL or MySQL must be there, as any store that was opened once has created it. SQLite's is
/// created on first use too. PostgreSQL's default isolation, READ COMMITTED, is the one to use: in a stricter
/// one a transaction that waited for another hears that it could not be serialised
/// ([`Unavailable`](idmill::ErrorKind::Unavailable)), and has to begin again.
pub struct InTransaction<T, D, L = ()> {
    name: SequenceName,
    bounds: Bounds,
    draws: D,
    of: PhantomData<fn() -> (T, L)>,
}

impl<T: Id, D: Draws, L> InTransaction<T, D, L> {
    /// The sequence of this name, in the table `idmill_sequences`, with the bounds of the id's type.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn new(name: &str) -> Result<Self> {
        let (name, draws) = (SequenceName::new(name)?, D::of_table(D::DEFAULT_TABLE)?);
        Ok(Self { name, bounds: Bounds::of::<T>(), draws, of: PhantomData })
    }

    /// The bounds with which to create the sequence, should it not exist yet.
    #[must_use]
    pub fn bounds(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Another table than `idmill_sequences`.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn table(self, table: &str) -> Result<Self> {
        Ok(Self { draws: self.draws.in_table(table)?, ..self })
    }

    /// The next `count` ids, exactly, over whatever runs statements in the transaction.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    pub async fn draw<E: Executor>(&self, within: &mut E, count: u64) -> Result<IdRange<T>> {
        const { must_be_within::<E>() };
        let outcome = self.try_draw(within, count).await;
        outcome.and_then(typed).map_err(|error| error.of(&self.name).during(Operation::Reserve))
    }

    async fn try_draw<E: Executor>(&self, within: &mut E, count: u64) -> Result<IdRange> {
        if count == 0 {
            return Err(Error::invalid("a range of no ids was asked for; ask for at least 1"));
        }
        let request = Reserve::new(self.name.clone(), count).ceiling(T::MAX).create(self.bounds);
        self.draws.draw(within, &request, T::MIN).await
    }
}

impl<T: Id, D: FailsOver, L> InTransaction<T, D, L> {
    /// What happens if the sequence was last written by another server, cluster or timeline, whose last writes
    /// may be missing here. Default [`Failover::Refuse`]. What is done about it commits or rolls back with the
    /// transaction. With [`Failover::Allow`] the server is not asked, so that no right to ask is needed; nor
    /// does MySQL have to log rows (`binlog_format = STATEMENT` will do).
    #[must_use]
    pub fn failover(self, failover: Failover) -> Self {
        Self { draws: self.draws.failover(failover), ..self }
    }
}

impl<T: Id, L> InTransaction<T, crate::postgres::Calls, L> {
    /// The schema of the table; without it, the `search_path` of the transaction finds the table.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn schema(self, schema: &str) -> Result<Self> {
        Ok(Self { draws: self.draws.in_schema(schema)?, ..self })
    }
}

impl<T: Id, D: Draws, L: Library> InTransaction<T, D, L> {
    /// The next id.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    pub async fn next(&self, transaction: L::Transaction<'_>) -> Result<T> {
        self.reserve(transaction, 1).await.map(one)
    }

    /// The next `count` ids, exactly. If this future was dropped, roll the transaction back: one that is
    /// committed all the same may have a gap.
    ///
    /// # Errors
    /// Nothing is taken in any of these cases. [`Exhausted`](idmill::ErrorKind::Exhausted) if fewer than
    /// `count` ids are left; [`InvalidInput`](idmill::ErrorKind::InvalidInput) if `count` is 0, the type cannot
    /// hold the next id, or the connection is in no transaction that its library began;
    /// [`Conflict`](idmill::ErrorKind::Conflict) if the sequence was last written by another server, see
    /// [`failover`](Self::failover), or if the transaction had ended before;
    /// [`Unavailable`](idmill::ErrorKind::Unavailable) if it has to be begun again or the server cannot be
    /// reached; [`NotFound`](idmill::ErrorKind::NotFound) if there is no table;
    /// [`Denied`](idmill::ErrorKind::Denied); [`StoreViolation`](idmill::ErrorKind::StoreViolation) if what is
    /// stored cannot be.
    ///
    /// PostgreSQL's transaction goes on after [`Exhausted`](idmill::ErrorKind::Exhausted),
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) and a [`Conflict`](idmill::ErrorKind::Conflict) of
    /// servers; all others have ended it. Roll MySQL's back after any error.
    pub async fn reserve(&self, transaction: L::Transaction<'_>, count: u64) -> Result<IdRange<T>> {
        self.draw(&mut L::within(transaction), count).await
    }
}

impl<T: Id, D: Draws, L: Library<Blocking>> InTransaction<T, D, L> {
    /// The next id. The thread waits for the server.
    ///
    /// # Errors
    /// Those of [`reserve_blocking`](Self::reserve_blocking).
    pub fn next_blocking(&self, transaction: L::Transaction<'_>) -> Result<T> {
        self.reserve_blocking(transaction, 1).map(one)
    }

    /// The next `count` ids, exactly. The thread waits for the server.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    pub fn reserve_blocking(&self, transaction: L::Transaction<'_>, count: u64) -> Result<IdRange<T>> {
        at_once(self.draw(&mut L::within(transaction), count))
    }
}

fn one<T: Id>(range: IdRange<T>) -> T {
    range.first().expect("one id was reserved")
}

/// The outcome of calls over an executor that blocks: they await nothing else, so nobody has to be woken, and no
/// runtime is needed.
///
/// # Panics
/// If the call waits for anything else.
pub fn at_once<R>(call: impl Future<Output = R>) -> R {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => unreachable!("the call waited for something else than its executor"),
    }
}

/// Whatever the library is.
impl<T, D: Clone, L> Clone for InTransaction<T, D, L> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), draws: self.draws.clone(), ..*self }
    }
}

impl<T, D: fmt::Debug, L> fmt::Debug for InTransaction<T, D, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, bounds, draws, of: _ } = self;
        let mut debug = f.debug_struct("InTransaction");
        debug.field("name", name).field("bounds", bounds).field("draws", draws).finish()
    }
}
