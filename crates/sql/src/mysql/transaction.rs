//! Ids inside a transaction of the caller's: gapless, since they commit or roll back with it.

use std::marker::PhantomData;

use idmill::store::{Bounds, Reserve, SequenceInfo};
use idmill::{Error, ErrorKind, Id, Operation, Range, Result, SequenceName};
use idmill_kit::history::Failover;

use super::adopt::adopt;
use super::classify::{failed, is_duplicate};
use super::history::History;
use super::reserve::{read_to_write, taken};
use super::run::{try_write, write};
use super::table::{DEFAULT_TABLE, Table};
use crate::rows::first;
use crate::{Asked, Executor, Fault, must_be_within};

/// A sequence that is drawn from inside the caller's own transactions, whatever the driver.
///
/// The ids commit with what they number. The row is locked from the first id to the end of the transaction.
/// The sequence is created on first use, in the same transaction; the table is not, since to create one would
/// commit. It is looked for in the database that the connection uses. One round trip as a rule, at any
/// isolation level.
#[derive(Clone, Debug)]
pub struct InTransaction<T> {
    name: SequenceName,
    bounds: Bounds,
    table: Table,
    history: History,
    of: PhantomData<fn() -> T>,
}

impl<T: Id> InTransaction<T> {
    /// The sequence of this name, in the table [`DEFAULT_TABLE`], with the bounds of the id's type.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a name that cannot be.
    pub fn new(name: &str) -> Result<Self> {
        let (name, table) = (SequenceName::new(name)?, Table::new(DEFAULT_TABLE)?);
        let history = History::in_transaction(Failover::default());
        Ok(Self { name, bounds: Bounds::of::<T>(), table, history, of: PhantomData })
    }

    /// The bounds with which to create the sequence, should it not exist yet.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Another table.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a name that cannot be.
    pub fn table(mut self, table: &str) -> Result<Self> {
        self.table = Table::new(table)?;
        Ok(self)
    }

    /// What happens if the sequence was last written by another server, whose last writes may be missing
    /// here. Default [`Failover::Refuse`]. What is done about it commits or rolls back with the transaction.
    /// With [`Failover::Allow`] nobody looks who wrote last, as it has to be where statements are logged
    /// (`binlog_format = STATEMENT`).
    #[must_use]
    pub fn failover(mut self, failover: Failover) -> Self {
        self.history = History::in_transaction(failover);
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

    /// The next `count` ids, exactly. After an error, and after this future was dropped, roll the transaction
    /// back: one that is committed all the same may have a gap.
    ///
    /// # Errors
    /// Nothing is taken in any of these cases. [`Exhausted`](ErrorKind::Exhausted) if fewer than
    /// `count` ids are left; [`InvalidInput`](ErrorKind::InvalidInput) if `count` is 0 or the type
    /// cannot hold the next id; [`Unavailable`](ErrorKind::Unavailable) if others held the sequence
    /// for too long, the server chose this transaction to end a deadlock (as it may for those that create one
    /// sequence at the same time), or cannot be reached; [`NotFound`](ErrorKind::NotFound) if there
    /// is no table; [`Denied`](ErrorKind::Denied);
    /// [`StoreViolation`](ErrorKind::StoreViolation) if what is stored cannot be.
    ///
    /// [`Conflict`](ErrorKind::Conflict) if the sequence was last written by another server, see
    /// [`failover`](Self::failover); and if the server had ended the transaction before, after an
    /// error that it should have been rolled back for: the ids then are a gap.
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
        // A second time where another transaction has created the sequence meanwhile, and committed, or where
        // another server had written it.
        for _ in 0..2 {
            if let Some(range) = self.advance(transaction, &request).await? {
                return Ok(range);
            }
            let seen = read_to_write(transaction, &self.table, &self.name).await?;
            if let Some((seen, histories)) =
                seen.as_ref().and_then(|seen| Some((seen, seen.differs(self.history)?)))
            {
                adopt(transaction, &self.table, self.history, &seen.info, histories).await?;
                continue;
            }
            let range = match seen {
                Some(seen) => Some(self.last(transaction, &request, &seen.info).await?),
                None => self.create(transaction, &request).await?,
            };
            if let Some(range) = range {
                return Ok(range);
            }
        }
        let message = "a row of this sequence is there and cannot be seen: a unique index of somebody's, or another format";
        Err(Error::new(ErrorKind::Conflict, message))
    }

    async fn advance<E: Executor>(&self, transaction: &mut E, request: &Reserve) -> Result<Option<Range>> {
        let Some(update) = self.table.advance_any(request, T::MIN, self.history) else { return Ok(None) };
        let answer = write(transaction, &update).await?;
        taken(&answer, request.count, (T::MIN.max(1), request.ceiling)).map_err(within)
    }

    /// What [`advance`](Self::advance) does not take. The row is locked: nobody changes it in between.
    async fn last<E: Executor>(
        &self,
        transaction: &mut E,
        request: &Reserve,
        seen: &SequenceInfo,
    ) -> Result<Range> {
        let mut after = seen.clone();
        let grant = after.grant(request.count, request.ceiling)?;
        grant.must_fit(&request.name, request.count, T::MIN, request.ceiling)?;
        let update = self.table.replace(seen, &after, &self.history.sets());
        if write(transaction, &update).await?.changed == 1 {
            return Ok(grant.range);
        }
        let message = "a change of a row that is locked changed nothing; look for a trigger";
        Err(within(Fault::Answer(message.to_owned())))
    }

    /// `None` if somebody else did.
    async fn create<E: Executor>(&self, transaction: &mut E, request: &Reserve) -> Result<Option<Range>> {
        let (info, grant) = first(request)?;
        grant.must_fit(&request.name, request.count, T::MIN, request.ceiling)?;
        match try_write(transaction, &self.table.insert(&info, self.history)).await {
            Ok(_) => Ok(Some(grant.range)),
            Err(fault) if is_duplicate(&fault) => Ok(None),
            Err(fault) => Err(within(fault)),
        }
    }
}

fn within(fault: Fault) -> Error {
    failed(fault, Asked::InTransaction)
}
