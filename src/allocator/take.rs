//! Draws of several ids in one call.

use std::future::Future;
use std::mem;
use std::time::Duration;

use super::{Allocator, CoreRef, wait};
use crate::blocking::Blocking;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::Id;
use crate::range::{IdRange, Ranges};
use crate::state::core::Core;
use crate::state::mailbox::{Question, Unreserved};
use crate::state::settings::Order;
use crate::state::time::Time;
use crate::state::want::Want;

/// Attempts of [`Allocator::take_in_a_row`].
const TRIES: usize = 8;

impl<T: Id> Allocator<T> {
    /// Returns exactly `n` ids, in ascending order, in as few ranges as possible: usually one, or several if
    /// a range reserved from the store ends in between. No other call gets these ids.
    ///
    /// If memory has fewer than `n` ids, this waits. The ids stay in memory for other callers until the store
    /// has granted the rest.
    ///
    /// Under [`Order::Thread`](crate::Order::Thread) they are not ordered with the thread's other draws,
    /// which use its own block.
    ///
    /// Ids reserved for a call that fails or is cancelled stay in memory for other callers, up to
    /// [`max_buffered`](crate::SequenceBuilder::max_buffered). They become a gap if larger ids have been
    /// drawn since, and under [`Order::Global`](crate::Order::Global), which keeps no ids in memory. So do
    /// ids that a failing call took from memory while others drew the ids after them.
    ///
    /// # Errors
    /// Those of [`next`](Self::next); [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for more
    /// than [`max_take`](crate::SequenceBuilder::max_take) ids;
    /// [`ErrorKind::Exhausted`](crate::ErrorKind::Exhausted) if the sequence has fewer than `n` ids left. If
    /// the store reports this within a quarter of the timeout, nothing is reserved, and the remaining ids
    /// stay for smaller draws.
    pub async fn take(&self, n: u64) -> Result<Ranges<T>> {
        self.take_since(&mut None, n).await
    }

    /// Returns `n` consecutive ids. If the next `n` ids are not consecutive, because another process has
    /// reserved too, they are dropped and become a gap, and the `n` ids after them are tried: up to 8 times,
    /// within one timeout.
    ///
    /// # Errors
    /// Those of [`take`](Self::take), which drop no ids;
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if no attempt found consecutive ids: retry,
    /// request fewer ids, or use [`take`](Self::take).
    pub async fn take_in_a_row(&self, n: u64) -> Result<IdRange<T>> {
        let mut begun = None;
        for _ in 0..TRIES {
            let ids = self.take_since(&mut begun, n).await?;
            match ids.ranges() {
                [] => return Ok(IdRange::EMPTY.cast()),
                [range] => return Ok(*range),
                _ => self.core().stats.gap_dropped(n),
            }
        }
        let message = format!(
            "{n} consecutive ids are not available, because other processes reserve too; retry, request fewer \
             ids, or request ranges"
        );
        Err(Error::new(ErrorKind::Unavailable, message).of(self.name()).during(Operation::Draw))
    }

    /// Returns `n` ids, or fails when the timeout has passed since `begun`, which is set at the first wait.
    async fn take_since(&self, begun: &mut Option<Time>, n: u64) -> Result<Ranges<T>> {
        let mut part = self.begin_take(n)?;
        while !part.take_from_memory() {
            let left = self.left_of(begun);
            part.add(self.wait_for_many(part.missing(), left).await?);
        }
        Ok(part.into_ids().cast())
    }

    /// Returns exactly `n` ids from memory; never waits. If memory holds fewer, this starts a refill that
    /// raises it to at least `n` ids (not under `Order::Global`).
    ///
    /// If concurrent draws leave too few ids, the ids that this call has already taken become a gap.
    ///
    /// # Errors
    /// Those of [`try_next`](Self::try_next); [`ErrorKind::Empty`](crate::ErrorKind::Empty) if memory holds
    /// ids, but fewer than `n`; and [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for more ids
    /// than [`max_take`](crate::SequenceBuilder::max_take) or than memory ever holds
    /// ([`max_buffered`](crate::SequenceBuilder::max_buffered)).
    pub fn try_take(&self, n: u64) -> Result<Ranges<T>> {
        let mut part = self.begin_take(n)?;
        if part.take_from_memory() {
            return Ok(part.into_ids().cast());
        }
        let (core, settings) = (self.core(), &self.core().settings);
        let most = core.sizing().most_in_memory();
        if settings.order != Order::Global && n > most {
            return Err(self.invalid_take(format!("{n} ids exceed `max_buffered` {most}; use `take`")));
        }
        match core.stock.ended() {
            Some(reason) => Err(self.core_ref.refused(reason)),
            None => Err(core.refused_many(n, self.mailbox())),
        }
    }

    fn begin_take(&self, n: u64) -> Result<Part<'_>> {
        let most = self.limits.max_take.unwrap_or_else(|| self.core().settings.sizing.largest_take());
        if n > most {
            return Err(self.invalid_take(format!(
                "a take of {n} ids exceeds `max_take` {most}; split it, or raise `max_take`"
            )));
        }
        Ok(Part::new(&self.core_ref, n))
    }

    fn invalid_take(&self, message: String) -> Error {
        Error::invalid(message).of(&self.core().name).during(Operation::Draw)
    }

    /// Returns the rest of the timeout, counted from the first call. A draw that need not wait never reads
    /// the clock.
    fn left_of(&self, begun: &mut Option<Time>) -> Duration {
        let now = self.core_ref.shared.clock.now();
        self.limits.timeout.saturating_sub(now.saturating_sub(*begun.get_or_insert(now)))
    }

    /// Waits for the actor, which fails the call if fewer than `want` ids are left in the sequence. Returns
    /// no ids if memory was filled in between.
    fn wait_for_many(
        &self,
        want: u64,
        timeout: Duration,
    ) -> impl Future<Output = Result<Ranges>> + Send + use<T> {
        let core_ref = self.core_ref.clone();
        async move {
            let begun = core_ref.shared.clock.now();
            let known = if surely_left(&core_ref.core, want) {
                None
            } else {
                left_in_store(&core_ref, timeout / QUESTION_SHARE).await
            };
            let passed = core_ref.shared.clock.now().saturating_sub(begun);
            let question = Question { want: Want::Ids(want), known };
            wait::wait(core_ref, question, timeout.saturating_sub(passed)).await
        }
    }
}

impl<T: Id> Blocking<&Allocator<T>> {
    /// Returns exactly `n` ids. See [`Allocator::take`].
    ///
    /// # Errors
    /// Those of [`Allocator::take`]; [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if this is
    /// the only thread that drives the refills.
    pub fn take(&self, n: u64) -> Result<Ranges<T>> {
        let (mut part, mut begun) = (self.of.begin_take(n)?, None);
        while !part.take_from_memory() {
            let left = self.of.left_of(&mut begun);
            part.add(self.of.on_reply("`take`", self.of.wait_for_many(part.missing(), left), left)?);
        }
        Ok(part.into_ids().cast())
    }
}

/// The ids of a `take` so far. Usually none until it has all: only concurrent draws can leave it with a part
/// of the ids that it found in memory. On drop they become a gap.
struct Part<'a> {
    core_ref: &'a CoreRef,
    want: u64,
    ids: Ranges,
    /// The stock's generation before the ids were taken. They are void if it has changed.
    generation: u64,
}

impl<'a> Part<'a> {
    fn new(core_ref: &'a CoreRef, want: u64) -> Self {
        Self { generation: core_ref.core.stock.generation(), core_ref, want, ids: Ranges::none() }
    }

    fn missing(&self) -> u64 {
        self.want - self.ids.len()
    }

    /// Takes the missing ids if memory has them. Returns whether none are missing.
    fn take_from_memory(&mut self) -> bool {
        let CoreRef { core, shared, .. } = self.core_ref;
        if !core.stock.is_current(self.generation) {
            self.drop_ids();
            self.generation = core.stock.generation();
        }
        let (Ok(ids) | Err(ids)) = core.take(self.missing(), &shared.mailbox);
        self.ids.extend(ids);
        self.missing() == 0
    }

    /// Adds the actor's reply. Drops all ids if the first ones were revoked: the reply may be of another
    /// identity, with the same ids.
    fn add(&mut self, reply: Ranges) {
        let is_void = !self.ids.is_empty() && !self.core_ref.core.stock.is_current(self.generation);
        self.ids.extend(reply);
        if is_void {
            self.drop_ids();
        }
    }

    fn drop_ids(&mut self) {
        self.core_ref.core.stats.gap_dropped(mem::replace(&mut self.ids, Ranges::none()).len());
    }

    fn into_ids(mut self) -> Ranges {
        mem::replace(&mut self.ids, Ranges::none())
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.drop_ids();
    }
}

/// A `take` spends at most 1/4 of its timeout on reading the number of ids left: reads may hang while
/// reserves work.
const QUESTION_SHARE: u32 = 4;

/// Returns whether the store probably has this many ids, even after the reserves of other processes since its
/// last answer.
fn surely_left(core: &Core, want: u64) -> bool {
    want == 1 || core.stats.unreserved(core.settings.ceiling).is_some_and(|left| left / 2 >= want)
}

/// Returns how many ids the store has left to reserve. `None` if the store does not answer or takes no ids
/// back: such a store, for example a window, may hold ids that its counter does not show, so only a reserve
/// shows how many are left.
async fn left_in_store(core_ref: &CoreRef, limit: Duration) -> Option<Unreserved> {
    let (core, store) = (&core_ref.core, core_ref.shared.store.clone());
    if !core_ref.shared.can.gives_back {
        return None;
    }
    let (name, moves) = (core.name.clone(), core.stats.moves());
    let info = core_ref.shared.ask_store(limit, async move { store.inspect(&name).await }).await.ok()?;
    let (bounds, next) = info
        .map_or((core.settings.bounds, Some(core.settings.bounds.start())), |info| (info.bounds, info.next));
    let last = u128::from(bounds.max().min(core.settings.ceiling));
    let ids = next.map_or(0, |next| (last + 1).saturating_sub(next.into()));
    Some(Unreserved { ids: ids.try_into().unwrap_or(u64::MAX), moves })
}
