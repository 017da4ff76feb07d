//! When the trouble of each sequence began. Recorded without a reader of the page as well.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use idmill::HealthReport;
use parking_lot::Mutex;
use tokio::time::interval;

use crate::core::Core;

/// While the page has readers, each look records as well.
const EVERY: Duration = Duration::from_secs(10);

/// The sequences in trouble, each with the time at which that was first seen.
#[derive(Debug, Default)]
pub(crate) struct Troubles(Mutex<HashMap<String, SystemTime>>);

impl Troubles {
    pub(crate) fn since(&self, name: &str) -> Option<SystemTime> {
        self.0.lock().get(name).copied()
    }

    pub(crate) fn note(&self, report: &HealthReport, now: SystemTime) {
        let mut known = self.0.lock();
        let mut before = std::mem::take(&mut *known);
        known.extend(report.troubles.iter().map(|trouble| {
            let name = trouble.name.to_string();
            let since = before.remove(&name).unwrap_or(now);
            (name, since)
        }));
    }
}

/// Updates them until it is dropped.
pub(crate) async fn watch(core: &Core) {
    let mut ticks = interval(EVERY);
    loop {
        ticks.tick().await;
        core.observed.troubles.note(&core.draws.sequences().health(), SystemTime::now());
    }
}
