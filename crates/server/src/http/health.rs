//! Endpoints for probes and scrapers.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use idmill::ErrorKind;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::problem::Problem;
use crate::access::{Caller, Right};
use crate::counters;
use crate::readiness::{ENDING, Standing};
use crate::state::ServerState;

/// The path of the liveness probe.
pub(super) const ALIVE: &str = "/healthz";

/// How long an answer to a readiness probe is kept.
const KEPT: Duration = Duration::from_secs(1);

/// Maximum number of sequences that an answer lists as ending soon.
const MOST_ENDING: usize = 20;

/// Answers the liveness probe: the process runs.
pub(super) async fn alive() -> &'static str {
    "alive\n"
}

/// The answers to readiness probes: with and without the sequences.
#[derive(Debug)]
struct Answers {
    at: Instant,
    is_ready: bool,
    brief: String,
    full: String,
}

/// The last answers. Probes within [`KEPT`] get the same: a probe reads the state of every sequence, and
/// anyone may send it.
#[derive(Debug, Default)]
pub(crate) struct LastAnswers(Mutex<Option<Arc<Answers>>>);

impl LastAnswers {
    async fn get(&self, state: &ServerState) -> Arc<Answers> {
        // Locked during the wait for the store: other probes wait for the same answers.
        let mut last = self.0.lock().await;
        if let Some(answers) = last.as_ref().filter(|answers| answers.at.elapsed() < KEPT) {
            return answers.clone();
        }
        let answers = Arc::new(Answers::now(state).await);
        *last = Some(answers.clone());
        answers
    }
}

impl Answers {
    async fn now(state: &ServerState) -> Self {
        let Standing { fault, report } = state.readiness.standing(&state.draws.sequences).await;
        let brief = fault.map_or_else(|| "ready".to_owned(), |fault| format!("not ready: {fault}"));
        let between = if fault.is_some() { "; " } else { ": " };
        let mut full = format!("{brief}{between}{}", report.summary());
        for (name, time) in state.draws.ending().into_iter().take(MOST_ENDING) {
            let time = humantime::format_duration(Duration::from_secs(time.as_secs()));
            let _ = write!(full, "; `{name}` ends in {time} at its current rate");
        }
        Self { at: Instant::now(), is_ready: fault.is_none(), brief, full }
    }
}

/// Answers the readiness probe: see [`HealthReport::is_ready`](idmill::HealthReport::is_ready). The server is
/// also unready while it shuts down, until the store has answered once, and while no sequence can be opened.
/// Callers with the right `observe` also get the sequences that are in trouble or end soon.
pub(super) async fn ready(
    State(state): State<Arc<ServerState>>,
    caller: Result<Caller, Problem>,
) -> Response {
    if state.readiness.is_leaving() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {ENDING}\n")).into_response();
    }
    let answers = state.last_answers.get(&state).await;
    let status = if answers.is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let observes = caller.is_ok_and(|caller| caller.has(Right::Observe).is_ok());
    let text = if observes { &answers.full } else { &answers.brief };
    (status, format!("{text}\n")).into_response()
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
    state.draws.sequences.record_metrics();
    counters::ending_soon(state.draws.ending().len());
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], render()).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;

    #[tokio::test(start_paused = true)]
    async fn answers_of_a_probe_are_kept_for_a_second() {
        let state = ServerState::of_memory(Access::open());
        let first = state.last_answers.get(&state).await;
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(Arc::ptr_eq(&first, &state.last_answers.get(&state).await));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!Arc::ptr_eq(&first, &state.last_answers.get(&state).await));
    }
}
