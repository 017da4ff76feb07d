//! The time that the actor and its callers reckon by.

use std::time::Duration;

use tokio::runtime::Handle as RuntimeHandle;
use tokio::time::Instant;

use crate::sequence::time::Time;

/// As far ahead as tokio's timers are asked for anything: 30 years. A tick too many does nothing.
const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);

/// The clock of the actor's runtime, which its callers' deadlines are reckoned by too. It need not be theirs:
/// either can be paused, in tests.
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
        // A thread that is ending cannot enter a runtime any more, and sees the clock of no other.
        let _context = (!ending).then(|| self.runtime.enter());
        self.began.elapsed()
    }

    /// The instant of a timer; however far the time lies ahead, tokio can reckon with it.
    pub(crate) fn instant(&self, time: Time) -> Instant {
        self.began + time.min(self.now().saturating_add(FAR))
    }
}
