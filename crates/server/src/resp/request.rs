//! Parses commands: arrays of bulk strings, or lines of words.
//!
//! Nothing is copied: a command refers to its words by their positions in the read buffer.

use std::ops::Range;

/// Maximum number of words of a command.
pub(crate) const MOST_WORDS: usize = 4096;
/// Maximum size of a command in bytes, which is far above the longest name.
pub(crate) const LONGEST: usize = 256 * 1024;
/// Maximum size of a command of a client without a token.
pub(crate) const LONGEST_OF_NOBODY: usize = 16 * 1024;
/// Maximum number of words for which an idle connection keeps memory.
const KEPT_WORDS: usize = 64;

/// Why bytes are not a command. The following bytes cannot be parsed either, so the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolError {
    /// The number of words is malformed, or exceeds [`MOST_WORDS`].
    Words,
    /// The length of a word is malformed, or the command is too long.
    Length,
    /// A word does not begin with `$`.
    Word,
    /// A word does not end at its declared length.
    End,
}

impl ProtocolError {
    /// Returns the error message, with the text of Redis if Redis has the same error.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Words => "Protocol error: invalid multibulk length",
            Self::Length => "Protocol error: invalid bulk length",
            Self::Word => "Protocol error: expected '$'",
            Self::End => "Protocol error: a bulk string is not followed by CRLF",
        }
    }
}

/// The words of one command, or of its beginning.
#[derive(Debug, Default)]
pub(crate) struct Words {
    places: Vec<Range<usize>>,
    part: Part,
}

/// The progress in an incomplete command. Without this state, the parser would start from the beginning
/// for each byte of a client that sends single bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    /// Number of missing words of an array; `None` before its first line is complete.
    left: Option<usize>,
    /// The position at which the next word begins.
    at: usize,
    /// The current line does not end before this position.
    scanned: usize,
}

impl Words {
    pub(crate) fn of<'a>(&'a self, bytes: &'a [u8]) -> Command<'a> {
        Command { bytes, words: &self.places }
    }

    /// Frees the memory that only an exceptionally long command needs.
    pub(crate) fn shrink(&mut self) {
        if self.part == Part::default() && self.places.capacity() > KEPT_WORDS {
            self.places = Vec::new();
        }
    }

    /// Returns the line that begins at `from`, without its end, and where the next line begins; `None` if the
    /// line is incomplete.
    fn line(
        &mut self,
        bytes: &[u8],
        from: usize,
        longest: usize,
    ) -> Result<Option<(Range<usize>, usize)>, ProtocolError> {
        let start = from.max(self.part.scanned);
        // The limit applies to the whole command: it is compared with offsets from the command's beginning.
        match bytes.get(start..).unwrap_or_default().iter().position(|byte| *byte == b'\n') {
            Some(len) if start + len <= longest => {
                let end = start + len;
                let text = bytes[from..end].strip_suffix(b"\r").map_or(end, |_| end - 1);
                Ok(Some((from..text, end + 1)))
            }
            None if bytes.len() <= longest => {
                self.part.scanned = bytes.len();
                Ok(None)
            }
            _ => Err(ProtocolError::Length),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Command<'a> {
    bytes: &'a [u8],
    words: &'a [Range<usize>],
}

impl<'a> Command<'a> {
    /// Returns the bytes of the command, without the end of the last line.
    pub(crate) fn bytes(self) -> &'a [u8] {
        &self.bytes[..self.words.last().map_or(0, |word| word.end)]
    }

    /// Returns the number of words; 0 for an empty line.
    pub(crate) fn len(self) -> usize {
        self.words.len()
    }

    pub(crate) fn word(self, at: usize) -> Option<&'a [u8]> {
        self.words.get(at).map(|place| &self.bytes[place.clone()])
    }

    /// Returns whether the word at this position is `word`, ignoring case.
    pub(crate) fn is(self, at: usize, word: &str) -> bool {
        self.word(at).is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
    }
}

/// Parses the first command, of at most `longest` bytes, into `words`. Returns the size of the command;
/// `None` if the command is incomplete. Then the next `bytes` must begin with these bytes.
///
/// # Errors
/// For bytes that cannot be the beginning of a command.
pub(crate) fn parse(bytes: &[u8], words: &mut Words, longest: usize) -> Result<Option<usize>, ProtocolError> {
    if words.part == Part::default() {
        words.places.clear();
    }
    let past = match bytes.first() {
        None => None,
        Some(b'*') => array(bytes, words, longest)?,
        Some(_) => words.line(bytes, 0, longest)?.map(|(text, past)| {
            words.places.extend(spaced(&bytes[text]));
            past
        }),
    };
    if past.is_some() {
        words.part = Part::default();
    }
    Ok(past)
}

fn array(bytes: &[u8], words: &mut Words, longest: usize) -> Result<Option<usize>, ProtocolError> {
    let Some(left) = words_left(bytes, words, longest)? else { return Ok(None) };
    for left in (0..left).rev() {
        let at = words.part.at;
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err(ProtocolError::Word),
        }
        let Some((digits, first)) = words.line(bytes, at + 1, longest)? else { return Ok(None) };
        let len = number(&bytes[digits]).filter(|len| first + len <= longest).ok_or(ProtocolError::Length)?;
        let past = first + len;
        match bytes.get(past..past + 2) {
            None => return Ok(None),
            Some(b"\r\n") => words.places.push(first..past),
            Some(_) => return Err(ProtocolError::End),
        }
        words.part = Part { left: Some(left), at: past + 2, ..words.part };
    }
    Ok(Some(words.part.at))
}

/// Returns the number of missing words of an array; `None` if its first line is incomplete.
fn words_left(bytes: &[u8], words: &mut Words, longest: usize) -> Result<Option<usize>, ProtocolError> {
    if words.part.left.is_some() {
        return Ok(words.part.left);
    }
    let Some((digits, at)) = words.line(bytes, 1, longest)? else { return Ok(None) };
    let count = number(&bytes[digits]).filter(|count| *count <= MOST_WORDS).ok_or(ProtocolError::Words)?;
    words.part = Part { left: Some(count), at, ..words.part };
    Ok(Some(count))
}

fn number(digits: &[u8]) -> Option<usize> {
    let plausible = digits.len() <= 9 && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| plausible)?.parse().ok()
}

fn spaced(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    text.split(u8::is_ascii_whitespace).filter_map(move |word| {
        let first = at;
        at += word.len() + 1;
        (!word.is_empty()).then(|| first..first + word.len())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Read = Option<(Vec<Vec<u8>>, usize)>;

    fn read(bytes: &[u8]) -> Result<Read, ProtocolError> {
        let mut words = Words::default();
        let read = parse(bytes, &mut words, LONGEST)?;
        let command = words.of(bytes);
        Ok(read.map(|past| ((0..command.len()).map(|at| command.word(at).unwrap().to_vec()).collect(), past)))
    }

    fn written(words: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).into_bytes());
            bytes.extend(word);
            bytes.extend(b"\r\n");
        }
        bytes
    }

    #[test]
    fn line_is_split_into_words() {
        assert_eq!(read(b"INCR  orders\r\nrest"), Ok(Some((vec![b"INCR".to_vec(), b"orders".to_vec()], 14))));
        assert_eq!(read(b"PING\n"), Ok(Some((vec![b"PING".to_vec()], 5))));
        assert_eq!(read(b"\r\n"), Ok(Some((vec![], 2))));
        assert_eq!(read(b"PI"), Ok(None));
    }

    #[test]
    fn incomplete_line_is_not_scanned_twice() {
        let (mut words, bytes) = (Words::default(), vec![b'x'; 1_000]);
        for len in 1..=bytes.len() {
            assert_eq!(parse(&bytes[..len], &mut words, LONGEST), Ok(None));
            assert_eq!(words.part.scanned, len);
        }
    }

    #[test]
    fn malformed_command_is_rejected() {
        for (bytes, error) in [
            (&b"*-1\r\n"[..], ProtocolError::Words),
            (b"*x\r\n", ProtocolError::Words),
            (b"*4097\r\n", ProtocolError::Words),
            (b"*99999999999999999999\r\n", ProtocolError::Words),
            (b"*1\r\n+OK\r\n", ProtocolError::Word),
            (b"*1\r\n$-1\r\n", ProtocolError::Length),
            (b"*1\r\n$262144\r\n", ProtocolError::Length),
            (b"*1\r\n$1\r\nab\r\n", ProtocolError::End),
        ] {
            assert_eq!(read(bytes), Err(error), "{}", bytes.escape_ascii());
        }
        assert_eq!(read(&vec![b'x'; LONGEST + 1]), Err(ProtocolError::Length));
        let line = |len| [vec![b'x'; len], b"\n".to_vec()].concat();
        assert!(matches!(read(&line(LONGEST)), Ok(Some((_, past))) if past == LONGEST + 1));
        assert_eq!(read(&line(LONGEST + 1)), Err(ProtocolError::Length));
    }

    proptest! {
        #[test]
        fn command_round_trips_and_its_prefixes_are_incomplete(
            words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8),
            behind in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut bytes = written(&words);
            let len = bytes.len();
            for cut in 0..len {
                prop_assert_eq!(read(&bytes[..cut]), Ok(None));
            }
            bytes.extend(behind);
            prop_assert_eq!(read(&bytes), Ok(Some((words, len))));
        }

        /// An incremental parse returns the same result as a parse of all bytes.
        #[test]
        fn command_in_pieces_parses_like_the_whole(
            bytes in prop_oneof![
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8).prop_map(|words| written(&words)),
                "[ -~]{0,60}\n".prop_map(String::into_bytes),
                prop::collection::vec(any::<u8>(), 0..100),
            ],
            cuts in prop::collection::vec(0..200_usize, 0..20),
        ) {
            let (mut words, mut cuts) = (Words::default(), cuts);
            cuts.sort_unstable();
            for cut in cuts.into_iter().filter(|cut| *cut <= bytes.len()).chain([bytes.len()]) {
                let (piece, part) = (&bytes[..cut], parse(&bytes[..cut], &mut words, LONGEST));
                let whole = read(piece);
                prop_assert_eq!(part, whole.clone().map(|read| read.map(|(_, past)| past)));
                let Ok(None) = part else {
                    let command = words.of(piece);
                    let read: Vec<_> = (0..command.len()).map(|at| command.word(at).unwrap().to_vec()).collect();
                    prop_assert!(whole.is_err() || whole == Ok(Some((read, part.unwrap().unwrap()))));
                    break;
                };
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some((_, past))) = read(&bytes) {
                prop_assert!(past <= bytes.len());
            }
        }
    }
}
