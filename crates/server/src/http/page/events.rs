//! `GET /v1/events`: what the page shows, once a second, as server-sent events.
//!
//! A reader who is slower than that skips what came meanwhile: nothing piles up. One who reads nothing at all
//! is dropped with the connection.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::sse::{Event, Sse};
use futures_util::stream::{self, Stream};
use serde::Serialize;
use tokio::sync::watch;

use super::view::{Asked, View};
use super::{Problem, asked_of};
use crate::access::{Caller, Right};
use crate::state::ServerState;
use crate::status::Look;

pub(super) async fn stream(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let asked = asked_of(asked)?;
    caller.has(Right::Observe)?;
    let mut looks = state.watch_looks();
    looks.mark_changed();
    let reader = Some(Reader { state, caller, asked, looks });
    Ok(Sse::new(stream::unfold(reader, |reader| async {
        let (event, reader) = reader?.next().await;
        Some((Ok(event), reader))
    })))
}

struct Reader {
    state: Arc<ServerState>,
    caller: Caller,
    asked: Asked,
    looks: watch::Receiver<Arc<Look>>,
}

impl Reader {
    /// The next event, and the reader; `None` after the last one.
    async fn next(mut self) -> (Event, Option<Self>) {
        let is_over = tokio::select! {
            biased;
            () = self.state.ending.cancelled() => true,
            changed = self.looks.changed() => changed.is_err(),
        };
        if let Err(refusal) = self.confirm() {
            return (event("refused", &refusal), None);
        }
        let look = self.looks.borrow_and_update().clone();
        let view = View::of(&self.state, &look, &self.caller, &self.asked);
        if is_over { (event("ending", &view.json), None) } else { (event("look", &view.json), Some(self)) }
    }

    /// Tokens may be taken away while somebody watches.
    fn confirm(&mut self) -> Result<(), Problem> {
        self.state.access.confirm(&mut self.caller)?;
        Ok(self.caller.has(Right::Observe)?)
    }
}

fn event(name: &str, data: &impl Serialize) -> Event {
    Event::default().event(name).json_data(data).expect("figures and text")
}
