//! Prints ids as lines on stdout, optionally in a format.

use std::io::{self, BufReader, StdoutLock, Write, stdin, stdout};
use std::sync::atomic::{AtomicU64, Ordering};

use idmill::{IdRange, Ranges};
use idmill_codec::Format;
use serde::Serialize;

use crate::args::{self, Decode, Encode, Global};
use crate::error::{CliError, Outcome};
use crate::input::next_line;
use crate::output::compact;

/// Maximum size of a write. A pipe takes this many bytes atomically (`PIPE_BUF`), so a killed process has
/// written only whole lines.
const AT_ONCE: usize = if cfg!(target_os = "linux") { 4096 } else { 512 };
/// The digits of 2^64 - 1 and the line end.
const LONGEST_LINE: usize = 21;

/// The number of lines that this process has written to stdout.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Returns the number of ids that this process has written to stdout.
pub(crate) fn written() -> u64 {
    WRITTEN.load(Ordering::Relaxed)
}

/// A line of JSON.
#[derive(Serialize)]
struct Both<'a> {
    id: u64,
    text: &'a str,
}

/// Formats an id as a line.
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
    pub(crate) fn write<W: Write>(&mut self, ranges: &Ranges, lines: &mut Lines<W>) -> Outcome {
        for range in ranges.ranges() {
            if self.format.is_none() {
                lines.write(*range).map_err(unwritten)?;
            } else {
                range.iter().try_for_each(|id| self.write_one(id, lines))?;
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

/// The content of a line.
#[derive(Clone, Copy, Debug)]
enum Shown {
    Id,
    Text,
    Both,
}

impl Shown {
    /// Replaces the content of `line`.
    fn put(self, id: u64, text: &str, line: &mut Vec<u8>) {
        line.clear();
        match self {
            Self::Id => write!(line, "{id}").expect("a write to memory succeeds"),
            Self::Text => line.extend_from_slice(text.as_bytes()),
            Self::Both => line.extend_from_slice(compact(&Both { id, text }).as_bytes()),
        }
        line.push(b'\n');
    }
}

/// Loads a format and its keys. clap does not parse the format, because its errors would repeat the text,
/// which may hold a key.
fn load(text: &str) -> Outcome<Format> {
    let wrong = |error| CliError::from(error).hint("`idmill encode --help` describes the formats");
    Format::load(text).map_err(wrong)
}

// The error is passed by value, because `map_err` does so.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn unwritten(error: io::Error) -> CliError {
    CliError::of_stdout("ids", &error)
}

fn too_large(error: idmill::Error, format: &Format) -> CliError {
    let max = format.domain().max();
    CliError::from(error)
        .hint(format!("`idmill set NAME --max {max}` ends the sequence at the last id of this format"))
}

/// Prints ids in a format, one per line, for `idmill encode`.
pub(crate) fn encode(global: &Global, args: Encode) -> Outcome {
    let mut line = Line::new(Some(&args.format), global.json)?;
    let id = |text: &str| {
        args::id(text).map_err(|rule| CliError::usage(format!("`{}`: {rule}", text.escape_debug())))
    };
    for_each(args.ids, id, |id, lines| line.write_one(id, lines))
}

/// Prints the ids of formatted texts, one per line, for `idmill decode`.
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

/// Writes a line for each of `given`, or for each line of stdin if `given` is empty.
fn for_each<T>(
    given: Vec<T>,
    read: impl Fn(&str) -> Outcome<T>,
    mut write: impl FnMut(T, &mut Out<'_>) -> Outcome,
) -> Outcome {
    let mut lines = Lines::new(stdout().lock());
    let outcome = if given.is_empty() {
        from_stdin(&mut lines, read, write)
    } else {
        given.into_iter().try_for_each(|one| write(one, &mut lines))
    };
    // If a line failed, the lines before it are still flushed.
    let flushed = lines.flush().map_err(unwritten);
    outcome.and(flushed)
}

fn from_stdin<'a, T>(
    lines: &mut Out<'a>,
    read: impl Fn(&str) -> Outcome<T>,
    mut write: impl FnMut(T, &mut Out<'a>) -> Outcome,
) -> Outcome {
    let mut input = BufReader::new(stdin().lock());
    for number in 1_u64.. {
        // The next read may wait, so flush the lines so far.
        if input.buffer().is_empty() {
            lines.flush().map_err(unwritten)?;
        }
        let unread = |error| CliError::io(&format!("line {number} of stdin cannot be read"), &error);
        let Some(text) = next_line(&mut input).map_err(unread)? else { break };
        let wrote = read(&text).and_then(|one| write(one, lines));
        wrote.map_err(|error| error.at(&format!("line {number} of stdin")))?;
    }
    Ok(())
}

/// Buffers whole lines, and writes them to a stream.
#[derive(Debug)]
pub(crate) struct Lines<W: Write> {
    out: W,
    buffer: Vec<u8>,
    buffered: u64,
    written: u64,
}

impl<W: Write> Lines<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, buffer: Vec::with_capacity(AT_ONCE), buffered: 0, written: 0 }
    }

    /// Returns the number of lines that were written to the stream.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Writes every id of a range.
    pub(crate) fn write(&mut self, range: IdRange) -> io::Result<()> {
        for id in range {
            self.make_room(LONGEST_LINE)?;
            writeln!(self.buffer, "{id}")?;
            self.buffered += 1;
        }
        Ok(())
    }

    /// Writes a line. `line` must include the line end.
    pub(crate) fn add(&mut self, line: &[u8]) -> io::Result<()> {
        self.make_room(line.len())?;
        self.buffer.extend_from_slice(line);
        self.buffered += 1;
        Ok(())
    }

    fn make_room(&mut self, bytes: usize) -> io::Result<()> {
        if self.buffer.len() + bytes > AT_ONCE { self.flush() } else { Ok(()) }
    }

    /// Writes the buffered lines.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let outcome = self.out.write_all(&self.buffer).and_then(|()| self.out.flush());
        // Clear the buffer even after an error: a part may have been written, and must not be written again.
        self.buffer.clear();
        let lines = std::mem::take(&mut self.buffered);
        outcome?;
        self.written += lines;
        WRITTEN.fetch_add(lines, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records each write separately.
    #[derive(Debug, Default)]
    struct Pieces(Vec<Vec<u8>>);

    impl Write for Pieces {
        fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
            self.0.push(piece.to_vec());
            Ok(piece.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn writes_are_whole_lines_and_atomic_on_a_pipe() {
        let mut lines = Lines::new(Pieces::default());
        let ids = IdRange::new(u64::MAX - 999, 1000).unwrap();
        lines.write(ids).unwrap();
        assert!(lines.written() < 1000);
        lines.flush().unwrap();
        assert_eq!(lines.written(), 1000);
        let pieces = lines.out.0;
        assert!(pieces.iter().all(|piece| piece.len() <= AT_ONCE && piece.ends_with(b"\n")));
        let text = String::from_utf8(pieces.concat()).unwrap();
        assert!(text.lines().map(|line| line.parse::<u64>().unwrap()).eq(ids.iter()));
    }

    #[test]
    fn lines_of_any_length_are_written_whole() {
        let mut lines = Lines::new(Pieces::default());
        for length in [1, AT_ONCE - 1, 2, AT_ONCE, AT_ONCE + 1, 3] {
            let mut line = vec![b'x'; length - 1];
            line.push(b'\n');
            lines.add(&line).unwrap();
        }
        lines.flush().unwrap();
        assert_eq!(lines.written(), 6);
        assert!(lines.out.0.iter().all(|piece| piece.ends_with(b"\n")));
        assert_eq!(lines.out.0.iter().map(Vec::len).sum::<usize>(), 3 * AT_ONCE + 6);
    }

    #[test]
    fn closed_pipe_is_no_error_and_full_disk_is_an_error() {
        struct Fails(io::ErrorKind);
        impl Write for Fails {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let ids = IdRange::new(1, 10_000).unwrap();
        for (kind, is_left) in [(io::ErrorKind::BrokenPipe, true), (io::ErrorKind::StorageFull, false)] {
            let error = Lines::new(Fails(kind)).write(ids).unwrap_err();
            assert_eq!(CliError::of_stdout("ids", &error).is_left(), is_left);
        }
    }
}
