//! Reads commands as clients of Redis send them: an array of bulk strings, or a line of words.
//!
//! Nothing is copied: a command is the places of its words in the bytes that were read.

use std::ops::Range;

/// The most words of a command.
pub(crate) const MOST_WORDS: usize = 4096;
/// The most bytes of a command; no name is longer than a fraction of it.
pub(crate) const LONGEST: usize = 256 * 1024;
/// The same for a client without a token.
pub(crate) const LONGEST_OF_NOBODY: usize = 16 * 1024;
/// The most words for which an idle connection keeps room.
const KEPT_WORDS: usize = 64;

/// Why bytes are no command. What follows them cannot be understood either: the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The number of words is none, or there are more than [`MOST_WORDS`].
    Words,
    /// A word's length is none, or the command is longer than it may be.
    Length,
    /// Another byte than `$` where a word begins.
    Word,
    /// A word that does not end where its length says.
    End,
}

impl Fault {
    /// What the client is told, in the words that Redis uses where it has some.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Words => "Protocol error: invalid multibulk length",
            Self::Length => "Protocol error: invalid bulk length",
            Self::Word => "Protocol error: expected '$'",
            Self::End => "Protocol error: a bulk string does not end where its length says",
        }
    }
}

/// The words of one command.
#[derive(Debug, Default)]
pub(crate) struct Words(Vec<Range<usize>>);

impl Words {
    pub(crate) fn of<'a>(&'a self, bytes: &'a [u8]) -> Command<'a> {
        Command { bytes, words: &self.0 }
    }

    /// Lets go of the room that only an exceptional command needs.
    pub(crate) fn shrink(&mut self) {
        if self.0.capacity() > KEPT_WORDS {
            self.0 = Vec::new();
        }
    }
}

/// A command: its name and its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command<'a> {
    bytes: &'a [u8],
    words: &'a [Range<usize>],
}

impl<'a> Command<'a> {
    /// The bytes that it was read from, without the end of their last line.
    pub(crate) fn bytes(self) -> &'a [u8] {
        &self.bytes[..self.words.last().map_or(0, |word| word.end)]
    }

    /// How many words it has; none where a line was empty.
    pub(crate) fn len(self) -> usize {
        self.words.len()
    }

    pub(crate) fn word(self, at: usize) -> Option<&'a [u8]> {
        self.words.get(at).map(|place| &self.bytes[place.clone()])
    }

    /// Whether the word at this place is this one, in whichever case.
    pub(crate) fn is(self, at: usize, word: &str) -> bool {
        self.word(at).is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
    }
}

/// Reads the first command, of at most `longest` bytes, into `words`. Returns how many bytes it has; `None`
/// while it is not whole.
///
/// # Errors
/// For bytes that cannot be the beginning of one.
pub(crate) fn parse(bytes: &[u8], words: &mut Words, longest: usize) -> Result<Option<usize>, Fault> {
    words.0.clear();
    match bytes.first() {
        None => Ok(None),
        Some(b'*') => array(bytes, &mut words.0, longest),
        Some(_) => Ok(line(bytes, 0, longest)?.map(|(text, past)| {
            words.0.extend(spaced(&bytes[text]));
            past
        })),
    }
}

fn array(bytes: &[u8], words: &mut Vec<Range<usize>>, longest: usize) -> Result<Option<usize>, Fault> {
    let Some((digits, mut at)) = line(bytes, 1, longest)? else { return Ok(None) };
    let count = number(&bytes[digits]).filter(|count| *count <= MOST_WORDS).ok_or(Fault::Words)?;
    for _ in 0..count {
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err(Fault::Word),
        }
        let Some((digits, first)) = line(bytes, at + 1, longest)? else { return Ok(None) };
        let len = number(&bytes[digits]).filter(|len| first + len <= longest).ok_or(Fault::Length)?;
        let past = first + len;
        match bytes.get(past..past + 2) {
            None => return Ok(None),
            Some(b"\r\n") => words.push(first..past),
            Some(_) => return Err(Fault::End),
        }
        at = past + 2;
    }
    Ok(Some(at))
}

/// The line that begins there, without its end, and where the next one begins; `None` while it has no end.
fn line(bytes: &[u8], from: usize, longest: usize) -> Result<Option<(Range<usize>, usize)>, Fault> {
    // A length has at most these bytes; only a line of words has more.
    match bytes[from..].iter().position(|byte| *byte == b'\n') {
        Some(len) if from + len <= longest => {
            let end = from + len;
            let text = bytes[from..end].strip_suffix(b"\r").map_or(end, |_| end - 1);
            Ok(Some((from..text, end + 1)))
        }
        None if bytes.len() <= longest => Ok(None),
        _ => Err(Fault::Length),
    }
}

fn number(digits: &[u8]) -> Option<usize> {
    let plausible = !digits.is_empty() && digits.len() <= 9;
    if !plausible {
        return None;
    }
    digits.iter().try_fold(0, |number, digit| match digit {
        b'0'..=b'9' => Some(number * 10 + usize::from(digit - b'0')),
        _ => None,
    })
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

    fn read(bytes: &[u8]) -> Result<Read, Fault> {
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
    fn a_line_is_its_words() {
        assert_eq!(read(b"INCR  orders\r\nrest"), Ok(Some((vec![b"INCR".to_vec(), b"orders".to_vec()], 14))));
        assert_eq!(read(b"PING\n"), Ok(Some((vec![b"PING".to_vec()], 5))));
        assert_eq!(read(b"\r\n"), Ok(Some((vec![], 2))));
        assert_eq!(read(b"PI"), Ok(None));
    }

    #[test]
    fn what_cannot_be_a_command_is_said_to_be_none() {
        for (bytes, fault) in [
            (&b"*-1\r\n"[..], Fault::Words),
            (b"*x\r\n", Fault::Words),
            (b"*4097\r\n", Fault::Words),
            (b"*99999999999999999999\r\n", Fault::Words),
            (b"*1\r\n+OK\r\n", Fault::Word),
            (b"*1\r\n$-1\r\n", Fault::Length),
            (b"*1\r\n$262144\r\n", Fault::Length),
            (b"*1\r\n$1\r\nab\r\n", Fault::End),
        ] {
            assert_eq!(read(bytes), Err(fault), "{}", bytes.escape_ascii());
        }
        assert_eq!(read(&vec![b'x'; LONGEST + 1]), Err(Fault::Length));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_any_part_of_it_is_not_whole(
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

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some((_, past))) = read(&bytes) {
                prop_assert!(past <= bytes.len());
            }
        }
    }
}
