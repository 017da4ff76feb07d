//! `GET /v1/events`: the data of the page once a second, as server-sent events.
//!
//! Readers must not slow draws down: their number is bounded, and readers of the same rows share one rendered
//! text.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{Extensions, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use idmill::ErrorKind;
use serde::Serialize;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::view::{Asked, View};
use crate::access::{Caller, Pattern, Right};
use crate::counters;
use crate::http::caller::peer;
use crate::http::problem::Problem;
use crate::state::ServerState;
use crate::status::Look;

/// Maximum number of connected readers. With this number, a draw has the same 99th percentile as without.
const MOST: usize = 100;
/// How long a stream lasts. The page then connects again, and a place of a reader that has stopped reading is
/// free again.
const LASTS: Duration = Duration::from_secs(60);
/// How long after its stream the connection of a reader may last that does not read.
const GRACE: Duration = Duration::from_secs(5);

/// The connected readers.
#[derive(Debug)]
pub(crate) struct Readers {
    places: Arc<Semaphore>,
    /// Not a blocking lock: while one reader renders, the workers must serve draws.
    rendered: Mutex<Rendered>,
}

impl Default for Readers {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(MOST)), rendered: Mutex::default() }
    }
}

/// The events of one snapshot.
#[derive(Debug, Default)]
struct Rendered {
    /// The snapshot; `None` before the first event.
    of: Option<Arc<Look>>,
    events: Vec<(Key, Bytes)>,
}

/// Readers with the same key get the same event.
#[derive(Debug, PartialEq)]
struct Key {
    name: &'static str,
    visible: Vec<Pattern>,
    asked: Asked,
}

impl Readers {
    fn enter(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.places.clone().try_acquire_owned().map_err(|_| {
            counters::refused("readers");
            let detail = format!(
                "{MOST} readers of `/v1/events` are connected, which is the maximum; close a page of this \
                 server, or retry"
            );
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Overloaded, detail)
        })
    }

    /// Returns the event with the data of a snapshot, which is rendered for its first reader.
    async fn event(&self, state: &ServerState, look: &Arc<Look>, caller: &Caller, key: Key) -> Bytes {
        let mut rendered = self.rendered.lock().await;
        if rendered.of.as_ref().is_none_or(|of| !Arc::ptr_eq(of, look)) {
            *rendered = Rendered { of: Some(look.clone()), events: Vec::new() };
        }
        if let Some((_, event)) = rendered.events.iter().find(|(known, _)| *known == key) {
            return event.clone();
        }
        let event = event(key.name, &View::of(state, look, caller, &key.asked).json);
        rendered.events.push((key, event.clone()));
        event
    }
}

/// Sends an event at once, and then once a second. A slow reader skips snapshots, so nothing is queued.
pub(super) async fn events(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    asked: Result<Query<Asked>, QueryRejection>,
    extensions: Extensions,
) -> Result<Response, Problem> {
    let Query(asked) = asked.map_err(|error| Problem::invalid(error.body_text()))?;
    caller.has(Right::Observe)?;
    let place = state.readers.enter()?;
    let mut looks = state.status.watch(&state.draws, &state.readiness);
    looks.mark_changed();
    let peer = peer(&extensions);
    let cut = tokio::spawn(async move {
        sleep(LASTS + GRACE).await;
        peer.cut.notify_one();
    });
    let (due, cut) = (Instant::now() + LASTS, AbortOnDropHandle::new(cut));
    let reader = Reader { state, caller, asked, looks, due, _place: place, _cut: cut };
    let events = stream::unfold(Some(reader), |reader| async {
        let (event, reader) = reader?.next().await?;
        Some((Ok::<_, Infallible>(event), reader))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CONNECTION, "close")];
    Ok((headers, Body::from_stream(events)).into_response())
}

struct Reader {
    state: Arc<ServerState>,
    caller: Caller,
    asked: Asked,
    looks: watch::Receiver<Arc<Look>>,
    /// When the stream ends.
    due: Instant,
    _place: OwnedSemaphorePermit,
    /// Disconnects a client that does not read until the end of the stream.
    _cut: AbortOnDropHandle<()>,
}

impl Reader {
    /// Returns the next event, and the reader unless it was the last event; `None` at the end.
    async fn next(mut self) -> Option<(Bytes, Option<Self>)> {
        let is_over = tokio::select! {
            biased;
            () = self.state.ending.cancelled() => true,
            () = sleep_until(self.due) => return None,
            changed = self.looks.changed() => changed.is_err(),
        };
        if let Err(refusal) = self.confirm() {
            return Some((event("refused", &refusal), None));
        }
        let look = self.looks.borrow_and_update().clone();
        let name = if is_over { "ending" } else { "look" };
        let key = Key { name, visible: self.caller.patterns().to_vec(), asked: self.asked.clone() };
        let event = self.state.readers.event(&self.state, &look, &self.caller, key).await;
        Some((event, Some(self).filter(|_| !is_over)))
    }

    /// Checks the token again, because it may be removed while the page is open.
    fn confirm(&mut self) -> Result<(), Problem> {
        self.state.access.confirm(&mut self.caller)?;
        Ok(self.caller.has(Right::Observe)?)
    }
}

fn event(name: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).expect("figures serialize to JSON");
    format!("event: {name}\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;

    #[tokio::test]
    async fn readers_of_the_same_rows_share_one_rendering() {
        let state = ServerState::of_memory(Access::open());
        let (caller, look) =
            (state.access.anybody().unwrap(), state.status.latest(&state.draws, &state.readiness));
        let event = async |look: &Arc<Look>, name, query| {
            let key = Key { name, visible: caller.patterns().to_vec(), asked: Asked::of_link(query) };
            state.readers.event(&state, look, &caller, key).await
        };
        let first = event(&look, "look", "").await;
        assert_eq!(event(&look, "look", "").await.as_ptr(), first.as_ptr());
        for (name, query) in [("ending", ""), ("look", "search=x"), ("look", "page=2")] {
            assert_ne!(event(&look, name, query).await.as_ptr(), first.as_ptr(), "{name}, {query}");
        }
        assert_eq!(state.readers.rendered.lock().await.events.len(), 4);
        let next = Arc::new(Look { at: look.at, fault: None, open: 0, rows: Vec::new() });
        event(&next, "look", "").await;
        assert_eq!(state.readers.rendered.lock().await.events.len(), 1, "old events are dropped");
    }
}
