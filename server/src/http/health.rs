//! What probes and scrapers ask.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use idmill::ErrorKind;

use super::problem::Problem;
use crate::access::{Caller, Right};
use crate::core::Core;

/// The process runs.
pub(super) async fn alive() -> &'static str {
    "alive\n"
}

/// Whether it can serve: every open sequence has ids, and it is not about to end. Says which does not to
/// those only who may see it.
pub(super) async fn ready(State(core): State<Arc<Core>>, caller: Result<Caller, Problem>) -> Response {
    let report = core.draws.sequences().health();
    let ending = core.is_ending();
    let status = if report.is_ready() && !ending { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let may_see = caller.is_ok_and(|caller| caller.has(Right::Observe).is_ok());
    let text = match (ending, may_see) {
        (true, _) => "not ready: the server is ending\n".to_owned(),
        (false, true) => format!("{report}\n"),
        (false, false) => format!("{}\n", if report.is_ready() { "ready" } else { "not ready" }),
    };
    (status, text).into_response()
}

/// As Prometheus reads them.
pub(super) async fn metrics(State(core): State<Arc<Core>>, caller: Caller) -> Result<Response, Problem> {
    caller.has(Right::Observe)?;
    let Some(render) = &core.metrics else {
        let detail = "this server was built without metrics; give the builder what renders them";
        return Err(Problem::new(StatusCode::NOT_FOUND, ErrorKind::Unsupported, detail));
    };
    core.draws.sequences().record_metrics();
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], render.text()).into_response())
}
