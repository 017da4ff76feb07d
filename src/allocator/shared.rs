//! State that the allocators of one store share.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::Handle as RuntimeHandle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinError;
use tokio::time::timeout;

use crate::error::{Error, ErrorKind, Operation, Result};
use crate::name::SequenceName;
use crate::state::block::table::BlockTable;
use crate::state::clock::Clock;
use crate::state::core::Core;
use crate::state::fork::forked;
use crate::state::mailbox::{Ending, Mailbox};
use crate::state::registry::Registry;
use crate::state::segment::Segment;
use crate::state::settings::Settings;
use crate::state::task::{Task, task_failed};
use crate::store::{Capabilities, Identity, Store};
use crate::sync::{Arc, Mutex};

/// State that the sequences of one store share. Allocators and handles hold it. The actor does not: it ends
/// when this state is dropped.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) clock: Clock,
    /// Limits how many callers can wait.
    pub(crate) places: Arc<Semaphore>,
    /// The actor's runtime, with its timers.
    pub(crate) runtime: RuntimeHandle,
    /// Runs the store's calls: the actor's runtime, or a separate thread that they may block.
    pub(crate) store_runtime: RuntimeHandle,
    pub(crate) store_timeout: Duration,
    pub(crate) close_timeout: Duration,
    /// The store's capabilities.
    pub(crate) can: Capabilities,
    pub(crate) seed: Option<u64>,
    /// The settings of the sequence created last: the next one usually has the same.
    pub(crate) settings: Mutex<Option<Arc<Settings>>>,
    /// Closed when the actor has ended.
    pub(crate) ended: watch::Receiver<()>,
}

impl Shared {
    /// Shares one copy of equal settings among sequences that are created in a row.
    pub(crate) fn shared_settings(&self, settings: Settings) -> Arc<Settings> {
        let mut last = self.settings.lock();
        match &*last {
            Some(same) if **same == settings => same.clone(),
            _ => last.insert(Arc::new(settings)).clone(),
        }
    }

    /// Returns the identity of the ids that this process was granted.
    pub(crate) fn held(&self, name: &SequenceName) -> Option<Identity> {
        self.registry.history(name).and_then(|history| history.identity())
    }

    /// Runs the store's work on the store's runtime; the caller may be on any executor. The work is aborted
    /// after the limit, or when the caller stops waiting.
    pub(crate) async fn ask_store<R: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<R>> + Send + 'static,
    ) -> Result<R> {
        self.must_be_open()?;
        let asked = Task::spawn(&self.store_runtime, work);
        // The timer runs on the actor's runtime: the store may block its own thread.
        let answered = Task::spawn(&self.runtime, async move { timeout(limit, asked).await }).await;
        match answered.and_then(|in_time| in_time.unwrap_or(Ok(Err(timed_out(limit))))) {
            Ok(outcome) => outcome,
            Err(failure) => Err(self.task_failed(failure)),
        }
    }

    /// Returns an error after close and in a forked process: the actor, its runtime and its timers are gone.
    pub(crate) fn must_be_open(&self) -> Result<()> {
        if self.mailbox.is_closed() { Err(self.closed()) } else { Ok(()) }
    }

    /// Returns the error of calls after the actor has ended, with the cause.
    pub(crate) fn closed(&self) -> Error {
        if self.mailbox.is_forked() {
            return forked();
        }
        if self.mailbox.is_abandoned() {
            let message = "the runtime that drives the refills has ended; keep it running, or start with \
                           `SequencesBuilder::own_thread`";
            return Error::new(ErrorKind::Closed, message);
        }
        ErrorKind::Closed.into()
    }

    /// Returns the error for a task on the actor's or the store's runtime that ended without a result.
    pub(crate) fn task_failed(&self, failure: JoinError) -> Error {
        if failure.is_cancelled() && self.mailbox.is_closed() { self.closed() } else { task_failed(failure) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The actor gives the unused ids back in the background.
        self.mailbox.close(Ending::Asked);
    }
}

/// One user of a core: an allocator, with its clones and handles, which share it. It prevents the core's
/// eviction, and keeps the actor alive. The core counts the user before this is created.
///
/// Clones write to the reference count, which is next to the first fields. So the fields that a draw reads
/// are on another cache line.
#[repr(C)]
pub(crate) struct CoreRef {
    pub(crate) shared: Arc<Shared>,
    _apart: [u64; 6],
    /// [`Core::key`].
    pub(super) key: u64,
    /// [`Core::blocks`].
    pub(super) blocks: Option<Arc<BlockTable>>,
    pub(crate) core: Arc<Core>,
}

impl CoreRef {
    pub(crate) fn new(shared: Arc<Shared>, core: Arc<Core>) -> Self {
        Self { shared, _apart: [0; 6], key: core.key, blocks: core.blocks.clone(), core }
    }

    /// Draws one id from this segment only. Follows the pointer to the mailbox only at the watermark.
    #[inline]
    pub(super) fn draw_from(&self, segment: &Segment) -> Option<u64> {
        segment.draw_noting(|| self.core.signal_low(&self.shared.mailbox))
    }

    /// Adds the sequence to the error of a draw, and the cause if the actor has ended.
    pub(super) fn draw_error(&self, error: impl Into<Error>) -> Error {
        let error = error.into();
        let error = if error.kind() == ErrorKind::Closed { self.shared.closed() } else { error };
        error.of(&self.core.name).during(Operation::Draw)
    }

    /// Returns the error of a call that does not wait, with the cause if the actor has ended.
    #[cold]
    pub(super) fn refused(&self, reason: ErrorKind) -> Error {
        match reason {
            ErrorKind::Closed => self.shared.closed(),
            reason => self.core.refused(reason, &self.shared.mailbox),
        }
    }
}

impl Drop for CoreRef {
    fn drop(&mut self) {
        self.core.leave();
    }
}

fn timed_out(limit: Duration) -> Error {
    let message = format!(
        "the store did not answer within {limit:?}; if it is only slow, raise `timeout` or `store_timeout`"
    );
    Error::new(ErrorKind::Deadline, message)
}
