//! The HTTP API: ids and administration in JSON, health and metrics as text.

mod administration;
mod body;
mod caller;
mod connection;
mod draws;
mod health;
mod host;
mod page;
mod problem;
mod traces;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};

use crate::state::ServerState;
pub(crate) use connection::{refuse, serve};
pub(crate) use health::LastAnswers;
pub(crate) use host::Hosts;
use idmill::ErrorKind;
pub(crate) use page::Readers;
use problem::Problem;
pub(crate) use traces::Adopt;

/// Maximum size of a body. No valid request needs more.
const LONGEST_BODY: usize = 16 * 1024;

/// State of the outermost layer.
#[derive(derive_more::Debug)]
struct Front {
    state: Arc<ServerState>,
    hosts: Hosts,
    #[debug(skip)]
    parents: Option<Arc<Adopt>>,
}

pub(crate) fn router(state: Arc<ServerState>, hosts: Hosts, parents: Option<Arc<Adopt>>) -> Router {
    let front = Arc::new(Front { state: state.clone(), hosts, parents });
    let sequence = get(administration::show)
        .put(administration::create)
        .patch(administration::change)
        .delete(administration::remove);
    Router::new()
        .route("/v1/sequences", get(administration::list))
        .route("/v1/sequences/{name}", sequence)
        .route("/v1/sequences/{name}/ids", post(draws::draw))
        .route(health::ALIVE, get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(describe))
        .merge(page::routes())
        .fallback(nothing)
        .method_not_allowed_fallback(not_so)
        .layer(from_fn_with_state(front, passed))
        .with_state(state)
}

/// Checks each request before its handler runs. All checks are one layer, because every layer costs several
/// allocations per request.
async fn passed(State(front): State<Arc<Front>>, mut request: Request, next: Next) -> Response {
    DefaultBodyLimit::max(LONGEST_BODY).apply(&mut request);
    let Front { state, hosts, parents } = &*front;
    let span = traces::span_of(parents.as_ref(), &request);
    let answer = async {
        match host::refused(hosts, state.access.is_open(), &request)
            .or_else(|| caller::repeated(request.headers()))
            .or_else(|| caller::refused(state, &request))
        {
            Some(problem) => problem.into_response(),
            None => connection::in_time(next.run(request)).await,
        }
    };
    let response = match span {
        Some(span) => traces::within(span, answer).await,
        None => answer.await,
    };
    sealed(response)
}

/// Headers of every answer. They make an element on another site's page fail to load regardless of the
/// status, so that the page cannot detect whether a sequence exists.
const SEALS: [(HeaderName, HeaderValue); 3] = [
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
];

fn sealed(mut response: Response) -> Response {
    response.headers_mut().extend(SEALS);
    response
}

/// Returns the OpenAPI description. A test compares the description with the answers.
async fn describe() -> Response {
    let version = concat!("\"", env!("CARGO_PKG_VERSION"), "\"");
    let text = include_str!("openapi.json").replacen("\"VERSION\"", version, 1);
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn nothing() -> Problem {
    let detail = "there is no such path; draw ids with `POST /v1/sequences/NAME/ids`";
    Problem::new(StatusCode::NOT_FOUND, ErrorKind::NotFound, detail)
}

async fn not_so() -> Problem {
    let detail = "this path does not support the method; draw ids with `POST /v1/sequences/NAME/ids`";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, ErrorKind::Unsupported, detail)
}
