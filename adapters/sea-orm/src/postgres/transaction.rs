//! Ids inside a transaction of the caller: gapless, since they commit or roll back with it.

use idmill::{Error, ErrorKind};
use idmill_sql::postgres::Calls;
use idmill_sql::{Answer, Fault, Library, Statement};
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend};

use super::convert::{fault_of, row_of, sent};
use super::store::elsewhere;
use crate::version::postgres::rows;

/// Fails if no transaction is open; otherwise has no effect.
const PROBE: &str = "SAVEPOINT idmill; RELEASE SAVEPOINT idmill";
/// no_active_sql_transaction
const NO_TRANSACTION: &str = "25P01";

idmill_sql::draws_in! {
    /// ```no_run
    /// # async fn demo(db: &sea_orm::DatabaseConnection) -> Result<(), Box<dyn std::error::Error>> {
    /// use idmill_sea_orm::postgres::next_in;
    /// use sea_orm::{ConnectionTrait, TransactionTrait};
    ///
    /// let tx = db.begin().await?;
    /// let number: i64 = next_in(&tx, "invoices").await?;
    /// tx.execute_unprepared(&format!("INSERT INTO invoices VALUES ({number}, 4200)")).await?;
    /// tx.commit().await?; // the number and the invoice, or neither
    /// # Ok(()) }
    /// ```
    ///
    /// A connection is not a transaction, and is rejected:
    ///
    /// ```compile_fail,E0308
    /// # async fn demo(db: &sea_orm::DatabaseConnection) {
    /// let number: i64 = idmill_sea_orm::postgres::next_in(db, "invoices").await.unwrap();
    /// # }
    /// ```
    async &DatabaseTransaction
}

/// A sequence that is drawn from inside the caller's own transactions.
///
/// The ids commit together with the rows that they number. So there are no gaps, and ids are in commit order:
/// if a transaction rolls back, the next one gets its ids. The cost: transactions that draw from one sequence
/// run one after another, each from its first draw to its commit or rollback. Draw late and commit soon. If a
/// transaction draws from several sequences, use the same order everywhere. A commit is as durable as the
/// caller's connection makes it.
///
/// The sequence is created on first use, in the same transaction. The table must exist: opening a
/// [`PostgresStore`](super::PostgresStore) once creates it, or use [`ddl`](super::ddl) in a migration. A
/// store may draw from the same sequence and never gets the same id, but it leaves gaps.
///
/// A nested transaction is a savepoint. If the savepoint is rolled back, the sequence gets back all ids drawn
/// since then, including ids that the outer transaction drew in that time. The lock is held until the
/// outermost transaction ends, or until a rollback to the savepoint before the first draw.
///
/// Use READ COMMITTED, PostgreSQL's default isolation level. At a stricter level, a transaction that waited
/// for another fails to serialize ([`Unavailable`](idmill::ErrorKind::Unavailable)) and has to be restarted.
///
/// See the [module](super) for dropped futures and transactions.
pub type InTransaction<T> = idmill_sql::InTransaction<T, Calls, SeaOrm>;

/// Marks transactions of SeaORM.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum SeaOrm {}

impl Library for SeaOrm {
    type Transaction<'a> = &'a DatabaseTransaction;

    async fn execute(
        transaction: &mut Self::Transaction<'_>,
        statement: Statement<'_>,
    ) -> Result<Answer, Fault> {
        let backend = transaction.get_database_backend();
        if backend != DbBackend::Postgres {
            return Err(Fault::Refused(elsewhere("transaction", backend)));
        }
        // SeaORM does not detect that its transaction has ended.
        if statement.writes {
            let probed = transaction.execute_unprepared(PROBE).await.map_err(fault_of);
            probed.map_err(|fault| if fault.code() == Some(NO_TRANSACTION) { over() } else { fault })?;
        }
        let rows = rows(transaction, sent(&statement)).await.map_err(fault_of)?;
        Ok(Answer::rows(rows.iter().map(row_of).collect()))
    }
}

fn over() -> Fault {
    let message = "the transaction was rolled back because a `begin` inside it failed or was dropped; begin \
                   the outer transaction again";
    Fault::Refused(Error::new(ErrorKind::Unavailable, message))
}
