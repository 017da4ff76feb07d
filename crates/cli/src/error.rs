//! Errors, as reported to people and scripts, and exit codes.

use std::io;
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::error::{ContextKind, ContextValue, ErrorKind as UsageKind};
use idmill::{Error, ErrorKind, Operation, Status};
use idmill_kit::{is_invisible, said, secrets};
use idmill_url::StoreUrl;
use serde::Serialize;

use crate::formatted::written;
use crate::output::{self, compact, shown, tell};

pub(crate) type Outcome<T = ()> = Result<T, CliError>;

/// The exit codes, as in `--help` and docs/guide/cli.md.
mod exit {
    pub(super) const DONE: u8 = 0;
    pub(super) const FAILED: u8 = 1;
    pub(super) const USAGE: u8 = 2;
    pub(super) const EXHAUSTED: u8 = 3;
    pub(super) const NOT_FOUND: u8 = 4;
    pub(super) const REFUSED: u8 = 5;
    /// For `doctor`: warnings, errors, and incomplete checks.
    pub(super) const WARNED: u8 = 6;
    pub(super) const UNSOUND: u8 = 7;
    pub(super) const NOT_SEEN: u8 = 8;
    /// `EX_TEMPFAIL` of sysexits.h.
    pub(super) const TRY_AGAIN: u8 = 75;
    /// `EX_PROTOCOL` of sysexits.h, the nearest code for a missing reply.
    pub(super) const UNKNOWN: u8 = 76;
}

/// An error, to be reported on stderr.
#[derive(Debug)]
pub(crate) struct CliError(Box<Report>);

/// The state that a signal leaves behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopped {
    /// The consequence, for the message.
    pub(crate) so: &'static str,
    /// Whether the command may have changed a store.
    pub(crate) changes: bool,
    /// Whether the command prints ids.
    pub(crate) prints: bool,
}

/// The fields of the JSON form. The names and meanings of the fields are stable.
#[derive(Debug, Default, Serialize)]
struct Report {
    kind: &'static str,
    /// `transient`, `permanent` or `unknown`: whether a retry makes sense.
    status: &'static str,
    exit_code: u8,
    operation: Option<String>,
    sequence: Option<String>,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
    /// Number of ids that `next` printed; `null` or 0 if none were printed.
    printed: Option<u64>,
}

impl CliError {
    /// Creates an error for invalid input.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::permanent("invalid_input", exit::USAGE, message.into())
    }

    /// Creates an error with exit code 5, such as a refusal by a safety check.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::permanent("conflict", exit::REFUSED, message.into())
    }

    /// Creates the verdict of `doctor` from the number of errors and of incomplete checks. If both are 0,
    /// there are only warnings.
    pub(crate) fn of_doctor(errors: usize, unknown: usize, message: String) -> Self {
        let (kind, exit_code) = match (errors, unknown) {
            (0, 0) => ("warned", exit::WARNED),
            (0, _) => ("not_seen", exit::NOT_SEEN),
            _ => ("unsound", exit::UNSOUND),
        };
        Self::permanent(kind, exit_code, message)
    }

    /// Creates an error from one of the operating system.
    pub(crate) fn io(what: &str, error: &io::Error) -> Self {
        Self::permanent("io", exit::FAILED, format!("{what}: {error}"))
    }

    /// Creates an error for stdout that cannot be written. [`is_left`](Self::is_left) returns `true` for the
    /// error if the reader has closed stdout.
    pub(crate) fn of_stdout(what: &str, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::permanent("left", exit::DONE, String::new());
        }
        Self::io(&format!("{what} cannot be written to stdout"), error)
    }

    /// Returns whether the reader closed stdout, as `head` does when it has enough. A closed stdout is not
    /// an error.
    pub(crate) fn is_left(&self) -> bool {
        self.0.exit_code == exit::DONE
    }

    /// Creates an error for a command that was stopped by a signal.
    pub(crate) fn signal(how: &str, exit_code: u8) -> Self {
        Self::permanent("interrupted", exit_code, how.to_owned())
    }

    /// Adds the state that a signal has left behind.
    pub(crate) fn so(mut self, stopped: Stopped) -> Self {
        self.0.message = format!("{}; {}", self.0.message, stopped.so);
        self.0.status = if stopped.changes { Status::Unknown } else { Status::Transient }.as_str();
        self.0.printed = stopped.prints.then(written);
        self
    }

    fn permanent(kind: &'static str, exit_code: u8, message: String) -> Self {
        Self(Box::new(Report { kind, status: "permanent", exit_code, message, ..Report::default() }))
    }

    /// Returns whether the error is of this kind.
    pub(crate) fn is(&self, kind: ErrorKind) -> bool {
        self.0.kind == kind.as_str()
    }

    /// Replaces the hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Returns the message, without causes and hints.
    #[cfg(any(feature = "serve", test))]
    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// Prepends a position to the message.
    pub(crate) fn at(mut self, place: &str) -> Self {
        self.0.message = format!("{place}: {}", self.0.message);
        self
    }

    /// Adds the store's URL to a timeout, which does not name the store itself.
    pub(crate) fn of_store(mut self, url: &StoreUrl) -> Self {
        if self.0.kind == ErrorKind::Deadline.as_str() {
            self.0.message = format!("{}; the store is {url}", self.0.message);
        }
        self
    }

    /// Adds how many of `count` ids were printed.
    pub(crate) fn after_printing(mut self, printed: u64, count: u64) -> Self {
        self.0.printed = Some(printed);
        if printed > 0 {
            let message = &self.0.message;
            self.0.message = format!("{message}; {printed} of {count} ids were printed: treat them as used");
        }
        self
    }

    /// Reports the error on stderr, and returns the exit code.
    pub(crate) fn report(self, json: bool) -> ExitCode {
        if self.is_left() {
            return ExitCode::SUCCESS;
        }
        self.placed().told(json)
    }

    fn told(&self, json: bool) -> ExitCode {
        if json {
            tell("", &format!("{{\"error\":{}}}", compact(&self.0)));
        } else {
            self.print();
        }
        ExitCode::from(self.0.exit_code)
    }

    /// Adds the flags of this run to each command that the error prints.
    fn placed(mut self) -> Self {
        let report = &mut self.0;
        let flags = PLACE.get().map_or("", String::as_str);
        report.message = placed(&report.message, flags);
        report.causes = report.causes.iter().map(|cause| placed(cause, flags)).collect();
        report.hint = report.hint.as_deref().map(|hint| placed(hint, flags));
        self
    }

    fn print(&self) {
        output::error(&self.0.message);
        for cause in &self.0.causes {
            tell("  caused by: ", cause);
        }
        if let Some(hint) = &self.0.hint {
            tell("\x1b[1;36mhint:\x1b[0m ", hint);
        }
    }
}

impl From<Error> for CliError {
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
        ErrorKind::Exhausted => {
            format!(
                "`idmill set {name} --next N --max MAX` raises the last id, with N above every id in use"
            )
        }
        ErrorKind::NotFound if connecting && message.contains("the witness") => {
            "correct `--guard` or `IDMILL_GUARD`".to_owned()
        }
        ErrorKind::NotFound if connecting => {
            "correct `--store`; for a new store, unless `mode=rw` is set: `idmill create NAME --start N`, N above every id in use".to_owned()
        }
        ErrorKind::NotFound => {
            format!(
                "`idmill list` shows all sequences; to create it, `idmill create {name} --start N`, with N above \
                 every id in use"
            )
        }
        ErrorKind::AlreadyExists => {
            format!("`idmill show {name}` shows the sequence; `idmill set {name}` changes it")
        }
        ErrorKind::Conflict if error.operation() == Some(Operation::Set) && message.contains("backwards") => {
            "add `--backwards` if the ids that would be reissued were never used; see `idmill set --help`"
                .to_owned()
        }
        ErrorKind::Conflict => format!("`idmill show {name}` shows the stored sequence"),
        ErrorKind::UnknownOutcome => {
            format!("the change may have been made: check with `idmill show {name}` before you retry")
        }
        ErrorKind::StoreViolation => {
            "stop handing out ids until you know the cause, such as a restored backup or a moved file"
                .to_owned()
        }
        ErrorKind::Witness => {
            "mount or restore the witness, or correct `--guard`; the sequence itself needs no repair".to_owned()
        }
        kind if kind.status() == Status::Transient => "retry later; no id will repeat".to_owned(),
        _ => return None,
    })
}

/// The flags of this run that select its store and witness.
static PLACE: OnceLock<String> = OnceLock::new();

/// Notes the flags that select the store and the witness, for the commands that errors print.
pub(crate) fn set_place(flags: String) {
    let _ = PLACE.set(flags);
}

/// Adds the flags to each command in backticks, so that it acts on the same store when it is copied.
fn placed(text: &str, flags: &str) -> String {
    let mut parts: Vec<_> = text.split('`').map(str::to_owned).collect();
    // A part with an odd number is between two backticks.
    let last = parts.len() - 1;
    for part in parts.iter_mut().take(last).skip(1).step_by(2) {
        let acts = |command: &str| {
            part.strip_prefix("idmill ").is_some_and(|rest| rest.split(' ').next() == Some(command))
        };
        let is_placed = part.contains("--store") || part.contains("--help");
        if !is_placed && PLACED.iter().any(|command| acts(command)) {
            *part += flags;
        }
    }
    parts.join("`")
}

/// The commands that act on a store.
const PLACED: [&str; 9] = ["next", "create", "list", "show", "set", "revoke", "remove", "doctor", "export"];

/// Quotes a sequence name for a shell. `printf` prints invisible characters, since a copied name would lose
/// them.
pub(crate) fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,".contains(c);
    if name.chars().all(plain) && !name.starts_with('-') {
        name.to_owned()
    } else if name.contains(is_invisible) {
        format!("\"$(printf '{}')\"", name.chars().map(printf).collect::<String>())
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    }
}

/// Returns the character as in a single-quoted format of `printf`.
fn printf(c: char) -> String {
    match c {
        '%' => "%%".to_owned(),
        '\\' => r"\\".to_owned(),
        '\'' => r"'\''".to_owned(),
        c if is_invisible(c) => {
            let bytes: Vec<_> = String::from(c).bytes().map(|byte| format!("\\{byte:03o}")).collect();
            bytes.concat()
        }
        c => c.to_string(),
    }
}

/// Returns the command that sets these values of a sequence.
pub(crate) fn set_command(name: &str, next: Option<u64>, max: Option<u64>) -> String {
    let flag =
        |flag: &str, value: Option<u64>| value.map(|value| format!(" --{flag} {value}")).unwrap_or_default();
    format!("idmill set {}{}{}", quoted(name), flag("next", next), flag("max", max))
}

/// Redacts passwords in each word: a URL may have been typed in the wrong place.
fn redacted(text: &str) -> String {
    text.split_inclusive(char::is_whitespace).map(secrets::redacted).collect()
}

/// Reports invalid arguments, or prints the requested help.
pub(crate) fn usage(mut error: clap::Error) -> ExitCode {
    let asked = matches!(error.kind(), UsageKind::DisplayHelp | UsageKind::DisplayVersion);
    let tip = tip(&error);
    if !asked && std::env::args_os().any(|arg| arg == "--json") {
        let text = error.to_string();
        // The text after an empty line is the usage.
        let text = text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ");
        let mut invalid = CliError::usage(redacted(&text.split_whitespace().collect::<Vec<_>>().join(" ")));
        invalid.0.hint = tip.as_deref().map(redacted);
        return invalid.report(true);
    }
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    let text = error.to_string();
    let safe = shown(&redacted(&text));
    if asked || safe == text {
        // Ignore the error, which means that the reader closed the stream.
        let _ = error.print();
    } else {
        tell("", safe.trim_end_matches('\n'));
    }
    if asked { ExitCode::SUCCESS } else { ExitCode::from(exit::USAGE) }
}

/// Returns a hint for a missing subcommand, such as `status`, and for an argument of `next` or `list` that
/// needs an option.
fn tip(error: &clap::Error) -> Option<String> {
    let value = |kind| match error.get(kind) {
        Some(ContextValue::String(value)) => Some(value.as_str()),
        _ => None,
    };
    if error.kind() == UsageKind::InvalidSubcommand {
        return Some(match value(ContextKind::InvalidSubcommand)? {
            "version" => "`idmill --version` prints the version".to_owned(),
            "status" | "info" => {
                "`idmill list` lists the sequences; `idmill doctor` reports their problems".to_owned()
            }
            _ => return None,
        });
    }
    let extra = value(ContextKind::InvalidArg).filter(|_| error.kind() == UsageKind::UnknownArgument)?;
    let command = |arg| ["next", "list", "ls"].into_iter().find(|name| arg == *name);
    match std::env::args_os().find_map(command)? {
        "next" => extra.parse::<u64>().ok().map(|count| format!("`-n {count}` prints {count} ids")),
        _ if extra.starts_with('-') => None,
        _ => Some(format!(
            "`idmill show {0}` shows one sequence; `idmill list --prefix {0}` lists several",
            quoted(extra)
        )),
    }
}

// The tests need URLs of two stores.
#[cfg(all(test, feature = "full"))]
mod tests;
