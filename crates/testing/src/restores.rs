//! Ids that are drawn before and after a restore of their store, with and without a guard.
//!
//! ```ignore
//! let mut ids = Drawn::from(schemes, "postgres://…");
//! ids.draw(30).await;
//! let backup = Backup::of(&data);
//! ids.draw(50).await;
//! backup.put_back();
//! ids.went_back().await;
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Bounds, Change, Store};
use idmill::{Allocator, Error, ErrorKind, Result, SequenceName, Sequences, Status};
use idmill_guard::{FileWitness, Guarded};
use idmill_url::Schemes;

#[cfg(feature = "engines")]
use crate::engines::Engine;

const SEQUENCE: &str = "s";
const STEP: u64 = 10;
/// Retries of a process across a restart: a guard against hanging.
const TRIES: u32 = 600;

/// A store, and all ids that processes drew from it through a guard.
#[derive(Debug)]
pub struct Drawn {
    schemes: Schemes,
    url: String,
    witness: FileWitness,
    ids: BTreeSet<u64>,
    // The witness is outside the store's directory, which is restored.
    _dir: tempfile::TempDir,
}

impl Drawn {
    /// Ids of the store at this URL. The witness is a file.
    pub fn from(schemes: Schemes, url: impl Into<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let witness = FileWitness::open(dir.path().join("witness")).unwrap();
        Self { schemes, url: url.into(), witness, ids: BTreeSet::new(), _dir: dir }
    }

    /// Changes the URL of the store. The witness and the drawn ids stay.
    pub fn moves_to(&mut self, url: impl Into<String>) {
        self.url = url.into();
    }

    /// Starts a process with the guard.
    pub async fn process(&self) -> Result<Process> {
        let guarded = Arc::new(Guarded::new(self.schemes.open(&self.url).await?, self.witness.clone()));
        Ok(Process { sequence: sequence(guarded.clone()).await?, guarded })
    }

    /// A new process draws `count` ids and ends. Returns how often it repaired the store.
    ///
    /// # Panics
    /// If an id is a duplicate.
    pub async fn draw(&mut self, count: u32) -> u64 {
        let process = self.process().await.unwrap();
        self.draw_with(&process, count).await.unwrap();
        process.healed()
    }

    /// A process, perhaps started before a restore, draws `count` ids.
    ///
    /// # Panics
    /// If an id is a duplicate.
    pub async fn draw_with(&mut self, process: &Process, count: u32) -> Result<()> {
        for _ in 0..count {
            let id = process.next().await?;
            assert!(self.ids.insert(id), "{id} was handed out twice");
        }
        Ok(())
    }

    /// A new process draws `count` ids *without a guard*. Returns the number of duplicates.
    pub async fn repeated(&self, count: u32) -> usize {
        self.repeated_of(self.schemes.open(&self.url).await.unwrap(), count).await
    }

    /// Like [`repeated`](Self::repeated), but with the guard, whose witness was restored as well.
    pub async fn repeated_behind_the_guard(&self, count: u32) -> usize {
        self.repeated_of(self.process().await.unwrap().guarded, count).await
    }

    async fn repeated_of(&self, store: impl Store + 'static, count: u32) -> usize {
        let sequence = sequence(store).await.unwrap();
        let mut repeated = 0;
        for _ in 0..count {
            repeated += usize::from(self.ids.contains(&sequence.next().await.unwrap()));
        }
        repeated
    }

    /// The witness's file.
    pub fn witness(&self) -> &Path {
        self.witness.path()
    }

    /// Returns the error of a new process with the guard. Panics unless two draws in a row fail with a
    /// `StoreViolation`.
    pub async fn refused(&self) -> Error {
        let process = self.process().await.unwrap();
        let error = process.next().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
        let again = process.next().await.unwrap_err();
        assert_eq!((again.kind(), process.healed()), (ErrorKind::StoreViolation, 0), "{again}");
        error
    }

    /// Like [`refused`](Self::refused), for another sequence with the same name. Then follows the advice in
    /// the error, after which draws succeed.
    pub async fn another(&mut self) {
        let error = self.refused().await;
        let text = error.to_string();
        assert!(
            text.contains("fix the URL, restore the store, or") && text.contains("through the guard"),
            "{text}"
        );
        let name = SequenceName::new(SEQUENCE).unwrap();
        let process = self.process().await.unwrap();
        assert!(process.guarded.remove(&name, None).await.unwrap());
        let start = self.ids.last().map_or(1, |last| last + 1);
        process.guarded.create(&name, Bounds::new(start, u64::MAX).unwrap()).await.unwrap();
        assert_eq!(self.draw(30).await, 0);
    }

    /// Checks the state after the store was restored to a state at least 30 ids old: ids repeat without a
    /// guard, and do not with one.
    pub async fn went_back(&mut self) {
        assert_eq!(self.repeated(20).await, 20, "without a guard, ids repeat");
        assert_eq!(self.draw(100).await, 1, "it is healed");
        assert_eq!(self.draw(20).await, 0, "for all");
    }
}

/// A process that draws through the guard.
#[derive(Debug)]
pub struct Process {
    guarded: Arc<Guarded>,
    sequence: Allocator<u64>,
}

impl Process {
    /// Returns how often the guard found that the store had gone back.
    pub fn healed(&self) -> u64 {
        self.guarded.healed()
    }

    /// Sets the next id in the store, through the guard.
    pub async fn set_next(&self, next: u64) -> Result<()> {
        let name = SequenceName::new(SEQUENCE).unwrap();
        self.guarded.set(&name, Change::new().next(next)).await.map(drop)
    }

    /// Draws, with retries: the connections may be to an engine that was restarted since.
    async fn next(&self) -> Result<u64> {
        for _ in 0..TRIES {
            match self.sequence.next().await {
                Err(error) if error.status() != Status::Permanent => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                outcome => return outcome,
            }
        }
        self.sequence.next().await
    }
}

/// Opens the sequence without prefetch, so that the ids reserved at the time of a backup do not depend on
/// timing.
async fn sequence(store: impl Store + 'static) -> Result<Allocator<u64>> {
    Sequences::new(store)?.sequence::<u64>(SEQUENCE).step(STEP).watermark(0).await
}

/// A copy of a directory of an engine that is down, with its owners and permissions. Removed on drop.
#[derive(Debug)]
pub struct Backup {
    of: PathBuf,
    copy: PathBuf,
}

impl Backup {
    /// Copies `dir` to a directory next to it.
    pub fn of(dir: &Path) -> Self {
        let copy = dir.with_extension("backup");
        copied(dir, &copy);
        Self { of: dir.to_owned(), copy }
    }

    /// Replaces the directory with the copy. The engine must be down.
    pub fn put_back(&self) {
        std::fs::remove_dir_all(&self.of).unwrap();
        copied(&self.copy, &self.of);
    }

    /// Kills an engine, and restarts it over the copy.
    #[cfg(feature = "engines")]
    pub async fn put_back_under(&self, engine: &Engine) {
        engine.kill();
        self.put_back();
        engine.restart().await;
    }

    /// Copies the data of a running engine, which is killed for that and restarted.
    #[cfg(feature = "engines")]
    pub async fn of_engine(engine: &Engine, dir: &Path) -> Self {
        engine.kill();
        let backup = Self::of(dir);
        engine.restart().await;
        backup
    }
}

#[cfg(feature = "engines")]
impl Drawn {
    /// Restores an engine's data twice: once for processes that start afterwards, and once while a process
    /// is running.
    pub async fn survives_a_restore(&mut self, engine: &Engine, dir: &Path) {
        self.draw(30).await;
        let backup = Backup::of_engine(engine, dir).await;
        let running = self.process().await.unwrap();
        self.draw_with(&running, 50).await.unwrap();
        backup.put_back_under(engine).await;
        self.went_back().await;
        backup.put_back_under(engine).await;
        self.draw_with(&running, 50).await.unwrap();
        assert_eq!(running.healed(), 1, "a process that ran during the restore also heals the store");
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.copy);
    }
}

/// Copies with `cp`, because an engine may reject files of another user.
fn copied(from: &Path, to: &Path) {
    ran(Command::new("cp").arg("-a").arg(from).arg(to));
}

/// Runs a command to its end. Returns its output.
///
/// # Panics
/// If the command fails.
pub fn ran(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
