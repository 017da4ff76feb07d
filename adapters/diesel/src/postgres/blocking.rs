//! Draws on a blocking connection of diesel, [`PgConnection`]: the blocking methods of
//! [`InTransaction`] as functions.
//!
//! ```no_run
//! use idmill_diesel::diesel::r2d2::{ConnectionManager, Pool};
//! use idmill_diesel::diesel::sql_types::BigInt;
//! use idmill_diesel::diesel::{Connection, PgConnection, RunQueryDsl};
//! use idmill_diesel::postgres::blocking::next_in;
//! # use idmill_diesel::diesel;
//!
//! type Error = Box<dyn std::error::Error + Send + Sync>;
//!
//! fn bill(pool: &Pool<ConnectionManager<PgConnection>>) -> Result<i64, Error> {
//!     pool.get()?.transaction(|conn| {
//!         let number: i64 = next_in(conn, "invoices")?;
//!         let insert = diesel::sql_query("INSERT INTO invoices VALUES ($1, 4200)");
//!         insert.bind::<BigInt, _>(number).execute(conn)?;
//!         Ok(number) // the number and the invoice, or neither
//!     })
//! }
//! ```

use diesel::connection::TransactionManager;
use diesel::{Connection, PgConnection, RunQueryDsl};
use idmill::{Id, IdRange, Result};
use idmill_sql::{Answer, Blocking, Executor, Fault, Library, Statement};

use super::InTransaction;
use super::convert::{fault_of, must_be_inside};
use super::query::{Sent, Texts, answer};
use super::transaction::Diesel;

/// Draws the next id of a sequence inside the caller's transaction, as [`InTransaction`] with its
/// defaults.
///
/// # Errors
/// The errors of [`InTransaction::reserve_blocking`].
pub fn next_in<T: Id>(transaction: &mut PgConnection, name: &str) -> Result<T> {
    InTransaction::new(name)?.next_blocking(transaction)
}

/// Draws exactly `count` ids of a sequence inside the caller's transaction, as [`InTransaction`]
/// with its defaults.
///
/// # Errors
/// The errors of [`InTransaction::reserve_blocking`].
pub fn reserve_in<T: Id>(transaction: &mut PgConnection, name: &str, count: u64) -> Result<IdRange<T>> {
    InTransaction::new(name)?.reserve_blocking(transaction, count)
}

impl Library<Blocking> for Diesel {
    type Transaction<'a> = &'a mut PgConnection;
    type Within<'a> = Within<'a>;

    fn within(transaction: Self::Transaction<'_>) -> Self::Within<'_> {
        Within(transaction)
    }
}

/// Runs statements in a transaction of the caller.
#[allow(missing_debug_implementations)] // the driver's connection has none
pub struct Within<'a>(&'a mut PgConnection);

type Manager = <PgConnection as Connection>::TransactionManager;

impl Executor for Within<'_> {
    const IN_TRANSACTION: bool = true;

    async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
        must_be_inside(Manager::transaction_manager_status_mut(self.0).transaction_depth())?;
        let rows: Vec<Texts> = Sent::new(&statement)?.load(self.0).map_err(fault_of)?;
        Ok(answer(rows))
    }
}
