//! Paused processes.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The end of a process's pause.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<Mutex<Instant>>);

impl Gate {
    pub(crate) fn open() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(crate) fn shut_until(&self, until: Instant) {
        *self.0.lock() = until;
    }

    pub(crate) async fn pass(&self) {
        loop {
            let until = *self.0.lock();
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}
