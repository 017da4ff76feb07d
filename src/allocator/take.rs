//! Draws of several ids in one call.

use std::future::Future;
use std::time::Duration;

use super::{Allocator, CoreRef, wait};
use crate::blocking::Blocking;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::Id;
use crate::range::Ranges;
use crate::sequence::parts::{Core, Known, Part, Question};
use crate::sequence::time::Time;

impl<T: Id> Allocator<T> {
    /// Returns exactly `n` ids, in ascending order, in as few ranges as possible: usually one, or several if
    /// a range reserved from the store ends in between. No other call gets these ids.
    ///
    /// Under [`Order::Thread`](crate::Order::Thread) they are not ordered with the thread's other draws,
    /// which use its own block.
    ///
    /// Ids reserved for a call that fails or is cancelled stay in memory for other callers, up to
    /// [`max_buffered`](crate::SequenceBuilder::max_buffered). They become a gap if larger ids have been
    /// drawn since, and under [`Order::Global`](crate::Order::Global), which keeps no ids in memory.
    ///
    /// # Errors
    /// Those of [`next`](Self::next); [`ErrorKind::InvalidInput`] for more than
    /// [`max_take`](crate::SequenceBuilder::max_take) ids; [`ErrorKind::Exhausted`] if the sequence has fewer
    /// than `n` ids left. If the store reports this within a quarter of the timeout, nothing is reserved, and
    /// the remaining ids stay for smaller draws.
    pub async fn take(&self, n: u64) -> Result<Ranges<T>> {
        let mut begun = None;
        loop {
            let part = match self.take_from_memory(n)? {
                Ok(ids) => return Ok(ids.cast()),
                Err(part) => part,
            };
            let left = self.left_of(self.timeout, &mut begun);
            let ids = self.wait_for_many(n, part, left).await?;
            // Empty if the sequence was revoked or reset after the part was taken.
            if !ids.is_empty() {
                return Ok(ids.cast());
            }
        }
    }

    /// Returns exactly `n` ids from memory; never waits. If memory holds fewer and the level is below the
    /// watermark, this starts a refill (not under `Order::Global`). Use [`take`](Self::take) for more ids
    /// than one step.
    ///
    /// If concurrent draws leave too few ids, the ids that this call has already taken become a gap.
    ///
    /// # Errors
    /// Those of [`try_next`](Self::try_next); [`ErrorKind::Empty`] if memory holds ids, but fewer than `n`;
    /// and [`ErrorKind::InvalidInput`] for more than [`max_take`](crate::SequenceBuilder::max_take) ids.
    pub fn try_take(&self, n: u64) -> Result<Ranges<T>> {
        match self.take_from_memory(n)? {
            Ok(ids) => Ok(ids.cast()),
            Err(_) => Err(self.core().refused(self.core().stock.ended().unwrap_or(ErrorKind::Empty))),
        }
    }

    /// Returns the rest of `timeout`, counted from the first call. A draw that need not wait never reads the
    /// clock.
    fn left_of(&self, timeout: Duration, begun: &mut Option<Time>) -> Duration {
        let now = self.core_ref.shared.clock.now();
        timeout.saturating_sub(now.saturating_sub(*begun.get_or_insert(now)))
    }

    /// Returns `n` ids if memory holds `n`. If memory holds fewer, this draws none: only the actor can put
    /// ids back. If concurrent draws take some of them, the error contains the part that was taken.
    fn take_from_memory(&self, n: u64) -> Result<Result<Ranges, Option<Part>>> {
        let core = self.core();
        let most = core.settings.max_take;
        if n > most {
            let message =
                format!("a take of {n} ids exceeds `max_take` {most}; split it, or raise `max_take`");
            return Err(Error::invalid(message).of(&core.name).during(Operation::Draw));
        }
        if n == 0 {
            return Ok(Ok(Ranges::none()));
        }
        let generation = core.stock.generation();
        if !core.stock.has(n) {
            return Ok(Err(None));
        }
        let part = |got: Ranges| (!got.is_empty()).then(|| Part::new(core.clone(), got, generation));
        Ok(core.take(n).map_err(part))
    }

    /// Waits for the actor, which fails the call if fewer than `want` ids are left in the sequence.
    fn wait_for_many(
        &self,
        want: u64,
        part: Option<Part>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Ranges>> + Send + use<T> {
        let core_ref = self.core_ref.clone();
        async move {
            let begun = core_ref.shared.clock.now();
            // A part goes to the actor immediately, while it can still be put back.
            let known = if part.is_some() || surely_left(&core_ref.core, want) {
                None
            } else {
                left_in_store(&core_ref, timeout / QUESTION_SHARE).await
            };
            let passed = core_ref.shared.clock.now().saturating_sub(begun);
            let question = Question { want, part, known };
            wait::wait(core_ref, question, timeout.saturating_sub(passed)).await
        }
    }
}

impl<T: Id> Blocking<&Allocator<T>> {
    /// Returns exactly `n` ids. See [`Allocator::take`].
    ///
    /// # Errors
    /// Those of [`Allocator::take`]; [`ErrorKind::InvalidInput`] if this is the only thread that drives the
    /// refills.
    pub fn take(&self, n: u64) -> Result<Ranges<T>> {
        let mut begun = None;
        loop {
            let part = match self.of.take_from_memory(n)? {
                Ok(ids) => return Ok(ids.cast()),
                Err(part) => part,
            };
            let left = self.of.left_of(self.timeout, &mut begun);
            let ids = self.of.on_reply("`take`", self.of.wait_for_many(n, part, left), left)?;
            if !ids.is_empty() {
                return Ok(ids.cast());
            }
        }
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
async fn left_in_store(core_ref: &CoreRef, limit: Duration) -> Option<Known> {
    let (core, store) = (&core_ref.core, core_ref.shared.store.clone());
    if !core_ref.shared.can.gives_back {
        return None;
    }
    let (name, moves) = (core.name.clone(), core.stats.moves());
    let info = core_ref.shared.ask_store(limit, async move { store.inspect(&name).await }).await.ok()?;
    let (bounds, next) = info
        .map_or((core.settings.bounds, Some(core.settings.bounds.start())), |info| (info.bounds, info.next));
    let last = u128::from(bounds.max().min(core.settings.ceiling));
    let unreserved = next.map_or(0, |next| (last + 1).saturating_sub(next.into()));
    Some(Known { unreserved: unreserved.try_into().unwrap_or(u64::MAX), moves })
}
