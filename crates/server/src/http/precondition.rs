//! `If-Match`: changes only the sequence that the caller has read.

use axum::http::{HeaderMap, StatusCode, header};
use idmill::ErrorKind;
use idmill::store::{Identity, SequenceInfo};

use super::problem::Problem;

/// The condition of a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Precondition {
    /// No header, or `*`: the sequence exists, which every change requires.
    Exists,
    /// The sequence has one of these identities. Empty if no tag is one of this server's.
    OneOf(Vec<Identity>),
}

impl Precondition {
    /// # Errors
    /// If the header is no list of tags.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        if !headers.contains_key(header::IF_MATCH) {
            return Ok(Self::Exists);
        }
        let lines = headers.get_all(header::IF_MATCH).iter().map(|line| line.to_str().unwrap_or_default());
        let text = lines.collect::<Vec<_>>().join(",");
        if text.trim() == "*" {
            return Ok(Self::Exists);
        }
        identities(&text).map(Self::OneOf).ok_or_else(|| {
            Problem::invalid(format!(
                "If-Match is {text:?}; send `*`, or ETags as GET answers them, in quotes"
            ))
        })
    }

    /// # Errors
    /// If the condition does not hold.
    pub(super) fn holds(&self, info: &SequenceInfo) -> Result<(), Problem> {
        match self {
            Self::OneOf(known) if !known.contains(&info.identity) => Err(failed(format!(
                "{} is another sequence, or was reset, since If-Match was read; GET it again",
                info.name
            ))),
            _ => Ok(()),
        }
    }
}

/// The condition does not hold; nothing was changed.
pub(super) fn failed(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::PRECONDITION_FAILED, ErrorKind::Conflict, detail)
}

/// The `ETag` of this identity.
pub(super) fn tag(Identity { incarnation, epoch }: Identity) -> String {
    format!("\"{incarnation:x}.{epoch}\"")
}

/// Reads a list of tags; `None` if it is malformed. Weak and foreign tags match no sequence, and are skipped.
fn identities(list: &str) -> Option<Vec<Identity>> {
    let (mut rest, mut found, mut tags) = (list, Vec::new(), 0);
    loop {
        rest = rest.trim_start_matches([',', ' ', '\t']);
        if rest.is_empty() {
            return (tags > 0).then_some(found);
        }
        let strong = rest.strip_prefix("W/").unwrap_or(rest);
        let is_weak = strong.len() < rest.len();
        let (text, behind) = strong.strip_prefix('"')?.split_once('"')?;
        found.extend(identity(text).filter(|_| !is_weak));
        tags += 1;
        rest = behind.trim_start_matches([' ', '\t']);
        if !rest.is_empty() && !rest.starts_with(',') {
            return None;
        }
    }
}

fn identity(tag: &str) -> Option<Identity> {
    let (incarnation, epoch) = tag.split_once('.')?;
    Some(Identity { incarnation: u64::from_str_radix(incarnation, 16).ok()?, epoch: epoch.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_tags_is_read_whole_or_refused() {
        let one = Identity { incarnation: 0xa1, epoch: 2 };
        assert_eq!(identities(&tag(one)), Some(vec![one]));
        assert_eq!(identities(" \"x,y\" ,, \"a1.2\","), Some(vec![one]));
        assert_eq!(identities("W/\"a1.2\""), Some(vec![]));
        for none in ["", ",", "a1.2", "\"a1.2", "\"a1.2\" \"b1.2\"", "*, \"a1.2\"", "\"a1.2\"x"] {
            assert_eq!(identities(none), None, "{none}");
        }
    }
}
