//! What probes and scrapers ask.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use idmill::ErrorKind;

use super::problem::Problem;
use crate::access::{Caller, Right};
use crate::core::Core;
use crate::readiness::Standing;

/// The path of the liveness probe.
pub(super) const ALIVE: &str = "/healthz";

/// The process runs.
pub(super) async fn alive() -> &'static str {
    "alive\n"
}

/// Whether clients should be sent here: the store answers, or memory lasts without it, and the server is not
/// about to end. Says which sequences are in trouble to those only who may see it.
pub(super) async fn ready(State(core): State<Arc<Core>>, caller: Result<Caller, Problem>) -> Response {
    let Standing { fault, report } = core.readiness.standing(core.draws.sequences()).await;
    let status = if fault.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut text = fault.map_or_else(|| "ready".to_owned(), |fault| format!("not ready: {fault}"));
    if caller.is_ok_and(|caller| caller.has(Right::Observe).is_ok()) {
        let between = if fault.is_some() { "; " } else { ": " };
        let _ = write!(text, "{between}{} sequences, {} in trouble", report.sequences, report.troubles.len());
        report.troubles.iter().for_each(|trouble| {
            let _ = write!(text, "; {trouble}");
        });
    }
    text.push('\n');
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
