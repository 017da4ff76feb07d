//! Draws on a connection of diesel-async.

use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, TransactionManager};
use idmill::{Id, IdRange, Result};
use idmill_sql::{Answer, Executor, Fault, Library, Statement};

use super::InTransaction;
use super::convert::{fault_of, must_be_inside};
use super::query::{Sent, Texts, answer};
use super::transaction::Diesel;

/// Draws the next id of a sequence inside the caller's transaction, as [`InTransaction`] with its
/// defaults.
///
/// ```no_run
/// use idmill_diesel::diesel::sql_types::BigInt;
/// use idmill_diesel::diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
/// use idmill_diesel::postgres::next_in;
/// # use idmill_diesel::diesel;
///
/// type Error = Box<dyn std::error::Error + Send + Sync>;
///
/// async fn bill(conn: &mut AsyncPgConnection) -> Result<i64, Error> {
///     conn.transaction(async |conn| {
///         let number: i64 = next_in(conn, "invoices").await?;
///         let insert = diesel::sql_query("INSERT INTO invoices VALUES ($1, 4200)");
///         insert.bind::<BigInt, _>(number).execute(conn).await?;
///         Ok(number) // the number and the invoice, or neither
///     })
///     .await
/// }
/// ```
///
/// # Errors
/// The errors of [`InTransaction::reserve`].
pub async fn next_in<T: Id>(transaction: &mut AsyncPgConnection, name: &str) -> Result<T> {
    InTransaction::new(name)?.next(transaction).await
}

/// Draws exactly `count` ids of a sequence inside the caller's transaction, as [`InTransaction`]
/// with its defaults.
///
/// # Errors
/// The errors of [`InTransaction::reserve`].
pub async fn reserve_in<T: Id>(
    transaction: &mut AsyncPgConnection,
    name: &str,
    count: u64,
) -> Result<IdRange<T>> {
    InTransaction::new(name)?.reserve(transaction, count).await
}

impl Library for Diesel {
    type Transaction<'a> = &'a mut AsyncPgConnection;
    type Within<'a> = Within<'a>;

    fn within(transaction: Self::Transaction<'_>) -> Self::Within<'_> {
        Within(transaction)
    }
}

/// Runs statements in a transaction of the caller.
#[allow(missing_debug_implementations)] // the driver's connection has none
pub struct Within<'a>(&'a mut AsyncPgConnection);

type Manager = <AsyncPgConnection as AsyncConnection>::TransactionManager;

impl Executor for Within<'_> {
    const IN_TRANSACTION: bool = true;

    async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
        must_be_inside(Manager::transaction_manager_status_mut(self.0).transaction_depth())?;
        let rows: Vec<Texts> = Sent::new(&statement)?.load(self.0).await.map_err(fault_of)?;
        Ok(answer(rows))
    }
}
