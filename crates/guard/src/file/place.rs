//! The file of a witness: opening, checking and reading.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::errors;
use super::lock::Locked;
use crate::{Ledger, text};
use idmill::SequenceName;
use idmill::{Error, ErrorKind, Result};

/// The maximum size of a witness, in bytes: far above any that is fast enough.
pub(super) const LARGEST: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct Place {
    pub(super) file: PathBuf,
}

impl Place {
    /// Resolves links, so that all names of a file share one lock and are replaced in the same place.
    pub(super) fn of(file: &Path) -> Result<Self> {
        let file = resolved(file).map_err(|error| errors::failed(file, &error))?;
        Ok(Self { file })
    }

    pub(super) fn exists(&self) -> Result<bool> {
        self.file.try_exists().map_err(|error| self.failed(&error))
    }

    /// Checks that claims can be written now, before an id is reserved.
    pub(super) fn prepare(&self) -> Result<()> {
        let locked = self.lock()?;
        self.remove_leftovers();
        self.check_links()?;
        let ledgers = self.read_locked(&locked)?;
        self.check_replaceable(&locked, &text::encode(&ledgers))
    }

    /// Other files may block the reader, such as a pipe, or never end, such as `/dev/zero`.
    pub(super) fn check_regular(&self) -> Result<()> {
        let data = std::fs::metadata(&self.file).map_err(|error| self.failed(&error))?;
        let file = self.file.display();
        let message = match (data.is_file(), data.is_dir()) {
            (true, _) => return Ok(()),
            (_, true) => format!("{file} is a directory; name a file in it"),
            _ => format!("{file} is not a regular file; name another file"),
        };
        Err(Error::invalid(message))
    }

    pub(super) fn check_links(&self) -> Result<()> {
        self.check_regular()?;
        let links = || links(&self.file).map_err(|error| self.failed(&error));
        if links()? > 1 {
            // A new witness has a second name for a moment.
            thread::sleep(Duration::from_millis(20));
        }
        match links()? {
            0 | 1 => Ok(()),
            links => {
                let file = self.file.display();
                let message = format!(
                    "{file} has {links} hard links, and a write reaches only one of them; remove the others"
                );
                Err(Error::new(ErrorKind::Conflict, message))
            }
        }
    }

    /// Reads the file without a lock. It is only ever replaced, so it is always complete.
    pub(super) fn read(&self) -> Result<BTreeMap<SequenceName, Ledger>> {
        self.check_regular()?;
        self.parsed(File::open(&self.file))
    }

    pub(super) fn read_locked(&self, locked: &Locked) -> Result<BTreeMap<SequenceName, Ledger>> {
        self.parsed(self.locked_data(locked))
    }

    fn parsed(&self, file: io::Result<File>) -> Result<BTreeMap<SequenceName, Ledger>> {
        let mut text = Vec::new();
        let mut read = |mut file: File| {
            file.rewind()?;
            file.take(LARGEST + 1).read_to_end(&mut text)
        };
        file.and_then(&mut read).map_err(|error| self.failed(&error))?;
        let decoded = if text.len() as u64 > LARGEST {
            Err(format!("has over {} MiB, so it is not an idmill witness", LARGEST >> 20))
        } else {
            text::decode(&text)
        };
        decoded.map_err(|fault| {
            let message = format!(
                "{} {fault}; nothing was changed; restore it: a new file would have no claims",
                self.file.display()
            );
            Error::new(ErrorKind::StoreViolation, message)
        })
    }

    /// Returns the path of a file next to the witness, whose name begins with the name of the witness.
    pub(super) fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.file.clone().into_os_string();
        path.push(ending);
        PathBuf::from(path)
    }

    pub(super) fn directory(&self) -> &Path {
        let parent = self.file.parent().filter(|parent| !parent.as_os_str().is_empty());
        parent.unwrap_or(Path::new("."))
    }

    pub(super) fn failed(&self, error: &io::Error) -> Error {
        errors::failed(&self.file, error)
    }
}

/// Resolves symbolic links. For a file that does not exist yet, resolves its directory.
fn resolved(file: &Path) -> io::Result<PathBuf> {
    match (std::fs::canonicalize(file), file.file_name()) {
        (Err(error), Some(name)) if error.kind() == io::ErrorKind::NotFound && !file.is_symlink() => {
            let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
            Ok(std::fs::canonicalize(parent.unwrap_or(Path::new(".")))?.join(name))
        }
        (found, _) => found,
    }
}

/// Returns the number of hard links of the file.
#[cfg(unix)]
fn links(file: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(std::fs::metadata(file)?.nlink())
}

#[cfg(not(unix))]
fn links(file: &Path) -> io::Result<u64> {
    std::fs::metadata(file).map(|_| 1)
}
