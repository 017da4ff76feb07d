//! Ids inside a transaction of the caller's: gapless, since they commit or roll back with it.

use idmill::store::Bounds;
use idmill::{Id, Result};
use idmill_kit::history::Failover;
use idmill_sql::postgres::InTransaction as Draws;

/// A sequence that is drawn from inside the caller's own transactions: pass the connection that
/// `conn.transaction(…)` passes.
///
/// The ids commit with what they number, so there are no gaps, and they are ordered as the commits are: a
/// transaction that rolls back gives its ids to the next one. The price is that transactions which draw from
/// one sequence run one after another, each from its first id to its end. So draw late and commit soon; and
/// where one draws from several sequences, in the same order everywhere. A commit is as durable as the
/// caller's connection makes it.
///
/// The sequence is created on first use, in the same transaction; the table must be there, as any store that
/// was opened once has created it, or [`ddl`](super::ddl) in a migration. Both may draw from one sequence
/// without ever sharing an id, but then it has the gaps of the latter.
///
/// diesel makes a savepoint of a transaction in a transaction. If it is rolled back, so are the ids that were
/// drawn in it. The lock stays until the outer transaction ends.
///
/// READ COMMITTED, PostgreSQL's default, is the isolation to use. In a stricter one a transaction that
/// waited for another hears that it could not be serialised
/// ([`Unavailable`](idmill::ErrorKind::Unavailable)), and has to begin again.
///
/// See the [crate](crate) for what is dropped halfway.
#[derive(Clone, Debug)]
pub struct InTransaction<T>(pub(super) Draws<T>);

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

    /// Another table than `idmill_sequences`.
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
}
