//! Opening a sequence: settings, checks, and its creation in the store.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use crate::allocator::{Allocator, CoreRef, Shared};
use crate::blocking::block_on_reply;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::Id;
use crate::name::SequenceName;
use crate::state::core::Core;
use crate::state::fork::forked;
use crate::state::grant_history::GrantHistory;
use crate::state::metrics;
use crate::state::settings::{Adaptive, CallLimits, Order, Settings, Sizing};
use crate::store::{self, Bounds, Identity, SequenceInfo};
use crate::sync::Arc;

/// Settings of a sequence to be opened. Await the builder to open the sequence. A missing sequence is created
/// in the store; an existing one is checked against these settings.
///
/// A process can open a sequence several times, with the same settings. Only [`timeout`](Self::timeout) and
/// [`max_take`](Self::max_take) may differ: each opening has its own.
///
/// ```
/// # async fn demo(ids: idmill::Sequences) -> idmill::Result<()> {
/// use std::time::Duration;
///
/// let users = ids.sequence::<i32>("users").await?;
/// let orders = ids
///     .sequence::<i64>("orders")
///     .start(1_000)
///     .outage_budget(Duration::from_secs(300))
///     .max_buffered(100_000)
///     .await?;
/// # Ok(()) }
/// ```
#[must_use = "await it, or call `lazy` or `open_blocking`"]
pub struct SequenceBuilder<T: Id = i64> {
    shared: Arc<Shared>,
    name: Result<SequenceName>,
    start: Option<u64>,
    max: Option<u64>,
    step: Option<u64>,
    watermark: Option<u64>,
    outage_budget: Option<Duration>,
    max_buffered: Option<u64>,
    limits: CallLimits,
    settings: Settings,
    of: PhantomData<fn() -> T>,
}

impl<T: Id> SequenceBuilder<T> {
    pub(crate) fn new(shared: Arc<Shared>, name: &str) -> Self {
        let settings = Settings { seed: shared.seed, ..Settings::of::<T>() };
        let name = SequenceName::new(name);
        Self {
            shared,
            name,
            start: None,
            max: None,
            step: None,
            watermark: None,
            outage_budget: None,
            max_buffered: None,
            limits: CallLimits::default(),
            settings,
            of: PhantomData,
        }
    }

    /// Sets the first id for creation; an existing sequence must have the same. Default: 1.
    pub fn start(mut self, start: u64) -> Self {
        self.start = Some(start);
        self
    }

    /// Sets the last id, inclusive, for creation; an existing sequence must have the same. Default: the
    /// largest value of the id type.
    pub fn max(mut self, max: u64) -> Self {
        self.max = Some(max);
        self
    }

    /// Makes each refill reserve this many ids, 1 to 2^48, instead of adapting to the load: more if callers
    /// need more, fewer after a lost reply and under [`Order::Global`]. The [`watermark`](Self::watermark)
    /// then defaults to half of the step.
    pub fn step(mut self, ids: u64) -> Self {
        self.step = Some(ids);
        self
    }

    /// Sets how many ids remain when the refill starts. Requires [`step`](Self::step), and must be at most
    /// the step. It should cover the ids drawn while the store answers: latency × rate. 0 turns prefetching
    /// off: in this *batch* mode, nothing is reserved until a call finds too few ids in memory.
    pub fn watermark(mut self, ids: u64) -> Self {
        self.watermark = Some(ids);
        self
    }

    /// Sets how long ids in memory should last, at the current rate, without the store. Default: 5 s.
    pub fn outage_budget(mut self, budget: Duration) -> Self {
        self.outage_budget = Some(budget);
        self
    }

    /// Sets the maximum number of ids in memory. A crash wastes at most these, the ids in blocks, and a range
    /// that callers wait for. Takes precedence over the outage budget. Default: a ten-thousandth of the
    /// sequence, at most a million. Excess ids that were reserved for a caller that gave up go back to a
    /// store that [takes them](crate::store::Capabilities::gives_back), or become a gap.
    pub fn max_buffered(mut self, ids: u64) -> Self {
        self.max_buffered = Some(ids);
        self
    }

    /// Sets the maximum number of ids per [`take`](Allocator::take), 1 to 2^48. Default: a million, or
    /// `max_buffered` or the step if that is larger. A cancelled take may waste its ids.
    pub fn max_take(mut self, ids: u64) -> Self {
        self.limits.max_take = Some(ids);
        self
    }

    /// Sets the ordering guarantee. Default: [`Order::Process`].
    pub fn order(mut self, order: Order) -> Self {
        self.settings.order = order;
        self
    }

    /// Sets how long `next` and `take` may wait while memory is empty and the store does not grant. After
    /// that, they return [`ErrorKind::Deadline`], with the store's last error, if any, as its source. Opening
    /// waits for the longer of this and the [store's timeout](crate::SequencesBuilder::store_timeout). The
    /// timer belongs to the runtime that drives the refills. Default: 30 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limits.timeout = timeout;
        self
    }

    /// Sets how many ids a thread or a handle takes at a time under [`Order::Thread`], 1 to 2^48. Default:
    /// 64.
    pub fn block_size(mut self, ids: u64) -> Self {
        self.settings.block = ids;
        self
    }

    /// Opens the sequence without a request to the store. If the sequence does not exist, the first reserve
    /// creates it. Differences from an existing sequence are not detected.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for an invalid name or invalid settings; [`ErrorKind::Conflict`] if the
    /// sequence is open in this process with other settings; [`ErrorKind::Closed`] after
    /// [`close`](crate::Sequences::close) or in a forked process.
    pub fn lazy(self) -> Result<Allocator<T>> {
        let (name, settings) = self.checked()?;
        self.register(&name, settings)
    }

    /// Opens the sequence on a thread outside any async runtime.
    ///
    /// # Errors
    /// The same as awaiting it: those of [`lazy`](Self::lazy); [`ErrorKind::Conflict`] if the sequence exists
    /// with another start or max; errors of the store; [`ErrorKind::Deadline`] if the store does not answer
    /// within the longer of [`timeout`](Self::timeout) and the [store's
    /// timeout](crate::SequencesBuilder::store_timeout). Also [`ErrorKind::InvalidInput`] in async code of a
    /// runtime that drives the refills and has no other thread.
    pub fn open_blocking(self) -> Result<Allocator<T>> {
        let (shared, name, limit) = (self.shared.clone(), self.name.clone()?, self.limit());
        let outcome = block_on_reply(&shared.runtime, "form, `.await`", self.into_future(), limit);
        outcome.map_err(|error| error.of(&name).during(Operation::Configure))
    }

    pub(super) fn name(&self) -> Result<SequenceName> {
        self.name.clone()
    }

    /// The timeout for reading or creating the sequence.
    pub(super) fn limit(&self) -> Duration {
        self.limits.timeout.max(self.shared.store_timeout)
    }

    async fn open(self) -> Result<Allocator<T>> {
        let (name, settings) = self.checked()?;
        let history = self.shared.registry.history(&name);
        let held = history.as_ref().and_then(GrantHistory::identity);
        // A sequence that this process removed itself is not lost: opening it again creates it.
        let history = history.filter(|_| !self.shared.registry.take_removed(&name));
        let info = {
            let (name, store) = (name.clone(), self.shared.store.clone());
            let find = async move {
                let Some(history) = history else {
                    return store::ensure(&*store, &name, settings.bounds).await;
                };
                store.inspect(&name).await?.ok_or_else(|| history.gone(&name, &store::not_found(&name)))
            };
            self.shared.ask_store(self.limit(), find).await
        };
        let info = info.map_err(|error| error.of(&name).during(Operation::Configure))?;
        self.opened(&name, settings, held, &info)
    }

    /// Opens a sequence that was just read from the store; a missing one is created.
    pub(super) async fn open_found(
        self,
        held: Option<Identity>,
        found: Result<Option<SequenceInfo>>,
    ) -> Result<Allocator<T>> {
        let Some(info) = found.map_err(|error| error.during(Operation::Configure))? else {
            return self.open().await;
        };
        let (name, settings) = self.checked()?;
        self.opened(&name, settings, held, &info)
    }

    /// Returns the allocator of a stored sequence. `held` is the identity of the ids in memory, if any, as of
    /// before the sequence was read.
    fn opened(
        &self,
        name: &SequenceName,
        settings: Settings,
        held: Option<Identity>,
        info: &SequenceInfo,
    ) -> Result<Allocator<T>> {
        let agrees = self.agrees(info.bounds).and_then(|()| fits::<T>(info));
        agrees.map_err(|error| error.of(name).during(Operation::Configure))?;
        let allocator = self.register(name, settings)?;
        allocator.core().stats.meet_with(info.bounds);
        if held.is_some_and(|held| held != info.identity) {
            drop_all_of(held, &allocator);
        }
        Ok(allocator)
    }

    /// Returns this process's allocator for the sequence, or an error if it is open with other settings.
    fn register(&self, name: &SequenceName, settings: Settings) -> Result<Allocator<T>> {
        let shared = &self.shared;
        let core = shared.registry.find_or_create(name, || {
            let core = Core::new(name.clone(), shared.shared_settings(settings));
            metrics::opening(&core, shared.registry.len());
            core
        });
        // `core` counts a user for this call; from here on, the `CoreRef` releases it on drop.
        let core_ref = CoreRef::new(shared.clone(), core.clone());
        let allocator = Allocator::new(core_ref, self.limits);
        if shared.mailbox.is_closed() {
            core.close();
            return Err(shared.closed().of(name).during(Operation::Configure));
        }
        if *core.settings != settings {
            let message = "the sequence is open in this process with other settings or another id type; open \
                           it once and clone the allocator";
            return Err(Error::new(ErrorKind::Conflict, message).of(name).during(Operation::Configure));
        }
        Ok(allocator)
    }

    /// Returns the name and the checked settings. Fails in a fork before anything is locked.
    fn checked(&self) -> Result<(SequenceName, Settings)> {
        let name = self.name.clone()?;
        if self.shared.mailbox.is_forked() {
            return Err(forked().of(&name).during(Operation::Configure));
        }
        let settings = self.settings().map_err(|error| error.of(&name))?;
        Ok((name, settings))
    }

    /// Checks the bounds of an existing sequence against the requested start and max, if any.
    fn agrees(&self, bounds: Bounds) -> Result<()> {
        let start = ("start", self.start, bounds.start());
        for (what, asked, has) in [start, ("max", self.max, bounds.max())] {
            if let Some(asked) = asked.filter(|asked| *asked != has) {
                let message =
                    format!("it exists with {what} {has}, not {asked}; omit {what}, or use the stored value");
                return Err(Error::new(ErrorKind::Conflict, message));
            }
        }
        Ok(())
    }

    fn settings(&self) -> Result<Settings> {
        let defaults = self.settings.bounds;
        let bounds = Bounds::new(self.start.unwrap_or(defaults.start()), self.max.unwrap_or(defaults.max()))?;
        let sizing = self.sizing(bounds)?;
        let settings = Settings { sizing, bounds, ..self.settings };
        settings.check()?;
        self.limits.check()?;
        Ok(settings)
    }

    fn sizing(&self, bounds: Bounds) -> Result<Sizing> {
        let adapts = self.outage_budget.is_some() || self.max_buffered.is_some();
        let clash = |what: &str| Err(Error::invalid(what.to_owned()).during(Operation::Configure));
        match (self.step, self.watermark) {
            (Some(_), _) if adapts => {
                clash("a fixed step excludes `outage_budget` and `max_buffered`; set `step` or the others")
            }
            (Some(step), watermark) => Ok(Sizing::Fixed { step, watermark: watermark.unwrap_or(step / 2) }),
            (None, Some(_)) => clash("`watermark` needs `step`; without a step both adapt to the load"),
            (None, None) => {
                let adaptive = Adaptive::for_bounds(bounds);
                let outage_budget = self.outage_budget.unwrap_or(adaptive.outage_budget);
                Ok(Sizing::Adaptive(match self.max_buffered {
                    Some(most) => Adaptive::of(outage_budget, most),
                    None => Adaptive { outage_budget, ..adaptive },
                }))
            }
        }
    }
}

/// Drops the ids in memory that are of this identity, which the store no longer has. Empty memory is left
/// alone: revoking would turn the reserve in flight into a gap, once for each caller that opens the sequence.
fn drop_all_of<T: Id>(identity: Option<Identity>, allocator: &Allocator<T>) {
    let core = allocator.core();
    // Check for ids before reading the identity: an identity is noted before its ids are published.
    if core.holds_ids() && core.stats.identity() == identity {
        let ids = allocator.discard();
        tracing::warn!(sequence = %core.name, ids, "the sequence was reset, revoked or created again: dropped the ids in memory");
    }
}

/// Checks that the id type can hold the next id of an existing sequence.
fn fits<T: Id>(info: &SequenceInfo) -> Result<()> {
    if let Some(next) = info.next.filter(|next| *next < T::MIN) {
        let message =
            format!("its next id {next} is below the id type's minimum {}; raise the next id", T::MIN);
        return Err(Error::new(ErrorKind::Conflict, message));
    }
    Ok(())
}

impl<T: Id> IntoFuture for SequenceBuilder<T> {
    type Output = Result<Allocator<T>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Allocator<T>>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}

impl<T: Id> fmt::Debug for SequenceBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SequenceBuilder")
            .field("name", &self.name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
