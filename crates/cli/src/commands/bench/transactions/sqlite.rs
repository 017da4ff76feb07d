//! Transactions of SQLite, on a connection for each thread.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use idmill::{Error, ErrorKind, Result};
use idmill_sqlite::rusqlite::{self, Connection, ErrorCode, TransactionBehavior};
use idmill_sqlite::{InTransaction, SqliteOptions};
use thread_local::ThreadLocal;

use super::Transactions;

pub(super) fn open(url: &str, sequence: &str) -> Result<Box<dyn Transactions>> {
    let options: SqliteOptions = url.parse()?;
    let ids = InTransaction::new(sequence)?.table(options.table_name())?;
    Ok(Box::new(Sqlite { file: options.path().to_owned(), ids, connections: ThreadLocal::new() }))
}

struct Sqlite {
    file: PathBuf,
    ids: InTransaction<u64>,
    connections: ThreadLocal<RefCell<Connection>>,
}

impl Transactions for Sqlite {
    fn run(&self, values: u64, hold: Duration) -> Result<()> {
        let connection = self.connections.get_or_try(|| connect(&self.file))?;
        let mut connection = connection.borrow_mut();
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(failed)?;
        self.ids.reserve(&transaction, values)?;
        sleep(hold);
        transaction.commit().map_err(failed)
    }
}

fn connect(file: &Path) -> Result<RefCell<Connection>> {
    let connection = Connection::open(file).map_err(failed)?;
    connection.busy_timeout(Duration::from_secs(30)).map_err(failed)?;
    // As durable as the store itself.
    connection.pragma_update(None, "synchronous", "EXTRA").map_err(failed)?;
    Ok(RefCell::new(connection))
}

fn failed(error: rusqlite::Error) -> Error {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ErrorKind::Unavailable,
        _ => ErrorKind::StoreViolation,
    };
    Error::new(kind, "the transaction failed").because(error)
}
