//! Ids that are drawn before and after their store was put back, without a guard and with one.
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
/// How often a process that runs over a restart tries again: a guard against hanging.
const TRIES: u32 = 600;

/// A store that processes draw from behind a guard, one after the other, and every id that they drew.
#[derive(Debug)]
pub struct Drawn {
    schemes: Schemes,
    url: String,
    witness: FileWitness,
    ids: BTreeSet<u64>,
    // Away from the store's, which is put back.
    _dir: tempfile::TempDir,
}

impl Drawn {
    /// Ids of the store at this URL. The witness is a file.
    pub fn from(schemes: Schemes, url: impl Into<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let witness = FileWitness::open(dir.path().join("witness")).unwrap();
        Self { schemes, url: url.into(), witness, ids: BTreeSet::new(), _dir: dir }
    }

    /// The store is reached at this URL from now on. The witness stays, and what was drawn.
    pub fn moves_to(&mut self, url: impl Into<String>) {
        self.url = url.into();
    }

    /// A process that starts now, behind the guard.
    pub async fn process(&self) -> Result<Process> {
        let guarded = Arc::new(Guarded::new(self.schemes.open(&self.url).await?, self.witness.clone()));
        Ok(Process { sequence: sequence(guarded.clone()).await?, guarded })
    }

    /// A process that starts now draws so many ids, and is gone; returns how often it healed the store.
    ///
    /// # Panics
    /// If one was drawn before.
    pub async fn draw(&mut self, count: u32) -> u64 {
        let process = self.process().await.unwrap();
        self.draw_with(&process, count).await.unwrap();
        process.healed()
    }

    /// A process that may have started long ago draws so many ids.
    ///
    /// # Panics
    /// If one was drawn before.
    pub async fn draw_with(&mut self, process: &Process, count: u32) -> Result<()> {
        for _ in 0..count {
            let id = process.next().await?;
            assert!(self.ids.insert(id), "{id} was handed out twice");
        }
        Ok(())
    }

    /// A process that starts now *without a guard* draws so many ids; returns how many of them were drawn
    /// before.
    pub async fn repeated(&self, count: u32) -> usize {
        self.repeated_of(self.schemes.open(&self.url).await.unwrap(), count).await
    }

    /// The same behind the guard, where the witness was put back as well.
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

    /// What a process that starts now, behind the guard, is refused with; it is refused each time.
    pub async fn refused(&self) -> Error {
        let process = self.process().await.unwrap();
        let error = process.next().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
        let again = process.next().await.unwrap_err();
        assert_eq!((again.kind(), process.healed()), (ErrorKind::StoreViolation, 0), "{again}");
        error
    }

    /// As [`refused`](Self::refused), where the sequence is another one of the same name. Then does what the
    /// error tells a person to do, after which ids go on.
    pub async fn another(&mut self) {
        let error = self.refused().await;
        let text = error.to_string();
        assert!(
            text.contains("another sequence of this name") && text.contains("through the guard"),
            "{text}"
        );
        let name = SequenceName::new(SEQUENCE).unwrap();
        let process = self.process().await.unwrap();
        assert!(process.guarded.remove(&name).await.unwrap());
        let start = self.ids.last().map_or(1, |last| last + 1);
        process.guarded.create(&name, Bounds::new(start, u64::MAX).unwrap()).await.unwrap();
        assert_eq!(self.draw(30).await, 0);
    }

    /// What follows once the store was put back to where it was at least 30 ids ago: without a guard they
    /// come again, and with one they do not.
    pub async fn went_back(&mut self) {
        assert_eq!(self.repeated(20).await, 20, "nothing tells that it is not the store of before");
        assert_eq!(self.draw(100).await, 1, "it is healed");
        assert_eq!(self.draw(20).await, 0, "for all");
    }
}

/// A process that draws behind the guard.
#[derive(Debug)]
pub struct Process {
    guarded: Arc<Guarded>,
    sequence: Allocator<u64>,
}

impl Process {
    /// How often it found that the store had gone back.
    pub fn healed(&self) -> u64 {
        self.guarded.healed()
    }

    /// Sets the next id in the store, through the guard.
    pub async fn set_next(&self, next: u64) -> Result<()> {
        let name = SequenceName::new(SEQUENCE).unwrap();
        self.guarded.set(&name, Change::new().next(next)).await.map(drop)
    }

    /// Its connections may be those to an engine that was started anew since.
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

/// Nothing is fetched ahead, so that what was reserved at the time of a backup does not depend on timing.
async fn sequence(store: impl Store + 'static) -> Result<Allocator<u64>> {
    Sequences::new(store)?.sequence::<u64>(SEQUENCE).step(STEP).watermark(0).await
}

/// A copy of a directory of an engine that is down, with everybody's rights; gone when it is dropped.
#[derive(Debug)]
pub struct Backup {
    of: PathBuf,
    copy: PathBuf,
}

impl Backup {
    /// Copies it, to a directory beside it.
    pub fn of(dir: &Path) -> Self {
        let copy = dir.with_extension("backup");
        copied(dir, &copy);
        Self { of: dir.to_owned(), copy }
    }

    /// Puts the copy in the place of the directory, for an engine that is down.
    pub fn put_back(&self) {
        std::fs::remove_dir_all(&self.of).unwrap();
        copied(&self.copy, &self.of);
    }

    /// Kills an engine, and starts it again over the copy.
    #[cfg(feature = "engines")]
    pub async fn put_back_under(&self, engine: &Engine) {
        engine.kill();
        self.put_back();
        engine.restart().await;
    }

    /// Copies what a running engine keeps there: it is killed for that, and started again.
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
    /// What an engine keeps there is put back, once for those who start afterwards, and once under one that
    /// runs.
    pub async fn survives_a_restore(&mut self, engine: &Engine, dir: &Path) {
        self.draw(30).await;
        let backup = Backup::of_engine(engine, dir).await;
        let running = self.process().await.unwrap();
        self.draw_with(&running, 50).await.unwrap();
        backup.put_back_under(engine).await;
        self.went_back().await;
        backup.put_back_under(engine).await;
        self.draw_with(&running, 50).await.unwrap();
        assert_eq!(running.healed(), 1, "who runs over the restore heals it as well");
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.copy);
    }
}

/// By the system's own command, since an engine may refuse files that belong to another user.
fn copied(from: &Path, to: &Path) {
    ran(Command::new("cp").arg("-a").arg(from).arg(to));
}

/// Runs a command to its end; returns what it printed.
///
/// # Panics
/// If it fails.
pub fn ran(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
