//! Draws of several ids at once.

use std::future::Future;
use std::time::Duration;

use super::{Allocator, Tenant, wait};
use crate::core::Core;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::Id;
use crate::mailbox::Time;
use crate::range::Ranges;
use crate::sequences::on_runtime;

impl<T: Id> Allocator<T> {
    /// Exactly `n` ids, in growing order, in as few ranges as they lie in: usually one, several where the
    /// ranges reserved from the store end. None of them is handed out otherwise.
    ///
    /// Under [`Order::Thread`](crate::Order::Thread) they do not grow with the thread's other draws,
    /// which come from its own block.
    ///
    /// What was reserved for a call that fails or is cancelled stays in memory for others, as far
    /// as the waste cap allows; under [`Order::Global`](crate::Order::Global), which keeps
    /// nothing in memory, it is a gap.
    ///
    /// # Errors
    /// As [`next`](Self::next); [`ErrorKind::InvalidInput`] for more than
    /// [`max_take`](crate::SequenceBuilder::max_take) ids. Where the sequence has fewer than `n` ids left,
    /// [`ErrorKind::Exhausted`]: nothing is reserved for that where the store can say so before, and those
    /// left stay for smaller draws.
    pub async fn take(&self, n: u64) -> Result<Ranges<T>> {
        let mut begun = None;
        loop {
            let part = match self.take_from_memory(n)? {
                Ok(ids) => return Ok(ids.cast()),
                Err(part) => part,
            };
            let left = self.left_of(self.patience(), &mut begun);
            let rest = self.wait_for_many(part.missing, left).await?;
            if let Some(ids) = part.and(rest) {
                return Ok(ids.cast());
            }
        }
    }

    /// [`take`](Self::take) for threads outside any async runtime; waits up to `timeout`.
    ///
    /// # Errors
    /// As [`take`](Self::take) and [`next_blocking`](Self::next_blocking).
    pub fn take_blocking(&self, n: u64, timeout: Duration) -> Result<Ranges<T>> {
        let mut begun = None;
        loop {
            let part = match self.take_from_memory(n)? {
                Ok(ids) => return Ok(ids.cast()),
                Err(part) => part,
            };
            let left = self.left_of(timeout, &mut begun);
            let rest = self.on_reply("`take`", self.wait_for_many(part.missing, left), left)?;
            if let Some(ids) = part.and(rest) {
                return Ok(ids.cast());
            }
        }
    }

    /// What is left of `patience` since this was first asked; a draw that need not
    /// wait never looks at the clock.
    fn left_of(&self, patience: Duration, begun: &mut Option<Time>) -> Duration {
        let now = self.tenant.inner.clock.now();
        patience.saturating_sub(now.saturating_sub(*begun.get_or_insert(now)))
    }

    /// `n` ids, if memory has so many. What it has of fewer stays there: the actor
    /// takes it, who can put it back.
    fn take_from_memory(&self, n: u64) -> Result<Result<Ranges, Part<'_>>> {
        let core = self.core();
        let most = core.settings.max_take;
        if n > most {
            let message =
                format!("a take of {n} ids, and `max_take` is {most}; take several times, or raise it");
            return Err(Error::invalid(message).of(&core.name).during(Operation::Draw));
        }
        if n == 0 {
            return Ok(Ok(Ranges::none()));
        }
        let generation = core.stock.generation();
        if !core.stock.has(n) {
            return Ok(Err(Part { core, generation, missing: n, ids: Ranges::none() }));
        }
        let drawn = core.take(n);
        Ok(drawn.map_err(|short| Part { core, generation, missing: short.missing, ids: short.got }))
    }

    /// Waits for the actor, unless the sequence ends before `want` ids.
    fn wait_for_many(
        &self,
        want: u64,
        patience: Duration,
    ) -> impl Future<Output = Result<Ranges>> + Send + use<T> {
        let tenant = self.tenant.clone();
        async move {
            let begun = tenant.inner.clock.now();
            if !surely_left(&tenant.core, want) {
                must_be_left(&tenant, want, patience).await?;
            }
            let passed = tenant.inner.clock.now().saturating_sub(begun);
            wait::wait(tenant, want, patience.saturating_sub(passed)).await
        }
    }
}

/// Whether there is no doubt that the store has so many ids, whatever others have
/// reserved since it was last heard of.
fn surely_left(core: &Core, want: u64) -> bool {
    want == 1 || core.stats.unreserved(core.settings.ceiling).is_some_and(|left| left / 2 >= want)
}

/// Refuses what the store says it does not have. One that does not answer is asked again by the reserve; and
/// one that takes nothing back may hold ids that its counter does not show.
async fn must_be_left(tenant: &Tenant, want: u64, patience: Duration) -> Result<()> {
    let (core, store) = (&tenant.core, tenant.inner.store.clone());
    if !tenant.inner.can.gives_back {
        return Ok(());
    }
    let name = core.name.clone();
    let asked = on_runtime(&tenant.inner, patience, async move { store.inspect(&name).await });
    let Ok(info) = asked.await else { return Ok(()) };
    let (bounds, next) = info
        .map_or((core.settings.bounds, Some(core.settings.bounds.start())), |info| (info.bounds, info.next));
    let last = u128::from(bounds.max().min(core.settings.ceiling));
    let left =
        next.map_or(0, |next| (last + 1).saturating_sub(next.into())) + u128::from(core.stock.remaining());
    if left >= u128::from(want) {
        return Ok(());
    }
    let message = format!(
        "{want} ids were asked for, and {left} are left; take fewer, raise its max or use another sequence"
    );
    Err(Error::new(ErrorKind::Exhausted, message).of(&core.name).during(Operation::Draw))
}

/// What a `take` has while it waits for the rest, because others drew at the same moment: a gap if the rest
/// cannot be had, or nobody waits for it any more.
struct Part<'a> {
    core: &'a Core,
    /// The stock's generation before it was taken.
    generation: u64,
    missing: u64,
    ids: Ranges,
}

impl Part<'_> {
    /// All that was wanted; `None`, and both a gap, if the sequence was revoked or reset meanwhile: the rest
    /// may be of another identity, and hold the same numbers.
    fn and(mut self, rest: Ranges) -> Option<Ranges> {
        if !self.ids.is_empty() && !self.core.stock.stands(self.generation) {
            self.core.stats.gap_dropped(rest.len());
            return None;
        }
        let mut all = std::mem::replace(&mut self.ids, Ranges::none());
        rest.into_iter().for_each(|range| all.push(range));
        Some(all)
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.core.stats.gap_dropped(self.ids.len());
    }
}
