//! Draws on a connection of diesel itself, [`PgConnection`]: those that [`InTransaction`] has too, by another
//! name.
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

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use diesel::connection::TransactionManager;
use diesel::{Connection, PgConnection, RunQueryDsl};
use idmill::{Id, Range, Result};
use idmill_sql::{Answer, Executor, Fault, Statement};

use super::InTransaction;
use super::convert::{fault_of, must_be_inside};
use super::query::{Sent, Texts, answer};

/// The next id of a sequence, inside the caller's transaction: [`InTransaction`] with everything at its
/// default.
///
/// # Errors
/// Those of [`InTransaction::reserve_blocking`].
pub fn next_in<T: Id>(transaction: &mut PgConnection, name: &str) -> Result<T> {
    InTransaction::new(name)?.next_blocking(transaction)
}

/// The next `count` ids of a sequence, inside the caller's transaction: [`InTransaction`] with everything at
/// its default.
///
/// # Errors
/// Those of [`InTransaction::reserve_blocking`].
pub fn reserve_in<T: Id>(transaction: &mut PgConnection, name: &str, count: u64) -> Result<Range<T>> {
    InTransaction::new(name)?.reserve_blocking(transaction, count)
}

impl<T: Id> InTransaction<T> {
    /// The next id. The thread waits for the server.
    ///
    /// # Errors
    /// Those of [`reserve_blocking`](Self::reserve_blocking).
    pub fn next_blocking(&self, transaction: &mut PgConnection) -> Result<T> {
        now(self.0.next(&mut Within(transaction)))
    }

    /// The next `count` ids, exactly. The thread waits for the server.
    ///
    /// # Errors
    /// Nothing is taken in any of these cases. The transaction goes on after
    /// [`Exhausted`](idmill::ErrorKind::Exhausted), if fewer than `count` ids are left, and
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput), if `count` is 0, the type cannot hold the next id,
    /// or the connection is in no transaction that diesel began; all others have ended it:
    /// [`Unavailable`](idmill::ErrorKind::Unavailable) if it has to be begun again, the server cannot be
    /// reached, or diesel does not say what is wrong; [`NotFound`](idmill::ErrorKind::NotFound) if there is
    /// no table; [`Denied`](idmill::ErrorKind::Denied); [`StoreViolation`](idmill::ErrorKind::StoreViolation)
    /// if what is stored cannot be.
    pub fn reserve_blocking(&self, transaction: &mut PgConnection, count: u64) -> Result<Range<T>> {
        now(self.0.reserve(&mut Within(transaction), count))
    }
}

/// Nothing that is waited for here leaves the thread.
fn now<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("every statement was answered before its future returned"),
    }
}

/// Runs statements in a transaction of the caller's.
struct Within<'a>(&'a mut PgConnection);

type Manager = <PgConnection as Connection>::TransactionManager;

impl Executor for Within<'_> {
    const IN_TRANSACTION: bool = true;

    async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
        must_be_inside(Manager::transaction_manager_status_mut(self.0).transaction_depth())?;
        let rows: Vec<Texts> = Sent::new(&statement)?.load(self.0).map_err(fault_of)?;
        Ok(answer(rows))
    }
}
