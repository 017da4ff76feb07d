//! `POST /v1/sequences/{name}/ids`.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use idmill::{IdRange, Ids, Ranges};
use serde::{Deserialize, Serialize};

use super::body::{Name, Number};
use super::problem::Problem;
use crate::access::{Caller, Right};
use crate::counters;
use crate::peer::Peer;
use crate::state::ServerState;

/// Number of ids per part. Longer answers are written in parts, as fast as the client reads.
const PART: usize = 8192;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    #[serde(default = "one")]
    n: u64,
    #[serde(default)]
    form: Form,
}

fn one() -> u64 {
    1
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Form {
    /// Lists every id.
    #[default]
    Ids,
    /// The first and the last id of each range.
    Ranges,
}

#[derive(Debug, Serialize)]
struct InRanges<'a> {
    sequence: &'a str,
    ranges: Vec<Ends>,
}

#[derive(Debug, Serialize)]
struct Ends {
    first: Number,
    last: Number,
}

pub(super) async fn draw(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Name(name): Name,
    headers: HeaderMap,
    asked: Result<Query<Asked>, QueryRejection>,
    peer: Option<Extension<Arc<Peer>>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let Query(Asked { n, form }) = asked.map_err(|error| Problem::invalid(error.body_text()))?;
    must_be_plain(&headers, body)?;
    if n == 0 {
        return Err(Problem::invalid("`n` is 0; it must be at least 1"));
    }
    caller.may(Right::Draw, &name)?;
    caller.may_take(n)?;
    let peer = peer.map(|Extension(peer)| peer).unwrap_or_default();
    let served = peer.waited(state.sequence::<Problem>(&caller, &name)).await?;
    let due = peer.arrived() + state.proxy.limit;
    if n == 1 && form == Form::Ids {
        let id = peer.waited(served.next(due)).await?;
        return Ok(whole(&name, [id].into_iter()));
    }
    let ranges = peer.waited(served.take(n, due)).await?;
    Ok(match form {
        Form::Ranges => {
            Json(InRanges { sequence: &name, ranges: ranges.ranges().iter().filter_map(ends).collect() })
                .into_response()
        }
        Form::Ids => in_parts(&name, ranges),
    })
}

/// Rejects a body, and a header that draws do not support.
fn must_be_plain(headers: &HeaderMap, body: Result<Bytes, BytesRejection>) -> Result<(), Problem> {
    if headers.contains_key("idempotency-key") {
        let detail = "`Idempotency-Key` is not supported: each request draws new ids, and the ids of a lost \
                      reply leave a gap";
        return Err(Problem::invalid(detail));
    }
    let body = body.map_err(|error| Problem::invalid(error.body_text()))?;
    if !body.is_empty() {
        let detail =
            "the request has a body, which draws do not read; send `n` and `form` in the URL: `?n=10`";
        return Err(Problem::invalid(detail));
    }
    Ok(())
}

fn ends(range: &IdRange<i64>) -> Option<Ends> {
    Some(Ends { first: range.first()?.into(), last: range.last()?.into() })
}

/// Returns `{"sequence":"orders","ids":[1,2,3]}`. A long answer is streamed as fast as the client reads.
fn in_parts(name: &str, ids: Ranges<i64>) -> Response {
    if ids.len() <= PART as u64 {
        return whole(name, ids.into_iter());
    }
    let parts = Parts { head: Some(head(name)), ids: ids.into_iter() };
    json(Body::from_stream(stream::iter(parts.map(Ok::<_, Infallible>))))
}

struct Parts {
    /// The start of the body; `None` after the first part.
    head: Option<Vec<u8>>,
    ids: Ids<i64>,
}

impl Iterator for Parts {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.ids.len() == 0 {
            return None;
        }
        let first = self.head.is_some();
        let mut part = self.head.take().unwrap_or_default();
        write(&mut part, first, self.ids.by_ref().take(PART));
        if self.ids.len() == 0 {
            part.extend_from_slice(b"]}");
        }
        Some(part.into())
    }
}

impl Drop for Parts {
    /// Counts the ids of the parts that the connection did not take.
    fn drop(&mut self) {
        counters::unread(self.ids.len() as u64);
    }
}

fn whole(name: &str, ids: impl Iterator<Item = i64>) -> Response {
    let mut body = head(name);
    write(&mut body, true, ids);
    body.extend_from_slice(b"]}");
    json(Body::from(body))
}

fn head(name: &str) -> Vec<u8> {
    let mut body = b"{\"sequence\":".to_vec();
    serde_json::to_writer(&mut body, name).expect("a write to memory cannot fail");
    body.extend_from_slice(b",\"ids\":[");
    body
}

fn write(body: &mut Vec<u8>, mut first: bool, ids: impl Iterator<Item = i64>) {
    for id in ids {
        if !std::mem::take(&mut first) {
            body.push(b',');
        }
        serde_json::to_writer(&mut *body, &Number::from(id))
            .expect("writing a number to memory does not fail");
    }
}

fn json(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::HttpBody as _;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    use super::*;

    /// Returns an answer with `count` ids.
    fn answer(count: u64) -> Parts {
        Parts { head: Some(head("s")), ids: IdRange::new(1, count).unwrap().into_iter() }
    }

    /// Returns the number of ids that are counted as unread.
    fn unread(work: impl FnOnce()) -> Option<DebugValue> {
        let recorder = DebuggingRecorder::new();
        let seen = recorder.snapshotter();
        metrics::with_local_recorder(&recorder, work);
        let counted = seen.snapshot().into_vec().into_iter();
        let mut counted = counted.map(|(key, _, _, value)| (key.key().name().to_owned(), value));
        counted.find(|(name, _)| name == "idmill_server_unread_ids_total").map(|(_, value)| value)
    }

    #[test]
    fn ids_of_parts_that_are_not_sent_are_counted() {
        assert_eq!(unread(|| drop(answer(20_000))), Some(DebugValue::Counter(20_000)));
        let mut begun = answer(20_000);
        assert!(begun.next().is_some());
        assert_eq!(unread(|| drop(begun)), Some(DebugValue::Counter(20_000 - 8192)));
        let mut whole = answer(20_000);
        assert_eq!(whole.by_ref().count(), 3);
        assert_eq!(unread(|| drop(whole)), Some(DebugValue::Counter(0)));
    }

    #[tokio::test]
    async fn only_long_answers_are_sent_in_parts() {
        let sequences = idmill::Sequences::new(idmill::store::MemoryStore::new()).unwrap();
        let ids = sequences.sequence::<i64>("s").await.unwrap();
        for (count, is_whole) in [(8192, true), (8193, false)] {
            let body = in_parts("s", ids.take(count).await.unwrap()).into_body();
            assert_eq!(body.size_hint().exact().is_some(), is_whole, "{count}");
        }
    }
}
