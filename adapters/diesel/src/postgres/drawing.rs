//! Draws on a connection of diesel-async.

use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, TransactionManager};
use idmill_sql::{Answer, Fault, Library, Statement};

use super::InTransaction;
use super::convert::{fault_of, must_be_inside};
use super::query::{Sent, Texts, answer};
use super::transaction::Diesel;

idmill_sql::draws_in! {
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
    async &mut AsyncPgConnection
}

type Manager = <AsyncPgConnection as AsyncConnection>::TransactionManager;

impl Library for Diesel {
    type Transaction<'a> = &'a mut AsyncPgConnection;

    async fn execute(
        transaction: &mut Self::Transaction<'_>,
        statement: Statement<'_>,
    ) -> Result<Answer, Fault> {
        must_be_inside(Manager::transaction_manager_status_mut(*transaction).transaction_depth())?;
        let rows: Vec<Texts> = Sent::new(&statement)?.load(*transaction).await.map_err(fault_of)?;
        Ok(answer(rows))
    }
}
