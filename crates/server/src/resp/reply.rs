//! Encodes answers in version 2 or 3 of the Redis protocol.

use std::borrow::Cow;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A simple string, such as `OK`.
    Word(&'static str),
    Integer(i64),
    Bytes(Vec<u8>),
    Null,
    List(Vec<Self>),
    /// In version 2, a list of alternating keys and values.
    Map(Vec<(&'static str, Self)>),
    /// A code in capitals, and a message.
    Error(&'static str, Cow<'static, str>),
}

impl Answer {
    pub(crate) const OK: Self = Self::Word("OK");

    pub(crate) fn text(text: impl Into<Vec<u8>>) -> Self {
        Self::Bytes(text.into())
    }

    /// Returns an error with the general code `ERR`.
    pub(crate) fn error(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Error("ERR", message.into())
    }
}

/// Answers that are not yet written to a client.
pub(crate) struct Replies {
    pub(crate) bytes: Vec<u8>,
    /// The protocol version: 2, unless the client requests 3.
    pub(crate) version: u8,
    digits: itoa::Buffer,
}

impl Replies {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), version: 2, digits: itoa::Buffer::new() }
    }

    /// Clears the buffer, and shrinks its capacity to `keep` bytes.
    pub(crate) fn clear(&mut self, keep: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(keep);
    }

    pub(crate) fn integer(&mut self, integer: i64) {
        self.head(b':', integer);
    }

    /// Begins a list of `len` answers.
    pub(crate) fn list(&mut self, len: usize) {
        self.len(b'*', len);
    }

    pub(crate) fn answer(&mut self, answer: &Answer) {
        match answer {
            Answer::Word(word) => self.line(b'+', &[word]),
            Answer::Integer(integer) => self.integer(*integer),
            Answer::Bytes(bytes) => self.bulk(bytes),
            Answer::Null => self.bytes.extend(if self.version == 3 { "_\r\n" } else { "$-1\r\n" }.bytes()),
            Answer::List(list) => {
                self.list(list.len());
                for answer in list {
                    self.answer(answer);
                }
            }
            Answer::Map(map) => {
                let (kind, each) = if self.version == 3 { (b'%', 1) } else { (b'*', 2) };
                self.len(kind, map.len() * each);
                for (key, value) in map {
                    self.bulk(key.as_bytes());
                    self.answer(value);
                }
            }
            Answer::Error(code, message) => self.line(b'-', &[code, " ", message]),
        }
    }

    fn bulk(&mut self, bytes: &[u8]) {
        self.len(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn len(&mut self, kind: u8, len: usize) {
        self.head(kind, i64::try_from(len).expect("a length in memory fits in an i64"));
    }

    fn head(&mut self, kind: u8, number: i64) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(self.digits.format(number).as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Writes words in one line. Control characters become spaces.
    fn line(&mut self, kind: u8, words: &[&str]) {
        self.bytes.push(kind);
        let bytes = words.iter().flat_map(|word| word.bytes());
        self.bytes.extend(bytes.map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(version: u8, answer: &Answer) -> String {
        let mut replies = Replies { version, ..Replies::new() };
        replies.answer(answer);
        String::from_utf8(replies.bytes).unwrap()
    }

    #[test]
    fn each_protocol_version_has_its_own_encoding() {
        let map = Answer::Map(vec![("proto", Answer::Integer(3)), ("none", Answer::Null)]);
        assert_eq!(written(3, &map), "%2\r\n$5\r\nproto\r\n:3\r\n$4\r\nnone\r\n_\r\n");
        assert_eq!(written(2, &map), "*4\r\n$5\r\nproto\r\n:3\r\n$4\r\nnone\r\n$-1\r\n");
        let list = Answer::List(vec![Answer::OK, Answer::text("a"), Answer::Bytes(vec![b'b'])]);
        assert_eq!(written(2, &list), "*3\r\n+OK\r\n$1\r\na\r\n$1\r\nb\r\n");
    }

    #[test]
    fn error_is_encoded_in_one_line() {
        assert_eq!(written(2, &Answer::error("two\r\nlines")), "-ERR two  lines\r\n");
    }
}
