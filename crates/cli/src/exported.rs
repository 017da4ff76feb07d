//! The format of `export` and `import`: one JSON object per line. The last line has the number of the others,
//! because a file that is cut off at the end of a line would look complete.
//!
//! Every number is a string of digits. JavaScript, older versions of jq and other programs hold numbers as
//! doubles, and silently round numbers beyond 2^53. A `next` that was rounded down would repeat ids.

use std::fmt;

use idmill::SequenceName;
use idmill::store::{Bounds, Identity, SequenceInfo};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::output::compact;

/// The version of the format. Other versions are rejected.
const FORMAT: u64 = 1;
/// A double holds every integer exactly up to this value.
const EXACT: u64 = 1 << 53;

/// A sequence on its line. Names and meanings are stable. Unknown fields are rejected: they may be mistyped.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Line {
    format: Digits,
    name: String,
    /// `null` if max is reserved. A line without this field is rejected, because it is unclear whether ids
    /// are left.
    #[serde(deserialize_with = "present")]
    next: Option<Digits>,
    start: Digits,
    max: Digits,
    #[serde(skip_serializing_if = "Option::is_none")]
    incarnation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<Digits>,
}

fn written(name: &str, next: Option<u64>, bounds: Bounds, identity: Option<Identity>) -> String {
    let line = Line {
        format: Digits(FORMAT),
        name: name.to_owned(),
        next: next.map(Digits),
        start: Digits(bounds.start()),
        max: Digits(bounds.max()),
        incarnation: identity.map(|identity| format!("{:016x}", identity.incarnation)),
        epoch: identity.map(|identity| Digits(identity.epoch)),
    };
    compact(&line) + "\n"
}

/// Returns the line of a sequence, with the line end.
pub(crate) fn line(info: &SequenceInfo) -> String {
    written(&info.name, info.next, info.bounds, Some(info.identity))
}

/// The last line. Several files can be concatenated: this line counts the sequences since the previous one.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct End {
    format: Digits,
    sequences: Digits,
}

/// Returns the last line after this number of sequences, with the line end.
pub(crate) fn end(sequences: u64) -> String {
    let end = End { format: Digits(FORMAT), sequences: Digits(sequences) };
    serde_json::to_string(&end).expect("two numbers serialize to JSON") + "\n"
}

/// Returns the next id of a sequence whose first id that is not reserved is `reached`; `None` if max is
/// reserved.
pub(crate) fn next(reached: u128, bounds: Bounds) -> Option<u64> {
    u64::try_from(reached).ok().filter(|next| *next <= bounds.max())
}

fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Digits>, D::Error> {
    Option::deserialize(from)
}

/// The part of a line that can be imported: everything except the identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: SequenceName,
    pub(crate) bounds: Bounds,
    /// The first id that is not reserved, at most 2^64.
    pub(crate) reached: u128,
}

/// The content of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Sequence(Entry),
    /// The number of sequences on the lines before.
    End(u64),
}

impl Content {
    /// Parses a line.
    ///
    /// # Errors
    /// Returns the reason as a sentence.
    pub(crate) fn read(line: &str) -> Result<Self, String> {
        if let Ok(end) = serde_json::from_str::<End>(line) {
            return current(end.format).map(|()| Self::End(end.sequences.0));
        }
        let read: Line = serde_json::from_str(line).map_err(|error| said(&error))?;
        current(read.format)?;
        Entry::read(&read).map(Self::Sequence)
    }
}

fn current(format: Digits) -> Result<(), String> {
    match format.0 {
        FORMAT => Ok(()),
        other => Err(format!("`format` is {other}; this version reads {FORMAT}")),
    }
}

impl Entry {
    /// Returns the line of this entry, with the line end.
    pub(crate) fn line(&self) -> String {
        written(&self.name, next(self.reached, self.bounds), self.bounds, None)
    }

    fn read(read: &Line) -> Result<Self, String> {
        let invalid = |error: idmill::Error| error.message().to_owned();
        let name = SequenceName::new(&read.name).map_err(invalid)?;
        let bounds = Bounds::new(read.start.0, read.max.0).map_err(invalid)?;
        let reached = read.next.map_or(u128::from(bounds.max()) + 1, |next| u128::from(next.0));
        let ids = u128::from(bounds.start())..=u128::from(bounds.max());
        if let Some(Digits(next)) = read.next.filter(|next| !ids.contains(&u128::from(next.0))) {
            return Err(format!(
                "next {next} is not between start {} and max {}",
                bounds.start(),
                bounds.max()
            ));
        }
        Ok(Self { name, bounds, reached })
    }
}

/// Returns the error without its position. A line is short, and the caller reports its number.
fn said(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(what, _)| what.to_owned())
}

/// A number, written as a string of digits.
#[derive(Clone, Copy, Debug)]
struct Digits(u64);

impl Serialize for Digits {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Digits {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(OfDigits)
    }
}

struct OfDigits;

impl Visitor<'_> for OfDigits {
    type Value = Digits;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0 to 18446744073709551615 as a string, such as \"1000\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Digits, E> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        number.map(Digits).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    /// Accepts a JSON number, because a line may have been written by hand.
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Digits, E> {
        if number <= EXACT {
            return Ok(Digits(number));
        }
        let message = format!(
            "{number} is above 2^53, where many programs round numbers; write it as a string: \"{number}\""
        );
        Err(E::custom(message))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(line: &str) -> Result<Entry, String> {
        match Content::read(line)? {
            Content::Sequence(entry) => Ok(entry),
            Content::End(sequences) => Err(format!("the end after {sequences}")),
        }
    }

    #[test]
    fn last_line_has_the_number_of_sequences() {
        assert_eq!(end(u64::MAX), "{\"format\":\"1\",\"sequences\":\"18446744073709551615\"}\n");
        for sequences in [0, 1, 11] {
            assert_eq!(Content::read(end(sequences).trim_end()), Ok(Content::End(sequences)));
        }
        let other = Content::read(&end(1).replace("\"1\",", "\"2\","));
        assert_eq!(other.unwrap_err(), "`format` is 2; this version reads 1");
    }

    #[test]
    fn invalid_line_is_rejected_with_the_reason() {
        let good = r#"{"format":"1","name":"s","next":"5","start":"1","max":"9"}"#;
        assert_eq!(entry(good).unwrap().reached, 5);
        assert_eq!(entry(&good.replace("\"5\"", "5")).unwrap().reached, 5);
        assert_eq!(entry(&good.replace("\"5\"", "null")).unwrap().reached, 10);
        for (from, to, why) in [
            (r#""next":"5","#, "", "missing field `next`"),
            ("\"5\"", "\"0\"", "is not between start 1"),
            ("\"5\"", "\"10\"", "is not between start 1"),
            ("\"5\"", "\"-5\"", "whole number"),
            ("\"5\"", "\"+5\"", "whole number"),
            ("\"5\"", "5.0", "whole number"),
            ("\"5\"", "9007199254740993", "as a string"),
            ("\"5\"", "18446744073709552000", "whole number"),
            ("\"9\"", "\"0\"", "larger than max"),
            (r#""1","name""#, r#""2","name""#, "`format` is 2"),
            ("\"s\"", "\"\"", "is empty"),
            ("\"start\"", "\"strat\"", "unknown field `strat`"),
            ("}", "", "EOF"),
        ] {
            let error = entry(&good.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(why) && !error.contains("line 1"), "{to}: {error}");
        }
    }

    proptest! {
        #[test]
        fn written_line_parses_to_the_same_entry(
            name in "[^\\p{Cc}\\s]([^\\p{Cc}]{0,20}[^\\p{Cc}\\s])?",
            start in any::<u64>(), len in any::<u64>(), at in any::<u64>(), left in any::<bool>(),
        ) {
            let max = start.saturating_add(len);
            let next = left.then(|| start + at.checked_rem((max - start).max(1)).unwrap_or(0));
            let (name, bounds) = (SequenceName::new(&name).unwrap(), Bounds::new(start, max).unwrap());
            let info = SequenceInfo::stored(name.clone(), next, bounds, Identity { incarnation: 7, epoch: 1 });
            let line = line(&info);
            prop_assert_eq!(line.matches('\n').count(), 1);
            let read = entry(line.trim_end_matches('\n')).unwrap();
            prop_assert_eq!(&read, &Entry { name, bounds, reached: info.reached() });
            prop_assert_eq!(entry(read.line().trim_end_matches('\n')).unwrap(), read);
        }
    }
}
