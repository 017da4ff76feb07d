//! What each thread holds for itself of a sequence under [`Order::Thread`](crate::Order::Thread), for plain
//! `&self` callers: a block, so that draws of different threads touch no common cache line.
//!
//! A thread that ends leaves its block to the next one that gets its [seat](super::seat), which
//! draws from it first, so that short-lived threads waste nothing; and the number of blocks is that
//! of the threads alive at once.
//!
//! *Growing*: a thread keeps its seat while it lives, and only whoever has the seat draws from its
//! stripe. What it gets otherwise is cut from the stock, after all that is in its stripe: from the actor,
//! after which the stripe [catches up](Stripes::catch_up), also with what it inherited; or, at the
//! thread's end, without a stripe.

use std::fmt;

use crate::range::IdRange;
use crate::sequence::seat::Seat;
use crate::sequence::stats::Stats;
use crate::sequence::stock::Stock;
use crate::sequence::stripe::Stripe;
use crate::sync::{CachePadded, OnceLock};

/// Enough for four million threads; a thread beyond them draws without a stripe.
const ROWS: usize = 20;

/// Made when its thread first draws.
type Place = OnceLock<Box<CachePadded<Stripe>>>;

/// The stripes by seat.
#[derive(Default)]
pub(crate) struct Stripes {
    /// Not behind one pointer more, as the further ones: each costs a thread that draws from many sequences
    /// in turn a cache line.
    first: [Place; Seat::columns(0)],
    /// Each made when the first of its threads draws.
    further: [OnceLock<Box<[Place]>>; ROWS - 1],
}

impl Stripes {
    /// The next id of this thread's block, if it has one.
    #[allow(clippy::inline_always)] // a call costs half of what it does
    #[inline(always)]
    pub(crate) fn draw(&self, stock: &Stock) -> Option<u64> {
        self.at(Seat::mine())?.draw(stock)
    }

    /// The next id for this thread: of the block that it found in its seat, or of what `take` brings. `None`
    /// without a seat, and if nothing is in memory.
    pub(crate) fn renew(&self, stock: &Stock, stats: &Stats, take: impl FnOnce() -> IdRange) -> Option<u64> {
        let stripe = Seat::take().and_then(|seat| self.make(seat))?;
        stripe.draw(stock).or_else(|| stripe.renew(stock, stats, take))
    }

    /// A caller of this thread got `id` from the actor, after it had to wait. Neither what other callers of
    /// the thread have put into its block meanwhile nor what the thread inherits must come after that.
    #[cold]
    pub(crate) fn catch_up(&self, stats: &Stats, id: u64) {
        if let Some(stripe) = Seat::take().and_then(|seat| self.at(seat)) {
            stripe.catch_up(stats, id);
        }
    }

    /// Counts what the threads hold as lost, where it was revoked; they hear of it when they next draw.
    /// Returns how many ids that are. A draw under way at that moment may be counted too.
    #[cold]
    pub(crate) fn give_up(&self, stock: &Stock, stats: &Stats) -> u64 {
        self.iter().map(|stripe| stripe.give_up(stock, stats)).sum()
    }

    /// Whether a thread holds ids that were not revoked.
    pub(crate) fn hold_ids(&self, stock: &Stock) -> bool {
        self.iter().any(|stripe| stripe.holds_ids(stock))
    }

    fn iter(&self) -> impl Iterator<Item = &CachePadded<Stripe>> {
        let further = self.further.iter().filter_map(OnceLock::get).flatten();
        self.first.iter().chain(further).filter_map(OnceLock::get).map(|stripe| &**stripe)
    }

    #[allow(clippy::inline_always)] // see `draw`
    #[inline(always)]
    fn at(&self, seat: Seat) -> Option<&Stripe> {
        let row = match seat.row.checked_sub(1) {
            None => &self.first[..],
            Some(further) => self.further.get(further)?.get()?,
        };
        Some(row.get(seat.column)?.get()?)
    }

    fn make(&self, seat: Seat) -> Option<&Stripe> {
        let new = || (0..Seat::columns(seat.row)).map(|_| Place::new()).collect();
        let row = match seat.row.checked_sub(1) {
            None => &self.first[..],
            Some(further) => self.further.get(further)?.get_or_init(new),
        };
        Some(row.get(seat.column)?.get_or_init(Box::default))
    }
}

impl fmt::Debug for Stripes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stripes").finish_non_exhaustive()
    }
}
