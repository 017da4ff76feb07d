//! `/v1/sequences`: what there is, and what changes it.
//!
//! A sequence's `ETag` is its identity: which one of its name it is, and how often it was reset. With
//! `If-Match`, a change is refused unless it still is that one.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use idmill::store::{Bounds, Change, Identity, SequenceInfo};
use idmill::{ErrorKind, SequenceName};
use serde::{Deserialize, Serialize};
use tracing::Instrument as _;

use super::caller::Administrator;
use super::listing;
use super::number::Number;
use super::problem::Problem;
use super::traces::act;
use crate::access::{Caller, Right};
use crate::core::Core;

/// The most rows of a page.
const MOST: usize = 1000;

/// A sequence, as it is told.
#[derive(Debug, Serialize)]
struct Shown {
    name: SequenceName,
    /// `null` once all are reserved.
    next: Option<Number>,
    start: Number,
    max: Number,
    /// A string, since it is larger than what a double holds.
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

/// A page of those that the caller may see.
#[derive(Debug, Serialize)]
struct Rows {
    sequences: Vec<Shown>,
    /// What `after` is to be for the next page; `null` on the last.
    after: Option<String>,
    /// Entries that cannot be read as sequences.
    unreadable: usize,
}

pub(super) async fn list(
    State(core): State<Arc<Core>>,
    caller: Caller,
    asked: Result<Query<Listed>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(Listed { prefix, after, limit }) =
        asked.map_err(|error| Problem::invalid(error.body_text()))?;
    if limit == 0 || limit > MOST {
        return Err(Problem::invalid(format!("limit is {limit}; it must be 1 to {MOST}")));
    }
    caller.has(Right::Draw)?;
    let found =
        listing::page(core.draws.administered(), caller.patterns(), &prefix, after.as_deref(), limit).await?;
    let rows = Rows {
        sequences: found.sequences.iter().map(Shown::from).collect(),
        after: found.next,
        unreadable: found.unreadable,
    };
    Ok(Json(rows).into_response())
}

pub(super) async fn show(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    caller.may(Right::Draw, &name)?;
    let found = core.draws.administered().inspect(&name).await?;
    found.map(|info| shown(StatusCode::OK, &info)).ok_or_else(|| {
        Problem::new(StatusCode::NOT_FOUND, ErrorKind::NotFound, format!("there is no sequence {name:?}"))
    })
}

/// What a sequence is to begin and end with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Created {
    #[serde(default = "one")]
    start: u64,
    #[serde(default = "largest")]
    max: u64,
}

fn one() -> u64 {
    1
}

fn largest() -> u64 {
    i64::MAX.unsigned_abs()
}

pub(super) async fn create(
    State(core): State<Arc<Core>>,
    who: Administrator,
    Path(name): Path<String>,
    body: Result<Json<Created>, JsonRejection>,
) -> Result<Response, Problem> {
    let outcome = created(&core, &who, &name, body).await;
    who.did(&core, "create", &name, outcome.as_ref().map(Some));
    Ok(shown(StatusCode::CREATED, &outcome?))
}

async fn created(
    core: &Core,
    who: &Administrator,
    name: &str,
    body: Result<Json<Created>, JsonRejection>,
) -> Result<SequenceInfo, Problem> {
    who.may(name)?;
    let Json(Created { start, max }) = body.map_err(|error| Problem::invalid(error.body_text()))?;
    let bounds = Bounds::new(start, max)?;
    Ok(core.draws.create(name, bounds).instrument(act("create", name)).await?)
}

/// What is to be otherwise.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Changed {
    next: Option<u64>,
    max: Option<u64>,
    #[serde(default)]
    backwards: bool,
    #[serde(default)]
    revoke: bool,
}

pub(super) async fn change(
    State(core): State<Arc<Core>>,
    who: Administrator,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Result<Json<Changed>, JsonRejection>,
) -> Result<Response, Problem> {
    let outcome = changed(&core, &who, &name, &headers, body).await;
    who.did(&core, "change", &name, outcome.as_ref().map(Some));
    Ok(shown(StatusCode::OK, &outcome?))
}

async fn changed(
    core: &Core,
    who: &Administrator,
    name: &str,
    headers: &HeaderMap,
    body: Result<Json<Changed>, JsonRejection>,
) -> Result<SequenceInfo, Problem> {
    who.may(name)?;
    let expected = expected(headers)?;
    let Json(Changed { next, max, backwards, revoke }) =
        body.map_err(|error| Problem::invalid(error.body_text()))?;
    let change = Change::new().next(next).max(max).backwards(backwards).revoke(revoke).expect(expected);
    let changed = core.draws.set(name, change).instrument(act("change", name)).await;
    changed.map_err(|error| conditional(error, expected))
}

pub(super) async fn remove(
    State(core): State<Arc<Core>>,
    who: Administrator,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let outcome = removed(&core, &who, &name).await;
    who.did(&core, "remove", &name, outcome.as_ref().map(|()| None));
    outcome.map(|()| StatusCode::NO_CONTENT)
}

async fn removed(core: &Core, who: &Administrator, name: &str) -> Result<(), Problem> {
    who.may(name)?;
    if !core.draws.remove(name).instrument(act("remove", name)).await? {
        let detail = format!("there is no sequence {name:?}");
        return Err(Problem::new(StatusCode::NOT_FOUND, ErrorKind::NotFound, detail));
    }
    Ok(())
}

/// What `If-Match` demands; `None` where it is not there.
fn expected(headers: &HeaderMap) -> Result<Option<Identity>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let text = value.to_str().ok().and_then(|text| text.strip_prefix('"')?.strip_suffix('"'));
    let identity = text.and_then(|text| text.split_once('.')).and_then(|(incarnation, epoch)| {
        Some(Identity { incarnation: u64::from_str_radix(incarnation, 16).ok()?, epoch: epoch.parse().ok()? })
    });
    identity.map(Some).ok_or_else(|| Problem::invalid("If-Match is no ETag of a sequence; GET it first"))
}

/// A conflict with what `If-Match` demands is a failed precondition.
fn conditional(error: idmill::Error, expected: Option<Identity>) -> Problem {
    let is_conflict = error.kind() == ErrorKind::Conflict && expected.is_some();
    let detail = error.to_string();
    if is_conflict {
        Problem::new(StatusCode::PRECONDITION_FAILED, ErrorKind::Conflict, detail)
    } else {
        error.into()
    }
}

fn shown(status: StatusCode, info: &SequenceInfo) -> Response {
    let Identity { incarnation, epoch } = info.identity;
    let tag = HeaderValue::from_str(&format!("\"{incarnation:x}.{epoch}\"")).expect("digits");
    (status, [(header::ETAG, tag)], Json(Shown::from(info))).into_response()
}
