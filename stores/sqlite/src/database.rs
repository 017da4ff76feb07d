//! One connection, which is reopened if it was lost.

use std::future::ready;
use std::path::Path;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBuilder};
use idmill::{Error, ErrorKind, Result};
use idmill_kit::Mode;
use idmill_sql::sqlite::{Files, Session, Settings, failed, passes};
use idmill_sql::{Asked, Fault, at_once};
use rusqlite::{Connection, OpenFlags};

use super::executor::{Own, fault};

/// An open database file.
#[derive(Debug)]
pub(super) struct Database {
    settings: Settings,
    files: Files,
    /// `None` after a failure that left the session in an unknown state; the next call opens another session.
    session: Option<Session<Own>>,
}

impl Database {
    /// Opens the file, and creates it and the table if the settings allow it. Blocks.
    ///
    /// Retries while the file is locked, until the busy timeout has passed.
    pub(super) fn open(settings: Settings) -> Result<Self> {
        let deadline = Instant::now() + settings.busy_timeout;
        let mut delays = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(1))
            .with_max_delay(Duration::from_millis(50))
            .without_max_times()
            .with_jitter()
            .build();
        loop {
            match at_once(Session::open(&settings, |mode| ready(connect(&settings.path, mode)))) {
                Err(error) if passes(&error) && Instant::now() < deadline => {
                    std::thread::sleep(delays.next().unwrap_or_default());
                }
                Err(error) => return Err(error),
                Ok(session) => {
                    return Ok(Self { settings, files: session.files().clone(), session: Some(session) });
                }
            }
        }
    }

    /// Runs a job on the connection.
    pub(super) fn run<R>(&mut self, job: impl FnOnce(&mut Session<Own>) -> Result<R>) -> Result<R> {
        let mut session = self.take()?;
        let outcome = job(&mut session);
        self.put_back(session);
        outcome
    }

    /// Takes the connection out, so that a panic cannot leave it half used.
    fn take(&mut self) -> Result<Session<Own>> {
        if let Some(session) = self.session.take() {
            return Ok(session);
        }
        let connect = |mode| ready(connect(&self.settings.path, mode));
        at_once(Session::open_again(&self.settings, &self.files, connect))
    }

    /// Drops the connection if its transaction could not be rolled back, or if a transaction is still open on
    /// it. Dropping ends the transaction.
    fn put_back(&mut self, session: Session<Own>) {
        self.session =
            Some(session).filter(|session| session.is_idle() && session.executor().0.is_autocommit());
    }
}

/// Opens a connection that reads tables of the user, and does not need the table of sequences.
/// Blocks.
///
/// # Errors
/// [`NotFound`](ErrorKind::NotFound) if there is no file; the errors of opening it.
pub(super) fn open_to_look(settings: &Settings) -> Result<Own> {
    let path = &settings.path;
    if !path.exists() {
        let message = format!("{}: there is no such file; correct the path", path.display());
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    let own = connect(path, Mode::ReadOnly).map_err(|fault| failed(fault, Asked::Connect))?;
    own.0.busy_timeout(settings.busy_timeout).map_err(|error| failed(fault(error), Asked::Connect))?;
    Ok(own)
}

fn connect(path: &Path, mode: Mode) -> Result<Own, Fault> {
    Connection::open_with_flags(path, flags(mode)).map(Own).map_err(fault)
}

fn flags(mode: Mode) -> OpenFlags {
    // No SQLite mutex: the store's own mutex guards the connection. No URIs: SQLite must not interpret the
    // path.
    let mut flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_READ_ONLY, mode == Mode::ReadOnly);
    flags.set(OpenFlags::SQLITE_OPEN_READ_WRITE, mode != Mode::ReadOnly);
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, mode == Mode::Create);
    flags
}

#[cfg(test)]
mod tests {
    use idmill::SequenceName;
    use idmill::store::Bounds;
    use idmill_sql::sqlite::{Calls, Table, make_durable, verify_durable};
    use idmill_sql::{Answer, Dialect, Executor, Statement};

    use super::*;
    use crate::SqliteOptions;

    fn settings(dir: &Path) -> Settings {
        SqliteOptions::new(dir.join("ids.db")).busy_timeout(Duration::ZERO).checked().unwrap()
    }

    fn database(dir: &Path) -> Database {
        Database::open(settings(dir)).unwrap()
    }

    fn raw(session: &Session<Own>) -> &Connection {
        &session.executor().0
    }

    fn pragma(connection: &Connection, name: &str) -> String {
        connection
            .pragma_query_value(None, name, |row| row.get_ref(0).map(|value| format!("{value:?}")))
            .unwrap()
    }

    fn create<E: Executor + Send>(session: &mut Session<E>) -> Result<()> {
        at_once(Calls(Mode::Create).create(session, &SequenceName::new("s")?, Bounds::of::<u64>())).map(drop)
    }

    #[test]
    fn a_new_file_is_durable_and_reads_back_so() {
        let dir = tempfile::tempdir().unwrap();
        let database = database(dir.path());
        let connection = raw(database.session.as_ref().unwrap());
        assert_eq!(pragma(connection, "journal_mode"), "Text([119, 97, 108])", "wal");
        assert_eq!(pragma(connection, "synchronous"), "Integer(3)");
        assert_eq!(pragma(connection, "fullfsync"), "Integer(1)");
    }

    #[test]
    fn settings_that_do_not_last_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut own = connect(&settings(dir.path()).path, Mode::Create).unwrap();
        at_once(make_durable(&mut own, true)).unwrap();
        at_once(verify_durable(&mut own)).unwrap();
        own.0.pragma_update(None, "synchronous", 1).unwrap();
        assert_eq!(at_once(verify_durable(&mut own)).unwrap_err().kind(), ErrorKind::Unsupported);
        let mut memory = Own(Connection::open_in_memory().unwrap());
        assert_eq!(at_once(make_durable(&mut memory, true)).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    /// The connections may have any settings, as in a pool.
    #[test]
    fn caller_connections_are_made_durable_and_watched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids.db");
        let table = || Table::new("mine").unwrap();
        let own = || {
            let own = connect(&path, Mode::Create).unwrap();
            own.0.pragma_update(None, "synchronous", 1).unwrap();
            own
        };
        let missing = at_once(Session::adopt(own(), table(), Mode::ReadWrite)).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
        let files = at_once(Session::adopt(own(), table(), Mode::Create)).unwrap().files().clone();
        let mut session = at_once(Session::over(own(), table(), files)).unwrap();
        assert_eq!(pragma(raw(&session), "synchronous"), "Integer(3)");
        assert_eq!(pragma(raw(&session), "journal_mode"), "Text([100, 101, 108, 101, 116, 101])", "delete");
        create(&mut session).unwrap();
        std::fs::rename(&path, dir.path().join("aside.db")).unwrap();
        assert_eq!(create(&mut session).unwrap_err().kind(), ErrorKind::StoreViolation);
        for nowhere in [Connection::open_in_memory().unwrap(), Connection::open("").unwrap()] {
            let error = at_once(Session::adopt(Own(nowhere), table(), Mode::Create)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
    }

    #[test]
    fn commit_blocked_by_a_reader_is_rolled_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids.db");
        Connection::open(&path)
            .unwrap()
            .execute_batch("CREATE TABLE u (a); INSERT INTO u VALUES (1)")
            .unwrap();
        let mut database = database(dir.path());
        let reader = Connection::open(&path).unwrap();
        // A reader of a rollback journal blocks a writer's COMMIT, not its BEGIN.
        reader.execute_batch("BEGIN; SELECT * FROM u").unwrap();
        assert_eq!(database.run(create).unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(database.session.is_some(), "it was rolled back");
        reader.execute_batch("COMMIT").unwrap();
        let count = "SELECT count(*) FROM idmill_sequences";
        let count = || reader.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(count(), 0);
        database.run(create).unwrap();
        assert_eq!(count(), 1);
    }

    /// Ends each transaction externally, so that COMMIT fails because no transaction is open.
    struct Ending(Own);

    impl Executor for Ending {
        const IN_TRANSACTION: bool = false;

        async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
            if statement.sql.starts_with("INSERT") {
                let answer = self.0.execute(statement).await?;
                self.0.execute(Statement::write("COMMIT", [])).await?;
                return Ok(answer);
            }
            self.0.execute(statement).await
        }
    }

    #[test]
    fn a_commit_that_ended_with_an_error_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let ending = |mode| ready(connect(&settings.path, mode).map(Ending));
        let mut session = at_once(Session::open(&settings, ending)).unwrap();
        assert_eq!(create(&mut session).unwrap_err().kind(), ErrorKind::UnknownOutcome);
        assert!(session.is_idle() && session.executor().0.0.is_autocommit());
    }

    #[test]
    fn panic_or_open_transaction_costs_only_the_connection() {
        let dir = tempfile::tempdir().unwrap();
        let mut database = database(dir.path());
        let begin = |session: &mut Session<Own>| raw(session).execute_batch("BEGIN IMMEDIATE").unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = database.run(|session| -> Result<()> {
                begin(session);
                panic!("in a transaction")
            });
        }));
        assert!(panicked.is_err() && database.session.is_none());
        database.run(create).unwrap();
        database
            .run(|session| {
                begin(session);
                Ok(())
            })
            .unwrap();
        assert!(database.session.is_none(), "an open transaction is not kept");
        database.run(|_| Ok(())).unwrap();
    }

    #[test]
    fn lost_connection_is_not_reopened_on_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut database = database(dir.path());
        let (path, aside) = (dir.path().join("ids.db"), dir.path().join("aside.db"));
        database.session = None;
        std::fs::rename(&path, &aside).unwrap();
        assert_eq!(database.run(|_| Ok(())).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!path.exists(), "and none is created");
        std::fs::copy(&aside, &path).unwrap();
        assert_eq!(database.run(|_| Ok(())).unwrap_err().kind(), ErrorKind::StoreViolation);
        assert!(database.session.is_none(), "a connection to the other file is not kept");
        std::fs::rename(&aside, &path).unwrap();
        database.run(|_| Ok(())).unwrap();
    }
}
