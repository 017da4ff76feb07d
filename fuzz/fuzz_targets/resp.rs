//! Any input from Redis clients, well-formed or not, gets complete replies, which do not depend on how the
//! input is split.
#![no_main]

use idmill_fuzz::answers;
use libfuzzer_sys::arbitrary::{self, Arbitrary};

#[derive(Arbitrary, Debug)]
enum Piece<'a> {
    /// An array of bulk strings, as clients write it.
    Command(Vec<Word<'a>>),
    /// A line, as people type it.
    Line(Vec<Word<'a>>),
    Raw(&'a [u8]),
}

#[derive(Arbitrary, Debug)]
enum Word<'a> {
    Known(u8),
    Number(i64),
    Raw(&'a [u8]),
}

/// Commands and arguments, without `INFO`, whose rates change from moment to moment.
const KNOWN: &[&str] = &[
    "INCR",
    "INCRBY",
    "IDMILL.TAKE",
    "GET",
    "EXISTS",
    "MULTI",
    "EXEC",
    "DISCARD",
    "AUTH",
    "HELLO",
    "CLIENT",
    "SETNAME",
    "GETNAME",
    "SETINFO",
    "ID",
    "SELECT",
    "PING",
    "ECHO",
    "COMMAND",
    "CONFIG",
    "save",
    "RESET",
    "QUIT",
    "SET",
    "DEL",
    "a",
    "b",
    "0",
    "1",
    "2",
    "3",
    "9",
    "1000",
    "-1",
    "9223372036854775807",
];

impl Word<'_> {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Known(at) => KNOWN[usize::from(*at) % KNOWN.len()].as_bytes().to_vec(),
            Self::Number(number) => number.to_string().into_bytes(),
            Self::Raw(bytes) => bytes.to_vec(),
        }
    }
}

impl Piece<'_> {
    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Command(words) => {
                bytes.extend(format!("*{}\r\n", words.len()).bytes());
                for word in words.iter().map(Word::bytes) {
                    bytes.extend(format!("${}\r\n", word.len()).bytes());
                    bytes.extend(word);
                    bytes.extend(b"\r\n");
                }
            }
            Self::Line(words) => {
                for word in words {
                    bytes.extend(word.bytes());
                    bytes.push(b' ');
                }
                bytes.extend(b"\r\n");
            }
            Self::Raw(raw) => bytes.extend(*raw),
        }
    }
}

/// The bytes after the first reply.
fn after_reply(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, rest) = (&bytes[1..end], &bytes[end + 2..]);
    let number = || std::str::from_utf8(line).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b'+' | b'-' => (!line.iter().any(u8::is_ascii_control)).then_some(rest),
        b':' => number().map(|_| rest),
        b'_' => line.is_empty().then_some(rest),
        b'$' => match usize::try_from(number()?) {
            Ok(len) => rest.get(len..)?.strip_prefix(b"\r\n"),
            Err(_) => Some(rest),
        },
        kind @ (b'*' | b'%') => {
            let len = number()? * if kind == b'%' { 2 } else { 1 };
            (0..len).try_fold(rest, |rest, _| after_reply(rest))
        }
        _ => None,
    }
}

libfuzzer_sys::fuzz_target!(|input: (Vec<Piece<'_>>, u8)| {
    let (pieces, part) = input;
    let mut bytes = Vec::new();
    pieces.iter().for_each(|piece| piece.write(&mut bytes));
    let whole = answers(&bytes, usize::MAX, |server, stream| server.resp_client(stream));
    let mut rest = &whole[..];
    while !rest.is_empty() {
        rest = after_reply(rest).unwrap_or_else(|| panic!("incomplete reply: {}", whole.escape_ascii()));
    }
    if !bytes.to_ascii_lowercase().windows(4).any(|word| word == b"info") {
        let parts = answers(&bytes, part.into(), |server, stream| server.resp_client(stream));
        assert!(whole == parts, "{}\nin parts: {}", whole.escape_ascii(), parts.escape_ascii());
    }
});
