//! Ids inside a transaction of the caller's: gapless, since they commit or abort with it.

use std::fmt;
use std::marker::PhantomData;

use idmill::store::{Bounds, Reserve};
use idmill::{Error, Id, IdRange, Operation, Result, SequenceName};
use idmill_kit::{Asked, typed};
use mongodb::error::ErrorKind as Mongo;
use mongodb::{ClientSession, Database};

use super::DEFAULT_TIMEOUT;
use super::classify::{Fault, failed};
use super::commands::Commands;
use super::reserve::{Fit, reserve};
use super::schema::{DEFAULT_COLLECTION, NAME};

/// The next id of a sequence, inside the caller's transaction: [`InTransaction`]
/// with everything at its default.
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
/// Those of [`InTransaction::reserve`].
pub async fn next_in<T: Id>(session: &mut ClientSession, database: &Database, name: &str) -> Result<T> {
    InTransaction::new(database, name)?.next(session).await
}

/// The next `count` ids of a sequence, inside the caller's transaction: [`InTransaction`]
/// with everything at its default.
///
/// # Errors
/// Those of [`InTransaction::reserve`].
pub async fn reserve_in<T: Id>(
    session: &mut ClientSession,
    database: &Database,
    name: &str,
    count: u64,
) -> Result<IdRange<T>> {
    InTransaction::new(database, name)?.reserve(session, count).await
}

/// A sequence that is drawn from inside the caller's own transactions: on a replica set or a sharded cluster,
/// since a single server has none.
///
/// The ids commit with what they number, so there are no gaps: a transaction that aborts gives its ids to
/// the next one. The price is that two transactions cannot draw from one sequence at the same time: the
/// second to try is aborted by the server ([`Unavailable`](idmill::ErrorKind::Unavailable)), and has to
/// begin again. So draw late and commit soon.
///
/// The commit must be as durable as the ids: a write concern of `majority` for the transaction, which is the
/// default of a replica set since MongoDB 5. The sequences are those of [`MongoStore`](super::MongoStore) and
/// are created on first use, in the same transaction; both may draw from one without ever sharing an id, but
/// then it has the gaps of the latter.
#[derive(Clone)]
pub struct InTransaction<T> {
    name: SequenceName,
    bounds: Bounds,
    database: Database,
    collection: String,
    of: PhantomData<fn() -> T>,
}

impl<T: Id> InTransaction<T> {
    /// The sequence of this name, in the collection `idmill_sequences`, with the bounds of the id's type.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
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

    /// The bounds with which to create the sequence, should it not exist yet.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Another collection.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a name that cannot be.
    pub fn collection(mut self, collection: &str) -> Result<Self> {
        NAME.check("collection", collection)?;
        collection.clone_into(&mut self.collection);
        Ok(self)
    }

    /// The next id.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    pub async fn next(&self, session: &mut ClientSession) -> Result<T> {
        let range = self.reserve(session, 1).await?;
        Ok(range.first().expect("a grant has as many ids as were asked for"))
    }

    /// The next `count` ids, exactly. After an error, and after this future was dropped, abort the
    /// transaction: one that is committed all the same may have a gap.
    ///
    /// # Errors
    /// Nothing is taken in any of these cases. [`Exhausted`](idmill::ErrorKind::Exhausted) if fewer than
    /// `count` ids are left; [`InvalidInput`](idmill::ErrorKind::InvalidInput) if `count` is 0, the type
    /// cannot hold the next id, or the session is not in a transaction;
    /// [`Unsupported`](idmill::ErrorKind::Unsupported) if the server has no transactions;
    /// [`Unavailable`](idmill::ErrorKind::Unavailable) if another transaction got in between or the server
    /// cannot be reached; [`Denied`](idmill::ErrorKind::Denied);
    /// [`StoreViolation`](idmill::ErrorKind::StoreViolation) if what is stored cannot be.
    pub async fn reserve(&self, session: &mut ClientSession, count: u64) -> Result<IdRange<T>> {
        let outcome = self.try_reserve(session, count).await;
        outcome.and_then(typed).map_err(|error| error.of(&self.name).during(Operation::Reserve))
    }

    async fn try_reserve(&self, session: &mut ClientSession, count: u64) -> Result<IdRange> {
        if count == 0 {
            return Err(Error::invalid("a range of no ids was asked for; ask for at least 1"));
        }
        must_be_in_transaction(session).await?;
        let commands = Commands::new(self.database.clone(), self.collection.clone(), DEFAULT_TIMEOUT);
        let request = Reserve::new(self.name.clone(), count).ceiling(T::MAX).create(self.bounds);
        let fit = Fit::Exactly { floor: T::MIN };
        Ok(reserve(&commands, Some(session), &request, None, fit).await?.range)
    }
}

/// Outside a transaction the ids would be taken at once and for good. The driver does not tell whether a
/// session is in one, but refuses to start a second; which it does, or does not, without asking the server.
async fn must_be_in_transaction(session: &mut ClientSession) -> Result<()> {
    match session.start_transaction().await {
        Ok(()) => {
            // Nothing was sent in it, so that nothing is sent to end it.
            let _ = session.abort_transaction().await;
            let message = "the session is not in a transaction: call `start_transaction` before the first id, and \
                           `commit_transaction` after the last";
            Err(Error::invalid(message))
        }
        Err(error) => match &*error.kind {
            Mongo::Transaction { message, .. } if message.contains("in progress") => Ok(()),
            _ => Err(failed(&Fault::from(error), Asked::InTransaction)),
        },
    }
}

/// Not the client, whose options hold a password.
impl<T> fmt::Debug for InTransaction<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let collection = format!("{}.{}", self.database.name(), self.collection);
        f.debug_struct("InTransaction")
            .field("name", &self.name)
            .field("bounds", &self.bounds)
            .field("collection", &collection)
            .finish_non_exhaustive()
    }
}
