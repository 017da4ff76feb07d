//! What all connections share.

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::http::Parents;
use crate::readiness::Readiness;
use crate::served::Draws;

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) draws: Draws,
    pub(crate) access: Access,
    /// Where clients of Redis connect; 0 for nowhere.
    pub(crate) port: u16,
    pub(crate) metrics: Option<Metrics>,
    pub(crate) parents: Option<Parents>,
    pub(crate) readiness: Readiness,
    /// Clients are to leave, answered.
    pub(crate) ending: CancellationToken,
}

/// What renders the metrics of this process.
#[derive(Clone)]
pub(crate) struct Metrics(pub(crate) Arc<dyn Fn() -> String + Send + Sync>);

impl Metrics {
    pub(crate) fn text(&self) -> String {
        (self.0)()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics(…)")
    }
}
