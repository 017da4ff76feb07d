//! All sequences that a process uses of one store.

use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder as RuntimeBuilder, Handle as RuntimeHandle};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::allocator::{block_on, block_on_reply};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::Id;
use crate::mailbox::{Ending, Mailbox};
use crate::opening::SequenceBuilder;
use crate::refill::actor::{Actor, Duties};
use crate::refill::clock::Clock;
use crate::refill::flight::{Task, lost};
use crate::registry::Registry;
use crate::settings::Settings;
use crate::store::{self, Capabilities, Store};
use crate::sync::{Arc, Mutex};

/// What the sequences of one store share. Allocators and handles hold it; the
/// actor does not, and ends with it.
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) clock: Clock,
    /// Places for callers that wait.
    pub(crate) places: Arc<Semaphore>,
    /// The actor's, with its timers.
    pub(crate) runtime: RuntimeHandle,
    /// Where the store's work runs: the same, or a thread that may be blocked.
    store_runtime: RuntimeHandle,
    pub(crate) store_timeout: Duration,
    /// What the store can do.
    pub(crate) can: Capabilities,
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
/// Cheap to clone. When the last clone and the last allocator are gone, the actor ends by itself;
/// [`close`](Self::close) ends it at once and waits for that.
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

    /// Opens the store at `url` and its sequences on a thread of their own: for
    /// programs without an async runtime.
    ///
    /// # Errors
    /// As [`connect`](crate::connect).
    pub fn connect_blocking(url: &str) -> Result<Self> {
        let home = Home::of_its_own()?;
        let url = url.to_owned();
        let connect = Task::spawn(&home.store, async move { store::connect(&url).await });
        let store = block_on(connect).map_err(lost)??;
        Self::builder(store).start_at(home)
    }

    /// A sequence by name, to be opened with settings or, by `.await`, with the
    /// defaults. See [`SequenceBuilder`].
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

    /// Records the metrics of every open sequence now, for an exporter that is about to be read; they are
    /// recorded at every refill anyway. Their names are `idmill_*`, their label is `sequence`.
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn record_metrics(&self) {
        crate::observe::describe();
        for core in self.inner.registry.cores() {
            crate::observe::record(&core, self.inner.clock.now());
        }
    }

    /// Ends all allocators: callers that wait and those that come hear [`ErrorKind::Closed`]. What is left in
    /// memory is given back to a store that [can take it](crate::store::Capabilities::gives_back), provided
    /// that nobody has reserved after it; the next to reserve then gets those ids. All else becomes a gap:
    /// ids that leases and stripes hold, a refill under way, and what could not be given back within the
    /// [store's timeout](SequencesBuilder::store_timeout).
    ///
    /// Returns when the actor has ended. Cancelling it does not undo it. Dropping the last
    /// clone instead gives nothing back.
    pub async fn close(&self) {
        self.inner.mailbox.close(Ending::Asked);
        let mut ended = self.inner.ended.clone();
        // Nothing is ever sent: an error says that the sender is gone, with the actor.
        while ended.changed().await.is_ok() {}
    }

    /// [`close`](Self::close) for threads outside any async runtime.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] in async code of a runtime that drives the refills and has no other
    /// thread; [`ErrorKind::Deadline`] if the refills' runtime is kept from running for twice the store's
    /// timeout. It is closed either way: what could not be waited for is that the rests are given back.
    pub fn close_blocking(&self) -> Result<()> {
        self.inner.mailbox.close(Ending::Asked);
        let (runtime, limit) = (&self.inner.runtime, self.inner.store_timeout.saturating_mul(2));
        let ended = async {
            self.close().await;
            Ok(())
        };
        block_on_reply(runtime, "`close`", ended, limit.max(SHORTEST_CLOSE))
    }
}

impl fmt::Debug for Sequences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequences").field("store", &self.inner.store).finish_non_exhaustive()
    }
}

/// How long a thread waits for the end at least; on a machine where nothing else is
/// to be done, it comes at once.
const SHORTEST_CLOSE: Duration = Duration::from_secs(10);

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
    /// How long the store may take to answer a reserve before its outcome counts as unknown (a gap, and
    /// another attempt). Default 10 s.
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = timeout;
        self
    }

    /// Lets go of a sequence when no allocator or handle refers to it and nothing was drawn from it for this
    /// long, up to twice as long. What it has in memory becomes a gap. Default: never.
    pub fn idle_eviction(mut self, after: Duration) -> Self {
        self.idle_eviction = Some(after);
        self
    }

    /// How many callers may wait for ids at the same time, over all sequences; those beyond wait for a place,
    /// and hear [`ErrorKind::Overloaded`] if they get none in time. Default 65,536.
    pub fn max_waiting(mut self, callers: usize) -> Self {
        self.max_waiting = callers;
        self
    }

    /// Runs the actor on a thread of its own, and the store's work on another, even when called inside a
    /// tokio runtime. A store that blocks its thread then delays what it is asked, and nobody's deadline.
    pub fn own_thread(mut self) -> Self {
        self.own_thread = true;
        self
    }

    /// Fixes what is random in retries, for simulations that are to repeat.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts the refill actor: on the tokio runtime it is called in, or on a thread of
    /// its own where there is none.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for settings that cannot be, and on a tokio runtime that has no timers
    /// (which tokio says with a panic, caught here, whose message may be printed); [`ErrorKind::Unavailable`]
    /// if the system grants no thread; [`ErrorKind::StoreViolation`] if the store panics.
    pub fn start(self) -> Result<Sequences> {
        match RuntimeHandle::try_current() {
            Ok(runtime) if !self.own_thread => {
                has_timers()?;
                self.start_at(Home::within(runtime))
            }
            _ => self.start_at(Home::of_its_own()?),
        }
    }

    fn start_at(self, home: Home) -> Result<Sequences> {
        if self.max_waiting == 0 || self.max_waiting > Semaphore::MAX_PERMITS {
            let message =
                format!("max_waiting is {}; it must be 1 to {}", self.max_waiting, Semaphore::MAX_PERMITS);
            return Err(Error::invalid(message).during(Operation::Configure));
        }
        let can = capabilities(&*self.store)?;
        let registry = if self.idle_eviction.is_some() { Registry::evicting() } else { Registry::new() };
        let (mailbox, registry) = (Arc::new(Mailbox::new()), Arc::new(registry));
        let (alive, ended) = watch::channel(());
        #[cfg(feature = "metrics")]
        crate::observe::describe();
        let clock = Clock::start(&home.refill);
        let duties = Duties { store_timeout: self.store_timeout, idle: self.idle_eviction, can };
        let places = Arc::new(Semaphore::new(self.max_waiting));
        let store = (self.store.clone(), home.store.clone());
        let actor =
            Actor::new(mailbox.clone(), store, registry.clone(), clock.clone(), duties, places.clone());
        let keepers = home.keepers;
        home.refill.spawn(async move {
            // Dropped after the actor, and so the sign that it has ended.
            let _alive = (alive, keepers);
            actor.run().await;
        });
        let inner = Inner {
            store: self.store,
            registry,
            mailbox,
            clock,
            places,
            runtime: home.refill,
            store_runtime: home.store,
            store_timeout: self.store_timeout,
            can,
            seed: self.seed,
            settings: Mutex::new(None),
            ended,
        };
        Ok(Sequences { inner: Arc::new(inner) })
    }
}

/// Where the actor and the store's work run.
struct Home {
    refill: RuntimeHandle,
    store: RuntimeHandle,
    /// Of the threads that are its own.
    keepers: Vec<Keeper>,
}

impl Home {
    fn within(runtime: RuntimeHandle) -> Self {
        Self { store: runtime.clone(), refill: runtime, keepers: Vec::new() }
    }

    /// Two threads, so that a store that blocks its own does not hold the actor up.
    fn of_its_own() -> Result<Self> {
        let (refill, first) = runtime_thread("idmill-refill").map_err(no_thread)?;
        let (store, second) = runtime_thread("idmill-store").map_err(no_thread)?;
        Ok(Self { refill, store, keepers: vec![first, second] })
    }
}

/// Keeps the runtime's thread running until it is dropped.
type Keeper = tokio::sync::oneshot::Sender<()>;

/// A tokio runtime on a thread of its own.
fn runtime_thread(name: &str) -> io::Result<(RuntimeHandle, Keeper)> {
    let (keeper, kept) = tokio::sync::oneshot::channel::<()>();
    let (sender, built) = mpsc::channel();
    // Built by its own thread: had it to be dropped here because there is no thread, async code would panic.
    let body = move || match RuntimeBuilder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let _ = sender.send(Ok(runtime.handle().clone()));
            // An error is the keeper's end, which is what this waits for.
            let _ = runtime.block_on(kept);
        }
        Err(error) => drop(sender.send(Err(error))),
    };
    thread::Builder::new().name(name.to_owned()).spawn(body)?;
    let runtime = built.recv().unwrap_or_else(|_| Err(io::Error::other("it ended at once")))?;
    Ok((runtime, keeper))
}

fn no_thread(error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "no thread for the refill actor").because(error)
}

/// Refuses a runtime whose timers are not enabled. Only making one tells, by a panic.
fn has_timers() -> Result<()> {
    catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).map_err(|_| {
        let message = "this tokio runtime has no timers; build it with `enable_time` (or `enable_all`), or use \
                       `SequencesBuilder::own_thread`";
        Error::invalid(message).during(Operation::Configure)
    })
}

/// What the store can do; a panic of its own is an error.
fn capabilities(store: &dyn Store) -> Result<Capabilities> {
    catch_unwind(AssertUnwindSafe(|| store.capabilities())).map_err(|_| {
        let message = "the store panicked when it was asked what it can do";
        Error::new(ErrorKind::StoreViolation, message).during(Operation::Configure)
    })
}

/// Runs what is the store's where it belongs, whatever executor the caller is on, and no longer than the
/// limit, nor than the caller waits for it.
pub(crate) async fn on_runtime<R: Send + 'static>(
    inner: &Inner,
    limit: Duration,
    work: impl Future<Output = Result<R>> + Send + 'static,
) -> Result<R> {
    if inner.mailbox.is_closed() {
        return Err(ErrorKind::Closed.into());
    }
    let asked = Task::spawn(&inner.store_runtime, work);
    // The timer is the actor's: the store may block its own thread.
    let answered = Task::spawn(&inner.runtime, async move { timeout(limit, asked).await }).await;
    match answered.and_then(|in_time| in_time.unwrap_or(Ok(Err(silent(limit))))) {
        Ok(outcome) => outcome,
        Err(failure) if failure.is_cancelled() && inner.mailbox.is_closed() => Err(ErrorKind::Closed.into()),
        Err(failure) => Err(lost(failure)),
    }
}

fn silent(limit: Duration) -> Error {
    let message = format!(
        "the store did not answer within {limit:?}; if it is only slow, raise `patience` or `store_timeout`"
    );
    Error::new(ErrorKind::Deadline, message)
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
