//! Ids within transactions, for the stores that support them.

use std::cell::RefCell;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use idmill::{Error, ErrorKind, Result};
use idmill_sqlite::rusqlite::{self, Connection, ErrorCode, TransactionBehavior};
use idmill_sqlite::{InTransaction, SqliteOptions};
use thread_local::ThreadLocal;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "spanner"))]
use tokio::{runtime::Handle, time};

use crate::opening::Measured;

/// Runs one transaction: takes this number of ids, works for this time, and commits.
pub(super) type Transactions = Box<dyn Fn(u64, Duration) -> Result<()> + Send + Sync>;

/// Returns the supported stores, for messages.
pub(super) fn known() -> String {
    let stores = [
        ("postgres", cfg!(feature = "postgres")),
        ("mysql", cfg!(feature = "mysql")),
        ("spanner", cfg!(feature = "spanner")),
    ];
    let others = stores.iter().filter(|(_, built)| *built).map(|(scheme, _)| format!(", `{scheme}:`"));
    format!("`sqlite:`{}", others.collect::<String>())
}

pub(super) fn are_known(store: &Measured) -> bool {
    // The URL of a store that is not compiled in was rejected earlier.
    matches!(store.url.scheme(), "sqlite" | "postgres" | "mysql" | "spanner")
}

// Spanner is the only store that awaits its connection.
#[cfg_attr(not(feature = "spanner"), allow(clippy::unused_async))]
pub(super) async fn open(store: &Measured, sequence: &str) -> Result<Transactions> {
    // Use the given URL, because the printed URL has no password.
    let url = store.given.as_str();
    match store.url.scheme() {
        "sqlite" => sqlite(url, sequence),
        #[cfg(feature = "mysql")]
        "mysql" => mysql(url, sequence),
        #[cfg(feature = "spanner")]
        "spanner" => spanner(url, sequence).await,
        #[cfg(feature = "postgres")]
        "postgres" => postgres(url, sequence),
        other => {
            Err(Error::new(ErrorKind::Unsupported, format!("`{other}:` stores have no in-transaction mode")))
        }
    }
}

fn failed(kind: ErrorKind) -> impl Fn(Box<dyn std::error::Error + Send + Sync>) -> Error {
    move |error| Error::new(kind, "the transaction failed").because(error)
}

/// Uses one connection per thread.
fn sqlite(url: &str, sequence: &str) -> Result<Transactions> {
    let options: SqliteOptions = url.parse()?;
    let ids = InTransaction::<u64>::new(sequence)?.table(options.table_name())?;
    let (file, connections) = (options.path().to_owned(), ThreadLocal::new());
    Ok(Box::new(move |values, hold| {
        let connection = connections.get_or_try(|| connected(&file))?;
        let mut connection = connection.borrow_mut();
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(of_sqlite)?;
        ids.reserve(&transaction, values)?;
        sleep(hold);
        transaction.commit().map_err(of_sqlite)
    }))
}

fn connected(file: &Path) -> Result<RefCell<Connection>> {
    let connection = Connection::open(file).map_err(of_sqlite)?;
    connection.busy_timeout(Duration::from_secs(30)).map_err(of_sqlite)?;
    // Use the same durability as the store.
    connection.pragma_update(None, "synchronous", "EXTRA").map_err(of_sqlite)?;
    Ok(RefCell::new(connection))
}

fn of_sqlite(error: rusqlite::Error) -> Error {
    failed(match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ErrorKind::Unavailable,
        _ => ErrorKind::StoreViolation,
    })(error.into())
}

/// Uses one connection per thread. Takes all ids in one statement, because other threads wait during each
/// round trip.
#[cfg(feature = "postgres")]
fn postgres(url: &str, sequence: &str) -> Result<Transactions> {
    use idmill_postgres::{InTransaction, PostgresOptions, driver};

    let options: PostgresOptions = url.parse()?;
    let mut ids = InTransaction::<u64>::new(sequence)?.table(options.table_name())?;
    if let Some(schema) = options.schema_name() {
        ids = ids.schema(schema)?;
    }
    let (runtime, clients) = (Handle::current(), ThreadLocal::new());
    let failed = |error: driver::Error| failed(ErrorKind::StoreViolation)(error.into());
    let connect = async move || {
        let client = options.client().await?;
        // Use the same durability as the store.
        client.batch_execute("SET synchronous_commit = on").await.map_err(failed)?;
        Ok::<_, Error>(RefCell::new(client))
    };
    Ok(Box::new(move |values, hold| {
        let client = clients.get_or_try(|| runtime.block_on(connect()))?;
        let mut client = client.borrow_mut();
        runtime.block_on(async {
            let transaction = client.transaction().await.map_err(failed)?;
            ids.reserve(&transaction, values).await?;
            time::sleep(hold).await;
            transaction.commit().await.map_err(failed)
        })
    }))
}

/// Retries transactions that fail with `Unavailable`, such as transactions aborted by the server to end a
/// deadlock. Deadlocks occur only at the start, when several transactions create the sequence.
#[cfg(feature = "mysql")]
fn mysql(url: &str, sequence: &str) -> Result<Transactions> {
    use idmill_mysql::{InTransaction, MysqlOptions, driver::TxOpts};

    const ATTEMPTS: usize = 10;

    let options: MysqlOptions = url.parse()?;
    let ids = InTransaction::<u64>::new(sequence)?.table(options.table_name())?;
    let (pool, runtime) = (options.pool()?, Handle::current());
    let attempt = async move |values, hold: Duration| {
        let begun = pool.start_transaction(TxOpts::default()).await;
        let mut transaction = begun.map_err(|error| failed(ErrorKind::Unavailable)(error.into()))?;
        if let Err(error) = ids.reserve(&mut transaction, values).await {
            // Ignore a failed rollback, because the first error is reported.
            let _ = transaction.rollback().await;
            return Err(error);
        }
        time::sleep(hold).await;
        transaction.commit().await.map_err(|error| failed(ErrorKind::UnknownOutcome)(error.into()))
    };
    Ok(Box::new(move |values, hold| {
        let mut attempts = (1..ATTEMPTS).map(|_| runtime.block_on(attempt(values, hold)));
        let is_over = |outcome: &Result<()>| {
            !outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable)
        };
        let over = attempts.find(is_over);
        over.unwrap_or_else(|| runtime.block_on(attempt(values, hold)))
    }))
}

/// Retries aborted transactions. Takes the ids one by one, like a program that does not know in advance how
/// many it needs.
#[cfg(feature = "spanner")]
async fn spanner(url: &str, sequence: &str) -> Result<Transactions> {
    use idmill_spanner::{InTransaction, SequenceTransaction, SpannerOptions, SpannerStore, until_committed};

    let options: SpannerOptions = url.parse()?;
    let ids = InTransaction::<i64>::new(sequence)?.table(options.table_name())?;
    let (store, runtime) = (SpannerStore::open_with(options).await?, Handle::current());
    let attempt = async move |values: u64, hold: Duration| {
        let begun = store.client().begin_read_write_transaction().await;
        let mut transaction = SequenceTransaction::begun(begun)?;
        for _ in 0..values {
            transaction.next(&ids).await?;
        }
        time::sleep(hold).await;
        transaction.commit().await.map(drop)
    };
    Ok(Box::new(move |values, hold| runtime.block_on(until_committed(|| attempt(values, hold)))))
}
