//! Builds without `otel`: spans are not exported.

use idmill_server::ServerBuilder;
use tracing_subscriber::layer::Identity;

use crate::error::Outcome;

pub(super) struct Traces;

impl Traces {
    #[allow(clippy::unnecessary_wraps)] // as with `otel`
    pub(super) fn begin() -> Outcome<Self> {
        Ok(Self)
    }

    #[allow(clippy::unused_self)] // as with `otel`
    pub(super) fn layer(&self) -> Option<Identity> {
        None
    }

    #[allow(clippy::unused_async)] // as with `otel`
    pub(super) async fn end(self) {}
}

pub(super) fn adopt(server: ServerBuilder) -> ServerBuilder {
    server
}
