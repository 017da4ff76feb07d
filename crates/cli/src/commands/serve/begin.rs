//! Opens the store, which may start later than the server.

use std::sync::Arc;
use std::time::Duration;

use idmill::store::Store;
use idmill_url::StoreUrl;
use tokio::time::{Instant, sleep};

use crate::args::Global;
use crate::failure::Outcome;
use crate::opening;

/// How long an unreachable store is retried.
const LIMIT: Duration = StoreUrl::CONNECT_TIMEOUT;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// Opens the store, and retries transient failures for [`LIMIT`].
pub(super) async fn store(global: &Global) -> Outcome<Arc<dyn Store>> {
    let (end, mut told) = (Instant::now() + LIMIT, false);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let failure = match opening::create(global, left).await {
            Ok(store) => return Ok(store),
            Err(failure) => failure,
        };
        if !failure.may_pass() || Instant::now() + PAUSE >= end {
            return Err(failure);
        }
        if !std::mem::replace(&mut told, true) {
            tracing::warn!("the store cannot be reached, and is tried for {LIMIT:?}: {}", failure.message());
        }
        sleep(PAUSE).await;
    }
}
