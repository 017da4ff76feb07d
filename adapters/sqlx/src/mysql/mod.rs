//! MySQL and MariaDB: ids inside the transactions of a [`MySqlPool`](sqlx::MySqlPool).
//!
//! The table is the same as in `idmill-mysql`: processes with either crate share its sequences. This module
//! has no store. Use the one of `idmill-mysql`, which also creates the table, or [`ddl`] in a migration.
//!
//! # Protocol
//!
//! A draw from an existing sequence sends two texts without parameters. sqlx does not report whether the
//! server has ended the transaction, for example after a deadlock: later statements would commit one by one.
//! So the first text begins with a savepoint that is released immediately, which fails outside a transaction.
//! Then it takes the ids. sqlx counts the rows that a statement matched, whether they were changed or not, so
//! the second text reads the row, and finds a write that a trigger has undone.
//!
//! # Cancellation
//!
//! If a future of [`next_in`] is dropped, its statements may have run: roll the transaction back.

use futures_util::TryStreamExt as _;
use idmill::Result;
use idmill_sql::mysql::{Draws, Table, whole};
use idmill_sql::{Answer, EngineError, Fault, Library, Row, Statement, Value};
use sqlx::mysql::{MySqlDatabaseError, MySqlRow};
use sqlx::{Either, Error as SqlxError, Executor as _, MySqlConnection, Row as _};

use crate::must_be_inside;
use crate::version::mysql::raw;

pub use idmill_sql::mysql::DEFAULT_TABLE;

/// Fails outside a transaction; otherwise has no effect.
const PROBE: &str = "SAVEPOINT idmill; RELEASE SAVEPOINT idmill; ";
/// `ER_SP_DOES_NOT_EXIST`, also for savepoints.
const MISSING: u16 = 1305;

/// Returns the statement that creates the table, for migrations. A store with
/// [`Mode::Create`](crate::Mode::Create) runs it if the table is missing.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid name.
pub fn ddl(table: &str) -> Result<String> {
    Ok(Table::new(table)?.ddl())
}

idmill_sql::draws_in! {
    /// ```no_run
    /// # async fn demo(pool: &idmill_sqlx::driver::MySqlPool) -> Result<(), Box<dyn std::error::Error>> {
    /// use idmill_sqlx::driver as sqlx;
    /// use idmill_sqlx::mysql::next_in;
    ///
    /// let mut tx = pool.begin().await?;
    /// let number: i64 = next_in(&mut tx, "invoices").await?;
    /// sqlx::query("INSERT INTO invoices VALUES (?, 4200)").bind(number).execute(&mut *tx).await?;
    /// tx.commit().await?; // the number and the invoice, or neither
    /// # Ok(()) }
    /// ```
    async &mut MySqlConnection
}

/// A sequence that is drawn from inside the caller's own transactions: pass `&mut *tx`.
///
/// The ids commit together with the rows that they number. So there are no gaps: if a transaction rolls back,
/// the next one gets its ids. The cost: transactions that draw from one sequence run one after another, from
/// the first id to the commit. Draw late and commit soon. A commit is as durable as the server makes it.
///
/// The sequence is created on first use, in the same transaction. The table must exist in the connection's
/// database, since creating a table would commit the transaction. A store may draw from the same sequence and
/// never gets the same id, but it leaves gaps.
///
/// Roll the transaction back after any error.
pub type InTransaction<T> = idmill_sql::InTransaction<T, Draws, Sqlx>;

/// Marks transactions of `sqlx` with MySQL.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Sqlx {}

impl Library for Sqlx {
    const COUNTS_MATCHED: bool = true;

    type Transaction<'a> = &'a mut MySqlConnection;

    async fn execute(
        transaction: &mut Self::Transaction<'_>,
        statement: Statement<'_>,
    ) -> Result<Answer, Fault> {
        must_be_inside(&**transaction)?;
        let sql = [if statement.writes { PROBE } else { "" }, &whole(&statement)].concat();
        let (mut answers, mut rows) = ((&mut **transaction).fetch_many(raw(&sql)), Vec::new());
        let mut last = Answer::default();
        while let Some(answer) = answers.try_next().await.map_err(fault)? {
            match answer {
                Either::Left(done) => {
                    last = Answer::changed(done.rows_affected(), Some(done.last_insert_id()));
                }
                Either::Right(row) => rows.push(row_of(&row).map_err(fault)?),
            }
        }
        Ok(last.with_rows(rows))
    }
}

/// Converts a row. In the text protocol, all values are texts.
fn row_of(row: &MySqlRow) -> Result<Row, SqlxError> {
    let value =
        |column| Ok(row.try_get_unchecked::<Option<Vec<u8>>, _>(column)?.map_or(Value::Null, Value::Bytes));
    Ok(Row::new((0..row.len()).map(value).collect::<Result<_, SqlxError>>()?))
}

/// Converts an error of a statement.
fn fault(error: SqlxError) -> Fault {
    let said = error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
    match said.map(|said| (said.number(), said.message().to_owned())) {
        Some((MISSING, message)) if message.starts_with("SAVEPOINT") => Fault::Uncommitted,
        Some((number, message)) => EngineError::new(number.to_string(), message).because(error).into(),
        None => Fault::broken(error),
    }
}
