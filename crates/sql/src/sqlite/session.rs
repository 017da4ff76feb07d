//! A connection: opens it so that commits are durable, and runs transactions on it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use idmill::{Error, ErrorKind, Result};
use idmill_kit::Mode;
use idmill_kit::mode::MISSING_TABLE;

use super::classify::{commit_failed, failed, has_not_begun, is_busy, is_over, refused};
use super::durable::{be_patient, make_durable};
use super::file::{FileId, Files, Log, check_place, path_of};
use super::table::Table;
use crate::{Answer, Asked, Executor, Fault, Statement, must_be_alone};

/// How long to probe an existing database that has no log but is open in other processes.
const LOOKS: Duration = Duration::from_secs(5);

/// The database, and how to open it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file. Use an absolute path, so that SQLite cannot interpret it (`:x:`, `file:x`) and a
    /// later change of the working directory cannot select another file.
    pub path: PathBuf,
    /// The table of sequences.
    pub table: Table,
    /// How long a statement waits while others hold the file. The maximum is 24 days, since SQLite counts
    /// milliseconds in 31 bits.
    pub busy_timeout: Duration,
    /// The mode: whether `open` may create the file and the table, and whether writes are allowed.
    pub mode: Mode,
}

/// A connection to a database file, with the calls of [`Store`](idmill::store::Store) over it. Each
/// call that writes is one durable transaction.
///
/// Calls await only the executor: over a blocking executor, each is ready on its first poll.
pub struct Session<E> {
    pub(super) db: E,
    pub(super) table: Table,
    files: Files,
    /// Whether certainly no transaction is open.
    idle: bool,
}

impl<E: Executor> Session<E> {
    /// Opens the database, and creates the file and the table if the settings allow it.
    ///
    /// `connect` opens a new connection in this mode each time, which closes when it is dropped. It must not
    /// return a shared connection: one of the connections only probes whether others use the file under
    /// another name.
    ///
    /// If several processes create one file at the same time, each can get "busy": SQLite does not wait
    /// during the switch to WAL. Retry while the error [passes](super::passes), for up to the busy timeout.
    /// Repeated steps have no effect.
    ///
    /// # Errors
    /// - [`NotFound`](ErrorKind::NotFound) if the directory is missing, or if the file or the table
    ///   is missing and may not be created;
    /// - [`Denied`](ErrorKind::Denied);
    /// - [`Unavailable`](ErrorKind::Unavailable) if others hold the file; `InvalidInput` for a directory;
    /// - [`StoreViolation`](ErrorKind::StoreViolation) if the file is not a database or is corrupt;
    /// - [`Conflict`](ErrorKind::Conflict) if the table exists but is not idmill's, or the file has several
    ///   names or is mounted;
    /// - [`Unsupported`](ErrorKind::Unsupported) if commits would not be durable.
    pub async fn open<F>(settings: &Settings, connect: impl FnMut(Mode) -> F) -> Result<Self>
    where
        F: Future<Output = Result<E, Fault>>,
    {
        let opening = Self::try_open(settings, connect).await;
        opening.map_err(|error| at_path(&settings.path, refused(error)))
    }

    /// Opens a connection to the file that was opened before. A new file in its place is rejected:
    /// its sequences would begin again.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open); `StoreViolation` for another file.
    pub async fn open_again<F>(
        settings: &Settings,
        before: &Files,
        connect: impl FnMut(Mode) -> F,
    ) -> Result<Self>
    where
        F: Future<Output = Result<E, Fault>>,
    {
        let existing = Settings { mode: settings.mode.existing(), ..settings.clone() };
        let session = Self::open(&existing, connect).await?;
        if session.files.are_of(before) { Ok(session) } else { Err(FileId::moved(&settings.path)) }
    }

    /// Takes a connection that was opened elsewhere, for example by a pool. SQLite reports its
    /// file. The table is created if the mode allows it. Use [`over`](Self::over) for the other
    /// connections of that pool.
    ///
    /// Unlike [`open`](Self::open), it does not check whether others use the file under another
    /// name.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open); [`InvalidInput`](ErrorKind::InvalidInput) for a database
    /// without a file.
    pub async fn adopt(mut db: E, table: Table, mode: Mode) -> Result<Self> {
        let path = path_of(&mut db).await?;
        let adoption = async {
            check_place(&path, mode.existing())?;
            let files = Files::new(&path, FileId::of(&path)?);
            make_durable(&mut db, false).await?;
            Self { db, table, files, idle: true }.settled(mode).await
        };
        adoption.await.map_err(|error| at_path(&path, refused(error)))
    }

    /// Like [`adopt`](Self::adopt), for another connection to the file that was opened before. Use it if this
    /// may be the only open connection: the last connection that closes removes the log, and the next creates
    /// another.
    ///
    /// # Errors
    /// The errors of [`adopt`](Self::adopt); [`StoreViolation`](ErrorKind::StoreViolation) if it is
    /// another file.
    pub async fn adopt_again(db: E, table: Table, mode: Mode, before: &Files) -> Result<Self> {
        let session = Self::adopt(db, table, mode.existing()).await?;
        if session.files.are_of(before) { Ok(session) } else { Err(FileId::moved(session.files.path())) }
    }

    /// Takes a connection to these files that was opened elsewhere, and makes its commits durable.
    ///
    /// # Errors
    /// The errors of [`make_durable`].
    pub async fn over(mut db: E, table: Table, files: Files) -> Result<Self> {
        make_durable(&mut db, false).await?;
        Ok(Self { db, table, files, idle: true })
    }

    async fn try_open<F>(settings: &Settings, mut connect: impl FnMut(Mode) -> F) -> Result<Self>
    where
        F: Future<Output = Result<E, Fault>>,
    {
        let (path, mode) = (&settings.path, settings.mode);
        check_place(path, mode)?;
        let before = path.exists().then(|| FileId::of(path)).transpose()?;
        if wants_a_look(path, mode) {
            must_be_unshared(&mut connect, path).await?;
        }
        let mut db = connect(mode).await.map_err(|fault| failed(fault, Asked::Connect))?;
        be_patient(&mut db, settings.busy_timeout.as_millis()).await?;
        let file = FileId::of(path)?;
        // The file was replaced while it was being opened. The connection may have opened either file.
        if before.is_some_and(|before| before != file) {
            return Err(FileId::moved(path));
        }
        make_durable(&mut db, mode == Mode::Create).await?;
        let (table, files) = (settings.table.clone(), Files::new(path, file));
        Self { db, table, files, idle: true }.settled(mode).await
    }

    /// Finds or creates the table, and records the log.
    async fn settled(mut self, mode: Mode) -> Result<Self> {
        self.find_table(mode).await?;
        self.files.find_log(&mut self.db).await?;
        Ok(self)
    }

    async fn find_table(&mut self, mode: Mode) -> Result<()> {
        let columns = self.read(self.table.columns()).await?;
        if self.table.is_there(&columns)? {
            return Ok(());
        }
        if mode != Mode::Create {
            let message = format!("there is no table `{}`; {MISSING_TABLE}", self.table.name());
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        self.start().await?;
        let created = self.db.execute(self.table.create()).await;
        self.finish(created.map(drop).map_err(in_transaction)).await
    }

    /// Reads outside a transaction.
    pub(super) async fn read(&mut self, statement: Statement<'_>) -> Result<Answer> {
        self.db.execute(statement).await.map_err(|fault| failed(fault, Asked::Read))
    }

    /// Begins a writing transaction, after checking that the files are unchanged.
    pub(super) async fn begin(&mut self) -> Result<()> {
        self.check().await?;
        self.start().await
    }

    /// IMMEDIATE: with a deferred transaction, others could write between its read and its write.
    async fn start(&mut self) -> Result<()> {
        const { must_be_alone::<E>() };
        // Set before the statement is sent: this future may be dropped while it waits.
        self.idle = false;
        let begun = self.db.execute(Statement::write("BEGIN IMMEDIATE", [])).await;
        begun.map(drop).map_err(|fault| {
            // No ROLLBACK: if a transaction is open nevertheless, it is not ours.
            self.idle = has_not_begun(&fault);
            in_transaction(fault)
        })
    }

    /// Commits if the outcome is `Ok`; otherwise rolls back.
    pub(super) async fn end<R>(&mut self, outcome: Result<R>) -> Result<R> {
        let outcome = self.finish(outcome).await?;
        // Check after the commit: ids committed to a file that was replaced must not be used.
        self.check().await.map_err(after_commit)?;
        Ok(outcome)
    }

    async fn finish<R>(&mut self, outcome: Result<R>) -> Result<R> {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                self.roll_back().await;
                return Err(error);
            }
        };
        match self.db.execute(Statement::write("COMMIT", [])).await {
            Ok(_) => {
                self.idle = true;
                Ok(outcome)
            }
            Err(fault) => Err(commit_failed(fault, self.roll_back().await)),
        }
    }

    /// Returns whether a transaction was open and has been rolled back.
    async fn roll_back(&mut self) -> bool {
        match self.db.execute(Statement::write("ROLLBACK", [])).await {
            Ok(_) => {
                self.idle = true;
                true
            }
            Err(fault) => {
                self.idle = is_over(&fault);
                false
            }
        }
    }

    /// Checks that the files are unchanged since they were opened.
    pub(super) async fn check(&mut self) -> Result<()> {
        self.files.check(&mut self.db).await
    }
}

impl<E> Session<E> {
    /// Returns whether the session may be used again. If not, a transaction may still be open:
    /// close the connection to end it.
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// Returns the files that the session has open.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Returns the connection.
    pub fn executor(&self) -> &E {
        &self.db
    }
}

impl<E> fmt::Debug for Session<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { db: _, table, files, idle } = self;
        f.debug_struct("Session").field("table", table).field("files", files).field("idle", idle).finish()
    }
}

/// The error for a fault in a transaction before its COMMIT.
pub(super) fn in_transaction(fault: Fault) -> Error {
    failed(fault, Asked::InTransaction)
}

/// The error for a failed check after a successful COMMIT. If the file was replaced, the ids are
/// not used.
fn after_commit(error: Error) -> Error {
    if error.kind() == ErrorKind::StoreViolation {
        return error;
    }
    let message = format!("committed, but cannot check the files: {error}");
    Error::new(ErrorKind::UnknownOutcome, message).because(error)
}

/// Returns whether the mode allows writes and the database exists without a log.
fn wants_a_look(path: &Path, mode: Mode) -> bool {
    let there = std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0);
    mode != Mode::ReadOnly && there && !Log::is_beside(path)
}

/// Checks that no process has the database open in WAL mode if there is no log next to it: that log
/// would be elsewhere, or was removed.
///
/// If processes start and stop often, the database may never be free. A probe can also fail because of
/// another process's probe, while no process has the log open. So the check repeats.
async fn must_be_unshared<E, F>(connect: &mut impl FnMut(Mode) -> F, path: &Path) -> Result<()>
where
    E: Executor,
    F: Future<Output = Result<E, Fault>>,
{
    let until = Instant::now() + LOOKS;
    loop {
        // Each probe has its own connection. A failed probe keeps a lock, so two concurrent probes
        // would otherwise block each other forever.
        let Ok(mut probe) = connect(Mode::ReadWrite).await else { return Ok(()) };
        let is_shared = matches!(look(&mut probe).await, Err(fault) if is_busy(&fault));
        drop(probe);
        // All other errors are found when the database is opened.
        if !is_shared || Log::is_beside(path) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the database is in use, but has no -wal file here (hard link, file mount, or -wal was \
                 removed); stop all its users",
            ));
        }
    }
}

/// Opens a database exclusively, which fails if others have it open in WAL mode. Does not wait.
async fn look<E: Executor>(probe: &mut E) -> Result<(), Fault> {
    for pragma in ["PRAGMA busy_timeout = 0", "PRAGMA locking_mode = EXCLUSIVE"] {
        probe.execute(Statement::write(pragma, []).once()).await?;
    }
    probe.execute(Statement::read("SELECT count(*) FROM sqlite_schema", []).once()).await.map(drop)
}

/// Adds the path to the error.
fn at_path(path: &Path, error: Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display())).because(error)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use idmill::SequenceName;
    use idmill::store::{Bounds, Page};

    use super::super::Calls;
    use super::*;
    use crate::{Batches, Dialect, EngineError, InTransaction, Row};

    /// An executor that answers like an engine whose table has no rows. It fails the listed
    /// statements, or never answers them.
    struct Scripted<const IN_TRANSACTION: bool>(Vec<(&'static str, Option<Fault>)>);

    impl<const IN_TRANSACTION: bool> Executor for Scripted<IN_TRANSACTION> {
        const IN_TRANSACTION: bool = IN_TRANSACTION;

        async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
            match self.0.iter().find(|(begin, _)| statement.sql.starts_with(begin)) {
                Some((_, Some(fault))) => Err(fault.clone()),
                Some((_, None)) => std::future::pending().await,
                None if statement.sql.contains("journal_mode") => {
                    Ok(Answer::rows(vec![Row::new(vec!["delete".into()])]))
                }
                None => Ok(Answer::changed(1, None)),
            }
        }
    }

    fn settings() -> Settings {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"); // any file
        let (table, busy_timeout) = (Table::new("t").unwrap(), Duration::ZERO);
        Settings { path, table, busy_timeout, mode: Mode::ReadWrite }
    }

    fn session(script: &[(&'static str, Option<Fault>)]) -> Session<Scripted<false>> {
        let Settings { path, table, .. } = settings();
        let files = Files::new(&path, FileId::of(&path).unwrap());
        Session { db: Scripted(script.to_vec()), table, files, idle: true }
    }

    /// Removes a sequence, and returns the outcome.
    fn remove(session: &mut Session<Scripted<false>>) -> Poll<Result<bool, ErrorKind>> {
        let name = SequenceName::new("s").unwrap();
        let removal = pin!(Calls(Mode::ReadWrite).remove(session, &name, None));
        removal.poll(&mut Context::from_waker(Waker::noop())).map_err(|error| error.kind())
    }

    fn engine(code: i32, message: &str) -> Fault {
        EngineError::new(code.to_string(), message).into()
    }

    #[test]
    fn a_transaction_that_may_still_be_open_is_not_idle() {
        use ErrorKind::{StoreViolation, Unavailable, UnknownOutcome};
        let never = || None;
        let within = || Some(engine(1, "cannot start a transaction within a transaction"));
        let busy = || Some(engine(5, "database is locked"));
        let over = || Some(engine(1, "cannot rollback - no transaction is active"));
        let broken = || Some(Fault::broken(std::io::Error::other("cut")));
        for (script, outcome, idle) in [
            (vec![], Ok(true), true),
            (vec![("BEGIN", busy()), ("ROLLBACK", never())], Err(Unavailable), true),
            (vec![("BEGIN", broken()), ("ROLLBACK", never())], Err(Unavailable), false),
            (vec![("BEGIN", within()), ("ROLLBACK", never())], Err(StoreViolation), false),
            (vec![("DELETE", busy())], Err(Unavailable), true),
            (vec![("DELETE", busy()), ("ROLLBACK", over())], Err(Unavailable), true),
            (vec![("DELETE", busy()), ("ROLLBACK", busy())], Err(Unavailable), false),
            (vec![("COMMIT", busy())], Err(Unavailable), true),
            (vec![("COMMIT", busy()), ("ROLLBACK", over())], Err(UnknownOutcome), true),
            (vec![("COMMIT", broken()), ("ROLLBACK", broken())], Err(UnknownOutcome), false),
        ] {
            let mut session = session(&script);
            assert_eq!(remove(&mut session), Poll::Ready(outcome), "{script:?}");
            assert_eq!(session.is_idle(), idle, "{script:?}");
        }
    }

    /// The database is never free, and its log exists only from the third probe on.
    #[test]
    fn log_created_by_another_connection_is_detected() {
        let path = std::env::temp_dir().join(format!("idmill-crowded-{}", std::process::id()));
        let log = PathBuf::from(format!("{}-wal", path.display()));
        let mut looks = 0;
        let mut connect = |_| {
            looks += 1;
            if looks == 3 {
                std::fs::write(&log, "").unwrap();
            }
            let busy = Some(engine(5, "database is locked"));
            std::future::ready(Ok(Scripted::<false>(vec![("SELECT count", busy)])))
        };
        let looked =
            pin!(must_be_unshared(&mut connect, &path)).poll(&mut Context::from_waker(Waker::noop()));
        std::fs::remove_file(&log).unwrap();
        assert_eq!(looked.map_err(|error| error.to_string()), Poll::Ready(Ok(())));
        assert_eq!(looks, 3);
    }

    /// Returns its journal mode until a COMMIT, and fails afterwards.
    struct Failing(Scripted<false>, Fault);

    impl Executor for Failing {
        const IN_TRANSACTION: bool = false;

        async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
            if statement.sql == "COMMIT" {
                self.0.0.push(("PRAGMA journal_mode", Some(self.1.clone())));
            }
            self.0.execute(statement).await
        }
    }

    #[test]
    fn failure_after_a_commit_keeps_the_commit() {
        let moved = Fault::Refused(FileId::moved(Path::new("t")));
        for (fault, kind) in [
            (engine(5, "database is locked"), ErrorKind::UnknownOutcome),
            (engine(23, "not authorized"), ErrorKind::UnknownOutcome),
            (moved, ErrorKind::StoreViolation),
        ] {
            let Session { db, table, files, idle } = session(&[]);
            let mut session = Session { db: Failing(db, fault), table, files, idle };
            let name = SequenceName::new("s").unwrap();
            let removal = pin!(Calls(Mode::ReadWrite).remove(&mut session, &name, None))
                .poll(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready(Err(error)) = removal else { panic!("{removal:?}") };
            assert_eq!(error.kind(), kind, "{error}");
            assert!(session.is_idle());
        }
    }

    #[test]
    fn a_call_that_is_dropped_leaves_its_transaction_open() {
        for (never, idle) in [("PRAGMA", true), ("BEGIN", false), ("DELETE", false), ("COMMIT", false)] {
            let mut session = session(&[(never, None)]);
            assert_eq!(remove(&mut session), Poll::Pending);
            assert_eq!(session.is_idle(), idle, "{never}");
        }
    }

    /// A store over an asynchronous driver boxes these futures, so they must be `Send` if the
    /// executor is.
    #[test]
    fn the_futures_can_move_between_threads() {
        fn can_move(_: &(impl Future + Send)) {}
        let (mut session, settings) = (session(&[]), settings());
        let (name, bounds) = (SequenceName::new("s").unwrap(), Bounds::of::<u64>());
        let connect = |_| std::future::ready(Ok(Scripted::<false>(Vec::new())));
        let calls = Calls(Mode::ReadWrite);
        can_move(&Session::open(&settings, connect));
        can_move(&calls.reserve_many(&mut session, &[]));
        can_move(&calls.create(&mut session, &name, bounds));
        can_move(&calls.list(&mut session, &Page::default()));
        let mut callers = Scripted::<true>(Vec::new());
        can_move(&InTransaction::<u64, Table>::new("s").unwrap().draw(&mut callers, 1));
    }
}
