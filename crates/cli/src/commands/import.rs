//! `idmill import`: creates missing sequences, and raises lower ones.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{MemoryStore, SequenceInfo, Store};
use idmill::{Error, ErrorKind};
use idmill_kit::{create_at, raise};
use serde::Serialize;
use serde_json::json;

use crate::args::{Global, Import};
use crate::exported::Entry;
use crate::failure::{Failure, Outcome, set_command};
use crate::output::or_dash;
use crate::retrying::{Effect, after, retry};
use crate::{opening, output, unbroken};

/// Maximum size of a line in bytes, far above the size of any sequence. The limit bounds memory for files
/// without line ends.
const LONGEST: usize = 1 << 16;
/// Maximum number of invalid lines that are reported individually.
const TOLD: u64 = 10;

pub(super) async fn run(global: &Global, args: &Import) -> Outcome {
    let mut lines = Lines::open(args.file.as_deref())?;
    let looked = tokio::task::block_in_place(|| lines.look(global.json))?;
    if looked.bad > 0 && !args.keep_going {
        let message = format!(
            "{} of {} lines cannot be read; nothing was changed",
            looked.bad,
            looked.bad + looked.good
        );
        return Err(Failure::usage(message).hint("correct the lines, or skip them with `--keep-going`"));
    }
    let store = open(global, args).await?;
    let progress = output::progress(looked.good, output::PERCENT);
    let mut importing = Importing {
        store,
        within: args.within.timeout,
        dry_run: args.dry_run,
        json: global.json,
        done: Done::default(),
    };
    let outcome = async {
        for line in lines.entries()? {
            // Invalid lines were reported earlier.
            let (number, Ok(entry)) = line? else { continue };
            unbroken(importing.take(&entry, number)).await?;
            progress.inc(1);
        }
        Ok(())
    };
    let outcome: Outcome = outcome.await;
    progress.finish_and_clear();
    output::note(global.json, &importing.done.summary(looked.bad, args.dry_run));
    outcome?;
    importing.done.verdict(looked.bad)
}

/// Opens the store. If the store is missing, a dry run uses an empty memory store instead of creating the
/// store.
async fn open(global: &Global, args: &Import) -> Outcome<Arc<dyn Store>> {
    if !args.dry_run {
        return opening::create(global, args.within.timeout).await;
    }
    match opening::existing(global, args.within.timeout).await {
        Err(failure) if failure.is(ErrorKind::NotFound) => Ok(Arc::new(MemoryStore::new())),
        outcome => outcome,
    }
}

/// The outcome of a line. Names are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Became {
    Created,
    Raised,
    Kept,
    Refused,
}

/// Number of lines per outcome, in the order of [`Became`].
#[derive(Debug, Default)]
struct Done([u64; 4]);

struct Importing {
    store: Arc<dyn Store>,
    /// How long a creation is retried.
    within: Duration,
    dry_run: bool,
    json: bool,
    done: Done,
}

impl Importing {
    /// Imports one line. The import continues after an error that concerns only one sequence, and stops at
    /// any other error.
    async fn take(&mut self, entry: &Entry, line: u64) -> Outcome {
        match self.place(entry).await {
            Ok((became, before, after)) => {
                self.done.count(became);
                self.tell(entry, became, before, &after)
            }
            Err(failure) if is_of_one(&failure) => {
                self.done.count(Became::Refused);
                failure.at(&format!("line {line}")).report(self.json);
                Ok(())
            }
            Err(failure) => Err(failure.at(&format!("line {line}"))),
        }
    }

    async fn place(&self, entry: &Entry) -> Outcome<(Became, Option<SequenceInfo>, SequenceInfo)> {
        let found = self.store.inspect(&entry.name).await?;
        if let Some(found) = found.as_ref().filter(|found| found.bounds != entry.bounds) {
            return Err(differs(entry, found));
        }
        let became = match &found {
            None => Became::Created,
            Some(found) if found.reached() < entry.reached => Became::Raised,
            Some(_) => Became::Kept,
        };
        let after = if self.dry_run {
            as_if(entry, found.as_ref())
        } else {
            self.raised(entry, found.as_ref()).await?
        };
        Ok((became, found, after))
    }

    async fn raised(&self, entry: &Entry, found: Option<&SequenceInfo>) -> Outcome<SequenceInfo> {
        if let Some(found) = found {
            return Ok(raise(&*self.store, found, entry.reached).await?);
        }
        let create = || create_at(&*self.store, &entry.name, entry.bounds, entry.reached);
        match retry(Effect::Change, after(self.within), |_| {}, create).await {
            // Another process created the sequence first.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let found = self.store.inspect(&entry.name).await?.ok_or(error)?;
                Err(differs(entry, &found))
            }
            outcome => Ok(outcome?),
        }
    }

    fn tell(
        &self,
        entry: &Entry,
        outcome: Became,
        before: Option<SequenceInfo>,
        after: &SequenceInfo,
    ) -> Outcome {
        let (is_new, before) = (before.is_none(), before.and_then(|before| before.next));
        let (name, after) = (&entry.name, after.next);
        if self.json {
            // Ids are strings, as in the file; `null` if there was no sequence, or no id is left.
            let [before, after] = [before, after].map(|next| next.map(|next| next.to_string()));
            let taken =
                json!({ "sequence": name.as_str(), "outcome": outcome, "before": before, "after": after });
            return output::print_line(&taken);
        }
        let (before, after) = (or_dash(before), or_dash(after));
        match outcome {
            Became::Kept => Ok(()),
            _ if is_new => output::print(&format!("created {name}: next {after}\n")),
            _ => output::print(&format!("raised {name}: next {before} -> {after}\n")),
        }
    }
}

/// Returns the sequence as it would be after the import.
fn as_if(entry: &Entry, found: Option<&SequenceInfo>) -> SequenceInfo {
    let reached = entry.reached.max(found.map_or(0, SequenceInfo::reached));
    let next = u64::try_from(reached).ok().filter(|next| *next <= entry.bounds.max());
    let identity = found.map_or_else(idmill::store::Identity::fresh, |found| found.identity);
    SequenceInfo::stored(entry.name.clone(), next, entry.bounds, identity)
}

/// Returns the error for different bounds. Nothing is changed, because only the operator can decide which
/// bounds are right.
fn differs(entry: &Entry, found: &SequenceInfo) -> Failure {
    let (theirs, ours) = (entry.bounds, found.bounds);
    let message = format!(
        "`{}` has start {} and max {} in the store, but start {} and max {} in the file; the sequence was \
         not changed",
        entry.name,
        ours.start(),
        ours.max(),
        theirs.start(),
        theirs.max()
    );
    // If all ids are reserved, this is max + 1: `--next max` would hand out the last id again.
    let max = Some(theirs.max()).filter(|max| *max != ours.max());
    let hint = match u64::try_from(entry.reached) {
        Err(_) => "the file's sequence has reserved all ids up to 2^64 - 1; use another sequence".to_owned(),
        Ok(next) if entry.reached > found.reached() => {
            let command = set_command(&entry.name, Some(next), max);
            format!("`{command}` sets next and max as in the file, if no larger id is in use")
        }
        _ if max.is_none() => {
            "no id repeats, since the store's next id is not below the file's; correct `start` in the file"
                .to_owned()
        }
        _ => {
            let (command, reached) = (set_command(&entry.name, None, max), found.reached());
            format!("`{command}` sets max as in the file, if no id from {reached} on is in use")
        }
    };
    Failure::from(Error::new(ErrorKind::Conflict, message)).hint(hint)
}

impl Done {
    fn count(&mut self, became: Became) {
        self.0[became as usize] += 1;
    }

    fn summary(&self, bad: u64, dry_run: bool) -> String {
        let Self([created, raised, kept, refused]) = self;
        let would = if dry_run { "dry run, nothing was changed: " } else { "" };
        let bad = if bad > 0 { format!(", {bad} lines skipped") } else { String::new() };
        format!("{would}{created} created, {raised} raised, {kept} unchanged, {refused} refused{bad}")
    }

    fn verdict(&self, bad: u64) -> Outcome {
        let refused = self.0[Became::Refused as usize];
        if refused > 0 {
            let what = if refused == 1 { "sequence was" } else { "sequences were" };
            return Err(Failure::refused(format!("{refused} {what} not imported"))
                .hint("the rejected sequences are listed above with their fixes"));
        }
        if bad > 0 {
            let what = if bad == 1 { "line" } else { "lines" };
            return Err(Failure::usage(format!("{bad} unreadable {what} skipped")));
        }
        Ok(())
    }
}

/// Returns whether the failure concerns only one sequence, so that the import can continue.
fn is_of_one(failure: &Failure) -> bool {
    use ErrorKind::{Conflict, InvalidInput, StoreViolation};
    [Conflict, InvalidInput, StoreViolation].into_iter().any(|kind| failure.is(kind))
}

/// The lines of a file, which is read twice: first to validate the lines, then to import them.
struct Lines {
    file: File,
    /// The name in messages.
    name: String,
}

/// The result of the validation.
#[derive(Clone, Copy, Debug, Default)]
struct Looked {
    good: u64,
    bad: u64,
}

impl Lines {
    /// Opens the file. Stdin is copied to a temporary file.
    fn open(path: Option<&Path>) -> Outcome<Self> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            let kept = tempfile::tempfile().and_then(|mut file| {
                io::copy(&mut io::stdin().lock(), &mut file)?;
                Ok(file)
            });
            let file = kept.map_err(|error| Failure::io("stdin cannot be read", &error))?;
            return Ok(Self { file, name: "stdin".to_owned() });
        };
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Ok(Self { file, name }),
            Err(error) => Err(Failure::io(&format!("{name} cannot be read"), &error)),
        }
    }

    /// Validates all lines, and reports invalid ones.
    fn look(&mut self, json: bool) -> Outcome<Looked> {
        let mut looked = Looked::default();
        let name = self.name.clone();
        for line in self.entries()? {
            match line? {
                (_, Ok(_)) => looked.good += 1,
                (number, Err(why)) => {
                    looked.bad += 1;
                    if looked.bad <= TOLD {
                        Failure::usage(why).at(&format!("{name}, line {number}")).report(json);
                    }
                }
            }
        }
        if looked.bad > TOLD {
            output::note(json, &format!("further lines that cannot be read: {}", looked.bad - TOLD));
        }
        Ok(looked)
    }

    /// Returns the lines that are not blank, with their numbers, from the start of the file.
    fn entries(&mut self) -> Outcome<impl Iterator<Item = Outcome<(u64, Result<Entry, String>)>> + use<'_>> {
        let (file, name) = (&mut self.file, self.name.clone());
        let failed = move |error: &io::Error| Failure::io(&format!("{name} cannot be read"), error);
        file.rewind().map_err(|error| failed(&error))?;
        let mut reader = BufReader::new(file);
        let mut number = 0;
        Ok(std::iter::from_fn(move || {
            loop {
                let mut line = Vec::new();
                match read_line(&mut reader, &mut line) {
                    Ok(0) => return None,
                    Ok(_) => number += 1,
                    Err(error) => return Some(Err(failed(&error))),
                }
                if !line.trim_ascii().is_empty() {
                    return Some(Ok((number, entry(&line))));
                }
            }
        }))
    }
}

/// Reads up to the end of a line, at most [`LONGEST`] bytes.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    io::Read::take(reader, LONGEST as u64).read_until(b'\n', line)
}

fn entry(line: &[u8]) -> Result<Entry, String> {
    let text = str::from_utf8(line).map_err(|_| "the line is not UTF-8".to_owned())?;
    Entry::read(text.trim())
}
