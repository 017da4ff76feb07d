//! Exports spans to an OpenTelemetry collector, configured by the standard environment variables.

use idmill_server::ServerBuilder;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::HeaderExtractor;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::{Layer, Registry};

use crate::error::{CliError, Outcome};

/// The variables with the collector's address. Spans are exported only if one of these variables is set.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const SERVICE: &str = "idmill";

/// The exporter; `None` without a collector.
pub(super) struct Traces(Option<SdkTracerProvider>);

impl Traces {
    pub(super) fn begin() -> Outcome<Self> {
        let is_wanted = ENDPOINTS.iter().any(|name| !variable(name).is_empty())
            && !variable("OTEL_SDK_DISABLED").eq_ignore_ascii_case("true")
            && variable("OTEL_TRACES_EXPORTER") != "none";
        if !is_wanted {
            return Ok(Self(None));
        }
        let exporter = SpanExporter::builder().with_http().build();
        let exporter = exporter
            .map_err(|error| CliError::usage(format!("spans cannot be sent to the collector: {error}")))?;
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource());
        Ok(Self(Some(provider.build())))
    }

    /// Returns the layer for the spans of the server and the engine, and for the events within them.
    pub(super) fn layer(&self) -> Option<impl Layer<Registry> + Send + Sync + use<>> {
        let tracer = self.0.as_ref()?.tracer(SERVICE);
        let layer =
            tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false);
        Some(layer.with_filter(Targets::new().with_target("idmill", LevelFilter::DEBUG)))
    }

    /// Sends the remaining spans. If the collector is unreachable, the exporter's own timeout limits the
    /// wait.
    pub(super) async fn end(self) {
        let Some(provider) = self.0 else { return };
        match tokio::task::spawn_blocking(move || provider.shutdown()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last spans were not sent"),
            Err(error) => tracing::warn!(%error, "the last spans were not sent"),
        }
    }
}

/// Makes the span of a request a child of the span in the request's `traceparent` header.
pub(super) fn adopt(server: ServerBuilder) -> ServerBuilder {
    let propagator = TraceContextPropagator::new();
    server.parents(move |span, headers| {
        // Ignore the error, which means that no subscriber collects spans.
        let _ = span.set_parent(propagator.extract(&HeaderExtractor(headers)));
    })
}

/// Returns the resource with the service name from `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES`; default
/// `idmill`.
fn resource() -> Resource {
    let is_named = !variable("OTEL_SERVICE_NAME").is_empty()
        || variable("OTEL_RESOURCE_ATTRIBUTES").contains("service.name=");
    let resource = Resource::builder();
    if is_named { resource.build() } else { resource.with_service_name(SERVICE).build() }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
