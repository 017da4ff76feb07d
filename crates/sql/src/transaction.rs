//! Ids drawn inside a transaction of the caller: gapless, since they commit or roll back with it.

use std::fmt;
use std::marker::PhantomData;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use idmill::store::{Bounds, Reserve};
use idmill::{Error, Id, IdRange, Operation, Result, SequenceName};
use idmill_kit::history::Failover;
use idmill_kit::typed;

use crate::{Answer, Executor, Fault, Statement, must_be_within};

/// The default table of sequences.
pub const DEFAULT_TABLE: &str = "idmill_sequences";

/// A table in a dialect. Ids are drawn from it inside the caller's own transactions.
pub trait Draws: Clone + fmt::Debug {
    /// Uses the table of this name.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid name.
    fn of_table(table: &str) -> Result<Self>;

    /// Uses another table.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid name.
    fn in_table(self, table: &str) -> Result<Self>;

    /// Draws exactly the requested number of ids, none below `floor`.
    fn draw<E: Executor>(
        &self,
        executor: &mut E,
        request: &Reserve,
        floor: u64,
    ) -> impl Future<Output = Result<IdRange>>;
}

/// A table whose rows record which server wrote them last.
pub trait FailsOver: Draws {
    /// Sets the policy for a row that another server wrote.
    #[must_use]
    fn failover(self, failover: Failover) -> Self;
}

/// Marks a library whose futures are awaited.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_enums, reason = "only a name")]
pub enum Awaited {}

/// Marks a library that blocks.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_enums, reason = "only a name")]
pub enum Blocking {}

/// A library in whose transactions ids are drawn. An adapter implements it on a marker type.
pub trait Library<How = Awaited> {
    /// As [`Executor::COUNTS_MATCHED`].
    const COUNTS_MATCHED: bool = false;

    /// The library's transaction, as the caller passes it.
    type Transaction<'a>;

    /// Runs a statement in a transaction of the caller, as [`Executor::execute`] does.
    ///
    /// # Errors
    /// As [`Executor::execute`].
    fn execute(
        transaction: &mut Self::Transaction<'_>,
        statement: Statement<'_>,
    ) -> impl Future<Output = Result<Answer, Fault>> + Send;
}

/// Runs statements in a transaction of the caller.
struct Within<'a, L: Library<How>, How>(L::Transaction<'a>);

impl<L: Library<How>, How> Executor for Within<'_, L, How> {
    const IN_TRANSACTION: bool = true;
    const COUNTS_MATCHED: bool = L::COUNTS_MATCHED;

    fn execute(&mut self, statement: Statement<'_>) -> impl Future<Output = Result<Answer, Fault>> + Send {
        L::execute(&mut self.0, statement)
    }
}

/// Declares the functions `next_in` and `reserve_in` of an adapter, which draw by its type `InTransaction`:
/// `async TRANSACTION` for a library whose futures are awaited, `blocking(NEXT, RESERVE) TRANSACTION` for one
/// that blocks. The documentation of the invocation, an example, becomes that of `next_in`.
#[macro_export]
macro_rules! draws_in {
    ($(#[$example:meta])* async $transaction:ty) => {
        $crate::draws_in! { @ [async] [.await] (next, reserve) $(#[$example])* $transaction }
    };
    ($(#[$example:meta])* blocking($next:ident, $reserve:ident) $transaction:ty) => {
        $crate::draws_in! { @ [] [] ($next, $reserve) $(#[$example])* $transaction }
    };
    (@ [$($async:ident)?] [$($await:tt)*] ($next:ident, $reserve:ident) $(#[$example:meta])* $transaction:ty) => {
        /// Draws the next id of a sequence inside the caller's transaction, as [`InTransaction`] with its
        /// defaults.
        ///
        $(#[$example])*
        ///
        /// # Errors
        #[doc = concat!("The errors of [`InTransaction::", stringify!($reserve), "`].")]
        pub $($async)? fn next_in<T: $crate::Id>(transaction: $transaction, name: &str) -> $crate::Result<T> {
            InTransaction::new(name)?.$next(transaction)$($await)*
        }

        /// Draws exactly `count` ids of a sequence inside the caller's transaction, as [`InTransaction`]
        /// with its defaults.
        ///
        /// # Errors
        #[doc = concat!("The errors of [`InTransaction::", stringify!($reserve), "`].")]
        pub $($async)? fn reserve_in<T: $crate::Id>(
            transaction: $transaction,
            name: &str,
            count: u64,
        ) -> $crate::Result<$crate::IdRange<T>> {
            InTransaction::new(name)?.$reserve(transaction, count)$($await)*
        }
    };
}

/// A sequence that is drawn from inside the caller's own transactions.
///
/// The ids commit together with the rows that they number. So there are no gaps, and ids are in commit order:
/// if a transaction rolls back, the next one gets its ids. The cost: from its first draw to its end, a
/// transaction blocks all others that draw from the same sequence. Draw late and commit soon. If a
/// transaction draws from several sequences, use the same order everywhere. A commit is as durable as the
/// caller's connection makes it.
///
/// The sequence is created on first use, in the same transaction. A store over the same table uses the same
/// sequence. The store and the transactions never get the same id, but the store leaves gaps.
///
/// In PostgreSQL and MySQL the table must exist; opening a store once creates it. In SQLite it is created on
/// first use too. Use PostgreSQL's default isolation level, READ COMMITTED: at a stricter level a transaction
/// that waited for another fails to serialize ([`Unavailable`](idmill::ErrorKind::Unavailable)) and has to be
/// restarted.
pub struct InTransaction<T, D, L = (), How = Awaited> {
    name: SequenceName,
    bounds: Bounds,
    draws: D,
    of: Marks<T, L, How>,
}

/// Makes the type `Send`, whatever its parameters are.
type Marks<T, L, How> = PhantomData<fn() -> (T, L, How)>;

impl<T: Id, D: Draws, L, How> InTransaction<T, D, L, How> {
    /// Uses the sequence of this name in the table `idmill_sequences`, with the bounds of the id type.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid name.
    pub fn new(name: &str) -> Result<Self> {
        let (name, draws) = (SequenceName::new(name)?, D::of_table(DEFAULT_TABLE)?);
        Ok(Self { name, bounds: Bounds::of::<T>(), draws, of: PhantomData })
    }

    /// Sets the bounds that the sequence is created with if it does not exist yet.
    #[must_use]
    pub fn bounds(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Uses another table than `idmill_sequences`.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid name.
    pub fn table(self, table: &str) -> Result<Self> {
        Ok(Self { draws: self.draws.in_table(table)?, ..self })
    }

    /// Draws exactly `count` ids over an executor that runs in the transaction.
    ///
    /// # Errors
    /// The errors of [`reserve`](Self::reserve).
    pub async fn draw<E: Executor>(&self, within: &mut E, count: u64) -> Result<IdRange<T>> {
        const { must_be_within::<E>() };
        let outcome = self.try_draw(within, count).await;
        outcome.and_then(typed).map_err(|error| error.of(&self.name).during(Operation::Reserve))
    }

    async fn try_draw<E: Executor>(&self, within: &mut E, count: u64) -> Result<IdRange> {
        if count == 0 {
            return Err(Error::invalid("a range of 0 ids was requested; request at least 1"));
        }
        let request = Reserve::new(self.name.clone(), count).ceiling(T::MAX).create(self.bounds);
        self.draws.draw(within, &request, T::MIN).await
    }
}

impl<T: Id, D: FailsOver, L, How> InTransaction<T, D, L, How> {
    /// Sets the policy for a sequence that was last written by another server, cluster or timeline, whose
    /// last writes may be missing here. Default [`Failover::Refuse`]. If a draw adopts the row, the new
    /// history commits or rolls back with the transaction. With [`Failover::Allow`] the server's identity is
    /// not queried. The user then needs no privilege for the query, and MySQL does not have to log rows
    /// (`binlog_format = STATEMENT` works).
    #[must_use]
    pub fn failover(self, failover: Failover) -> Self {
        Self { draws: self.draws.failover(failover), ..self }
    }
}

impl<T: Id, L, How> InTransaction<T, crate::postgres::Calls, L, How> {
    /// Sets the schema of the table. By default, the table is resolved by the `search_path` of the
    /// transaction, and a second relation of its name on the path is a
    /// [`Conflict`](idmill::ErrorKind::Conflict).
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid name.
    pub fn schema(self, schema: &str) -> Result<Self> {
        Ok(Self { draws: self.draws.in_schema(schema)?, ..self })
    }
}

impl<T: Id, D: Draws, L: Library> InTransaction<T, D, L> {
    /// Draws the next id.
    ///
    /// # Errors
    /// The errors of [`reserve`](Self::reserve).
    pub async fn next(&self, transaction: L::Transaction<'_>) -> Result<T> {
        self.reserve(transaction, 1).await.map(one)
    }

    /// Draws exactly `count` ids. If this future is dropped, roll the transaction back: a commit may leave a
    /// gap.
    ///
    /// # Errors
    /// No ids are taken, unless MySQL had ended the transaction before the draw.
    ///
    /// - [`Exhausted`](idmill::ErrorKind::Exhausted) if fewer than `count` ids are left;
    /// - [`InvalidInput`](idmill::ErrorKind::InvalidInput) if `count` is 0, the next id is below the type's
    ///   smallest, or the connection is not in a transaction that its library began;
    /// - [`Conflict`](idmill::ErrorKind::Conflict) if the sequence was last written by another server, see
    ///   [`failover`](Self::failover), if the `search_path` leads to two tables, or if the table is not
    ///   idmill's or the transaction had already ended;
    /// - [`Unavailable`](idmill::ErrorKind::Unavailable) if the transaction has to be restarted or
    ///   the server is unreachable;
    /// - [`NotFound`](idmill::ErrorKind::NotFound) if there is no table;
    /// - [`Denied`](idmill::ErrorKind::Denied);
    /// - [`StoreViolation`](idmill::ErrorKind::StoreViolation) if the stored row is invalid; `Unsupported`
    ///   for another version.
    ///
    /// In PostgreSQL the transaction stays usable after [`Exhausted`](idmill::ErrorKind::Exhausted),
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) and a [`Conflict`](idmill::ErrorKind::Conflict)
    /// between servers, unless the database's encoding lacks a character of the name; after any other error,
    /// roll it back. In MySQL, roll the transaction back after any error.
    pub async fn reserve(&self, transaction: L::Transaction<'_>, count: u64) -> Result<IdRange<T>> {
        self.draw(&mut Within::<L, _>(transaction), count).await
    }
}

impl<T: Id, D: Draws, L: Library<Blocking>> InTransaction<T, D, L> {
    /// Draws the next id. Blocks the thread.
    ///
    /// # Errors
    /// The errors of [`reserve_blocking`](Self::reserve_blocking).
    pub fn next_blocking(&self, transaction: L::Transaction<'_>) -> Result<T> {
        self.reserve_blocking(transaction, 1).map(one)
    }

    /// Draws exactly `count` ids. Blocks the thread.
    ///
    /// # Errors
    /// The errors of [`reserve`](Self::reserve).
    pub fn reserve_blocking(&self, transaction: L::Transaction<'_>, count: u64) -> Result<IdRange<T>> {
        at_once(self.draw(&mut Within::<L, _>(transaction), count))
    }
}

impl<T: Id, D: Draws, L: Library<Blocking>> InTransaction<T, D, L, Blocking> {
    /// Draws the next id.
    ///
    /// # Errors
    /// The errors of [`reserve`](Self::reserve).
    pub fn next(&self, transaction: L::Transaction<'_>) -> Result<T> {
        self.reserve(transaction, 1).map(one)
    }

    /// Draws exactly `count` ids.
    ///
    /// # Errors
    /// No ids are taken in any of these cases.
    ///
    /// - [`Exhausted`](idmill::ErrorKind::Exhausted) if fewer than `count` ids are left;
    /// - [`InvalidInput`](idmill::ErrorKind::InvalidInput) if `count` is 0 or the next id is below the type's
    ///   smallest;
    /// - [`Unavailable`](idmill::ErrorKind::Unavailable) if the database is locked;
    /// - [`Denied`](idmill::ErrorKind::Denied) if the database is read-only;
    /// - [`StoreViolation`](idmill::ErrorKind::StoreViolation) if the stored row is invalid; `Conflict` or
    ///   `Unsupported` for another table.
    pub fn reserve(&self, transaction: L::Transaction<'_>, count: u64) -> Result<IdRange<T>> {
        at_once(self.draw(&mut Within::<L, _>(transaction), count))
    }
}

fn one<T: Id>(range: IdRange<T>) -> T {
    range.first().expect("one id was reserved")
}

/// Runs calls over a blocking executor. They await nothing else, so neither a waker nor a runtime
/// is needed.
///
/// # Panics
/// If the call awaits anything else.
pub fn at_once<R>(call: impl Future<Output = R>) -> R {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => unreachable!("the call awaited something other than its executor"),
    }
}

/// Does not require the library to be `Clone`.
impl<T, D: Clone, L, How> Clone for InTransaction<T, D, L, How> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), draws: self.draws.clone(), ..*self }
    }
}

impl<T, D: fmt::Debug, L, How> fmt::Debug for InTransaction<T, D, L, How> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, bounds, draws, of: _ } = self;
        let mut debug = f.debug_struct("InTransaction");
        debug.field("name", name).field("bounds", bounds).field("draws", draws).finish()
    }
}
