//! The page for operators at `GET /`, and its updates at `GET /v1/events`.

mod format;
mod render;
mod view;

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderName, HeaderValue, Uri, header};
use axum::middleware::map_response;
use axum::response::sse::{Event, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use futures_util::stream::{self, Stream};
use serde::Serialize;
use tokio::sync::watch;

use super::problem::Problem;
use crate::access::{Caller, Right};
use crate::state::ServerState;
use crate::status::Look;
use view::{Asked, View};

/// The page loads nothing from other hosts, has no inline code or styles, and cannot be framed. Text never
/// becomes script or markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
     trusted-types 'none'";

pub(super) fn routes() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/", get(page))
        .route("/page/page.css", file("text/css; charset=utf-8", include_str!("page.css")))
        .route("/page/page.js", file("text/javascript; charset=utf-8", include_str!("page.js")))
        .route("/page/theme.js", file("text/javascript; charset=utf-8", include_str!("theme.js")))
        .route("/page/icon.svg", file("image/svg+xml", include_str!("icon.svg")))
        .route("/v1/events", get(events))
        .layer(map_response(guarded))
}

fn file(kind: &'static str, text: &'static str) -> MethodRouter<Arc<ServerState>> {
    get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
}

async fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Serves the page. The browser's first request cannot carry a token. If the server requires a token, the
/// page with the token form is returned.
async fn page(
    State(state): State<Arc<ServerState>>,
    caller: Result<Caller, Problem>,
    headers: header::HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let caller = match caller {
        Err(_) if !headers.contains_key(header::AUTHORIZATION) => {
            return Ok(Html(render::locked()).into_response());
        }
        other => other?,
    };
    caller.has(Right::Observe)?;
    let asked = Asked::of_link(uri.query().unwrap_or_default());
    let view = View::of(&state, &state.latest_look(), &caller, &asked);
    Ok(Html(render::open(&view, &asked)).into_response())
}

/// Sends the page's data once a second, as server-sent events.
///
/// A slow reader skips snapshots, so nothing is queued. A reader that stops reading is disconnected.
async fn events(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let Query(asked) = asked.map_err(|error| Problem::invalid(error.body_text()))?;
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
    /// Returns the next event, and the reader; `None` after the last event.
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

    /// Checks the token again, because it may be removed while the page is open.
    fn confirm(&mut self) -> Result<(), Problem> {
        self.state.access.confirm(&mut self.caller)?;
        Ok(self.caller.has(Right::Observe)?)
    }
}

fn event(name: &str, data: &impl Serialize) -> Event {
    Event::default().event(name).json_data(data).expect("figures serialize to JSON")
}
