//! Ids as a format has them, a line each.

use std::io::{self, BufRead, BufReader, StdoutLock, Write, stdin, stdout};

use idmill::{Range, Ranges};
use idmill_codec::Format;
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::lines::{Lines, Reader};

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
    pub(crate) fn write<W: Write>(&mut self, ranges: Ranges, lines: &mut Lines<W>) -> Outcome<Reader> {
        for range in ranges {
            let reader = if self.format.is_some() {
                self.write_formatted(range, lines)?
            } else {
                lines.write(range).map_err(|error| unwritten(&error))?
            };
            if reader == Reader::Left {
                return Ok(Reader::Left);
            }
        }
        Ok(Reader::Listens)
    }

    fn write_formatted<W: Write>(&mut self, range: Range, lines: &mut Lines<W>) -> Outcome<Reader> {
        for id in range {
            if self.write_one(id, lines)? == Reader::Left {
                return Ok(Reader::Left);
            }
        }
        Ok(Reader::Listens)
    }

    /// Writes one id.
    pub(crate) fn write_one<W: Write>(&mut self, id: u64, lines: &mut Lines<W>) -> Outcome<Reader> {
        self.text.clear();
        match &self.format {
            Some(format) => {
                format.encode_into(id, &mut self.text).map_err(|error| too_large(error, format))?;
            }
            None => self.text.push_str(&id.to_string()),
        }
        let shown = if self.json { Shown::Both } else { Shown::Text };
        shown.put(id, &self.text, &mut self.out);
        lines.add(&self.out).map_err(|error| unwritten(&error))
    }
}

/// What a line shows of an id and its text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown {
    Id,
    Text,
    Both,
}

impl Shown {
    /// Puts the line in place of what was there.
    pub(crate) fn put(self, id: u64, text: &str, line: &mut Vec<u8>) {
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
pub(crate) fn load(text: &str) -> Outcome<Format> {
    let wrong = |error| Failure::from(error).hint("`idmill encode --help` says how a format is written");
    Format::load(text).map_err(wrong)
}

pub(crate) fn unwritten(error: &io::Error) -> Failure {
    Failure::io("ids cannot be written to stdout", error)
}

fn too_large(error: idmill::Error, format: &Format) -> Failure {
    let max = format.domain().max();
    Failure::from(error).hint(format!("`idmill set NAME --max {max}` ends a sequence where this format does"))
}

/// Writes a line for each of `given`; where there are none, for each line of stdin.
pub(crate) fn for_each<T>(
    given: Vec<T>,
    read: impl Fn(&str) -> Outcome<T>,
    write: impl FnMut(T, &mut Lines<StdoutLock<'_>>) -> Outcome<Reader>,
) -> Outcome {
    // The reader of stdout may stall, and the writer of stdin. The thread that listens for signals must not.
    tokio::task::block_in_place(|| {
        let mut lines = Lines::new(stdout().lock());
        let outcome = if given.is_empty() {
            from_stdin(&mut lines, read, write)
        } else {
            each(given, &mut lines, write)
        };
        // Also those before one that failed.
        let flushed = lines.flush().map_err(|error| unwritten(&error));
        if outcome? == Reader::Left { Ok(()) } else { flushed.map(drop) }
    })
}

type Out<'a> = Lines<StdoutLock<'a>>;

fn each<'a, T>(
    given: Vec<T>,
    lines: &mut Out<'a>,
    mut write: impl FnMut(T, &mut Out<'a>) -> Outcome<Reader>,
) -> Outcome<Reader> {
    for one in given {
        if write(one, lines)? == Reader::Left {
            return Ok(Reader::Left);
        }
    }
    Ok(Reader::Listens)
}

fn from_stdin<'a, T>(
    lines: &mut Out<'a>,
    read: impl Fn(&str) -> Outcome<T>,
    mut write: impl FnMut(T, &mut Out<'a>) -> Outcome<Reader>,
) -> Outcome<Reader> {
    let mut input = BufReader::new(stdin().lock());
    for number in 1_u64.. {
        // Nothing more can be read without waiting, so what is written so far is flushed.
        if input.buffer().is_empty() && lines.flush().map_err(|error| unwritten(&error))? == Reader::Left {
            return Ok(Reader::Left);
        }
        let mut text = String::new();
        let got = input.read_line(&mut text);
        let got =
            got.map_err(|error| Failure::io(&format!("line {number} of stdin cannot be read"), &error))?;
        if got == 0 {
            break;
        }
        let text = text.trim_end_matches(['\n', '\r']);
        let wrote = read(text).and_then(|one| write(one, lines));
        if wrote.map_err(|failure| failure.at(&format!("line {number} of stdin")))? == Reader::Left {
            return Ok(Reader::Left);
        }
    }
    Ok(Reader::Listens)
}
