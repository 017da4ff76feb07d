//! A connection: how it is opened so that a commit is durable, and how a transaction is run on it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use idmill::{Error, ErrorKind, Result};
use idmill_kit::Mode;
use idmill_kit::mode::NEVER_MADE;

use super::classify::{commit_failed, failed, has_not_begun, is_busy, is_over, refused};
use super::durable::{be_patient, make_durable};
use super::file::{FileId, Files, Log, check_place, path_of};
use super::table::Table;
use crate::{Answer, Asked, Executor, Fault, Statement, must_be_alone};

/// How long a database is looked at that is there without a log, and that others have open.
const LOOKS: Duration = Duration::from_secs(5);

/// Which database, and what may be done to it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file. An absolute path, so that SQLite can take it for nothing else (`:x:`, `file:x`), nor a later
    /// change of the working directory for another file.
    pub path: PathBuf,
    /// The table of sequences.
    pub table: Table,
    /// How long a statement waits while others hold the file. SQLite counts milliseconds in 31 bits.
    pub busy_timeout: Duration,
    /// What opening may do.
    pub mode: Mode,
}

/// A connection to a database file, and the calls of [`Store`](idmill::store::Store) over it: each that
/// writes is one durable transaction.
///
/// They await nothing but the executor: over one that blocks, each is ready when it is first polled.
pub struct Session<E> {
    pub(super) db: E,
    pub(super) table: Table,
    files: Files,
    /// No transaction can be open.
    idle: bool,
}

impl<E: Executor> Session<E> {
    /// Opens the database, creating it and the table where the settings say so.
    ///
    /// `connect` opens a connection of its own each time, in this mode, which closes when it is dropped. No
    /// other is taken: there is one that only looks whether others know the file by another name.
    ///
    /// Of several processes that create one file at the same time, each is told "busy" now and then, also
    /// where SQLite does not wait by itself (the switch to WAL). So it is to be repeated while its error
    /// [passes](super::passes), for the busy timeout. Each step does nothing where it was done already.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if the directory is missing, or the file or the table and they are
    /// not to be created; [`Denied`](ErrorKind::Denied); [`Unavailable`](ErrorKind::Unavailable) if others
    /// hold it; [`StoreViolation`](ErrorKind::StoreViolation) if the file is no database or corrupt;
    /// [`Conflict`](ErrorKind::Conflict) if the table is there but not idmill's, or the file has several
    /// names; [`Unsupported`](ErrorKind::Unsupported) if commits would not be durable.
    pub async fn open<F>(settings: &Settings, connect: impl FnMut(Mode) -> F) -> Result<Self>
    where
        F: Future<Output = Result<E, Fault>>,
    {
        let opening = Self::try_open(settings, connect).await;
        opening.map_err(|error| at_path(&settings.path, refused(error)))
    }

    /// Opens a connection to the file that was opened before, and to no other: a new one in its place would
    /// begin again.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
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

    /// Takes a connection that somebody else has opened, as a pool does; its file is the one that SQLite
    /// names. The table is created where the mode says so. The other connections of that pool are taken by
    /// [`over`](Self::over).
    ///
    /// Nobody looks whether others know the file by another name, as [`open`](Self::open) does.
    ///
    /// # Errors
    /// Those of [`open`](Self::open); [`InvalidInput`](ErrorKind::InvalidInput) for a database without a
    /// file.
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

    /// Takes a connection that somebody else has opened to the file that was opened before, and to no other.
    /// For one that may be alone: the last connection that closes takes the log with it, and the next makes
    /// another.
    ///
    /// # Errors
    /// Those of [`adopt`](Self::adopt); [`StoreViolation`](ErrorKind::StoreViolation) if it is another file.
    pub async fn adopt_again(db: E, table: Table, mode: Mode, before: &Files) -> Result<Self> {
        let session = Self::adopt(db, table, mode.existing()).await?;
        if session.files.are_of(before) { Ok(session) } else { Err(FileId::moved(session.files.path())) }
    }

    /// Takes a connection that somebody else has opened to a database of these files, and makes its commits
    /// durable.
    ///
    /// # Errors
    /// Those of [`make_durable`].
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
        // Replaced while it was being opened: no telling which of the two this is.
        if before.is_some_and(|before| before != file) {
            return Err(FileId::moved(path));
        }
        make_durable(&mut db, mode == Mode::Create).await?;
        let (table, files) = (settings.table.clone(), Files::new(path, file));
        Self { db, table, files, idle: true }.settled(mode).await
    }

    /// With its table, and the log known.
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
            let message = format!("there is no table `{}`; {NEVER_MADE}", self.table.name());
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        self.start().await?;
        let created = self.db.execute(self.table.create()).await;
        self.finish(created.map(drop).map_err(in_transaction)).await
    }

    /// Reads, outside of a transaction.
    pub(super) async fn read(&mut self, statement: Statement<'_>) -> Result<Answer> {
        self.db.execute(statement).await.map_err(|fault| failed(fault, Asked::Read))
    }

    /// Begins a transaction that writes, in the files that were opened.
    pub(super) async fn begin(&mut self) -> Result<()> {
        self.check().await?;
        self.start().await
    }

    /// IMMEDIATE: a transaction that reads first and writes later can find that others wrote in between.
    async fn start(&mut self) -> Result<()> {
        const { must_be_alone::<E>() };
        // Before it is sent: this may be dropped while it waits.
        self.idle = false;
        let begun = self.db.execute(Statement::write("BEGIN IMMEDIATE", [])).await;
        begun.map(drop).map_err(|fault| {
            // No ROLLBACK: a transaction that is open all the same is somebody else's.
            self.idle = has_not_begun(&fault);
            in_transaction(fault)
        })
    }

    /// Commits if all went well, and rolls back if not.
    pub(super) async fn end<R>(&mut self, outcome: Result<R>) -> Result<R> {
        let outcome = self.finish(outcome).await?;
        // Not before: what was committed to a file that nobody else finds is of no use.
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

    /// Whether there was a transaction until now, and it is rolled back.
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

    /// Whether the files are those that were opened.
    pub(super) async fn check(&mut self) -> Result<()> {
        self.files.check(&mut self.db).await
    }
}

impl<E> Session<E> {
    /// Whether it may be used again. If not, a transaction may still be open: it ends with the connection,
    /// which has to be closed.
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// The files that it was opened to.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// The connection.
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

/// What went wrong in a transaction before its COMMIT.
pub(super) fn in_transaction(fault: Fault) -> Error {
    failed(fault, Asked::InTransaction)
}

/// What went wrong after a COMMIT, which stands. Of another file nothing is used.
fn after_commit(error: Error) -> Error {
    if error.kind() == ErrorKind::StoreViolation {
        return error;
    }
    let message = format!("committed, but its files cannot be looked at any more: {error}");
    Error::new(ErrorKind::UnknownOutcome, message).because(error)
}

/// Whether the database is there without a log.
fn wants_a_look(path: &Path, mode: Mode) -> bool {
    let there = std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0);
    mode != Mode::ReadOnly && there && !Log::is_beside(path)
}

/// Without a log beside the database, no process that writes a log may have it open: that log
/// is elsewhere, or was removed.
///
/// Where processes come and go, it may never be free, and have no log in some moments: when the last of them
/// has gone and others are looking. So the log is looked for again and again.
async fn must_be_unshared<E, F>(connect: &mut impl FnMut(Mode) -> F, path: &Path) -> Result<()>
where
    E: Executor,
    F: Future<Output = Result<E, Fault>>,
{
    let until = Instant::now() + LOOKS;
    loop {
        // Each look has a connection of its own: one that has failed keeps a lock, so that two who look at the
        // same time would be in each other's way for ever.
        let Ok(mut probe) = connect(Mode::ReadWrite).await else { return Ok(()) };
        let is_shared = matches!(look(&mut probe).await, Err(fault) if is_busy(&fault));
        drop(probe);
        // All else is found out in what follows.
        if !is_shared || Log::is_beside(path) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "others have the database open, but there is no log beside it: they know it by another name (a hard link, a file \
                 mounted by itself), or its -wal file was removed; they would reserve the same ids. Stop them first",
            ));
        }
    }
}

/// A database with a log is opened so only if nobody else has it. Waits for nobody.
async fn look<E: Executor>(probe: &mut E) -> Result<(), Fault> {
    for pragma in ["PRAGMA busy_timeout = 0", "PRAGMA locking_mode = EXCLUSIVE"] {
        probe.execute(Statement::write(pragma, []).once()).await?;
    }
    probe.execute(Statement::read("SELECT count(*) FROM sqlite_schema", []).once()).await.map(drop)
}

/// The same error, naming the file.
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
    use crate::{Dialect, EngineError, InTransaction, Row};

    /// Answers as an engine does whose table has no rows; but to some statements so, or never.
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
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"); // a file, whichever
        let (table, busy_timeout) = (Table::new("t").unwrap(), Duration::ZERO);
        Settings { path, table, busy_timeout, mode: Mode::ReadWrite }
    }

    fn session(script: &[(&'static str, Option<Fault>)]) -> Session<Scripted<false>> {
        let Settings { path, table, .. } = settings();
        let files = Files::new(&path, FileId::of(&path).unwrap());
        Session { db: Scripted(script.to_vec()), table, files, idle: true }
    }

    /// What the removal of a sequence that is there comes to, if it comes to anything.
    fn remove(session: &mut Session<Scripted<false>>) -> Poll<Result<bool, ErrorKind>> {
        let name = SequenceName::new("s").unwrap();
        let removal = pin!(Calls(Mode::ReadWrite).remove(session, &name));
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

    /// A database that is never free: others come and go. Their log is there from the third look on.
    #[test]
    fn a_log_that_comes_while_others_have_the_database_is_seen() {
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

    /// Says what its journal is until a COMMIT, and fails afterwards.
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
    fn what_fails_after_a_commit_does_not_undo_it() {
        let moved = Fault::Refused(FileId::moved(Path::new("t")));
        for (fault, kind) in [
            (engine(5, "database is locked"), ErrorKind::UnknownOutcome),
            (engine(23, "not authorized"), ErrorKind::UnknownOutcome),
            (moved, ErrorKind::StoreViolation),
        ] {
            let Session { db, table, files, idle } = session(&[]);
            let mut session = Session { db: Failing(db, fault), table, files, idle };
            let name = SequenceName::new("s").unwrap();
            let removal = pin!(Calls(Mode::ReadWrite).remove(&mut session, &name))
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

    /// Those of an executor that is `Send`: a store over an asynchronous driver boxes them.
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
