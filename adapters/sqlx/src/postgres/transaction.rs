//! Ids inside a transaction of the caller's: gapless, since they commit or roll back with it.

use idmill::store::Bounds;
use idmill::{Error, ErrorKind, Id, Range, Result};
use idmill_kit::history::Failover;
use idmill_sql::postgres::InTransaction as Draws;
use idmill_sql::{Answer, Executor, Fault, Statement};
use sqlx::{Connection, PgConnection};

use super::convert::{fault_of, row_of};
use super::text::inlined;
use crate::version::postgres::rows;

/// The next id of a sequence, inside the caller's transaction: [`InTransaction`] with everything at its
/// default.
///
/// ```no_run
/// # async fn demo(pool: &idmill_sqlx::driver::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use idmill_sqlx::driver as sqlx;
/// use idmill_sqlx::postgres::next_in;
///
/// let mut tx = pool.begin().await?;
/// let number: i64 = next_in(&mut *tx, "invoices").await?;
/// sqlx::query("INSERT INTO invoices VALUES ($1, 4200)").bind(number).execute(&mut *tx).await?;
/// tx.commit().await?; // the number and the invoice, or neither
/// # Ok(()) }
/// ```
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub async fn next_in<T: Id>(transaction: &mut PgConnection, name: &str) -> Result<T> {
    InTransaction::new(name)?.next(transaction).await
}

/// The next `count` ids of a sequence, inside the caller's transaction: [`InTransaction`] with everything at
/// its default.
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub async fn reserve_in<T: Id>(transaction: &mut PgConnection, name: &str, count: u64) -> Result<Range<T>> {
    InTransaction::new(name)?.reserve(transaction, count).await
}

/// A sequence that is drawn from inside the caller's own transactions: pass `&mut *tx`.
///
/// The ids commit with what they number, so there are no gaps, and they are ordered as the commits are: a
/// transaction that rolls back gives its ids to the next one. The price is that transactions which draw from
/// one sequence run one after another, each from its first id to its end. So draw late and commit soon; and
/// where one draws from several sequences, in the same order everywhere. A commit is as durable as the
/// caller's connection makes it.
///
/// The sequence is created on first use, in the same transaction; the table must be there, as any
/// [`PostgresStore`](super::PostgresStore) that was opened once has created it, or [`ddl`](super::ddl) in a
/// migration. Both may draw from one sequence without ever sharing an id, but then it has the gaps of the
/// latter.
///
/// A savepoint, as sqlx makes of a transaction in a transaction, takes the ids back that were drawn in it, if
/// it is rolled back. The lock stays until the outer transaction ends.
///
/// READ COMMITTED, PostgreSQL's default, is the isolation to use. In a stricter one a transaction that
/// waited for another hears that it could not be serialised
/// ([`Unavailable`](idmill::ErrorKind::Unavailable)), and has to begin again.
///
/// See the [module](super) for what is dropped halfway.
#[derive(Clone, Debug)]
pub struct InTransaction<T>(Draws<T>);

impl<T: Id> InTransaction<T> {
    /// The sequence of this name, in the table `idmill_sequences`, with the bounds of the id's type.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn new(name: &str) -> Result<Self> {
        Draws::new(name).map(Self)
    }

    /// The bounds with which to create the sequence, should it not exist yet.
    #[must_use]
    pub fn bounds(self, bounds: Bounds) -> Self {
        Self(self.0.bounds(bounds))
    }

    /// Another table, as in [`PostgresOptions::table`](super::PostgresOptions::table).
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn table(self, table: &str) -> Result<Self> {
        self.0.table(table).map(Self)
    }

    /// The schema of the table; without it, the `search_path` of the transaction finds the table.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn schema(self, schema: &str) -> Result<Self> {
        self.0.schema(schema).map(Self)
    }

    /// What happens if the sequence was last written on another cluster or timeline, whose last writes may be
    /// missing here. Default [`Failover::Refuse`]. What is done about it commits or rolls back with the
    /// transaction. With [`Failover::Allow`] the server is not asked, so that no right to ask is needed.
    #[must_use]
    pub fn failover(self, failover: Failover) -> Self {
        Self(self.0.failover(failover))
    }

    /// The next id.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    pub async fn next(&self, transaction: &mut PgConnection) -> Result<T> {
        self.0.next(&mut Within(transaction)).await
    }

    /// The next `count` ids, exactly. If this future was dropped, roll the transaction back: one that is
    /// committed all the same may have a gap.
    ///
    /// # Errors
    /// Nothing is taken in any of these cases. The transaction goes on after
    /// [`Exhausted`](idmill::ErrorKind::Exhausted), if fewer than `count` ids are left, and
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput), if `count` is 0, the type cannot hold the next id,
    /// or the connection is in no transaction that sqlx began; all others have ended it:
    /// [`Unavailable`](idmill::ErrorKind::Unavailable) if it has to be begun again or the server cannot be
    /// reached; [`NotFound`](idmill::ErrorKind::NotFound) if there is no table;
    /// [`Denied`](idmill::ErrorKind::Denied); [`StoreViolation`](idmill::ErrorKind::StoreViolation) if what
    /// is stored cannot be.
    pub async fn reserve(&self, transaction: &mut PgConnection, count: u64) -> Result<Range<T>> {
        self.0.reserve(&mut Within(transaction), count).await
    }
}

/// Runs statements in a transaction of the caller's.
struct Within<'a>(&'a mut PgConnection);

impl Executor for Within<'_> {
    const IN_TRANSACTION: bool = true;

    async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
        if !self.0.is_in_transaction() {
            return Err(Fault::Refused(outside()));
        }
        let sql = inlined(&statement, "")?;
        let rows = rows(self.0, &sql).await.map_err(fault_of)?;
        Ok(Answer::rows(rows.iter().map(row_of).collect()))
    }
}

/// The type of the argument is that of any connection.
fn outside() -> Error {
    let message = "the connection is in no transaction, so that ids would be taken at once, with gaps: begin one with `begin` of the pool \
                   or the connection, and pass `&mut *tx`";
    Error::new(ErrorKind::InvalidInput, message)
}
