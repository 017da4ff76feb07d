//! Replacing the file: every write goes to a new file, which is synced before it gets the witness's name.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;

use super::errors;
use super::lock::Locked;
use super::owner;
use super::place::{LARGEST, Place};
use crate::{Write, text};
use idmill::store::Identity;
use idmill::{Error, ErrorKind, Result};

/// The end of the name of a temporary file.
const ENDING: &str = ".new";

/// A new file with a name of its own, `FILE.RANDOM.new`. No other write uses it, and one that was left
/// behind does no harm. It is removed on drop, unless it was renamed.
struct Temporary {
    path: PathBuf,
    file: File,
}

impl Place {
    /// Applies each write if its condition holds. Returns which were applied.
    pub(super) fn written(&self, writes: &[&Write]) -> Result<Vec<bool>> {
        let locked = self.lock()?;
        let mut ledgers = self.read_locked(&locked)?;
        let mut written = Vec::with_capacity(writes.len());
        for Write { name, seen, wanted } in writes {
            let holds = ledgers.get(name) == seen.as_ref();
            if holds {
                ledgers.insert(name.clone(), wanted.clone());
            }
            written.push(holds);
        }
        if written.contains(&true) && !self.replace(&locked, &text::encode(&ledgers))? {
            // Another file is there now, so the conditions hold for none.
            written.fill(false);
        }
        Ok(written)
    }

    /// Replaces the file. Returns `false` if the path no longer leads to the locked file.
    pub(super) fn replace(&self, locked: &Locked, text: &str) -> Result<bool> {
        let directory = self.opened_directory()?;
        let new = self.successor(locked, text)?;
        self.put(locked, &new, directory)
    }

    /// Gives the temporary file the witness's name, after it is on disk.
    fn put(&self, locked: &Locked, new: &Temporary, directory: Option<File>) -> Result<bool> {
        new.file.sync_all().map_err(|error| self.failed(&error))?;
        if !self.is_current(locked)? {
            return Ok(false);
        }
        std::fs::rename(&new.path, &self.file).map_err(|error| errors::not_renamed(&self.file, error))?;
        synced(directory).map_err(|error| errors::unknown(&self.file, error))?;
        Ok(true)
    }

    /// Does everything that a replacement does, except for the rename.
    pub(super) fn check_replaceable(&self, locked: &Locked, text: &str) -> Result<()> {
        let directory = self.opened_directory()?;
        if let Some(directory) = &directory
            && owner::is_mounted(&locked.0, directory)
        {
            return Err(errors::not_replaceable(&self.file));
        }
        synced(directory).map_err(|error| self.failed(&error))?;
        self.successor(locked, text).map(drop)
    }

    /// Writes a temporary file with the owner and mode of the locked file.
    fn successor(&self, locked: &Locked, text: &str) -> Result<Temporary> {
        if text.len() as u64 > LARGEST {
            let message = format!(
                "{} would have over {} MiB; use a database as the witness",
                self.file.display(),
                LARGEST >> 20
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let old = self.locked_data(locked).and_then(|file| file.metadata());
        let old = old.map_err(|error| self.failed(&error))?;
        let mut new = self.temporary(Some(&old)).map_err(|error| self.failed(&error))?;
        owner::keep(&new.file, &old, &self.file)?;
        new.file.write_all(text.as_bytes()).map_err(|error| self.failed(&error))?;
        Ok(new)
    }

    fn temporary(&self, old: Option<&Metadata>) -> io::Result<Temporary> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        if old.is_some() {
            owner::make_private(&mut options);
        }
        let path = self.beside(&format!(".{:016x}{ENDING}", Identity::fresh().incarnation));
        let file = options.open(&path)?;
        Ok(Temporary { path, file })
    }

    /// Removes the temporary files of processes that ended during a write. While the witness is locked, no
    /// other process writes. A file that cannot be removed does no harm.
    pub(super) fn remove_leftovers(&self) {
        let Some(own) = self.file.file_name().map(OsStr::as_encoded_bytes) else { return };
        let Ok(entries) = std::fs::read_dir(self.directory()) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let middle = name.as_encoded_bytes().strip_prefix(own);
            let middle = middle.and_then(|rest| rest.strip_suffix(ENDING.as_bytes()));
            if middle.is_some_and(is_random) {
                std::fs::remove_file(entry.path()).ok();
            }
        }
    }

    /// Opens the directory before the rename, because a failure afterwards would leave the outcome unknown.
    fn opened_directory(&self) -> Result<Option<File>> {
        let opened = cfg!(unix).then(|| File::open(self.directory())).transpose();
        opened.map_err(|error| errors::failed(self.directory(), &error))
    }
}

/// Creation.
impl Place {
    /// Creates the file, unless it exists.
    ///
    /// The new file is locked until all other temporary files are removed. So if the witness was removed
    /// while another process was about to replace it, that rename fails: it must not remove claims from the
    /// new file. A process that begins later finds another file than the one it locked.
    #[cfg(unix)]
    pub(super) fn create(&self) -> Result<()> {
        let failed = |error| self.failed(&error);
        let directory = self.opened_directory()?;
        let mut new = self.temporary(None).map_err(failed)?;
        if let Some(directory) = &directory {
            owner::inherit(&new.file, directory);
        }
        new.file.write_all(text::encode(&BTreeMap::new()).as_bytes()).map_err(failed)?;
        new.file.sync_all().map_err(failed)?;
        new.file.lock().map_err(failed)?;
        if self.publish(&new, std::fs::hard_link(&new.path, &self.file))? {
            self.remove_leftovers();
            synced(directory).map_err(failed)?;
        }
        Ok(())
    }

    /// Returns whether the new file became the witness. A link, unlike a rename, replaces no file, but some
    /// file systems, such as FAT, have none. There, the removal of temporary files is sufficient: any other
    /// process that creates the witness either has renamed its file before, or fails.
    #[cfg(unix)]
    fn publish(&self, new: &Temporary, linked: io::Result<()>) -> Result<bool> {
        match linked {
            Ok(()) => Ok(true),
            Err(_) if self.exists()? => Ok(false),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) =>
            {
                let renamed = std::fs::rename(&new.path, &self.file);
                renamed.map_err(|error| errors::not_renamed(&self.file, error)).map(|()| true)
            }
            Err(error) => Err(errors::not_renamed(&self.file, error)),
        }
    }

    #[cfg(not(unix))]
    pub(super) fn create(&self) -> Result<()> {
        let _lock = self.lock()?;
        if self.exists()? {
            return Ok(());
        }
        let mut new = self.temporary(None).map_err(|error| self.failed(&error))?;
        let filled = new.file.write_all(text::encode(&BTreeMap::new()).as_bytes());
        filled.and_then(|()| new.file.sync_all()).map_err(|error| self.failed(&error))?;
        std::fs::rename(&new.path, &self.file).map_err(|error| errors::not_renamed(&self.file, error))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Fails after a rename, because nothing has this name any more.
        std::fs::remove_file(&self.path).ok();
    }
}

/// Returns whether this is the part of a temporary name between the witness's name and the ending.
fn is_random(middle: &[u8]) -> bool {
    middle
        .strip_prefix(b".")
        .is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// A rename is on disk once the directory is synced.
fn synced(directory: Option<File>) -> io::Result<()> {
    directory.map_or(Ok(()), |directory| directory.sync_all())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn created(directory: &tempfile::TempDir) -> Place {
        let place = Place::of(&directory.path().join("w")).unwrap();
        place.create().unwrap();
        place
    }

    fn files(directory: &tempfile::TempDir) -> usize {
        std::fs::read_dir(directory.path()).unwrap().count()
    }

    #[test]
    fn new_witness_is_not_replaced_by_an_old_writer() {
        let directory = tempfile::tempdir().unwrap();
        let place = created(&directory);
        let empty = text::encode(&BTreeMap::new());
        // The first writer is stopped before it writes, the second between its check and its rename.
        let (locked, stopped) =
            (place.lock().unwrap(), place.successor(&Locked(File::open(&place.file).unwrap()), ""));
        let stopped = stopped.unwrap();
        assert!(place.is_current(&locked).unwrap());
        std::fs::remove_file(&place.file).unwrap();
        assert_eq!(place.replace(&locked, "late").unwrap_err().kind(), ErrorKind::NotFound);
        place.create().unwrap();
        assert!(!place.replace(&locked, "late").unwrap());
        let late = std::fs::rename(&stopped.path, &place.file).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::NotFound);
        assert_eq!(std::fs::read_to_string(&place.file).unwrap(), empty);
        assert_eq!(files(&directory), 1);
        assert!(place.replace(&place.lock().unwrap(), "new").unwrap());
    }

    #[test]
    fn creation_works_without_hard_links_and_replaces_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::of(&directory.path().join("w")).unwrap();
        let no_links = || Err(io::Error::from(io::ErrorKind::PermissionDenied));
        let [one, other] = [(); 2].map(|()| place.temporary(None).unwrap());
        assert!(place.publish(&one, no_links()).unwrap());
        assert!(!place.publish(&other, no_links()).unwrap());
        std::fs::remove_file(&place.file).unwrap();
        // A removed temporary file: another process created the witness in the meantime.
        place.remove_leftovers();
        assert_eq!(place.publish(&other, no_links()).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(files(&directory), 0);
    }

    #[test]
    fn witness_above_the_limit_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let place = created(&directory);
        let large = " ".repeat(usize::try_from(LARGEST).unwrap() + 1);
        let refused = place.replace(&place.lock().unwrap(), &large).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
        let locked = place.lock().unwrap();
        let refused = place.check_replaceable(&locked, &large).unwrap_err();
        assert!(
            refused.to_string().ends_with("w would have over 64 MiB; use a database as the witness"),
            "{refused}"
        );
        place.check_replaceable(&locked, &large[1..]).unwrap();
        assert_eq!((place.read().unwrap().len(), files(&directory)), (0, 1));
    }

    #[test]
    fn file_is_not_published_after_another_failure() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::of(&directory.path().join("w")).unwrap();
        let new = place.temporary(None).unwrap();
        for (error, kind) in [
            (io::ErrorKind::StorageFull, ErrorKind::Unavailable),
            (io::ErrorKind::CrossesDevices, ErrorKind::Conflict),
            (io::ErrorKind::Other, ErrorKind::UnknownOutcome),
        ] {
            let failed = place.publish(&new, Err(error.into())).unwrap_err();
            assert_eq!((failed.kind(), place.exists().unwrap()), (kind, false), "{error}");
        }
    }

    #[test]
    fn successor_is_private_until_it_has_an_owner() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let place = created(&directory);
        let new = place.temporary(Some(&std::fs::metadata(&place.file).unwrap())).unwrap();
        assert_eq!(new.file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn only_own_temporary_files_are_leftovers() {
        for (middle, is_own) in [
            (".0123456789abcdef", true),
            ("0123456789abcdef", false),
            (".0123456789abcde", false),
            (".0123456789abcdef0", false),
            (".0123456789abcdeg", false),
            (".", false),
            ("", false),
        ] {
            assert_eq!(is_random(middle.as_bytes()), is_own, "{middle}");
        }
    }

    #[test]
    fn directory_is_synced_and_a_failure_is_not_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let place = created(&directory);
        assert!(synced(place.opened_directory().unwrap()).is_ok());
        // A device cannot be synced.
        #[cfg(target_os = "linux")]
        assert!(synced(Some(File::open("/dev/null").unwrap())).is_err());
        let locked = place.lock().unwrap();
        drop(directory);
        assert_eq!(place.replace(&locked, "late").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(place.opened_directory().unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn new_file_is_on_disk_before_it_is_the_witness() {
        let directory = tempfile::tempdir().unwrap();
        let place = created(&directory);
        let locked = place.lock().unwrap();
        // A device cannot be synced.
        let device = || File::open("/dev/null").unwrap();
        let new = place.successor(&locked, "new").unwrap();
        let unsynced = Temporary { path: new.path.clone(), file: device() };
        let failed = place.put(&locked, &unsynced, None).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Unavailable, "{failed}");
        assert_eq!(std::fs::read_to_string(&place.file).unwrap(), text::encode(&BTreeMap::new()));
        drop(unsynced);
        let new = place.successor(&locked, "new").unwrap();
        let unknown = place.put(&locked, &new, Some(device())).unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::UnknownOutcome, "{unknown}");
        assert_eq!(std::fs::read_to_string(&place.file).unwrap(), "new");
    }

    /// A lock on a replaced file excludes no other writer, so the new file is locked.
    #[test]
    fn lock_of_a_replaced_file_is_taken_again() {
        let directory = tempfile::tempdir().unwrap();
        let place = created(&directory);
        let (asks, asked) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let locked = place.lock().unwrap();
                let (place, asks) = (&place, asks.clone());
                let other = scope.spawn(move || {
                    asks.send(()).unwrap();
                    let locked = place.lock().unwrap();
                    assert!(place.is_current(&locked).unwrap());
                });
                asked.recv().unwrap();
                assert!(place.replace(&locked, "new").unwrap());
                drop(locked);
                other.join().unwrap();
            }
        });
    }
}
