//! What goes wrong, as people, scripts and exit codes are told of it.

use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind as UsageKind;
use idmill::{Error, ErrorKind, Operation, Status};
use idmill_kit::{said, secrets};
use idmill_url::StoreUrl;
use serde::Serialize;

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// The exit codes, as `--help` and docs/cli.md list them.
mod exit {
    pub(super) const DONE: u8 = 0;
    pub(super) const FAILED: u8 = 1;
    pub(super) const USAGE: u8 = 2;
    pub(super) const EXHAUSTED: u8 = 3;
    pub(super) const NOT_FOUND: u8 = 4;
    pub(super) const REFUSED: u8 = 5;
    /// A doctor's: warnings, errors, and what could not be looked at.
    pub(super) const WARNED: u8 = 6;
    pub(super) const UNSOUND: u8 = 7;
    pub(super) const NOT_SEEN: u8 = 8;
    /// `EX_TEMPFAIL` of sysexits.h.
    pub(super) const TRY_AGAIN: u8 = 75;
    /// `EX_PROTOCOL` of sysexits.h, the nearest to a reply that never came.
    pub(super) const UNKNOWN: u8 = 76;
}

/// An error on its way to stderr.
#[derive(Debug)]
pub(crate) struct Failure(Box<Report>);

/// What there is to say. The fields are those of the JSON form; their names and meanings are stable.
#[derive(Debug, Default, Serialize)]
struct Report {
    kind: &'static str,
    /// `transient`, `permanent` or `unknown`: whether another try makes sense.
    status: &'static str,
    exit_code: u8,
    operation: Option<String>,
    sequence: Option<String>,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
    /// How many ids had been printed; `null` where none were to be.
    printed: Option<u64>,
}

impl Failure {
    /// Input that cannot be right; nothing was changed.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::permanent("invalid_input", exit::USAGE, message.into())
    }

    /// Something that a guard refused; nothing was changed.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::permanent("conflict", exit::REFUSED, message.into())
    }

    /// A doctor's, by how many errors there are, and how much could not be looked at; else there are warnings.
    pub(crate) fn of_doctor(errors: usize, unknown: usize, message: String) -> Self {
        let (kind, exit_code) = match (errors, unknown) {
            (0, 0) => ("warned", exit::WARNED),
            (0, _) => ("not_seen", exit::NOT_SEEN),
            _ => ("unsound", exit::UNSOUND),
        };
        Self::permanent(kind, exit_code, message)
    }

    /// The operating system said no.
    pub(crate) fn io(what: &str, error: &io::Error) -> Self {
        Self::permanent("io", exit::FAILED, format!("{what}: {error}"))
    }

    /// Something cannot be written to stdout; [left](Self::is_left) where nobody reads it.
    pub(crate) fn of_stdout(what: &str, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::permanent("left", exit::DONE, String::new());
        }
        Self::io(&format!("{what} cannot be written to stdout"), error)
    }

    /// Whether the reader of stdout closed it, as `head` does once it has what it wants: no failure.
    pub(crate) fn is_left(&self) -> bool {
        self.0.exit_code == exit::DONE
    }

    /// Somebody stopped the command.
    pub(crate) fn signal(how: &str, exit_code: u8) -> Self {
        Self::permanent("interrupted", exit_code, how.to_owned())
    }

    /// Says what has become of the work, behind the message.
    pub(crate) fn so(mut self, consequence: &str) -> Self {
        self.0.message = format!("{}; {consequence}", self.0.message);
        self
    }

    fn permanent(kind: &'static str, exit_code: u8, message: String) -> Self {
        Self(Box::new(Report { kind, status: "permanent", exit_code, message, ..Report::default() }))
    }

    /// Whether a retry can succeed without a change.
    #[cfg(feature = "serve")]
    pub(crate) fn may_pass(&self) -> bool {
        self.0.status != Status::Permanent.as_str()
    }

    /// Whether it is of this kind.
    pub(crate) fn is(&self, kind: ErrorKind) -> bool {
        self.0.kind == kind.as_str()
    }

    /// Names the remedy, in place of the general one.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// What went wrong, without causes and hints.
    #[cfg(feature = "serve")]
    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// Names the place of what is wrong.
    pub(crate) fn at(mut self, place: &str) -> Self {
        self.0.message = format!("{place}: {}", self.0.message);
        self
    }

    /// Names the store that had no answer in time: a deadline alone does not tell which one that is.
    pub(crate) fn of_store(mut self, url: &StoreUrl) -> Self {
        if self.0.kind == ErrorKind::Deadline.as_str() {
            self.0.message = format!("{}; the store is {url}", self.0.message);
        }
        self
    }

    /// Adds how far a command got that was to print `count` ids.
    pub(crate) fn after_printing(mut self, printed: u64, count: u64) -> Self {
        self.0.printed = Some(printed);
        if printed > 0 {
            let message = &self.0.message;
            self.0.message = format!("{message}; {printed} of {count} ids were printed, and are used");
        }
        self
    }

    /// Tells of it on stderr and says what to exit with.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if self.is_left() {
            return ExitCode::SUCCESS;
        }
        if json {
            let report = serde_json::to_string(&self.0).expect("a report has a JSON form");
            eprintln!("{{\"error\":{report}}}");
        } else {
            self.print();
        }
        ExitCode::from(self.0.exit_code)
    }

    fn print(&self) {
        anstream::eprintln!("\x1b[1;31merror:\x1b[0m {}", self.0.message);
        for cause in &self.0.causes {
            anstream::eprintln!("  caused by: {cause}");
        }
        if let Some(hint) = &self.0.hint {
            anstream::eprintln!("\x1b[1;36mhint:\x1b[0m {hint}");
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        Self(Box::new(Report {
            kind: error.kind().as_str(),
            status: error.status().as_str(),
            exit_code: exit_code(error.kind()),
            operation: error.operation().map(|operation| operation.to_string()),
            sequence: error.sequence().map(str::to_owned),
            causes: said(&error).into_iter().skip(1).collect(),
            hint: hint(&error, &message),
            printed: None,
            message,
        }))
    }
}

fn exit_code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::InvalidInput => exit::USAGE,
        ErrorKind::Exhausted => exit::EXHAUSTED,
        ErrorKind::NotFound => exit::NOT_FOUND,
        ErrorKind::AlreadyExists | ErrorKind::Conflict => exit::REFUSED,
        kind => match kind.status() {
            Status::Transient => exit::TRY_AGAIN,
            Status::Unknown => exit::UNKNOWN,
            _ => exit::FAILED,
        },
    }
}

fn hint(error: &Error, message: &str) -> Option<String> {
    let name = error.sequence().map_or_else(|| "NAME".to_owned(), quoted);
    let connecting = error.operation() == Some(Operation::Connect);
    Some(match error.kind() {
        ErrorKind::Exhausted => format!("`idmill set {name} --max N` raises the last id"),
        ErrorKind::NotFound if connecting && message.contains("the witness") => {
            "--guard and IDMILL_GUARD name another witness".to_owned()
        }
        ErrorKind::NotFound if connecting => {
            "--store and IDMILL_STORE name another store; `idmill create` makes one that never was, unless its URL has mode=rw".to_owned()
        }
        ErrorKind::NotFound => format!("`idmill list` shows what there is; `idmill create {name}` makes it"),
        ErrorKind::AlreadyExists => format!("`idmill show {name}` shows it, `idmill set {name}` changes it"),
        ErrorKind::Conflict if error.operation() == Some(Operation::Set) && message.contains("backwards") => {
            "add --backwards if no id above the new value was ever used; `idmill set --help` says what it means"
                .to_owned()
        }
        ErrorKind::Conflict => format!("`idmill show {name}` shows what is stored"),
        ErrorKind::UnknownOutcome => {
            format!("it may have been done or not: see `idmill show {name}` before you repeat it")
        }
        ErrorKind::StoreViolation => {
            "hand out nothing more until you know what happened to the store: a restored backup, a moved file?"
                .to_owned()
        }
        kind if kind.status() == Status::Transient => "run it again later; nothing was lost".to_owned(),
        _ => return None,
    })
}

/// A sequence's name as a shell would have to be given it.
pub(crate) fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,".contains(c);
    if name.chars().all(plain) && !name.starts_with('-') {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    }
}

/// The text without what looks like a password in any of its words: what was typed may have
/// been a URL in the wrong place.
fn redacted(text: &str) -> String {
    text.split_inclusive(char::is_whitespace).map(secrets::redacted).collect()
}

/// What the arguments themselves had wrong; or the help that was asked for, which is no failure.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let asked = matches!(error.kind(), UsageKind::DisplayHelp | UsageKind::DisplayVersion);
    if !asked && std::env::args_os().any(|arg| arg == "--json") {
        let text = error.to_string();
        // What follows an empty line is the usage and where to find more of it.
        let text = text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ");
        return Failure::usage(redacted(&text.split_whitespace().collect::<Vec<_>>().join(" "))).report(true);
    }
    let (text, shown) = (error.to_string(), redacted(&error.to_string()));
    if asked || shown == text {
        // The reader closed the stream, and does not want to read it.
        let _ = error.print();
    } else {
        eprint!("{shown}");
    }
    if asked { ExitCode::SUCCESS } else { ExitCode::from(exit::USAGE) }
}

// It needs URLs of two stores.
#[cfg(all(test, feature = "full"))]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_says_which_store_it_is_about_and_never_its_password() {
        let url = idmill_any::parse("datastore://p?emulator=127.0.0.1:7&timeout=1s").unwrap();
        let late = Failure::from(Error::from(ErrorKind::Deadline)).of_store(&url);
        assert!(late.0.message.contains("127.0.0.1:7"), "{}", late.0.message);
        let url = idmill_any::parse("postgres://u:hunter2@127.0.0.1:7/ids").unwrap();
        let late = Failure::from(Error::from(ErrorKind::Deadline)).of_store(&url);
        assert!(!late.0.message.contains("hunter2"), "{}", late.0.message);
        let other = Failure::from(Error::from(ErrorKind::Exhausted)).of_store(&url);
        assert!(!other.0.message.contains("127.0.0.1"), "it was not about where: {}", other.0.message);
    }
}
