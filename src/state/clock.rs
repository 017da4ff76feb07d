//! The clock of the actor and its callers.

use std::time::Duration;

use tokio::runtime::Handle as RuntimeHandle;
use tokio::time::Instant;

use crate::state::time::Time;

/// The longest timer passed to tokio: 30 years. A later timer fires at this limit, and the extra tick does
/// nothing.
const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);

/// The clock of the actor's runtime, also used for its callers' deadlines. A caller's own runtime may have
/// another clock: tests can pause each clock.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    runtime: RuntimeHandle,
    began: Instant,
}

impl Clock {
    pub(crate) fn start(runtime: &RuntimeHandle) -> Self {
        let _context = runtime.enter();
        Self { runtime: runtime.clone(), began: Instant::now() }
    }

    pub(crate) fn now(&self) -> Time {
        let ending = RuntimeHandle::try_current().is_err_and(|error| error.is_thread_local_destroyed());
        // A thread that is ending cannot enter a runtime any more, and reads the real clock.
        let _context = (!ending).then(|| self.runtime.enter());
        self.began.elapsed()
    }

    /// Converts a time to an instant for a timer, limited to what tokio supports.
    pub(crate) fn instant(&self, time: Time) -> Instant {
        self.began + time.min(self.now().saturating_add(FAR))
    }
}
