//! Ids inside the caller's own transaction. These ids are gapless, because they commit or abort with the
//! transaction.

use std::marker::PhantomData;

use idmill::store::{Bounds, Reserve};
use idmill::{Error, Id, IdRange, Operation, Result, SequenceName};
use idmill_kit::{Asked, typed};
use mongodb::error::ErrorKind as Mongo;
use mongodb::{ClientSession, Database};

use super::DEFAULT_TIMEOUT;
use super::classify::{Rejection, failed};
use super::connection::Commands;
use super::reserve::reserve;
use super::schema::{DEFAULT_COLLECTION, NAME};

/// Reserves the next id of a sequence inside your transaction. Uses [`InTransaction`] with its default
/// settings.
///
/// ```no_run
/// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
/// use idmill_mongodb::driver::Client;
/// use idmill_mongodb::driver::bson::doc;
/// use idmill_mongodb::next_in;
///
/// let client = Client::with_uri_str("mongodb://localhost/?replicaSet=rs0").await?;
/// let shop = client.database("shop");
///
/// let mut session = client.start_session().await?;
/// session.start_transaction().await?;
/// let number: i64 = next_in(&mut session, &shop, "invoices").await?;
/// let invoice = doc! { "_id": number, "total": 4200 };
/// shop.collection("invoices").insert_one(invoice).session(&mut session).await?;
/// session.commit_transaction().await?; // the number and the invoice, or neither
/// # Ok(()) }
/// ```
///
/// # Errors
/// Returns the errors of [`InTransaction::reserve`].
pub async fn next_in<T: Id>(session: &mut ClientSession, database: &Database, name: &str) -> Result<T> {
    InTransaction::new(database, name)?.next(session).await
}

/// Reserves the next `count` ids of a sequence inside your transaction. Uses [`InTransaction`] with its
/// default settings.
///
/// # Errors
/// Returns the errors of [`InTransaction::reserve`].
pub async fn reserve_in<T: Id>(
    session: &mut ClientSession,
    database: &Database,
    name: &str,
    count: u64,
) -> Result<IdRange<T>> {
    InTransaction::new(database, name)?.reserve(session, count).await
}

/// Reserves ids of a sequence inside your own transactions. The server must be a replica set or a sharded
/// cluster, because a single server has no transactions.
///
/// The ids commit with the documents that use them, so there are no gaps: the ids of an aborted transaction
/// go to the next transaction. The cost is that two transactions cannot reserve from one sequence at the
/// same time. The server aborts the second, which gets [`Unavailable`](idmill::ErrorKind::Unavailable) and
/// must begin again. So reserve late and commit soon.
///
/// Use the write concern `majority` for the transaction, which is the default of a replica set since
/// MongoDB 5. A failover could undo a commit with a weaker write concern. A sequence is created on first
/// use, in the same transaction. A [`MongoStore`](super::MongoStore) can use the same sequence without
/// duplicates, but its reserves leave gaps.
#[derive(Clone)]
pub struct InTransaction<T> {
    name: SequenceName,
    bounds: Bounds,
    database: Database,
    collection: String,
    of: PhantomData<fn() -> T>,
}

impl<T: Id> InTransaction<T> {
    /// Creates a handle for the sequence of this name, in the collection `idmill_sequences`, with the
    /// bounds of the id's type.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](idmill::ErrorKind::InvalidInput) if the name is invalid.
    pub fn new(database: &Database, name: &str) -> Result<Self> {
        let (database, collection) = (database.clone(), DEFAULT_COLLECTION.to_owned());
        Ok(Self {
            name: SequenceName::new(name)?,
            bounds: Bounds::of::<T>(),
            database,
            collection,
            of: PhantomData,
        })
    }

    /// Sets the bounds with which the sequence is created if it does not exist.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Sets the collection, which is `idmill_sequences` by default.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](idmill::ErrorKind::InvalidInput) if the name is invalid.
    pub fn collection(mut self, collection: &str) -> Result<Self> {
        NAME.check("collection", collection)?;
        collection.clone_into(&mut self.collection);
        Ok(self)
    }

    /// Reserves the next id.
    ///
    /// # Errors
    /// Returns the errors of [`reserve`](Self::reserve).
    pub async fn next(&self, session: &mut ClientSession) -> Result<T> {
        let range = self.reserve(session, 1).await?;
        Ok(range.first().expect("a grant has the requested number of ids"))
    }

    /// Reserves exactly the next `count` ids. After an error, or if this future was dropped, abort the
    /// transaction: if it is committed anyway, there may be a gap.
    ///
    /// # Errors
    /// No ids are taken in any of these cases if you abort the transaction.
    ///
    /// - [`Exhausted`](idmill::ErrorKind::Exhausted) if fewer than `count` ids are left.
    /// - [`InvalidInput`](idmill::ErrorKind::InvalidInput) if `count` is 0, the next id is below the type's
    ///   smallest, or the session is not in a transaction.
    /// - [`Unsupported`](idmill::ErrorKind::Unsupported) if the server has no transactions.
    /// - [`Unavailable`](idmill::ErrorKind::Unavailable) if another transaction reserved first or the
    ///   server cannot be reached.
    /// - [`Denied`](idmill::ErrorKind::Denied) if a permission is missing.
    /// - [`StoreViolation`](idmill::ErrorKind::StoreViolation) if the stored document is invalid.
    pub async fn reserve(&self, session: &mut ClientSession, count: u64) -> Result<IdRange<T>> {
        let outcome = self.try_reserve(session, count).await;
        outcome.and_then(typed).map_err(|error| error.of(&self.name).during(Operation::Reserve))
    }

    async fn try_reserve(&self, session: &mut ClientSession, count: u64) -> Result<IdRange> {
        if count == 0 {
            return Err(Error::invalid("a range of 0 ids was requested; request at least 1"));
        }
        must_be_in_transaction(session).await?;
        let commands = Commands::new(self.database.clone(), self.collection.clone(), DEFAULT_TIMEOUT);
        let request = Reserve::new(self.name.clone(), count).ceiling(T::MAX).create(self.bounds);
        Ok(reserve(&commands, Some(session), &request, None, Some(T::MIN)).await?.range)
    }
}

/// Returns an error if the session is not in a transaction: ids would then be taken immediately and
/// permanently. The driver does not expose the state of the session, but it rejects a second
/// `start_transaction` without a request to the server.
async fn must_be_in_transaction(session: &mut ClientSession) -> Result<()> {
    match session.start_transaction().await {
        Ok(()) => {
            // No command was sent in this transaction, so the abort sends none either.
            let _ = session.abort_transaction().await;
            let message = "the session is not in a transaction; call `start_transaction` before the first \
                           id, `commit_transaction` after the last";
            Err(Error::invalid(message))
        }
        Err(error) => match &*error.kind {
            Mongo::Transaction { message, .. } if message.contains("in progress") => Ok(()),
            _ => Err(failed(&Rejection::from(error).into(), Asked::InTransaction)),
        },
    }
}

// Omits the client, whose options contain a password.
idmill_kit::debug_fields!(
    InTransaction<T> |this|
    name = this.name, bounds = this.bounds, collection = format!("{}.{}", this.database.name(), this.collection)
);
