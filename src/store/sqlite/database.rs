//! One connection: how it is opened so that a commit is durable, and how reads and writes are run on it.

use std::path::Path;
use std::time::Instant;

use backon::{BackoffBuilder, ExponentialBuilder};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::classify::{commit_failed, failed, is_busy, refused, wants_room};
use super::file::{FileId, Log, check_place};
use super::options::Checked;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Mode;
use crate::store::mode::NEVER_MADE;

/// FULL, and the directory too: without the latter a rollback journal that is already deleted can come back
/// after a power failure, and undo a commit whose ids are in use. In WAL mode it is the same as FULL.
const EXTRA: i64 = 3;

/// A database file that is open.
#[derive(Debug)]
pub(super) struct Database {
    options: Checked,
    file: FileId,
    /// None after a failure that left it in a state not known; the next call opens another.
    connection: Option<Connected>,
}

/// A connection, and the log that it writes, if it writes one.
#[derive(Debug)]
struct Connected {
    connection: Connection,
    log: Option<Log>,
}

impl Database {
    /// Opens the file, creating it and the table where the options say so. Blocks.
    ///
    /// Of several processes that create one file at the same time, each is told "busy" now and then, also
    /// where SQLite does not wait by itself (the switch to WAL): so all of it is repeated until it succeeds
    /// or the busy timeout has passed. Each step does nothing where it was done already.
    pub(super) fn open(options: Checked) -> Result<Self> {
        let deadline = Instant::now() + options.busy_timeout;
        let mut delays = ExponentialBuilder::new()
            .with_min_delay(std::time::Duration::from_millis(1))
            .with_max_delay(std::time::Duration::from_millis(50))
            .without_max_times()
            .with_jitter()
            .build();
        loop {
            match connect(&options) {
                Err(error)
                    if error.kind() == ErrorKind::Unavailable
                        && !wants_room(&error)
                        && Instant::now() < deadline =>
                {
                    std::thread::sleep(delays.next().unwrap_or_default());
                }
                Err(error) => return Err(error),
                Ok((connected, file)) => return Ok(Self { options, file, connection: Some(connected) }),
            }
        }
    }

    /// Reads.
    pub(super) fn read<R>(&mut self, job: impl FnOnce(&Connection) -> Result<R>) -> Result<R> {
        let mut connected = self.take()?;
        let outcome = self.check(&mut connected).and_then(|()| job(&connected.connection));
        self.put_back(connected);
        outcome
    }

    /// Runs `job` in a transaction and commits it; if `job` fails, nothing is changed.
    pub(super) fn write<R>(&mut self, job: impl FnOnce(&Connection) -> Result<R>) -> Result<R> {
        let mut connected = self.take()?;
        let outcome = self.transact(&mut connected, job);
        self.put_back(connected);
        outcome
    }

    fn transact<R>(
        &self,
        connected: &mut Connected,
        job: impl FnOnce(&Connection) -> Result<R>,
    ) -> Result<R> {
        self.check(connected)?;
        // IMMEDIATE: a transaction that reads first and writes later can find that others wrote in between.
        let transaction =
            connected.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let outcome = job(&transaction)?;
        commit(transaction)?;
        // Not before: what was committed to a file that nobody else finds is of no use.
        self.check(connected)?;
        Ok(outcome)
    }

    /// Whether the files are those that were opened.
    fn check(&self, connected: &mut Connected) -> Result<()> {
        self.file.check(&self.options.path)?;
        // Somebody else can have given the database a log meanwhile.
        if connected.log.is_none() {
            connected.log = log_of(&connected.connection, &self.options.path)?;
        }
        connected.log.as_ref().map_or(Ok(()), Log::check)
    }

    /// The connection, away from where a panic could leave it half used.
    fn take(&mut self) -> Result<Connected> {
        if let Some(connected) = self.connection.take() {
            return Ok(connected);
        }
        // Only the file that was opened: a new one in its place would begin again.
        let mode = self.options.mode.existing();
        let (connected, file) = connect(&Checked { mode, ..self.options.clone() })?;
        if file == self.file { Ok(connected) } else { Err(FileId::moved(&self.options.path)) }
    }

    fn put_back(&mut self, connected: Connected) {
        // A transaction that could not be rolled back ends with its connection.
        self.connection = Some(connected).filter(|connected| connected.connection.is_autocommit());
    }
}

fn commit(transaction: Transaction<'_>) -> Result<()> {
    let Err(error) = transaction.execute_batch("COMMIT") else { return Ok(()) };
    let open = !transaction.is_autocommit();
    let rolled_back = open && transaction.rollback().is_ok();
    Err(commit_failed(error, rolled_back))
}

fn connect(options: &Checked) -> Result<(Connected, FileId)> {
    try_connect(options).map_err(|error| at_path(&options.path, refused(error)))
}

fn try_connect(options: &Checked) -> Result<(Connected, FileId)> {
    check_place(&options.path, options.mode)?;
    let before = options.path.exists().then(|| FileId::of(&options.path)).transpose()?;
    must_be_unshared(options)?;
    let mut connection = Connection::open_with_flags(&options.path, flags(options.mode)).map_err(failed)?;
    connection.busy_timeout(options.busy_timeout).map_err(failed)?;
    let file = FileId::of(&options.path)?;
    // Replaced while it was being opened: no telling which of the two this is.
    if before.is_some_and(|before| before != file) {
        return Err(FileId::moved(&options.path));
    }
    make_durable(&connection, options.mode)?;
    if !options.table.exists(&connection)? {
        if options.mode != Mode::Create {
            let message = format!("there is no table `{}`; {NEVER_MADE}", options.table.name());
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        let creation =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        options.table.create(&creation).map_err(failed)?;
        commit(creation)?;
    }
    let log = log_of(&connection, &options.path)?;
    Ok((Connected { connection, log }, file))
}

/// The log that a connection writes, from its first look at the database on.
fn log_of(connection: &Connection, path: &Path) -> Result<Option<Log>> {
    if journal(connection)? == "wal" { Log::beside(path).map(Some) } else { Ok(None) }
}

fn journal(connection: &Connection) -> Result<String> {
    connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).map_err(failed)
}

/// Without a log beside the database, no process that writes a log may have it open: that log
/// is elsewhere, or was removed.
fn must_be_unshared(options: &Checked) -> Result<()> {
    let there = std::fs::metadata(&options.path).is_ok_and(|metadata| metadata.len() > 0);
    if options.mode == Mode::ReadOnly || !there || Log::is_beside(&options.path) {
        return Ok(());
    }
    let Ok(probe) = Connection::open_with_flags(&options.path, flags(Mode::ReadWrite)) else { return Ok(()) };
    // Then a database with a log is opened only if nobody else has it.
    let exclusive = probe.pragma_update_and_check(None, "locking_mode", "EXCLUSIVE", |_| Ok(()));
    let looked =
        exclusive.and_then(|()| probe.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())));
    match looked {
        // All else is found out in what follows.
        Err(error) if is_busy(&error) && !Log::is_beside(&options.path) => Err(Error::new(
            ErrorKind::Unavailable,
            "others have the database open, but there is no log beside it: they know it by another name (a hard link, a file \
             mounted by itself), or its -wal file was removed; they would reserve the same ids. Stop them first",
        )),
        _ => Ok(()),
    }
}

fn flags(mode: Mode) -> OpenFlags {
    // No mutex of SQLite's: there is one around the connection. No URIs: the path is a path.
    OpenFlags::SQLITE_OPEN_NO_MUTEX
        | match mode {
            Mode::ReadOnly => OpenFlags::SQLITE_OPEN_READ_ONLY,
            Mode::ReadWrite => OpenFlags::SQLITE_OPEN_READ_WRITE,
            Mode::Create => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        }
}

/// Makes a commit on this connection survive a power failure, or refuses the database.
fn make_durable(connection: &Connection, mode: Mode) -> Result<()> {
    for (pragma, value) in [("synchronous", EXTRA), ("fullfsync", 1), ("checkpoint_fullfsync", 1)] {
        connection.pragma_update(None, pragma, value).map_err(failed)?;
    }
    let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0)).map_err(failed)?;
    // Only a database that is being made here becomes WAL; one that exists belongs to whoever made it.
    if mode == Mode::Create && pages == 0 {
        let asked =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        // On a file system that cannot do WAL it stays as it was, which serves as well.
        asked.map_err(failed)?;
    }
    verify_durable(connection)
}

fn verify_durable(connection: &Connection) -> Result<()> {
    let journal = journal(connection)?;
    if !["wal", "delete", "truncate", "persist"].contains(&journal.as_str()) {
        return Err(not_durable(&format!("journal_mode is {journal}")));
    }
    for (pragma, value) in [("synchronous", EXTRA), ("fullfsync", 1), ("checkpoint_fullfsync", 1)] {
        let found: i64 = connection.pragma_query_value(None, pragma, |row| row.get(0)).map_err(failed)?;
        if found != value {
            return Err(not_durable(&format!("{pragma} is {found} though {value} was set")));
        }
    }
    Ok(())
}

fn not_durable(why: &str) -> Error {
    let message =
        format!("a commit would not survive a crash, since {why}; use another file or build of SQLite");
    Error::new(ErrorKind::Unsupported, message)
}

/// The same error, naming the file.
fn at_path(path: &Path, error: Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display())).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::SqliteOptions;

    fn database(dir: &Path) -> Database {
        let options = SqliteOptions::new(dir.join("ids.db")).busy_timeout(std::time::Duration::ZERO);
        Database::open(options.check().unwrap()).unwrap()
    }

    fn pragma(database: &Database, name: &str) -> String {
        let connection = &database.connection.as_ref().unwrap().connection;
        connection
            .pragma_query_value(None, name, |row| row.get_ref(0).map(|value| format!("{value:?}")))
            .unwrap()
    }

    #[test]
    fn a_new_file_is_durable_and_reads_back_so() {
        let dir = tempfile::tempdir().unwrap();
        let database = database(dir.path());
        assert_eq!(pragma(&database, "journal_mode"), "Text([119, 97, 108])", "wal");
        assert_eq!(pragma(&database, "synchronous"), "Integer(3)");
        assert_eq!(pragma(&database, "fullfsync"), "Integer(1)");
    }

    #[test]
    fn settings_that_do_not_last_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let database = database(dir.path());
        let connection = &database.connection.as_ref().unwrap().connection;
        connection.pragma_update(None, "synchronous", 1).unwrap();
        assert_eq!(verify_durable(connection).unwrap_err().kind(), ErrorKind::Unsupported);
        let memory = Connection::open_in_memory().unwrap();
        assert_eq!(make_durable(&memory, Mode::Create).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_commit_that_others_hold_up_changed_nothing_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids.db");
        Connection::open(&path)
            .unwrap()
            .execute_batch("CREATE TABLE u (a); INSERT INTO u VALUES (1)")
            .unwrap();
        let mut database = database(dir.path());
        let reader = Connection::open(&path).unwrap();
        // With a rollback journal a reader does not keep a writer from beginning, but from committing.
        reader.execute_batch("BEGIN; SELECT * FROM u").unwrap();
        let add = |db: &Connection| db.execute_batch("INSERT INTO u VALUES (2)").map_err(failed);
        assert_eq!(database.write(add).unwrap_err().kind(), ErrorKind::Unavailable);
        reader.execute_batch("COMMIT").unwrap();
        let count = |db: &Connection| db.query_row("SELECT count(*) FROM u", [], |row| row.get::<_, i64>(0));
        assert_eq!(count(&reader).unwrap(), 1);
        database.write(add).unwrap();
        assert_eq!(count(&reader).unwrap(), 2);
    }

    #[test]
    fn a_commit_that_ended_with_an_error_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let mut database = database(dir.path());
        // Ends the transaction behind our back, so that COMMIT fails with no transaction open.
        let end = |db: &Connection| db.execute_batch("COMMIT").map_err(failed);
        assert_eq!(database.write(end).unwrap_err().kind(), ErrorKind::UnknownOutcome);
    }

    #[test]
    fn a_panic_or_an_open_transaction_costs_the_connection_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let mut database = database(dir.path());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = database.write(|_| -> Result<()> { panic!("in a transaction") });
        }));
        assert!(panicked.is_err() && database.connection.is_none());
        database.write(|db| db.execute_batch("CREATE TABLE u (a)").map_err(failed)).unwrap();
        database.read(|db| db.execute_batch("BEGIN IMMEDIATE").map_err(failed)).unwrap();
        assert!(database.connection.is_none(), "an open transaction is not kept");
        database.write(|_| Ok(())).unwrap();
    }

    #[test]
    fn a_connection_that_was_lost_is_not_replaced_by_one_to_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut database = database(dir.path());
        let (path, aside) = (dir.path().join("ids.db"), dir.path().join("aside.db"));
        database.connection = None;
        std::fs::rename(&path, &aside).unwrap();
        assert_eq!(database.write(|_| Ok(())).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!path.exists(), "and none is created");
        std::fs::copy(&aside, &path).unwrap();
        assert_eq!(database.write(|_| Ok(())).unwrap_err().kind(), ErrorKind::StoreViolation);
        assert!(database.connection.is_none(), "the one to the other file is not kept");
        std::fs::rename(&aside, &path).unwrap();
        database.write(|_| Ok(())).unwrap();
    }
}
