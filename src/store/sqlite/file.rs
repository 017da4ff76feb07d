//! The file behind a connection: whether it can be there at all, and whether it still is the same.
//!
//! Nothing in here *opens* the database: closing any descriptor of a file drops every POSIX lock that the process
//! has on it, those of SQLite's connections included.

use std::fs::Metadata;
use std::io;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Mode;

/// What SQLite would say less well: its own error is "unable to open database file" whatever the reason.
pub(super) fn check_place(path: &Path, mode: Mode) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            Err(Error::invalid("this is a directory; name the file in it, as in `sqlite:ids.db`"))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && mode == Mode::Create => {
            check_directory(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message = "there is no such file; correct the path, or open it with mode=rwc to create it";
            Err(Error::new(ErrorKind::NotFound, message).because(error))
        }
        Err(error) => Err(inaccessible(error)),
    }
}

fn check_directory(path: &Path) -> Result<()> {
    let directory = path.parent().unwrap_or(path);
    match std::fs::metadata(directory) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(Error::invalid(format!("{} is not a directory", directory.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message = format!("the directory {} does not exist; create it first", directory.display());
            Err(Error::new(ErrorKind::NotFound, message).because(error))
        }
        Err(error) => Err(inaccessible(error)),
    }
}

fn inaccessible(error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => {
            ErrorKind::InvalidInput
        }
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("the file cannot be looked at: {error}")).because(error)
}

/// Which file a path led to.
///
/// A connection goes on using the file it opened after somebody has deleted, renamed or replaced it, and would
/// reserve from it the ids that others reserve from the one now in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId(Option<(u64, u64)>);

impl FileId {
    pub(super) fn of(path: &Path) -> Result<Self> {
        std::fs::metadata(path).map(|metadata| Self(number(&metadata))).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound { Self::moved(path) } else { inaccessible(error) }
        })
    }

    /// Whether the path still leads there.
    pub(super) fn check(self, path: &Path) -> Result<()> {
        if Self::of(path)? == self { Ok(()) } else { Err(Self::moved(path)) }
    }

    pub(super) fn moved(path: &Path) -> Error {
        let message = format!(
            "{} was deleted, moved or replaced while it was in use; put it back, or open the store anew if this is meant",
            path.display()
        );
        Error::new(ErrorKind::StoreViolation, message)
    }
}

#[cfg(unix)]
#[allow(clippy::unnecessary_wraps)] // not everywhere
fn number(metadata: &Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}

/// Elsewhere an open file cannot be deleted or replaced, or there is no telling.
#[cfg(not(unix))]
fn number(_: &Metadata) -> Option<(u64, u64)> {
    None
}
