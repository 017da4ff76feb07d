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
use idmill_sql::{Answer, Blocking, Fault, Library, Statement};

use super::InTransaction;
use super::convert::{fault_of, must_be_inside};
use super::query::{Sent, Texts, answer};
use super::transaction::Diesel;

idmill_sql::draws_in! {
    blocking(next_blocking, reserve_blocking) &mut PgConnection
}

type Manager = <PgConnection as Connection>::TransactionManager;

impl Library<Blocking> for Diesel {
    type Transaction<'a> = &'a mut PgConnection;

    async fn execute(
        transaction: &mut Self::Transaction<'_>,
        statement: Statement<'_>,
    ) -> Result<Answer, Fault> {
        must_be_inside(Manager::transaction_manager_status_mut(*transaction).transaction_depth())?;
        let rows: Vec<Texts> = Sent::new(&statement)?.load(*transaction).map_err(fault_of)?;
        Ok(answer(rows))
    }
}
