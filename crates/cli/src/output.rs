//! Prints sequences: as tables for people, as JSON for programs.

use std::io::{self, IsTerminal, Write};
use std::iter;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use comfy_table::{CellAlignment, ColumnConstraint, Table, Width, presets};
use humantime::format_duration;
use idmill::store::SequenceInfo;
use idmill_kit::{is_invisible, visible};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::error::{CliError, Outcome};
use crate::planning::Workload;

/// A sequence as JSON. Names and meanings are stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Sequence {
    name: String,
    /// `null` if max is reserved.
    next: Option<u64>,
    start: u64,
    max: u64,
    /// Number of ids that are not reserved, up to 2^64.
    remaining: u128,
    used_percent: f64,
    /// An opaque string, even if it looks like a number. Only compare it.
    incarnation: String,
    epoch: u64,
}

impl From<&SequenceInfo> for Sequence {
    fn from(info: &SequenceInfo) -> Self {
        let (start, max, remaining) = (info.bounds.start(), info.bounds.max(), info.remaining());
        let all = u128::from(max) - u128::from(start) + 1;
        Self {
            name: info.name.to_string(),
            next: info.next,
            start,
            max,
            remaining,
            used_percent: (all - remaining) as f64 / all as f64 * 100.0,
            incarnation: format!("{:016x}", info.identity.incarnation),
            epoch: info.identity.epoch,
        }
    }
}

impl Sequence {
    fn cells(&self) -> [String; 8] {
        [
            visible(&self.name),
            or_dash(self.next),
            self.max.to_string(),
            percent(self.used_percent),
            self.start.to_string(),
            self.remaining.to_string(),
            self.incarnation.clone(),
            self.epoch.to_string(),
        ]
    }
}

/// Formats two decimals. 0 % and 100 % appear only if `value` is exactly 0 or 100.
fn percent(value: f64) -> String {
    match value {
        0.0 => "0 %".to_owned(),
        100.0.. => "100 %".to_owned(),
        ..0.01 => "< 0.01 %".to_owned(),
        99.99.. => "> 99.99 %".to_owned(),
        value => format!("{value:.2} %"),
    }
}

const HEADINGS: [&str; 8] = ["NAME", "NEXT", "MAX", "USED", "START", "REMAINING", "INCARNATION", "EPOCH"];
/// Number of columns that `list` prints without `--wide`.
const NARROW: usize = 4;

/// A table that is printed in parts. Columns never get narrower.
#[derive(Debug)]
pub(crate) struct SequenceTable {
    widths: Vec<u16>,
    columns: usize,
}

impl SequenceTable {
    pub(crate) fn new(wide: bool) -> Self {
        Self { widths: Vec::new(), columns: if wide { HEADINGS.len() } else { NARROW } }
    }

    /// Returns the next rows. The first part has the headings.
    pub(crate) fn rows(&mut self, some: &[Sequence]) -> String {
        let begun = !self.widths.is_empty();
        if begun && some.is_empty() {
            return String::new();
        }
        let mut table = table(&HEADINGS[..self.columns], &[0, 6]);
        table.add_rows(some.iter().map(|one| one.cells()[..self.columns].to_vec()));
        self.widths.resize(self.columns, 0);
        for ((width, content), column) in
            self.widths.iter_mut().zip(table.column_max_content_widths()).zip(table.column_iter_mut())
        {
            *width = content.max(*width);
            // The width includes the spaces on both sides.
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(*width + 2)));
        }
        let text = render(&table);
        // Only the first part keeps the headings, which are its first line.
        if begun { text.split_once('\n').map_or(String::new(), |(_, rows)| rows.to_owned()) } else { text }
    }
}

/// Formats one sequence, one field per line.
pub(crate) fn sequence(one: &Sequence) -> String {
    fields(one.cells().map(|cell| vec![cell]).to_vec())
}

/// Formats a change, one field per line.
pub(crate) fn change(before: &Sequence, after: &Sequence) -> String {
    let cells = |(before, after): (String, String)| {
        let after = (after != before).then(|| format!("-> {after}"));
        iter::once(before).chain(after).collect()
    };
    fields(before.cells().into_iter().zip(after.cells()).map(cells).collect())
}

fn fields(rows: Vec<Vec<String>>) -> String {
    let mut table = bare_table();
    for (heading, mut cells) in HEADINGS.iter().zip(rows) {
        cells.insert(0, heading.to_lowercase());
        table.add_row(cells);
    }
    render(&table)
}

/// Returns a table without borders. Columns are right-aligned, except those in `left`.
pub(crate) fn table(headings: &[&str], left: &[usize]) -> Table {
    let mut table = bare_table();
    table.set_header(headings);
    for (index, column) in table.column_iter_mut().enumerate() {
        if !left.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A table that is printed as text or as Markdown. The first column is a name, and the other columns are
/// numbers.
#[derive(Clone, Debug)]
pub(crate) struct Sheet {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Sheet {
    pub(crate) fn of(headings: &[&'static str], rows: impl Iterator<Item = Vec<String>>) -> Self {
        Self { headings: headings.to_vec(), rows: rows.collect() }
    }

    pub(crate) fn text(&self) -> String {
        let mut table = table(&self.headings, &[0]);
        table.add_rows(&self.rows);
        render(&table)
    }

    pub(crate) fn markdown(&self) -> String {
        let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let headings: Vec<_> = self.headings.iter().map(|heading| heading.to_lowercase()).collect();
        let rule = format!("|---|{}\n", "---:|".repeat(headings.len() - 1));
        let rows: String = self.rows.iter().map(|cells| row(cells)).collect();
        [row(&headings), rule, rows].concat()
    }
}

/// Returns a table of names and values.
pub(crate) fn pairs(rows: impl IntoIterator<Item = (&'static str, String)>) -> Table {
    let mut table = bare_table();
    table.add_rows(rows.into_iter().map(|(name, value)| [name.to_owned(), value]));
    table
}

fn bare_table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table
}

/// Renders a table as text, without spaces at the start or the end of lines.
pub(crate) fn render(table: &Table) -> String {
    let lines = table.lines().map(|line| {
        let line = line.trim_end();
        format!("{}\n", line.strip_prefix(' ').unwrap_or(line))
    });
    lines.collect()
}

/// Escapes the invisible characters of a text, except line ends and tabs.
pub(crate) fn shown(text: &str) -> String {
    let shown = |c: char| if is_layout(c) { String::from(c) } else { visible(c.encode_utf8(&mut [0; 4])) };
    text.chars().map(shown).collect()
}

fn is_layout(c: char) -> bool {
    matches!(c, '\n' | '\t')
}

/// Escapes the invisible characters in the strings of a JSON document, which keep their values.
fn escaped_json(json: String) -> String {
    let escape = |c: char| is_invisible(c) && c != '\n';
    if !json.contains(escape) {
        return json;
    }
    let units = |c: char| -> Vec<_> {
        c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
    };
    json.chars().map(|c| if escape(c) { units(c).concat() } else { String::from(c) }).collect()
}

/// Writes a part of a result. Fails if the reader has closed stdout.
pub(crate) fn write(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    let written = out.write_all(shown(text).as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| CliError::of_stdout("the result", &error))
}

/// Prints a result.
pub(crate) fn print(text: &str) -> Outcome {
    unless_left(write(text))
}

/// Ignores that the reader closed stdout.
pub(crate) fn unless_left(outcome: Outcome) -> Outcome {
    match outcome {
        Err(error) if error.is_left() => Ok(()),
        outcome => outcome,
    }
}

/// Writes a result to a file, replacing its content.
pub(crate) fn write_file(file: &Path, text: &str) -> Outcome {
    std::fs::write(file, text).map_err(|error| unwritten(file, &error))
}

/// Returns the error for a file that cannot be written.
pub(crate) fn unwritten(file: &Path, error: &io::Error) -> CliError {
    CliError::io(&format!("{} cannot be written", file.display()), error)
}

/// Formats a result as one JSON document.
pub(crate) fn json(value: &impl Serialize) -> String {
    escaped_json(serde_json::to_string_pretty(value).expect("these values serialize to JSON"))
}

/// Formats a value as JSON in one line.
pub(crate) fn compact(value: &impl Serialize) -> String {
    escaped_json(serde_json::to_string(value).expect("these values serialize to JSON"))
}

/// Prints a result as one JSON document.
pub(crate) fn print_json(value: &impl Serialize) -> Outcome {
    print(&(json(value) + "\n"))
}

/// Prints a result, as JSON or as text.
pub(crate) fn result<T: Serialize>(json: bool, value: &T, human: impl FnOnce(&T) -> String) -> Outcome {
    if json { print_json(value) } else { print(&human(value)) }
}

/// Writes one line of a result in JSON Lines. Fails if the reader has closed stdout.
pub(crate) fn write_line(value: &impl Serialize) -> Outcome {
    write(&line(value))
}

/// Formats one line of JSON Lines.
pub(crate) fn line(value: &impl Serialize) -> String {
    compact(value) + "\n"
}

/// Formats an optional value; `-` for `None`.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Formats two decimals below 10, one below 100, and none from 100.
pub(crate) fn digits(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Splits 1200000 into 1.2 and ` M`.
pub(crate) fn scaled(value: f64) -> (f64, &'static str) {
    match value.abs() {
        1e9.. => (value / 1e9, " G"),
        1e6.. => (value / 1e6, " M"),
        1e3.. => (value / 1e3, " k"),
        _ => (value, ""),
    }
}

/// Formats a number per second.
pub(crate) fn rate(per_second: f64) -> String {
    let (value, unit) = scaled(per_second);
    digits(value) + unit
}

/// Formats the settings of a sequence as Rust code.
pub(crate) fn settings(workload: &Workload) -> String {
    let seconds = workload.outage_budget.as_secs();
    let millis = u64::try_from(whole_millis(workload.outage_budget).as_millis()).unwrap_or(u64::MAX);
    let budget = if workload.outage_budget.subsec_nanos() == 0 {
        format!("Duration::from_secs({})", grouped(seconds))
    } else {
        format!("Duration::from_millis({})", grouped(millis))
    };
    format!(".outage_budget({budget}).max_buffered({})", grouped(workload.max_buffered))
}

/// Formats the settings of a sequence as flags of `idmill serve`.
pub(crate) fn flags(workload: &Workload) -> String {
    let budget = format_duration(whole_millis(workload.outage_budget)).to_string().replace(' ', "");
    format!("--outage-budget {budget} --max-buffered {}", workload.max_buffered)
}

/// Rounds up to whole milliseconds.
fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(u64::MAX))
}

/// Formats a number with `_` between thousands, as arguments and code accept it.
pub(crate) fn grouped(value: u64) -> String {
    HumanCount(value).to_string().replace(',', "_")
}

/// The style of a progress bar.
pub(crate) const PERCENT: &str = "{bar:30} {percent} %  {msg}";

/// Returns a progress bar on stderr, which is hidden unless stderr is a terminal.
pub(crate) fn progress(len: u64, style: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    ProgressBar::new(len).with_style(ProgressStyle::with_template(style).expect("a fixed template"))
}

/// Whether notes are left out.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Sets whether notes are left out.
pub(crate) fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Prints a note on stderr.
pub(crate) fn note(json: bool, text: &str) {
    if QUIET.load(Ordering::Relaxed) {
        return;
    }
    if json {
        tell("", &compact(&serde_json::json!({ "note": text })));
    } else {
        tell("note: ", text);
    }
}

/// Writes a line to stderr: a label, with its style if stderr shows styles, and a text. Ignores errors, such
/// as a full disk: no command may end or lose ids because its notes cannot be written.
pub(crate) fn tell(label: &str, text: &str) {
    let _ = anstream::stderr().lock().write_all(format!("{label}{}\n", shown(text)).as_bytes());
}

/// Writes an error to stderr.
pub(crate) fn error(text: &str) {
    tell("\x1b[1;31merror:\x1b[0m ", text);
}

#[cfg(test)]
mod tests;
