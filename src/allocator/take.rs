//! Draws of several ids at once.

use std::future::Future;
use std::time::Duration;

use super::{Allocator, Tenant, wait};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::Id;
use crate::range::Ranges;
use crate::sequence::state::Core;
use crate::sequence::time::Time;

impl<T: Id> Allocator<T> {
    /// Returns exactly `n` ids, in growing order, in as few ranges as possible: usually one, or several if a
    /// range reserved from the store ends in between. No other call gets these ids.
    ///
    /// Under [`Order::Thread`](crate::Order::Thread) they do not grow with the thread's other draws, which
    /// come from its own block.
    ///
    /// Ids reserved for a call that fails or is cancelled stay in memory for others, up to the waste cap.
    /// Under [`Order::Global`](crate::Order::Global), which keeps nothing in memory, they become a gap.
    ///
    /// # Errors
    /// Those of [`next`](Self::next); [`ErrorKind::InvalidInput`] for more than
    /// [`max_take`](crate::SequenceBuilder::max_take) ids; [`ErrorKind::Exhausted`] if the sequence has fewer
    /// than `n` ids left. In that case nothing is reserved if the store can tell beforehand, and the
    /// remaining ids stay for smaller draws.
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
    /// Those of [`take`](Self::take) and [`next_blocking`](Self::next_blocking).
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

    /// Returns what is left of `patience` since the first call; a draw that need not wait never reads the
    /// clock.
    fn left_of(&self, patience: Duration, begun: &mut Option<Time>) -> Duration {
        let now = self.tenant.shared.clock.now();
        patience.saturating_sub(now.saturating_sub(*begun.get_or_insert(now)))
    }

    /// Returns `n` ids, if memory has that many. If it has fewer, they stay there: the actor, which can put
    /// them back, takes them.
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
            let begun = tenant.shared.clock.now();
            if !surely_left(&tenant.core, want) {
                must_be_left(&tenant, want, patience).await?;
            }
            let passed = tenant.shared.clock.now().saturating_sub(begun);
            wait::wait(tenant, want, patience.saturating_sub(passed)).await
        }
    }
}

/// Returns whether the store certainly has this many ids, whatever others have reserved since it last
/// answered.
fn surely_left(core: &Core, want: u64) -> bool {
    want == 1 || core.stats.unreserved(core.settings.ceiling).is_some_and(|left| left / 2 >= want)
}

/// Refuses ids that the store says it does not have. If the store does not answer, the reserve asks again. A
/// store that takes nothing back may hold ids that its counter does not show.
async fn must_be_left(tenant: &Tenant, want: u64, patience: Duration) -> Result<()> {
    let (core, store) = (&tenant.core, tenant.shared.store.clone());
    if !tenant.shared.can.gives_back {
        return Ok(());
    }
    let name = core.name.clone();
    let asked = tenant.shared.ask_store(patience, async move { store.inspect(&name).await });
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

/// The ids that a `take` already holds while it waits for the rest, because others drew at the same moment.
/// They become a gap if the rest cannot be had, or nobody waits for it any more.
struct Part<'a> {
    core: &'a Core,
    /// The stock's generation before it was taken.
    generation: u64,
    missing: u64,
    ids: Ranges,
}

impl Part<'_> {
    /// Returns everything that was wanted. If the sequence was revoked or reset meanwhile, returns `None` and
    /// both parts become a gap: the rest may be of another identity, and contain the same numbers.
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
