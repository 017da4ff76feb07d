//! Ids as lines on stdout.

use std::io::{self, Write};

use idmill::Range;

/// What a pipe takes in one piece or not at all (`PIPE_BUF`), and hence the most that is written at once: a
/// process killed at any moment has written whole lines only.
const AT_ONCE: usize = if cfg!(target_os = "linux") { 4096 } else { 512 };
/// 2^64 - 1 and the end of its line.
const LONGEST_LINE: usize = 21;

/// A buffer of whole lines before a stream.
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

    /// How many lines the stream has taken.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Writes every id of a range.
    pub(crate) fn write(&mut self, range: Range) -> io::Result<()> {
        for id in range {
            self.make_room(LONGEST_LINE)?;
            writeln!(self.buffer, "{id}")?;
            self.buffered += 1;
        }
        Ok(())
    }

    /// Writes a line, which brings its own end.
    pub(crate) fn add(&mut self, line: &[u8]) -> io::Result<()> {
        self.make_room(line.len())?;
        self.buffer.extend_from_slice(line);
        self.buffered += 1;
        Ok(())
    }

    fn make_room(&mut self, bytes: usize) -> io::Result<()> {
        if self.buffer.len() + bytes > AT_ONCE { self.flush() } else { Ok(()) }
    }

    /// Hands over what is buffered.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let outcome = self.out.write_all(&self.buffer).and_then(|()| self.out.flush());
        // Also after an error: some of it may have been written, and is not to be written again.
        self.buffer.clear();
        let lines = std::mem::take(&mut self.buffered);
        outcome?;
        self.written += lines;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    /// Notes each write by itself.
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
    fn every_write_is_of_whole_lines_that_a_pipe_takes_at_once() {
        let mut lines = Lines::new(Pieces::default());
        let ids = Range::new(u64::MAX - 999, 1000).unwrap();
        lines.write(ids).unwrap();
        assert!(lines.written() < 1000);
        lines.flush().unwrap();
        assert_eq!(lines.written(), 1000);
        let pieces = lines.out.0;
        assert!(pieces.iter().all(|piece| piece.len() <= AT_ONCE && piece.ends_with(b"\n")));
        let text = String::from_utf8(pieces.concat()).unwrap();
        assert!(text.lines().map(|line| line.parse::<u64>().unwrap()).eq(ids.ids()));
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
    fn a_reader_that_leaves_is_no_error_and_a_full_disk_is_one() {
        struct Fails(io::ErrorKind);
        impl Write for Fails {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let ids = Range::new(1, 10_000).unwrap();
        for (kind, is_left) in [(io::ErrorKind::BrokenPipe, true), (io::ErrorKind::StorageFull, false)] {
            let error = Lines::new(Fails(kind)).write(ids).unwrap_err();
            assert_eq!(Failure::of_stdout("ids", &error).is_left(), is_left);
        }
    }
}
