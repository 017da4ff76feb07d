//! A tracing span for each request.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request};
use axum::http::HeaderMap;
use axum::response::Response;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

/// Routes of probes and scrapers. Requests to these routes come every few seconds and get no span.
const QUIET: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// Sets the parent of a request's span.
pub(crate) type Adopt = dyn Fn(&Span, &HeaderMap) + Send + Sync;

/// Creates the span of a request; `None` for probes, or if no subscriber enables it. Fields have the names of
/// OpenTelemetry's conventions.
pub(super) fn span_of(adopt: Option<&Arc<Adopt>>, request: &Request) -> Option<Span> {
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    if QUIET.contains(&route) {
        return None;
    }
    let span = tracing::debug_span!(
        "request",
        otel.name = format!("{} {route}", request.method()).trim_end(),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = request.method().as_str(),
        http.route = route,
        http.response.status_code = Empty,
        url.path = request.uri().path(),
    );
    if span.is_disabled() {
        return None;
    }
    if let Some(adopt) = adopt {
        adopt(&span, request.headers());
    }
    Some(span)
}

/// Runs `answer` in the span, and records its status.
pub(super) async fn within(span: Span, answer: impl Future<Output = Response>) -> Response {
    let response = answer.instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    if response.status().is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    response
}

/// Creates the span of an administrative act.
pub(super) fn act(did: &'static str, sequence: &str) -> Span {
    tracing::debug_span!("administer", otel.name = did, sequence)
}
