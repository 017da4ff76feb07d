//! Validates stored sequences.

use std::fmt::Display;

use idmill::store::{Bounds, Identity, SequenceInfo};
use idmill::{Error, ErrorKind, SequenceName};

/// The reason why a stored row is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "these are all cases: an unknown format or an invalid row")]
pub enum InvalidRow {
    /// The format is unknown, perhaps of a later version.
    Format,
    /// Any other fault, worded to follow the name of the row: "has no name".
    Wrong(String),
}

impl InvalidRow {
    /// Returns the error for the row `what`. `so` is the consequence, such as "nothing was changed". The kind
    /// is [`Unsupported`](ErrorKind::Unsupported) for an unknown format and otherwise
    /// [`StoreViolation`](ErrorKind::StoreViolation).
    pub fn error(&self, what: impl Display, so: &str) -> Error {
        match self {
            Self::Format => {
                let message = format!("{what} is in another format, perhaps from a later version; {so}");
                Error::new(ErrorKind::Unsupported, message)
            }
            Self::Wrong(fault) => Error::new(ErrorKind::StoreViolation, format!("{what} {fault}; {so}")),
        }
    }

    /// Returns the error for a reserve from the row `what`.
    pub fn of(&self, what: impl Display) -> Error {
        self.error(what, "nothing is reserved from it")
    }
}

impl From<String> for InvalidRow {
    fn from(fault: String) -> Self {
        Self::Wrong(fault)
    }
}

impl From<&str> for InvalidRow {
    fn from(fault: &str) -> Self {
        Self::Wrong(fault.to_owned())
    }
}

/// The numbers of a sequence as stored. Each field is wider than its valid range, so that no value is
/// truncated.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "stores construct it from rows")]
pub struct Numbers {
    /// The next id; `None` if all are reserved.
    pub next: Option<i128>,
    /// The first id.
    pub start: i128,
    /// The last id.
    pub max: i128,
    /// The incarnation of the identity.
    pub incarnation: i128,
    /// The epoch of the identity.
    pub epoch: i128,
}

impl Numbers {
    /// Validates the numbers and returns the sequence.
    ///
    /// # Errors
    /// [`InvalidRow::Wrong`] for invalid values, or values that contradict each other.
    pub fn of(self, name: SequenceName) -> Result<SequenceInfo, InvalidRow> {
        let Self { next, start, max, incarnation, epoch } = self;
        let pair = |a: i128, b: i128| u64::try_from(a).ok().zip(u64::try_from(b).ok());
        let bounds = pair(start, max).and_then(|(start, max)| Bounds::new(start, max).ok());
        let bounds = bounds.ok_or_else(|| format!("has invalid bounds {start}..={max}"))?;
        if let Some(next) = next.filter(|next| !(start..=max).contains(next)) {
            return Err(format!("has next {next} outside its bounds {start}..={max}").into());
        }
        let identity = pair(incarnation, epoch).filter(|(incarnation, _)| *incarnation > 0);
        let (incarnation, epoch) =
            identity.ok_or_else(|| format!("has an invalid incarnation {incarnation} or epoch {epoch}"))?;
        let next = next.and_then(|next| u64::try_from(next).ok());
        Ok(SequenceInfo::stored(name, next, bounds, Identity { incarnation, epoch }))
    }

    /// Like [`of`](Self::of), but a `next` of one past the max means that all ids are reserved.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn or_used_up(self, name: SequenceName) -> Result<SequenceInfo, InvalidRow> {
        let next = self.next.filter(|next| *next != self.max + 1);
        Self { next, ..self }.of(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Numbers = Numbers { next: Some(15), start: 10, max: 20, incarnation: 7, epoch: 0 };

    fn name() -> SequenceName {
        SequenceName::new("s").unwrap()
    }

    #[test]
    fn numbers_that_cannot_be_are_named() {
        assert_eq!(GOOD.of(name()).unwrap().next, Some(15));
        for (bad, fault) in [
            (Numbers { next: Some(9), ..GOOD }, "has next 9 outside its bounds 10..=20"),
            (Numbers { next: Some(21), ..GOOD }, "has next 21 outside its bounds 10..=20"),
            (Numbers { max: 9, ..GOOD }, "has invalid bounds 10..=9"),
            (Numbers { start: -1, ..GOOD }, "has invalid bounds -1..=20"),
            (Numbers { max: 1 << 64, ..GOOD }, "has invalid bounds 10..=18446744073709551616"),
            (Numbers { incarnation: 0, ..GOOD }, "has an invalid incarnation 0 or epoch 0"),
            (
                Numbers { incarnation: 1 << 64, ..GOOD },
                "has an invalid incarnation 18446744073709551616 or epoch 0",
            ),
            (Numbers { epoch: -1, ..GOOD }, "has an invalid incarnation 7 or epoch -1"),
        ] {
            let error = bad.of(name()).unwrap_err().of("the row");
            assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
            assert_eq!(error.to_string(), format!("the row {fault}; nothing is reserved from it"));
        }
        let later = InvalidRow::Format.of("the row");
        let message =
            "the row is in another format, perhaps from a later version; nothing is reserved from it";
        assert_eq!((later.kind(), later.to_string().as_str()), (ErrorKind::Unsupported, message));
        let wrong = InvalidRow::from("has no name").error("the row", "nothing was changed").to_string();
        assert_eq!(wrong, "the row has no name; nothing was changed");
    }

    #[test]
    fn next_above_max_means_exhausted() {
        let past = Numbers { next: Some(21), ..GOOD };
        assert_eq!(past.or_used_up(name()).unwrap().next, None);
        assert_eq!(GOOD.or_used_up(name()).unwrap().next, Some(15));
        assert_eq!(Numbers { next: Some(20), ..GOOD }.or_used_up(name()).unwrap().next, Some(20));
        let beyond = Numbers { next: Some(22), ..GOOD }.or_used_up(name()).unwrap_err();
        assert_eq!(beyond, InvalidRow::Wrong("has next 22 outside its bounds 10..=20".to_owned()));
        let largest = Numbers { next: Some(1 << 64), max: u64::MAX.into(), ..GOOD };
        assert_eq!(largest.or_used_up(name()).unwrap().reached(), 1 << 64);
    }
}
