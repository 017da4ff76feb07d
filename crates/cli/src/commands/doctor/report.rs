//! Prints findings: as text with a command to copy, or as one line of JSON each.

use idmill::SequenceName;
use idmill::store::Bounds;
use idmill_doctor::{Examined, Finding, Remedy};
use serde::Serialize;
use serde_json::json;

use crate::args::Global;
use crate::exported::Entry;
use crate::failure::{Outcome, quoted, set_command};
use crate::output::{self, or_dash, print_line};

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
            if self.json { print_line(&found) } else { output::print(&text(&found)) }
        })
    }

    pub(super) fn resolved<'a>(&self, findings: impl IntoIterator<Item = &'a Finding>) -> Outcome {
        findings.into_iter().try_for_each(|finding| {
            let found = self.found(finding);
            if self.json {
                return print_line(&json!({ "resolved": found }));
            }
            output::print(&format!("resolved {} {}: {}\n", found.kind, of(&found), found.asked))
        })
    }

    pub(super) fn fixed(&self, sequence: &str, before: Option<u64>, after: Option<u64>) -> Outcome {
        if self.json {
            let [before, after] = [before, after].map(|next| next.map(|next| next.to_string()));
            let fixed = json!({ "sequence": sequence, "before": before, "after": after });
            return print_line(&json!({ "fixed": fixed }));
        }
        let (before, after) = (or_dash(before), or_dash(after));
        output::print(&format!("fixed    {sequence}: next {before} -> {after}\n"))
    }

    pub(super) fn sound(&self, seen: &Examined) -> Outcome {
        if self.json {
            return Ok(());
        }
        output::print(&format!("sound    no problem was found; sequences: {}\n", seen.sequences))
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
        let (line, name, place) = (quoted(entry.line().trim_end()), quoted(name), &self.place);
        format!("idmill remove {name} --yes{place} && printf '%s\\n' {line} | idmill import{place}")
    }

    fn set(&self, name: &str, next: Option<u64>, max: Option<u64>) -> String {
        set_command(name, next, max) + &self.place
    }
}

/// Returns the subject of a finding.
fn of<'a>(found: &Line<'a>) -> &'a str {
    found.sequence.unwrap_or("the store")
}

fn text(found: &Line<'_>) -> String {
    let Line { severity, kind, asked, found: there, .. } = found;
    let name = of(found);
    let remedies = found.advice.into_iter().chain(found.command.as_deref());
    let remedy = remedies.collect::<Vec<_>>().join("\n         ");
    format!("{severity:<8} {name}: {kind}\n  asked  {asked}\n  found  {there}\n  do     {remedy}\n")
}
