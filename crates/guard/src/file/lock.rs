//! The lock for writes.
//!
//! On Unix, the lock is on the data file itself. A lock on a second file does not exclude anyone once that
//! file was removed by a cleaner of temporary files, or as "stale": the next process creates and locks a new
//! one. Here, each write replaces the data file, so a process that locks a file checks that the path still
//! leads to it. The process that holds the lock of the current file is the only writer, and nothing else can
//! be removed. A lock on the directory would be as sound, but each reader of the directory could hold
//! it, all witnesses in it would share it, and a network file system rejects it.
//!
//! If the witness itself is removed, its claims are lost, and no lock helps. But a process that was stopped
//! before its rename must not replace the next witness: see [`Place::create`](super::place::Place::create).
//!
//! Elsewhere, a locked file cannot be read, so the lock is on `FILE.lock`. Windows does not remove that file
//! while it is open.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::place::Place;
use idmill::{Error, ErrorKind, Result};

/// The timeout for the lock. It is much shorter than the engine's timeout for a store, 10 s by default:
/// after that one, the engine must assume that the range was claimed, and loses it.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

/// The right to write the witness, until it is dropped.
#[derive(Debug)]
pub(super) struct Locked(pub(super) File);

impl Place {
    /// Locks the witness, which must exist on Unix.
    pub(super) fn lock(&self) -> Result<Locked> {
        let begun = Instant::now();
        loop {
            let file = self.lockable()?;
            self.wait_for(&file, begun)?;
            let locked = Locked(file);
            if self.is_current(&locked)? {
                return Ok(locked);
            }
            // Another process replaced the file before it released its lock.
            if begun.elapsed() >= TIMEOUT {
                return Err(self.busy());
            }
        }
    }

    fn wait_for(&self, file: &File, begun: Instant) -> Result<()> {
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) if begun.elapsed() < TIMEOUT => thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => return Err(self.busy()),
                Err(TryLockError::Error(error)) => return Err(self.failed(&error)),
            }
        }
    }

    fn busy(&self) -> Error {
        let message = format!(
            "another process has held the lock of the witness {} for {TIMEOUT:?}; continue or end it (`fuser` \
             lists it)",
            self.file.display()
        );
        Error::new(ErrorKind::Unavailable, message)
    }

    /// Opens the file for writing too: some file systems require this for an exclusive lock, and it shows
    /// that the file is read-only or immutable.
    #[cfg(unix)]
    fn lockable(&self) -> Result<File> {
        self.check_regular()?;
        let opened = OpenOptions::new().read(true).write(true).open(&self.file);
        opened.map_err(|error| self.failed(&error))
    }

    #[cfg(not(unix))]
    fn lockable(&self) -> Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        #[cfg(windows)]
        {
            const SHARE_READ_AND_WRITE: u32 = 3;
            std::os::windows::fs::OpenOptionsExt::share_mode(&mut options, SHARE_READ_AND_WRITE);
        }
        options.open(self.beside(".lock")).map_err(|error| self.failed(&error))
    }

    /// Returns whether the path still leads to the locked file.
    #[cfg(unix)]
    pub(super) fn is_current(&self, locked: &Locked) -> Result<bool> {
        use std::os::unix::fs::MetadataExt as _;
        let both = || -> io::Result<_> { Ok((locked.0.metadata()?, std::fs::metadata(&self.file)?)) };
        let (locked, now) = both().map_err(|error| self.failed(&error))?;
        Ok((locked.dev(), locked.ino()) == (now.dev(), now.ino()))
    }

    #[cfg(not(unix))]
    pub(super) fn is_current(&self, _: &Locked) -> Result<bool> {
        Ok(true)
    }

    /// Returns the file to read while the lock is held.
    pub(super) fn locked_data(&self, locked: &Locked) -> io::Result<File> {
        if cfg!(unix) { locked.0.try_clone() } else { File::open(&self.file) }
    }
}
