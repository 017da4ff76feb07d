//! Encodes memcached's meta commands and parses the replies, without I/O.

use std::fmt::Write as _;

use idmill_shared_cache::cache::{Added, Command, LookReply};

/// Limit for a reply line, above the longest valid line.
const LONGEST_LINE: usize = 512;
/// Limit for a value. Items have at most twenty digits, padded with spaces if a number became shorter.
const LONGEST_VALUE: usize = 64;
/// The first command on a new connection, to detect servers and proxies that do not support meta commands.
pub(super) const NOOP: &[u8] = b"mn\r\n";

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// `HD`: the command succeeded.
    Done,
    /// `NF`, or `EN` after a look that creates no stub: the item does not exist.
    Missing,
    /// `EX`: the item has another cas.
    Changed,
    /// `MN`: the reply to [`NOOP`].
    Noop,
    /// `VA`: an item.
    Item(Item),
    /// `CLIENT_ERROR … non-numeric value`: the item cannot be incremented.
    NotANumber,
    /// Any other error, or a code that none of these commands returns.
    Error(String),
}

/// An item, with the flags that were requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Item {
    value: Value,
    cas: Option<u64>,
    /// `W`: this look created the item, which is a stub.
    won: bool,
    /// `t-1`: the item does not expire.
    stays: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Value {
    #[default]
    Empty,
    Number(u64),
    Other,
}

/// Encodes a command. Returns its bytes and its number of replies.
pub(super) fn write(command: Command, key: &str, ttl: u64) -> (Vec<u8>, usize) {
    let text = match command {
        Command::Add { count } => format!("ma {key} D{count} v c\r\n"),
        Command::Look => look(key, ttl),
        Command::Peek => format!("mg {key} c v t\r\n"),
        // Both commands are sent on one connection in this order, so the read runs after the deletion.
        Command::Clear { cas } => format!("md {key} C{cas}\r\n{}", look(key, ttl)),
        Command::Put { cas, number } => {
            let number = number.to_string();
            format!("ms {key} {} C{cas} T0\r\n{number}\r\n", number.len())
        }
        Command::Release { cas } => format!("md {key} C{cas}\r\n"),
        Command::Delete => format!("md {key}\r\n"),
    };
    let replies = if matches!(command, Command::Clear { .. }) { 2 } else { 1 };
    (text.into_bytes(), replies)
}

fn look(key: &str, ttl: u64) -> String {
    format!("mg {key} N{ttl} c v t\r\n")
}

/// Parses the first reply. Returns it with its length, or `None` if more bytes are needed. The error has
/// bytes that are not a reply; the bytes after them cannot be parsed.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>, String> {
    let Some(end) = bytes.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') else {
        return if bytes.len() < LONGEST_LINE { Ok(None) } else { Err(malformed(bytes)) };
    };
    let text = bytes[..end].strip_suffix(b"\r").and_then(|line| std::str::from_utf8(line).ok());
    let line = text.ok_or_else(|| malformed(bytes))?;
    let mut words = line.split(' ').filter(|word| !word.is_empty());
    let reply = match words.next() {
        Some("HD") => Reply::Done,
        Some("NF" | "EN") => Reply::Missing,
        Some("EX") => Reply::Changed,
        Some("MN") => Reply::Noop,
        Some("VA") => return item(bytes, end + 1, words),
        Some("CLIENT_ERROR") if line.ends_with("non-numeric value") => Reply::NotANumber,
        Some("NS" | "ERROR" | "CLIENT_ERROR" | "SERVER_ERROR") => Reply::Error(line.to_owned()),
        _ => return Err(malformed(bytes)),
    };
    Ok(Some((reply, end + 1)))
}

fn item<'a>(
    bytes: &[u8],
    head: usize,
    mut words: impl Iterator<Item = &'a str>,
) -> Result<Option<(Reply, usize)>, String> {
    let size = words.next().and_then(decimal).and_then(|size| usize::try_from(size).ok());
    let size = size.filter(|size| *size <= LONGEST_VALUE).ok_or_else(|| malformed(bytes))?;
    let Some(value) = bytes.get(head..head + size + 2) else { return Ok(None) };
    let value = value.strip_suffix(b"\r\n").ok_or_else(|| malformed(bytes))?;
    let mut item = Item { value: read_value(value), ..Item::default() };
    for flag in words {
        match flag.split_at_checked(1) {
            Some(("c", cas)) => item.cas = decimal(cas),
            Some(("t", "-1")) => item.stays = true,
            Some(("W", "")) => item.won = true,
            _ => {}
        }
    }
    Ok(Some((Reply::Item(item), head + size + 2)))
}

fn read_value(value: &[u8]) -> Value {
    let text = std::str::from_utf8(value).unwrap_or("?");
    // memcached pads a number with spaces when it becomes shorter.
    match (text, decimal(text.trim_end_matches(' '))) {
        ("", _) => Value::Empty,
        (_, Some(number)) => Value::Number(number),
        _ => Value::Other,
    }
}

/// Parses a number that consists only of digits, because `parse` would also accept a sign.
fn decimal(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn malformed(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for byte in bytes.iter().take(60) {
        let _ = write!(shown, "{}", byte.escape_ascii());
    }
    shown
}

impl Reply {
    /// Decodes the reply to [`Command::Add`]. Returns an unexpected reply as the error.
    pub(super) fn added(self) -> Result<Added, Self> {
        match self {
            Self::Item(Item { value: Value::Number(number), cas: Some(cas), .. }) => {
                Ok(Added::Number { number, cas })
            }
            Self::Missing => Ok(Added::Missing),
            Self::NotANumber => Ok(Added::NotANumber),
            other => Err(other),
        }
    }

    /// Decodes the reply to [`Command::Look`] or [`Command::Peek`]. Returns a reply that does not fit as
    /// the error.
    pub(super) fn seen(self) -> Result<LookReply, Self> {
        match self {
            Self::Item(Item { value: Value::Number(number), cas: Some(cas), .. }) => {
                Ok(LookReply::Number { number, cas })
            }
            Self::Item(Item { value: Value::Empty, cas: Some(cas), won: true, .. }) => {
                Ok(LookReply::Won { cas })
            }
            // A stub expires, so an empty item that does not expire was written by another program.
            Self::Item(Item { value: Value::Empty, stays: false, .. }) => Ok(LookReply::Stub),
            Self::Item(_) => Ok(LookReply::Foreign),
            Self::Missing => Ok(LookReply::Nothing),
            other => Err(other),
        }
    }

    /// Decodes the reply to a conditional command. Returns whether the condition held, or an unexpected reply
    /// as the error.
    pub(super) fn held(self) -> Result<bool, Self> {
        match self {
            Self::Done => Ok(true),
            Self::Missing | Self::Changed => Ok(false),
            other => Err(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(text: &str) -> Reply {
        let (reply, len) = parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(len, text.len(), "{text:?}");
        reply
    }

    /// Uses replies of memcached 1.6.18 to these commands.
    #[test]
    fn server_replies_are_decoded() {
        let number = 4_294_967_305;
        assert_eq!(one("VA 10 c3\r\n4294967305\r\n").added(), Ok(Added::Number { number, cas: 3 }));
        assert_eq!(
            one("VA 20 c5\r\n1                   \r\n").added(),
            Ok(Added::Number { number: 1, cas: 5 })
        );
        assert_eq!(one("NF\r\n").added(), Ok(Added::Missing));
        let refusal = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
        assert_eq!(one(refusal).added(), Ok(Added::NotANumber));
        assert_eq!(one("VA 0 c1 t3 W\r\n\r\n").seen(), Ok(LookReply::Won { cas: 1 }));
        assert_eq!(one("VA 0 c1 t3 Z\r\n\r\n").seen(), Ok(LookReply::Stub));
        assert_eq!(one("VA 10 c3 t-1\r\n4294967305\r\n").seen(), Ok(LookReply::Number { number, cas: 3 }));
        assert_eq!(one("VA 3 c6 t-1\r\nfoo\r\n").seen(), Ok(LookReply::Foreign));
        assert_eq!(one("VA 0 c6 t-1\r\n\r\n").seen(), Ok(LookReply::Foreign), "a stub expires");
        assert_eq!(one("VA 21 c6 t-1\r\n118446744073709551615\r\n").seen(), Ok(LookReply::Foreign));
        assert_eq!(one("VA 2 c6 t-1\r\n+1\r\n").seen(), Ok(LookReply::Foreign));
        assert_eq!((one("HD\r\n").held(), one("EX\r\n").held()), (Ok(true), Ok(false)));
        assert_eq!(
            (one("EN\r\n").seen(), one("VA 0 c0 t5 W\r\n\r\n").seen()),
            (Ok(LookReply::Nothing), Ok(LookReply::Won { cas: 0 }))
        );
        assert_eq!((one("NF\r\n").held(), one("MN\r\n")), (Ok(false), Reply::Noop));
    }

    #[test]
    fn error_reply_is_rejected_by_every_decoder() {
        for text in ["ERROR", "CLIENT_ERROR bad command line format", "SERVER_ERROR out of memory", "NS"] {
            let reply = one(&format!("{text}\r\n"));
            assert_eq!(reply, Reply::Error(text.to_owned()));
            assert!(reply.clone().added().is_err() && reply.clone().seen().is_err() && reply.held().is_err());
        }
        assert!(one("VA 1\r\n5\r\n").added().is_err(), "no cas");
        assert!(one("HD\r\n").added().is_err() && one("HD\r\n").seen().is_err());
        assert!(one("VA 1 c1\r\n5\r\n").held().is_err());
    }

    #[test]
    fn malformed_replies_are_rejected_incomplete_ones_awaited() {
        for bad in ["hello\r\n", "\r\n", "HD\n", "VA x\r\n\r\n", "VA 65 c1\r\n", "VA 2 c1\r\n555\r\n"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(parse(&[b'x'; LONGEST_LINE]).is_err());
        let whole = b"VA 10 c3\r\n4294967305\r\n";
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), Ok(None), "{end}");
        }
        assert_eq!(malformed(b"a\r\n\xff"), "a\\r\\n\\xff");
    }

    #[test]
    fn commands_are_encoded() {
        let text = |command| {
            let (bytes, replies) = write(command, "k", 5);
            (String::from_utf8(bytes).unwrap(), replies)
        };
        assert_eq!(text(Command::Add { count: 7 }), ("ma k D7 v c\r\n".to_owned(), 1));
        assert_eq!(text(Command::Look), ("mg k N5 c v t\r\n".to_owned(), 1));
        assert_eq!(text(Command::Peek), ("mg k c v t\r\n".to_owned(), 1));
        assert_eq!(text(Command::Clear { cas: 3 }), ("md k C3\r\nmg k N5 c v t\r\n".to_owned(), 2));
        assert_eq!(text(Command::Put { cas: 3, number: 42 }), ("ms k 2 C3 T0\r\n42\r\n".to_owned(), 1));
        assert_eq!(text(Command::Release { cas: 3 }), ("md k C3\r\n".to_owned(), 1));
        assert_eq!(text(Command::Delete), ("md k\r\n".to_owned(), 1));
    }

    proptest! {
        /// However the bytes are split, parsing must not panic, must make progress, and must return the
        /// same replies.
        #[test]
        fn replies_do_not_depend_on_packet_boundaries(
            pieces in prop::collection::vec(prop_oneof![
                Just("HD\r\n".to_owned()), Just("EX\r\n".to_owned()), "VA [0-9]{1,2} c[0-9]{1,20}( W| Z| t-1)?\r\n",
                "[0-9]{0,21}\r\n", "\\PC{0,20}\r?\n?",
            ], 0..8),
            cut in 0..200_usize,
        ) {
            let bytes = pieces.concat().into_bytes();
            prop_assert_eq!(read(&[&bytes]), read(&[&bytes[..cut.min(bytes.len())], &bytes[cut.min(bytes.len())..]]));
        }
    }

    /// Parses bytes that arrive in pieces. Stops at the first malformed reply.
    fn read(pieces: &[&[u8]]) -> Vec<Reply> {
        let (mut buffer, mut replies) = (Vec::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                match parse(&buffer) {
                    Ok(None) => break,
                    Err(_) => return replies,
                    Ok(Some((reply, len))) => {
                        assert!(len > 0 && len <= buffer.len());
                        buffer.drain(..len);
                        replies.push(reply);
                    }
                }
            }
        }
        replies
    }
}
