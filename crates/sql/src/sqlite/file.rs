//! The files of a database: whether their paths are valid, and whether they are still the files
//! that were opened.
//!
//! SQLite finds the log of a database next to it, by the name that the database was opened under. A
//! process that opens the database under another name, or after its log was removed, writes another
//! log. Neither process then sees the other's reserves.
//!
//! Nothing here *opens* the database file: closing any descriptor of a file drops every POSIX lock
//! that the process has on it, including the locks of SQLite's connections.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use idmill::{Error, ErrorKind, Result};
use idmill_kit::Mode;

use super::classify::failed;
use super::durable::journal;
use crate::{Asked, Executor, Statement, Value};

/// Checks the path first, since SQLite reports "unable to open database file" for every reason.
pub(super) fn check_place(path: &Path, mode: Mode) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            Err(Error::invalid("this is a directory; name a file in it, as in `sqlite:ids.db`"))
        }
        Ok(_) if is_mounted(path) => Err(mounted(path)),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && mode == Mode::Create => {
            check_directory(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message = "there is no such file; correct the path, or restore the file: a new one begins \
                           every sequence at its start";
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
    Error::new(kind, format!("cannot read the file's metadata: {error}")).because(error)
}

/// Returns whether the file itself is a mount point, and not only a directory above it.
#[cfg(target_os = "linux")]
fn is_mounted(path: &Path) -> bool {
    let (Ok(path), Ok(mounts)) = (path.canonicalize(), std::fs::read("/proc/self/mountinfo")) else {
        return false;
    };
    let path = path.as_os_str().as_encoded_bytes();
    mounts.split(|byte| *byte == b'\n').any(|mount| mount_point(mount).as_deref() == Some(path))
}

#[cfg(not(target_os = "linux"))]
fn is_mounted(_: &Path) -> bool {
    false
}

/// Reads the fifth field of a line, where blanks and backslashes are octal escapes.
#[cfg(target_os = "linux")]
fn mount_point(line: &[u8]) -> Option<Vec<u8>> {
    let mut left = line.split(|byte| *byte == b' ').nth(4)?;
    let mut path = Vec::with_capacity(left.len());
    while let Some((&byte, rest)) = left.split_first() {
        let digits =
            rest.get(..3).filter(|_| byte == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(escaped.unwrap_or(byte));
        left = if escaped.is_some() { &rest[3..] } else { rest };
    }
    Some(path)
}

fn mounted(path: &Path) -> Error {
    let message = format!(
        "{} is a mount point, so its -wal file, which has the last ids, is outside the mount; mount the \
         directory of the file",
        path.display()
    );
    Error::new(ErrorKind::Conflict, message)
}

/// Identifies the file that a path led to.
///
/// A connection keeps using the file that it opened, even if the file was then deleted, renamed or replaced.
/// Such a connection would reserve the same ids as others do from the new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId(Option<(u64, u64)>);

impl FileId {
    /// Identifies a database file, which must not have several names.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound { Self::moved(path) } else { inaccessible(error) }
        })?;
        match names(&metadata) {
            0 | 1 => Ok(Self(number(&metadata))),
            names => Err(linked(path, names)),
        }
    }

    /// Checks that the path still leads to this file.
    pub(super) fn check(self, path: &Path) -> Result<()> {
        if Self::of(path)? == self { Ok(()) } else { Err(Self::moved(path)) }
    }

    pub(super) fn moved(path: &Path) -> Error {
        let message = format!(
            "{} was deleted, moved or replaced while in use; restore it, or open the store again if this is \
             intended",
            path.display()
        );
        Error::new(ErrorKind::StoreViolation, message)
    }
}

fn linked(path: &Path, names: u64) -> Error {
    let message = format!(
        "{} is one of {names} hard links, which have separate -wal files and repeat ids; remove the others \
         (`find -samefile`)",
        path.display()
    );
    Error::new(ErrorKind::Conflict, message)
}

/// The files of a database at the time it was opened.
#[derive(Clone, Debug)]
pub struct Files {
    path: PathBuf,
    file: FileId,
    /// The log, if the connection writes one.
    log: Option<Log>,
}

impl Files {
    pub(super) fn new(path: &Path, file: FileId) -> Self {
        Self { path: path.to_owned(), file, log: None }
    }

    /// Returns whether `self` and `other` belong to the same database.
    pub(super) fn are_of(&self, other: &Self) -> bool {
        self.file == other.file
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Records the log of the connection. SQLite opens the log when the connection first reads the
    /// database.
    pub(super) async fn find_log<E: Executor>(&mut self, db: &mut E) -> Result<()> {
        self.log = if journal(db).await? == "wal" { Some(Log::beside(&self.path)?) } else { None };
        Ok(())
    }

    /// Checks that the files are unchanged since they were opened.
    pub(super) async fn check<E: Executor>(&mut self, db: &mut E) -> Result<()> {
        self.file.check(&self.path)?;
        // Another process may have switched the database to WAL mode since.
        if self.log.is_none() {
            self.find_log(db).await?;
        }
        self.log.as_ref().map_or(Ok(()), Log::check)
    }
}

/// Returns the file of a connection.
pub(super) async fn path_of<E: Executor>(db: &mut E) -> Result<PathBuf> {
    let statement = Statement::read("SELECT file FROM pragma_database_list WHERE name = 'main'", []).once();
    let answer = db.execute(statement).await.map_err(|fault| failed(fault, Asked::Connect))?;
    match answer.rows.first().map(|row| row.get(0)) {
        Some(Value::Text(path)) if !path.is_empty() => Ok(path.into()),
        #[cfg(unix)]
        Some(Value::Bytes(path)) => {
            use std::os::unix::ffi::OsStringExt;
            Ok(std::ffi::OsString::from_vec(path.clone()).into())
        }
        _ => Err(Error::invalid("an SQLite database in memory or without a name loses its ids; name a file")),
    }
}

/// The paths and identities of a database's write-ahead log and of its index.
#[derive(Clone, Debug)]
pub(super) struct Log([(PathBuf, Option<(u64, u64)>); 2]);

impl Log {
    /// Records the log files of an open database.
    pub(super) fn beside(path: &Path) -> Result<Self> {
        let [log, index] = Self::paths(path);
        let (log_id, index_id) = (Self::id(&log)?, Self::id(&index)?);
        Ok(Self([(log, log_id), (index, index_id)]))
    }

    /// Returns whether there is a log.
    pub(super) fn is_beside(path: &Path) -> bool {
        Self::paths(path)[0].exists()
    }

    /// SQLite resolves symbolic links, and searches for the log next to the target.
    fn paths(path: &Path) -> [PathBuf; 2] {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        ["-wal", "-shm"].map(|suffix| {
            let mut name = path.clone().into_os_string();
            name.push(suffix);
            name.into()
        })
    }

    fn id(path: &Path) -> Result<Option<(u64, u64)>> {
        match std::fs::metadata(path) {
            Ok(metadata) => Ok(number(&metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Self::removed(path)),
            Err(error) => Err(inaccessible(error)),
        }
    }

    /// Checks that both files are unchanged. A connection keeps them while it is open, and no other
    /// process may remove them.
    pub(super) fn check(&self) -> Result<()> {
        for (path, before) in &self.0 {
            if Self::id(path)? != *before {
                return Err(Self::removed(path));
            }
        }
        Ok(())
    }

    fn removed(path: &Path) -> Error {
        let message = format!(
            "{} was removed or replaced; stop all processes using it, then run `idmill set NAME --next N` \
             with N above all ids in use",
            path.display()
        );
        Error::new(ErrorKind::StoreViolation, message)
    }
}

#[cfg(unix)]
#[allow(clippy::unnecessary_wraps)] // `None` on other platforms
fn number(metadata: &Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(unix)]
fn names(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::nlink(metadata)
}

/// On other platforms an open file cannot be deleted or replaced, or its identity is not available.
#[cfg(not(unix))]
fn number(_: &Metadata) -> Option<(u64, u64)> {
    None
}

#[cfg(not(unix))]
fn names(_: &Metadata) -> u64 {
    1
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_line_yields_its_unescaped_mount_point() {
        for (line, path) in [
            (
                "36 35 98:0 /srv/ids.db /app/ids.db rw,noatime master:1 - ext4 /dev/sda rw",
                Some("/app/ids.db"),
            ),
            (r"36 35 98:0 / /a\040b\134c\011d rw - ext4 /dev/sda rw", Some("/a b\\c\td")),
            (r"36 35 98:0 / /a\9\ rw - ext4 /dev/sda rw", Some(r"/a\9\")),
            ("36 35 98:0 /", None),
            ("", None),
        ] {
            assert_eq!(mount_point(line.as_bytes()).as_deref(), path.map(str::as_bytes), "{line}");
        }
        assert!(!is_mounted(Path::new("/proc/self/mountinfo")));
    }
}
