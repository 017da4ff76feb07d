//! All sequences that a process uses of one store.

use std::fmt;
use std::future::Future;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder as RuntimeBuilder, Handle as RuntimeHandle};
use tokio::sync::{Semaphore, watch};

use crate::allocator::block_on;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::Id;
use crate::mailbox::{Ending, Mailbox};
use crate::opening::SequenceBuilder;
use crate::refill::actor::{Actor, Clock, Duties};
use crate::registry::Registry;
use crate::settings::Settings;
use crate::store::{self, Store};
use crate::sync::{Arc, Mutex};

/// What the sequences of one store share. Allocators and handles hold it; the actor does not, and ends with it.
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) clock: Clock,
    /// Places for callers that wait.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) runtime: RuntimeHandle,
    pub(crate) seed: Option<u64>,
    /// The settings that a sequence was created with last: usually those of the next one too.
    settings: Mutex<Option<Arc<Settings>>>,
    /// Closed when the actor has ended.
    ended: watch::Receiver<()>,
}

impl Inner {
    /// One copy of the settings for all sequences that are created with the same ones in a row.
    pub(crate) fn shared_settings(&self, settings: Settings) -> Arc<Settings> {
        let mut last = self.settings.lock();
        match &*last {
            Some(same) if **same == settings => same.clone(),
            _ => last.insert(Arc::new(settings)).clone(),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.mailbox.close(Ending::Abandoned);
    }
}

/// The sequences of one store: name → allocator, with one refill actor for them all.
///
/// Cheap to clone. When the last clone and the last allocator are gone, the actor ends by itself; [`close`](Self::close)
/// ends it at once and waits for that.
#[derive(Clone)]
pub struct Sequences {
    inner: Arc<Inner>,
}

impl Sequences {
    /// The sequences of a store, with the defaults of [`builder`](Self::builder).
    ///
    /// # Errors
    /// As [`SequencesBuilder::start`].
    pub fn new(store: impl Into<Arc<dyn Store>>) -> Result<Self> {
        Self::builder(store).start()
    }

    /// The sequences of a store, with settings of your own.
    pub fn builder(store: impl Into<Arc<dyn Store>>) -> SequencesBuilder {
        SequencesBuilder {
            store: store.into(),
            store_timeout: Duration::from_secs(10),
            idle_eviction: None,
            max_waiting: 65_536,
            own_thread: false,
            seed: None,
        }
    }

    /// Opens the store at `url` and its sequences on a thread of their own: for programs without an async runtime.
    ///
    /// # Errors
    /// As [`connect`](crate::connect).
    pub fn connect_blocking(url: &str) -> Result<Self> {
        let (runtime, keeper) = runtime_thread()?;
        let url = url.to_owned();
        let store = block_on(runtime.spawn(async move { store::connect(&url).await })).map_err(lost)??;
        Self::builder(store).start_on(&runtime, Some(keeper))
    }

    /// A sequence by name, to be opened with settings or, by `.await`, with the defaults. See [`SequenceBuilder`].
    pub fn sequence<T: Id>(&self, name: impl AsRef<str>) -> SequenceBuilder<T> {
        SequenceBuilder::new(self.inner.clone(), name.as_ref())
    }

    /// The store itself, for administration.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// How many sequences are open in this process.
    pub fn len(&self) -> usize {
        self.inner.registry.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records the metrics of every open sequence now, for an exporter that is about to be read; they are recorded at
    /// every refill anyway. Their names are `idmill_*`, their label is `sequence`.
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn record_metrics(&self) {
        for core in self.inner.registry.cores() {
            crate::observe::record(&core);
        }
    }

    /// Ends all allocators: callers that wait and those that come hear [`ErrorKind::Closed`]. What is left in memory is given
    /// back to a store that [can take it](crate::store::Capabilities::gives_back), provided that nobody has reserved after it; the
    /// next to reserve then gets those ids. All else becomes a gap: ids that leases and stripes hold, a refill under way, and what
    /// could not be given back within the [store's timeout](SequencesBuilder::store_timeout).
    ///
    /// Returns when the actor has ended. Cancelling it does not undo it. Dropping the last clone instead gives nothing back.
    pub async fn close(&self) {
        self.inner.mailbox.close(Ending::Asked);
        let mut ended = self.inner.ended.clone();
        // Nothing is ever sent: an error says that the sender is gone, with the actor.
        while ended.changed().await.is_ok() {}
    }

    /// [`close`](Self::close) for threads outside any async runtime.
    pub fn close_blocking(&self) {
        block_on(self.close());
    }
}

impl fmt::Debug for Sequences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequences").field("store", &self.inner.store).finish_non_exhaustive()
    }
}

/// Settings of [`Sequences`].
#[derive(Debug)]
#[must_use = "call `start`"]
pub struct SequencesBuilder {
    store: Arc<dyn Store>,
    store_timeout: Duration,
    idle_eviction: Option<Duration>,
    max_waiting: usize,
    own_thread: bool,
    seed: Option<u64>,
}

impl SequencesBuilder {
    /// How long the store may take to answer a reserve before its outcome counts as unknown (a gap, and another
    /// attempt). Default 10 s.
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = timeout;
        self
    }

    /// Lets go of a sequence when no allocator or handle refers to it and nothing was drawn from it for this long,
    /// up to twice as long. What it has in memory becomes a gap. Default: never.
    pub fn idle_eviction(mut self, after: Duration) -> Self {
        self.idle_eviction = Some(after);
        self
    }

    /// How many callers may wait for ids at the same time, over all sequences; those beyond wait for a place, and
    /// hear [`ErrorKind::Overloaded`] if they get none in time. Default 65,536.
    pub fn max_waiting(mut self, callers: usize) -> Self {
        self.max_waiting = callers;
        self
    }

    /// Runs the actor on a thread of its own, even when called inside a tokio runtime.
    pub fn own_thread(mut self) -> Self {
        self.own_thread = true;
        self
    }

    /// Fixes what is random in retries, for simulations that are to repeat.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts the refill actor: on the tokio runtime it is called in, or on a thread of its own where there is none.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for settings that cannot be; [`ErrorKind::Unavailable`] if the system grants
    /// no thread.
    pub fn start(self) -> Result<Sequences> {
        match RuntimeHandle::try_current() {
            Ok(runtime) if !self.own_thread => self.start_on(&runtime, None),
            _ => {
                let (runtime, keeper) = runtime_thread()?;
                self.start_on(&runtime, Some(keeper))
            }
        }
    }

    fn start_on(self, runtime: &RuntimeHandle, keeper: Option<Keeper>) -> Result<Sequences> {
        if self.max_waiting == 0 || self.max_waiting > Semaphore::MAX_PERMITS {
            let message =
                format!("max_waiting is {}; it must be 1 to {}", self.max_waiting, Semaphore::MAX_PERMITS);
            return Err(Error::invalid(message).during(Operation::Configure));
        }
        let (mailbox, registry) = (Arc::new(Mailbox::new()), Arc::new(Registry::new()));
        let (alive, ended) = watch::channel(());
        // The clock and timers belong to the runtime that the actor runs on.
        let _context = runtime.enter();
        let clock = Clock::start();
        let duties = Duties { store_timeout: self.store_timeout, idle: self.idle_eviction };
        let places = Arc::new(Semaphore::new(self.max_waiting));
        let actor =
            Actor::new(mailbox.clone(), self.store.clone(), registry.clone(), clock, duties, places.clone());
        runtime.spawn(async move {
            // Dropped after the actor, and so the sign that it has ended.
            let _alive = (alive, keeper);
            actor.run().await;
        });
        let inner = Inner {
            store: self.store,
            registry,
            mailbox,
            clock,
            places,
            runtime: runtime.clone(),
            seed: self.seed,
            settings: Mutex::new(None),
            ended,
        };
        Ok(Sequences { inner: Arc::new(inner) })
    }
}

/// Keeps the runtime's thread running until it is dropped.
type Keeper = tokio::sync::oneshot::Sender<()>;

/// A tokio runtime on a thread of its own.
fn runtime_thread() -> Result<(RuntimeHandle, Keeper)> {
    let runtime = RuntimeBuilder::new_current_thread().enable_all().build().map_err(no_thread)?;
    let handle = runtime.handle().clone();
    let (keeper, kept) = tokio::sync::oneshot::channel::<()>();
    let body = move || {
        // An error is the keeper's end, which is what this waits for.
        let _ = runtime.block_on(kept);
    };
    thread::Builder::new().name("idmill-refill".to_owned()).spawn(body).map_err(no_thread)?;
    Ok((handle, keeper))
}

fn no_thread(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "no thread for the refill actor").because(error)
}

/// A task on our runtime that ended without a result.
pub(crate) fn lost(error: tokio::task::JoinError) -> Error {
    Error::new(ErrorKind::UnknownOutcome, "the runtime ended before the store answered").because(error)
}

/// Runs what needs a tokio runtime on the actor's, whatever executor the caller is on.
pub(crate) async fn on_runtime<R: Send + 'static>(
    inner: &Inner,
    work: impl Future<Output = Result<R>> + Send + 'static,
) -> Result<R> {
    if inner.mailbox.is_closed() {
        return Err(ErrorKind::Closed.into());
    }
    inner.runtime.spawn(work).await.map_err(lost)?
}

/// Opens the store at `url`, such as `sqlite:ids.db`, and its sequences.
///
/// Runs on the tokio runtime it is called in; see [`Sequences::connect_blocking`] for programs without one.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for a URL that is none, naming the remedy; what the store says otherwise.
pub async fn connect(url: &str) -> Result<Sequences> {
    Sequences::new(store::connect(url).await?)
}
