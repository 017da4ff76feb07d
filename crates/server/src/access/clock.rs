//! What time it is: of the day, for when a token ends, and since the start, for how fast somebody asks.

use std::sync::Arc;
use std::time::SystemTime;

use derive_more::Debug;
use tokio::time::Instant;

use super::bucket::nanos;

/// The time of the day may jump, both ways; the time since the start only grows.
#[derive(Clone, Debug)]
#[debug("Clock(…)")]
pub(crate) struct Clock {
    day: Arc<dyn Fn() -> SystemTime + Send + Sync>,
    began: Instant,
}

impl Clock {
    pub(crate) fn of(day: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self { day: Arc::new(day), began: Instant::now() }
    }

    pub(crate) fn with_day(self, day: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self { day: Arc::new(day), ..self }
    }

    pub(crate) fn day(&self) -> SystemTime {
        (self.day)()
    }

    /// Nanoseconds since it began.
    pub(crate) fn elapsed(&self) -> u64 {
        nanos(self.began.elapsed())
    }
}
