//! Reads of the store, to find out whether a failure concerns the store or only one sequence.

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;

use crate::allocator::Shared;
use crate::error::{ErrorKind, Result, Status};
use crate::name::SequenceName;
use crate::state::task::Task;
use crate::state::time::Time;
use crate::sync::{Arc, Mutex};

/// The time between two reads, and the time after which an answer is overdue.
const SECOND: Duration = Duration::from_secs(1);

/// The reads of one store.
#[derive(Debug, Default)]
pub(super) struct Probe(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    /// When the read in flight was sent.
    asked: Option<Time>,
    /// When the last read was answered or failed.
    ended: Option<Time>,
    failed: bool,
}

impl Heard {
    fn is_due(&self, now: Time) -> bool {
        self.asked.is_none() && self.ended.is_none_or(|ended| now >= ended + SECOND)
    }

    fn is_silent(&self, now: Time) -> bool {
        self.failed || self.asked.is_some_and(|asked| now > asked + SECOND)
    }
}

impl Probe {
    /// Starts a read, if it is time. Returns whether the store left an earlier read unanswered, or rejects
    /// every request.
    pub(super) fn ask(self: &Arc<Self>, shared: &Shared, name: &SequenceName, now: Time) -> bool {
        let mut heard = self.0.lock();
        if heard.is_due(now) && shared.must_be_open().is_ok() {
            heard.asked = Some(now);
            shared.runtime.spawn(self.clone().read(shared, name.clone()));
        }
        heard.is_silent(now)
    }

    fn read(self: Arc<Self>, shared: &Shared, name: SequenceName) -> impl Future<Output = ()> + use<> {
        let (store, limit, clock) = (shared.store.clone(), shared.store_timeout, shared.clock.clone());
        let runtime = shared.store_runtime.clone();
        async move {
            let reading = Task::spawn(&runtime, async move { store.inspect(&name).await });
            let answered = matches!(timeout(limit, reading).await, Ok(Ok(outcome)) if is_answer(&outcome));
            let mut heard = self.0.lock();
            *heard = Heard { asked: None, ended: Some(clock.now()), failed: !answered };
        }
    }

    /// Forgets the answers: no sequence is in doubt.
    pub(super) fn forget(&self) {
        let mut heard = self.0.lock();
        (heard.ended, heard.failed) = (None, false);
    }
}

/// Returns whether the store serves other requests. An error that every request gets, for example because the
/// file was replaced or the tables are missing, is none. Other permanent errors, such as `Denied`, may
/// concern only this name.
pub fn is_answer<T>(outcome: &Result<T>) -> bool {
    outcome.as_ref().err().is_none_or(|error| {
        let is_of_all = matches!(error.kind(), ErrorKind::StoreViolation | ErrorKind::NotFound);
        error.status() == Status::Permanent && !is_of_all
    })
}
