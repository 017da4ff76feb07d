//! Ids as a format has them, a line each.

use std::io::{self, BufRead, BufReader, StdoutLock, Write, stdin, stdout};

use idmill::Ranges;
use idmill_codec::Format;
use serde::Serialize;

use crate::args::{self, Decode, Encode, Global};
use crate::failure::{Failure, Outcome};
use crate::lines::Lines;

/// What a line of JSON has.
#[derive(Serialize)]
struct Both<'a> {
    id: u64,
    text: &'a str,
}

/// How an id becomes a line.
#[derive(Debug)]
pub(crate) struct Line {
    format: Option<Format>,
    json: bool,
    text: String,
    out: Vec<u8>,
}

impl Line {
    pub(crate) fn new(format: Option<&str>, json: bool) -> Outcome<Self> {
        let format = format.map(load).transpose()?;
        Ok(Self { format, json, text: String::new(), out: Vec::new() })
    }

    /// Writes every id of some ranges.
    pub(crate) fn write<W: Write>(&mut self, ranges: Ranges, lines: &mut Lines<W>) -> Outcome {
        for range in ranges {
            if self.format.is_none() {
                lines.write(range).map_err(unwritten)?;
            } else {
                range.ids().try_for_each(|id| self.write_one(id, lines))?;
            }
        }
        Ok(())
    }

    /// Writes one id.
    fn write_one<W: Write>(&mut self, id: u64, lines: &mut Lines<W>) -> Outcome {
        self.text.clear();
        match &self.format {
            Some(format) => {
                format.encode_into(id, &mut self.text).map_err(|error| too_large(error, format))?;
            }
            None => self.text.push_str(&id.to_string()),
        }
        let shown = if self.json { Shown::Both } else { Shown::Text };
        shown.put(id, &self.text, &mut self.out);
        lines.add(&self.out).map_err(unwritten)
    }
}

/// What a line shows of an id and its text.
#[derive(Clone, Copy, Debug)]
enum Shown {
    Id,
    Text,
    Both,
}

impl Shown {
    /// Puts the line in place of what was there.
    fn put(self, id: u64, text: &str, line: &mut Vec<u8>) {
        line.clear();
        match self {
            Self::Id => write!(line, "{id}").expect("memory takes it"),
            Self::Text => line.extend_from_slice(text.as_bytes()),
            Self::Both => {
                serde_json::to_writer(&mut *line, &Both { id, text }).expect("these have a JSON form");
            }
        }
        line.push(b'\n');
    }
}

/// Reads a format, and the keys that it names. Done here and not while arguments are read, whose errors
/// repeat them: it may hold a key.
fn load(text: &str) -> Outcome<Format> {
    let wrong = |error| Failure::from(error).hint("`idmill encode --help` says how a format is written");
    Format::load(text).map_err(wrong)
}

// As `map_err` hands it over.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn unwritten(error: io::Error) -> Failure {
    Failure::of_stdout("ids", &error)
}

fn too_large(error: idmill::Error, format: &Format) -> Failure {
    let max = format.domain().max();
    Failure::from(error).hint(format!("`idmill set NAME --max {max}` ends a sequence where this format does"))
}

/// `idmill encode`: ids in a format, one a line.
pub(crate) fn encode(global: &Global, args: Encode) -> Outcome {
    let mut line = Line::new(Some(&args.format), global.json)?;
    let id = |text: &str| {
        args::id(text).map_err(|rule| Failure::usage(format!("`{}`: {rule}", text.escape_debug())))
    };
    for_each(args.ids, id, |id, lines| line.write_one(id, lines))
}

/// `idmill decode`: the ids that a format has written, one a line.
pub(crate) fn decode(global: &Global, args: Decode) -> Outcome {
    let (format, mut line) = (load(&args.format)?, Vec::new());
    let shown = if global.json { Shown::Both } else { Shown::Id };
    let text = |text: &str| Ok(text.to_owned());
    for_each(args.texts, text, |text, lines| {
        shown.put(format.decode(&text)?, &text, &mut line);
        lines.add(&line).map_err(unwritten)
    })
}

type Out<'a> = Lines<StdoutLock<'a>>;

/// Writes a line for each of `given`; where there are none, for each line of stdin.
fn for_each<T>(
    given: Vec<T>,
    read: impl Fn(&str) -> Outcome<T>,
    mut write: impl FnMut(T, &mut Out<'_>) -> Outcome,
) -> Outcome {
    // The reader of stdout may stall, and the writer of stdin. The thread that listens for signals must not.
    tokio::task::block_in_place(|| {
        let mut lines = Lines::new(stdout().lock());
        let outcome = if given.is_empty() {
            from_stdin(&mut lines, read, write)
        } else {
            given.into_iter().try_for_each(|one| write(one, &mut lines))
        };
        // Also those before one that failed.
        let flushed = lines.flush().map_err(unwritten);
        outcome.and(flushed)
    })
}

fn from_stdin<'a, T>(
    lines: &mut Out<'a>,
    read: impl Fn(&str) -> Outcome<T>,
    mut write: impl FnMut(T, &mut Out<'a>) -> Outcome,
) -> Outcome {
    let mut input = BufReader::new(stdin().lock());
    for number in 1_u64.. {
        // The next read may wait, so the lines so far are flushed.
        if input.buffer().is_empty() {
            lines.flush().map_err(unwritten)?;
        }
        let mut text = String::new();
        let got = input.read_line(&mut text);
        let unread = |error| Failure::io(&format!("line {number} of stdin cannot be read"), &error);
        if got.map_err(unread)? == 0 {
            break;
        }
        let text = text.trim_end_matches(['\n', '\r']);
        let wrote = read(text).and_then(|one| write(one, lines));
        wrote.map_err(|failure| failure.at(&format!("line {number} of stdin")))?;
    }
    Ok(())
}
