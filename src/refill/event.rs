//! What the engine is told, and what it decides.

use crate::error::{Error, ErrorKind};
use crate::range::{IdRange, Ranges};
use crate::sequence::time::Time;
use crate::store::{Change, Grant, Identity};

#[derive(Debug)]
pub(crate) enum Event<W> {
    /// A draw crossed the watermark, or memory may be low for another reason; `level` ids are left.
    Low { level: u64 },
    /// A caller found nothing in memory. `want` 0 asks to be told when there is something.
    /// `taken` is all that memory had, where that was less; it was the newest that there was. `known` is how
    /// many ids the store had left to reserve, if nothing has begun or ended since it was asked.
    Request { waiter: W, want: u64, taken: Ranges, known: Option<u64>, deadline: Time },
    /// The reserve in flight was granted; `level` ids are left in memory besides.
    Reserved { grant: Grant, level: u64 },
    /// The reserve in flight failed, or its outcome is unknown.
    Failed(Error),
    /// A range that was shed has reached the store, or is lost.
    Returned,
    /// The store was asked to go on after what is known: see [`Effect::Raise`]. `level` ids are left in memory.
    Raised { level: u64 },
    /// Everything in memory was revoked.
    Revoked,
    /// Time has passed; see [`Engine::next_timer`](super::engine::Engine::next_timer). `level` ids are left
    /// in memory.
    Tick { level: u64 },
    /// No more refills.
    Close,
}

/// What the engine decided about one event.
pub(crate) struct Output<W> {
    /// How many ids to ask the store for, once the effects are carried out; answer with `Reserved` or `Failed`.
    pub(crate) reserve: Option<u64>,
    /// To be carried out in this order.
    pub(crate) effects: Vec<Effect<W>>,
}

#[derive(Debug)]
pub(crate) enum Effect<W> {
    /// The store went back in time: have it go on after what is known, and answer with `Raised`. Others may know
    /// less, so callers hear of it afterwards: the error may end their process.
    Raise(Change),
    /// The grant that came is sound: each of its ids will be used or counted as a gap.
    Accept(Grant),
    /// The grant that came, of so many ids, is void since a revocation: they will never be used.
    Void(u64),
    /// The grant that came cannot be right: nothing of it counts.
    Distrust(Error),
    /// Void what is in memory: it belongs to another identity of the sequence than what comes.
    Discard,
    /// Let callers draw from this range.
    Publish { range: IdRange, watermark: u64 },
    /// More than memory may hold: nobody has these ids, and they are the last that were granted. Answer with
    /// `Returned`.
    Shed { rest: IdRange, identity: Identity },
    /// These ids are this caller's.
    Reply { waiter: W, ids: Ranges },
    /// This caller gets none.
    Fail { waiter: W, error: Error },
    /// After what is in memory there will be no more, for this reason.
    Finish(ErrorKind),
    /// There may be more after all: whoever finds nothing in memory shall ask.
    Reopen,
    /// These many ids were reserved and will never be used.
    Gap(u64),
    /// Up to so many ids may have been reserved and will never be used.
    Unknown(u64),
}
