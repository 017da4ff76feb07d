//! Endpoints for probes and scrapers.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use idmill::ErrorKind;

use super::problem::Problem;
use crate::access::{Caller, Right};
use crate::counters;
use crate::readiness::Standing;
use crate::state::ServerState;

/// The path of the liveness probe.
pub(super) const ALIVE: &str = "/healthz";

/// Maximum number of sequences that an answer lists as ending soon.
const MOST_ENDING: usize = 20;

/// Answers the liveness probe: the process runs.
pub(super) async fn alive() -> &'static str {
    "alive\n"
}

/// Answers the readiness probe. The server is ready if it is not shutting down, and the store answers.
/// Without the store, it stays ready while the ids in memory last and no sequence fails to open. Callers with
/// the right `observe` also get the sequences that are in trouble or end soon.
pub(super) async fn ready(
    State(state): State<Arc<ServerState>>,
    caller: Result<Caller, Problem>,
) -> Response {
    let Standing { fault, report } = state.readiness.standing(state.draws.sequences()).await;
    let status = if fault.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut text = fault.map_or_else(|| "ready".to_owned(), |fault| format!("not ready: {fault}"));
    if caller.is_ok_and(|caller| caller.has(Right::Observe).is_ok()) {
        let between = if fault.is_some() { "; " } else { ": " };
        let _ = write!(text, "{between}{} sequences, {} in trouble", report.sequences, report.troubles.len());
        report.troubles.iter().for_each(|trouble| {
            let _ = write!(text, "; {trouble}");
        });
        for (name, time) in state.draws.ending().into_iter().take(MOST_ENDING) {
            let time = humantime::format_duration(Duration::from_secs(time.as_secs()));
            let _ = write!(text, "; `{name}` ends in {time} at its current rate");
        }
    }
    text.push('\n');
    (status, text).into_response()
}

/// Returns the metrics in the Prometheus text format.
pub(super) async fn metrics(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
) -> Result<Response, Problem> {
    caller.has(Right::Observe)?;
    let Some(render) = &state.metrics else {
        let detail = "this server has no metrics; set `ServerBuilder::metrics`";
        return Err(Problem::new(StatusCode::NOT_FOUND, ErrorKind::Unsupported, detail));
    };
    counters::describe();
    state.draws.sequences().record_metrics();
    counters::ending_soon(state.draws.ending().len());
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], render.text()).into_response())
}
