//! Since when sequences are in trouble. Noted also while nobody looks at the page.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use idmill::HealthReport;
use parking_lot::Mutex;
use tokio::time::interval;

use crate::core::Core;

const EVERY: Duration = Duration::from_secs(1);

/// The sequences in trouble, and when each was first seen so.
#[derive(Debug, Default)]
pub(crate) struct Troubles(Mutex<HashMap<String, SystemTime>>);

impl Troubles {
    pub(crate) fn since(&self, name: &str) -> Option<SystemTime> {
        self.0.lock().get(name).copied()
    }

    fn note(&self, report: &HealthReport, now: SystemTime) {
        let mut known = self.0.lock();
        let mut before = std::mem::take(&mut *known);
        known.extend(report.troubles.iter().map(|trouble| {
            let name = trouble.name.to_string();
            let since = before.remove(&name).unwrap_or(now);
            (name, since)
        }));
    }
}

/// Notes them for as long as it is polled.
pub(crate) async fn watch(core: &Core) {
    let mut ticks = interval(EVERY);
    loop {
        ticks.tick().await;
        core.observed.troubles.note(&core.draws.sequences().health(), SystemTime::now());
    }
}
