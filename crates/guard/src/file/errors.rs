//! Errors of the file, and whether the file may have been replaced.

use std::io;
use std::path::Path;

use idmill::{Error, ErrorKind};

/// Returns the error of a call that certainly changed nothing.
pub(super) fn failed(file: &Path, error: &io::Error) -> Error {
    let (kind, advice) = match error.kind() {
        io::ErrorKind::NotFound => (
            ErrorKind::NotFound,
            "create its directory, or restore the file; a new file would have no claims",
        ),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (ErrorKind::Denied, "make the file and its directory writable for this process")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (ErrorKind::Unavailable, "free space on its disk; nothing was claimed")
        }
        _ => (ErrorKind::Unavailable, "nothing was claimed"),
    };
    Error::new(kind, format!("{}: {error}; {advice}", file.display()))
}

/// Returns the error of a rename. Most errors show that it did not happen. After any other, such as an error
/// of the disk, the file may have been replaced.
pub(super) fn not_renamed(file: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::ResourceBusy
        | io::ErrorKind::CrossesDevices
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::DirectoryNotEmpty => not_replaceable(file).because(error),
        io::ErrorKind::NotFound => {
            let message = format!(
                "the temporary file of {} was removed by another program; nothing was claimed; exclude \
                 `*.new` there",
                file.display()
            );
            Error::new(ErrorKind::Unavailable, message).because(error)
        }
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::StorageFull
        | io::ErrorKind::QuotaExceeded
        | io::ErrorKind::InvalidFilename
        | io::ErrorKind::InvalidInput => failed(file, &error),
        _ => unknown(file, error),
    }
}

/// A write must replace the file, which is not possible for a mount point.
pub(super) fn not_replaceable(file: &Path) -> Error {
    let message = format!(
        "{} cannot be replaced, since it is mounted as a file; mount its directory instead",
        file.display()
    );
    Error::new(ErrorKind::Conflict, message)
}

pub(super) fn unknown(file: &Path, error: io::Error) -> Error {
    let message = format!("{} may or may not have been replaced", file.display());
    Error::new(ErrorKind::UnknownOutcome, message).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rename_that_may_have_happened_is_unknown() {
        use io::ErrorKind as Io;
        for (error, kind) in [
            (Io::ResourceBusy, ErrorKind::Conflict),
            (Io::CrossesDevices, ErrorKind::Conflict),
            (Io::IsADirectory, ErrorKind::Conflict),
            (Io::PermissionDenied, ErrorKind::Denied),
            (Io::ReadOnlyFilesystem, ErrorKind::Denied),
            (Io::StorageFull, ErrorKind::Unavailable),
            (Io::QuotaExceeded, ErrorKind::Unavailable),
            (Io::NotFound, ErrorKind::Unavailable),
            (Io::TimedOut, ErrorKind::UnknownOutcome),
            (Io::Other, ErrorKind::UnknownOutcome),
        ] {
            assert_eq!(not_renamed(Path::new("w"), error.into()).kind(), kind, "{error}");
        }
        #[cfg(target_os = "linux")]
        for (number, kind) in
            [(16, ErrorKind::Conflict), (1, ErrorKind::Denied), (5, ErrorKind::UnknownOutcome)]
        {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(not_renamed(Path::new("w"), error).kind(), kind, "{number}");
        }
    }

    #[test]
    fn each_failure_has_its_kind_and_advice() {
        use io::ErrorKind as Io;
        let (full, denied) = (
            "free space on its disk; nothing was claimed",
            "make the file and its directory writable for this process",
        );
        for (error, kind, advice) in [
            (
                Io::NotFound,
                ErrorKind::NotFound,
                "create its directory, or restore the file; a new file would have no claims",
            ),
            (Io::PermissionDenied, ErrorKind::Denied, denied),
            (Io::ReadOnlyFilesystem, ErrorKind::Denied, denied),
            (Io::StorageFull, ErrorKind::Unavailable, full),
            (Io::QuotaExceeded, ErrorKind::Unavailable, full),
            (Io::TimedOut, ErrorKind::Unavailable, "nothing was claimed"),
        ] {
            let failed = failed(Path::new("w"), &error.into());
            let text = format!("w: {}; {advice}", io::Error::from(error));
            assert_eq!((failed.kind(), failed.to_string()), (kind, text));
        }
    }
}
