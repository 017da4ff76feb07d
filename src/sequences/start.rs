//! Starting `Sequences` and their refill actor from a store.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tokio::runtime::Handle as RuntimeHandle;
use tokio::sync::{Semaphore, watch};

use super::Sequences;
use super::max_age::MaxAge;
use super::runtimes::Runtimes;
use crate::allocator::Shared;
use crate::blocking::block_on;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::refill::actor::{Actor, ActorConfig};
use crate::state::clock::Clock;
use crate::state::mailbox::Mailbox;
use crate::state::metrics;
use crate::state::registry::Registry;
use crate::state::task::{Task, task_failed};
use crate::store::{Capabilities, Store};
use crate::sync::{Arc, Mutex};

/// Four times the shortest timer.
const LEAST_MAX_AGE: Duration = Duration::from_millis(4);

impl Sequences {
    /// Starts the sequences of a store with the defaults of [`builder`](Self::builder). The store may also be
    /// an `Arc` of a store.
    ///
    /// # Errors
    /// Those of [`SequencesBuilder::start`].
    pub fn new(store: impl Store + 'static) -> Result<Self> {
        Self::builder(store).start()
    }

    /// Returns a builder for the sequences of a store.
    pub fn builder(store: impl Store + 'static) -> SequencesBuilder {
        SequencesBuilder {
            store: Arc::new(store),
            store_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(10),
            idle_eviction: None,
            max_age: None,
            max_waiting: 65_536,
            own_thread: false,
            seed: None,
        }
    }

    /// Opens a store and its sequences on dedicated threads, for programs without an async runtime.
    ///
    /// ```
    /// use idmill::Sequences;
    /// use idmill::store::MemoryStore;
    ///
    /// let ids = Sequences::connect_blocking(async { Ok(MemoryStore::new()) })?;
    /// # Ok::<(), idmill::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of opening the store and of [`SequencesBuilder::start`].
    pub fn connect_blocking<S: Store + 'static>(
        store: impl Future<Output = Result<S>> + Send + 'static,
    ) -> Result<Self> {
        Self::connect_blocking_with(store, |settings| settings)
    }

    /// Does the same as [`connect_blocking`](Self::connect_blocking), with other settings.
    ///
    /// # Errors
    /// Those of [`connect_blocking`](Self::connect_blocking).
    pub fn connect_blocking_with<S: Store + 'static>(
        store: impl Future<Output = Result<S>> + Send + 'static,
        settings: impl FnOnce(SequencesBuilder) -> SequencesBuilder,
    ) -> Result<Self> {
        let runtimes = Runtimes::of_its_own()?;
        let store = block_on(Task::spawn(&runtimes.store, store)).map_err(task_failed)??;
        settings(Self::builder(store)).start_at(runtimes)
    }
}

/// Settings of [`Sequences`].
#[derive(Debug)]
#[must_use = "call `start`"]
pub struct SequencesBuilder {
    store: Arc<dyn Store>,
    store_timeout: Duration,
    close_timeout: Duration,
    idle_eviction: Option<Duration>,
    max_age: Option<Duration>,
    max_waiting: usize,
    own_thread: bool,
    seed: Option<u64>,
}

impl SequencesBuilder {
    /// Sets how long the store may take to answer a reserve. After that, the outcome counts as unknown: the
    /// ids are a gap, and a new reserve is sent. Default: 10 s.
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = timeout;
        self
    }

    /// Sets how long [`close`](Sequences::close) may take to give the unused ids back. The ids left after
    /// that become a gap, and a warning has their number. Raise it for many thousand sequences, and let the
    /// process manager wait longer. Default: 10 s.
    pub fn close_timeout(mut self, timeout: Duration) -> Self {
        self.close_timeout = timeout;
        self
    }

    /// Evicts a sequence that has no allocator or handle after this long without a draw; the eviction may
    /// happen up to that time later. Its ids in memory go back to a store that [takes
    /// them](crate::store::Capabilities::gives_back) if no later ids have been reserved; otherwise they
    /// become a gap. Default: never.
    pub fn idle_eviction(mut self, after: Duration) -> Self {
        self.idle_eviction = Some(after);
        self
    }

    /// Hands out only ids that were reserved, or whose sequence was confirmed to be unchanged, within this
    /// time. So a reset, a removal and a [revocation](crate::Admin::revoke) reach this process within this
    /// time, and a process that draws rarely does not hand out ids that are days old. The store is queried up
    /// to four times within this time, in one call for many sequences. Ids that cannot be confirmed in time
    /// are dropped, and are a gap: choose more than four times the length of the outages that ids in memory
    /// should bridge. It must also be more than four times as long as the store takes to read all sequences
    /// in use, 256 in one call: otherwise a warning is logged. At least 4 ms. Default: ids in memory are
    /// valid until the next refill.
    ///
    /// The store is not queried about a sequence that has no allocator and no draws. Its ids are dropped in
    /// time too.
    ///
    /// A process that was paused, with its machine for example, may hand out older ids right after it
    /// resumes: draws do not read a clock. So may a process whose store blocks a thread of the runtime: use
    /// [`own_thread`](Self::own_thread) with such a store.
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(age);
        self
    }

    /// Sets how many callers may wait for ids, over all sequences. Further callers wait for a place, and get
    /// [`ErrorKind::Overloaded`] if none is free in time. Default: 65,536.
    pub fn max_waiting(mut self, callers: usize) -> Self {
        self.max_waiting = callers;
        self
    }

    /// Runs the actor on one dedicated thread and the store's work on another, even inside a tokio runtime. A
    /// store that blocks its thread then delays only its own requests, and no caller's deadline.
    pub fn own_thread(mut self) -> Self {
        self.own_thread = true;
        self
    }

    /// Fixes the random seed of retries, for repeatable simulations.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts the refill actor on the current tokio runtime, or on a dedicated thread if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for invalid settings, and on a tokio runtime without timers (tokio reports
    /// this by a panic, which is caught here and whose message may be printed); [`ErrorKind::Unavailable`] if
    /// a thread cannot be started; [`ErrorKind::StoreViolation`] if the store panics.
    pub fn start(self) -> Result<Sequences> {
        match RuntimeHandle::try_current() {
            Ok(runtime) if !self.own_thread => {
                has_timers()?;
                self.start_at(Runtimes::within(runtime))
            }
            _ => self.start_at(Runtimes::of_its_own()?),
        }
    }

    fn start_at(self, runtimes: Runtimes) -> Result<Sequences> {
        if self.max_waiting == 0 || self.max_waiting > Semaphore::MAX_PERMITS {
            let message = format!(
                "`max_waiting` is {}; it must be from 1 to {}",
                self.max_waiting,
                Semaphore::MAX_PERMITS
            );
            return Err(Error::invalid(message).during(Operation::Configure));
        }
        if let Some(age) = self.max_age.filter(|age| *age < LEAST_MAX_AGE) {
            let message = format!("`max_age` is {age:?}; it must be at least {LEAST_MAX_AGE:?}");
            return Err(Error::invalid(message).during(Operation::Configure));
        }
        let can = capabilities(&*self.store)?;
        let registry = if self.idle_eviction.is_some() { Registry::evicting() } else { Registry::new() };
        let (mailbox, registry) = (Arc::new(Mailbox::new()), Arc::new(registry));
        let (alive, ended) = watch::channel(());
        metrics::describe();
        let clock = Clock::start(&runtimes.refill);
        let (store_timeout, close_timeout) = (self.store_timeout, self.close_timeout);
        let config = ActorConfig { store_timeout, close_timeout, idle: self.idle_eviction, can };
        let places = Arc::new(Semaphore::new(self.max_waiting));
        let store = (self.store.clone(), runtimes.store.clone());
        let actor =
            Actor::new(mailbox.clone(), store, registry.clone(), clock.clone(), config, places.clone());
        let keepers = runtimes.keepers;
        runtimes.refill.spawn(async move {
            // Drop these after the actor, to signal that the actor has ended.
            let _alive = (alive, keepers);
            actor.run().await;
        });
        if let Some(age) = self.max_age {
            let store = (self.store.clone(), runtimes.store.clone());
            runtimes.refill.spawn(
                MaxAge::new(age, store, registry.clone(), mailbox.clone(), clock.clone()).keep(ended.clone()),
            );
        }
        let shared = Shared {
            store: self.store,
            registry,
            mailbox,
            clock,
            places,
            runtime: runtimes.refill,
            store_runtime: runtimes.store,
            store_timeout,
            close_timeout,
            can,
            seed: self.seed,
            settings: Mutex::new(None),
            ended,
        };
        Ok(Sequences { shared: Arc::new(shared), probe: Arc::default() })
    }
}

/// Returns an error if the runtime's timers are disabled. The only way to check is to create a timer, which
/// panics if they are disabled.
fn has_timers() -> Result<()> {
    catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).map_err(|_| {
        let message = "this tokio runtime has no timers; build it with `enable_time` or `enable_all`, or use \
                       `SequencesBuilder::own_thread`";
        Error::invalid(message).during(Operation::Configure)
    })
}

/// Returns the store's capabilities; a panic of the store becomes an error.
fn capabilities(store: &dyn Store) -> Result<Capabilities> {
    catch_unwind(AssertUnwindSafe(|| store.capabilities())).map_err(|_| {
        let message = "the store panicked when its capabilities were read";
        Error::new(ErrorKind::StoreViolation, message).during(Operation::Configure)
    })
}
