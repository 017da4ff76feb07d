//! The page for operators at `GET /`, and its updates at `GET /v1/events`.

mod events;
mod format;
mod render;
mod view;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, Uri, header};
use axum::middleware::map_response;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{MethodRouter, get};

use super::problem::Problem;
use crate::access::{Caller, Right};
use crate::state::ServerState;
pub(crate) use events::Readers;
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
        .route("/v1/events", get(events::events))
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
    let look = state.status.latest(&state.draws, &state.readiness);
    let view = View::of(&state, &look, &caller, &asked);
    Ok(Html(render::open(&view, &asked)).into_response())
}
