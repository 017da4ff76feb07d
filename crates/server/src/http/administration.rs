//! `/v1/sequences`: lists, creates, changes and removes sequences.
//!
//! A sequence's `ETag` is its identity: its incarnation and its epoch. With `If-Match`, a change is
//! refused unless the header is `*` or lists the current identity.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use idmill::store::{Bounds, Change, Identity, SequenceInfo};
use idmill::{ErrorKind, SequenceName, Sequences};
use serde::{Deserialize, Serialize};
use tracing::Instrument as _;

use super::body::{Body, Name, Number, object};
use super::caller::Administrator;
use super::problem::Problem;
use super::traces::act;
use crate::access::{Caller, Right};
use crate::listing;
use crate::state::ServerState;

/// Maximum number of rows of a page.
const MOST: usize = 1000;

/// A sequence in a response.
#[derive(Debug, Serialize)]
struct Shown {
    name: SequenceName,
    /// `null` if all ids are reserved.
    next: Option<Number>,
    start: Number,
    max: Number,
    /// A string, because a double cannot hold this number exactly.
    incarnation: String,
    epoch: Number,
}

impl From<&SequenceInfo> for Shown {
    fn from(info: &SequenceInfo) -> Self {
        Self {
            name: info.name.clone(),
            next: info.next.map(Number),
            start: Number(info.bounds.start()),
            max: Number(info.bounds.max()),
            incarnation: format!("{:x}", info.identity.incarnation),
            epoch: Number(info.identity.epoch),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listed {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    #[serde(default = "most")]
    limit: usize,
}

fn most() -> usize {
    MOST
}

/// A page of the sequences that the caller may see.
#[derive(Debug, Serialize)]
struct Rows {
    sequences: Vec<Shown>,
    /// The value of `after` for the next page; `null` on the last page.
    after: Option<String>,
    /// Number of entries that cannot be read as sequences.
    unreadable: usize,
}

pub(super) async fn list(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    asked: Result<Query<Listed>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(Listed { prefix, after, limit }) =
        asked.map_err(|error| Problem::invalid(error.body_text()))?;
    if limit == 0 || limit > MOST {
        return Err(Problem::invalid(format!("`limit` is {limit}; it must be from 1 to {MOST}")));
    }
    caller.has(Right::Draw)?;
    let found =
        listing::page(&state.draws.administered, caller.patterns(), &prefix, after.as_deref(), limit).await?;
    let rows = Rows {
        sequences: found.sequences.iter().map(Shown::from).collect(),
        after: found.next,
        unreadable: found.unreadable,
    };
    Ok(Json(rows).into_response())
}

pub(super) async fn show(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Name(name): Name,
) -> Result<Response, Problem> {
    caller.may(Right::Draw, &name)?;
    let found = state.draws.administered.admin().inspect(&name).await?;
    found.map(|info| shown(StatusCode::OK, &info)).ok_or_else(|| missing(&name))
}

/// The bounds of a new sequence.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Created {
    #[serde(default = "one")]
    start: Number,
    #[serde(default = "largest")]
    max: Number,
}

fn one() -> Number {
    Number(1)
}

fn largest() -> Number {
    i64::MAX.into()
}

pub(super) async fn create(
    State(state): State<Arc<ServerState>>,
    who: Administrator,
    Name(name): Name,
    headers: HeaderMap,
    body: Body<Created>,
) -> Result<Response, Problem> {
    let created = async {
        let Created { start: Number(start), max: Number(max) } = object(body)?;
        if headers.contains_key(header::IF_MATCH) {
            let detail = "PUT only creates sequences, so `If-Match` never matches; use PATCH";
            return Err(failed(detail));
        }
        let bounds = Bounds::new(start, max)?;
        let create = move |ids: Sequences, name| async move { ids.admin().create(name, bounds).await };
        Ok(Some(state.draws.changing(&name, create).await?))
    };
    acted(&state, &who, ("create", StatusCode::CREATED), &name, created).await
}

/// A change of a sequence.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Changed {
    next: Option<Number>,
    max: Option<Number>,
    #[serde(default)]
    backwards: bool,
    #[serde(default)]
    revoke: bool,
}

pub(super) async fn change(
    State(state): State<Arc<ServerState>>,
    who: Administrator,
    Name(name): Name,
    headers: HeaderMap,
    body: Body<Changed>,
) -> Result<Response, Problem> {
    let changed = async {
        let Changed { next, max, backwards, revoke } = object(body)?;
        let [next, max] = [next, max].map(|number| number.map(|Number(number)| number));
        let expected = met(&state, &name, &headers).await?;
        let change = Change::new().next(next).max(max).backwards(backwards).revoke(revoke).expect(expected);
        let set = move |ids: Sequences, name| async move { ids.admin().set(name, change).await };
        Ok(Some(state.draws.changing(&name, set).await?))
    };
    acted(&state, &who, ("change", StatusCode::OK), &name, changed).await
}

pub(super) async fn remove(
    State(state): State<Arc<ServerState>>,
    who: Administrator,
    Name(name): Name,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let removed = async {
        let expected = met(&state, &name, &headers).await?;
        let remove = move |ids: Sequences, name| async move {
            match expected {
                Some(identity) => ids.admin().remove_if(name, identity).await,
                None => ids.admin().remove(name).await,
            }
        };
        if state.draws.changing(&name, remove).await? { Ok(None) } else { Err(missing(&name)) }
    };
    acted(&state, &who, ("remove", StatusCode::NO_CONTENT), &name, removed).await
}

/// Runs the change if the token permits it, writes the audit line, and returns the response.
async fn acted(
    state: &ServerState,
    who: &Administrator,
    (did, status): (&'static str, StatusCode),
    name: &str,
    work: impl Future<Output = Result<Option<SequenceInfo>, Problem>>,
) -> Result<Response, Problem> {
    let outcome = match who.may(name) {
        Ok(()) => work.instrument(act(did, name)).await,
        Err(refused) => Err(refused),
    };
    who.did(state, did, name, outcome.as_ref().map(Option::as_ref));
    Ok(outcome?.map_or_else(|| status.into_response(), |info| shown(status, &info)))
}

/// Checks `If-Match`, and returns the identity to expect; `None` for any.
async fn met(state: &ServerState, name: &str, headers: &HeaderMap) -> Result<Option<Identity>, Problem> {
    let condition = Precondition::of(headers)?;
    if condition == Precondition::Exists {
        return Ok(None);
    }
    let info = state.draws.administered.admin().inspect(name).await?.ok_or_else(|| missing(name))?;
    condition.holds(&info)?;
    Ok(Some(info.identity))
}

fn missing(name: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, ErrorKind::NotFound, format!("there is no sequence {name:?}"))
}

fn shown(status: StatusCode, info: &SequenceInfo) -> Response {
    let tag = HeaderValue::from_str(&tag(info.identity)).expect("visible ASCII");
    (status, [(header::ETAG, tag)], Json(Shown::from(info))).into_response()
}

/// The `If-Match` condition: only the sequence that the caller has read is changed.
#[derive(Debug, PartialEq, Eq)]
enum Precondition {
    /// No header, or `*`: the sequence must exist, which every change requires.
    Exists,
    /// The sequence must have one of these identities. The list is empty if all tags are weak or foreign.
    OneOf(Vec<Identity>),
}

impl Precondition {
    /// Parses the condition.
    ///
    /// # Errors
    /// If the header is not a list of tags.
    fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        if !headers.contains_key(header::IF_MATCH) {
            return Ok(Self::Exists);
        }
        let lines = headers.get_all(header::IF_MATCH).iter().map(|line| line.to_str().unwrap_or_default());
        let text = lines.collect::<Vec<_>>().join(",");
        if text.trim() == "*" {
            return Ok(Self::Exists);
        }
        identities(&text).map(Self::OneOf).ok_or_else(|| {
            Problem::invalid(format!("`If-Match` is {text:?}; send `*`, or ETags from GET with their quotes"))
        })
    }

    /// Checks the condition for this sequence.
    ///
    /// # Errors
    /// If the condition does not hold.
    fn holds(&self, info: &SequenceInfo) -> Result<(), Problem> {
        match self {
            Self::OneOf(known) if !known.contains(&info.identity) => Err(failed(format!(
                "`{}` was replaced, reset or revoked since the ETag of `If-Match` was read; GET it again",
                info.name
            ))),
            _ => Ok(()),
        }
    }
}

/// Returns the error for a condition that does not hold. Nothing was changed.
fn failed(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::PRECONDITION_FAILED, ErrorKind::Conflict, detail)
}

/// Returns the `ETag` of this identity.
fn tag(Identity { incarnation, epoch }: Identity) -> String {
    format!("\"{incarnation:x}.{epoch}\"")
}

/// Parses a list of tags; `None` if it is malformed. Weak and foreign tags match no sequence, and are
/// skipped.
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

    #[test]
    fn page_has_a_thousand_sequences_by_default() {
        let listed: Listed = serde_json::from_str("{}").unwrap();
        assert_eq!((listed.limit, &*listed.prefix, listed.after), (1000, "", None));
    }
}
