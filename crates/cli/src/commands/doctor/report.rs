//! Prints findings: as text with a command to copy, or as one line of JSON each.

use idmill::SequenceName;
use idmill::store::Bounds;
use idmill_doctor::{Examined, Finding, Remedy};
use idmill_kit::visible;
use serde::Serialize;
use serde_json::json;

use crate::args::Global;
use crate::error::{CliError, Outcome, quoted, set_command};
use crate::exported::{self, Entry};
use crate::output::{self, or_dash, write_line};

/// Advice before a command that recreates a sequence.
const EMPTIED: &str =
    "correct `--store`, or restore the store; run the command only if the store was emptied on purpose";
/// Advice before a command that recreates a sequence with unknown bounds.
const EMPTIED_OF_BOUNDS: &str = "correct `--store`, or restore the store; if it was emptied on purpose, correct start and max, then run the command";

/// A finding as JSON. Names and meanings are stable. Numbers appear only inside strings.
#[derive(Serialize)]
struct Line<'a> {
    kind: &'static str,
    severity: &'static str,
    /// `null` if the finding is about the store.
    sequence: Option<&'a str>,
    asked: &'a str,
    found: &'a str,
    /// The remedy as a command; `null` if there is none.
    command: Option<String>,
    /// The remedy in words, or advice before the command; `null` if the command is enough.
    advice: Option<&'a str>,
    /// Whether `--fix` applies the remedy.
    raises: bool,
}

pub(super) struct Report {
    json: bool,
    /// Flags that make a command use the same store.
    place: String,
}

impl Report {
    pub(super) fn new(global: &Global) -> Self {
        Self { json: global.json, place: crate::opening::flags(global) }
    }

    pub(super) fn findings<'a>(&self, findings: impl IntoIterator<Item = &'a Finding>) -> Outcome {
        findings.into_iter().try_for_each(|finding| {
            let found = self.found(finding);
            if self.json { write_line(&found) } else { output::write(&text(&found)) }
        })
    }

    pub(super) fn resolved<'a>(&self, findings: impl IntoIterator<Item = &'a Finding>) -> Outcome {
        findings.into_iter().try_for_each(|finding| {
            let found = self.found(finding);
            if self.json {
                return write_line(&json!({ "resolved": found }));
            }
            output::write(&format!("resolved {} {}: {}\n", found.kind, of(&found), found.asked))
        })
    }

    pub(super) fn fixed(&self, sequence: &str, before: Option<u64>, after: Option<u64>) -> Outcome {
        if self.json {
            let [before, after] = [before, after].map(|next| next.map(|next| next.to_string()));
            let fixed = json!({ "sequence": sequence, "before": before, "after": after });
            return write_line(&json!({ "fixed": fixed }));
        }
        let (before, after) = (or_dash(before), or_dash(after));
        output::write(&format!("fixed    {sequence}: next {before} -> {after}\n"))
    }

    pub(super) fn unfixed(&self, error: CliError) {
        error.at("not fixed").report(self.json);
    }

    pub(super) fn sound(&self, seen: &Examined) -> Outcome {
        if self.json {
            return Ok(());
        }
        output::write(&format!("sound    no problem was found; sequences: {}\n", seen.sequences))
    }

    fn found<'a>(&self, finding: &'a Finding) -> Line<'a> {
        let (command, advice) = match &finding.remedy {
            Remedy::Raise { name, next, .. } => (Some(self.set(name, Some(*next), None)), None),
            Remedy::SetMax { name, next, max } => (Some(self.set(name, *next, Some(*max))), None),
            Remedy::Recreate { name, next, bounds } => {
                let advice = if bounds.is_some() { EMPTIED } else { EMPTIED_OF_BOUNDS };
                (Some(self.recreate(name, *next, *bounds)), Some(advice))
            }
            Remedy::Advice(text) => (None, Some(text.as_str())),
            _ => (None, None),
        };
        Line {
            kind: finding.kind.as_str(),
            severity: finding.severity.as_str(),
            sequence: finding.sequence.as_deref(),
            asked: &finding.asked,
            found: &finding.found,
            command,
            advice,
            raises: matches!(finding.remedy, Remedy::Raise { .. }),
        }
    }

    /// Returns the command that recreates a sequence. The first part removes the sequence through the
    /// guard, which updates the witness. A process that retries may create the sequence before the second
    /// part runs, so the second part raises an existing sequence, and creates a missing one.
    fn recreate(&self, name: &SequenceName, next: u64, bounds: Option<Bounds>) -> String {
        let bounds = bounds.unwrap_or_else(Bounds::of::<u64>);
        let entry = Entry { name: name.clone(), bounds, reached: next.into() };
        let lines = entry.line() + &exported::end(1);
        let lines = lines.lines().map(quoted).collect::<Vec<_>>().join(" ");
        let (name, place) = (quoted(name), &self.place);
        format!("idmill remove {name} --yes{place} && printf '%s\\n' {lines} | idmill import{place}")
    }

    fn set(&self, name: &str, next: Option<u64>, max: Option<u64>) -> String {
        set_command(name, next, max) + &self.place
    }
}

/// Returns the subject of a finding. The name of an unreadable row may have line ends.
fn of(found: &Line<'_>) -> String {
    visible(found.sequence.unwrap_or("the store"))
}

fn text(found: &Line<'_>) -> String {
    let Line { severity, kind, asked, found: there, .. } = found;
    let name = of(found);
    let remedies = found.advice.into_iter().chain(found.command.as_deref());
    let remedy = remedies.collect::<Vec<_>>().join("\n         ");
    format!("{severity:<8} {name}: {kind}\n  asked  {asked}\n  found  {there}\n  do     {remedy}\n")
}
