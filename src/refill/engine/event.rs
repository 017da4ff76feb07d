//! The engine's events and decisions.

use crate::error::{Error, ErrorKind};
use crate::range::{IdRange, Ranges};
use crate::state::time::Time;
use crate::state::want::Want;
use crate::store::{Change, Grant, Identity};

#[derive(Debug)]
pub(crate) enum Event<W> {
    /// A draw crossed the watermark, or memory may be low for another reason. A call that does not wait found
    /// fewer than `wanted` ids.
    Low { wanted: u64 },
    /// A caller found too few ids in memory. They stay there until a grant arrives. `known` is the number of
    /// ids that the store had left to reserve, if no request has started or ended since this number was read.
    Request { waiter: W, want: Want, known: Option<u64>, deadline: Time },
    /// The reserve in flight was granted.
    Reserved(Grant),
    /// The reserve in flight failed, or its outcome is unknown.
    Failed(Error),
    /// The give-back of a range has ended, with any outcome.
    Returned,
    /// The raise of `next` has ended, with any outcome: see [`Effect::Raise`].
    Raised,
    /// Everything in memory was revoked.
    Revoked,
    /// Time has passed; see [`Engine::next_timer`](super::Engine::next_timer).
    Tick,
    /// No more refills will follow.
    Close,
}

/// The engine's decision about one event.
pub(crate) struct Output<W> {
    /// How many ids to reserve after the effects are carried out; answer with `Reserved` or `Failed`.
    pub(crate) reserve: Option<u64>,
    /// To be carried out in this order.
    pub(crate) effects: Vec<Effect<W>>,
}

#[derive(Debug)]
pub(crate) enum Effect<W> {
    /// The store went back in time: raise its `next` above the known ids, and answer with `Raised`. Callers
    /// get the error only afterwards, since a caller may then exit, and other processes may know too few
    /// grants to detect the loss.
    Raise(Change),
    /// The grant is valid: each of its ids will be used, given back to the store or counted as a gap.
    Accept(Grant),
    /// A grant of this many ids is void because of a revocation: they will never be used.
    Void(u64),
    /// The grant is invalid and is not counted.
    Distrust(Error),
    /// Void the ids in memory: they belong to another identity of the sequence than the new grant.
    Discard,
    /// Let callers draw from this range.
    Publish { range: IdRange, watermark: u64 },
    /// Return these ids, which exceed the memory limit. No caller has them, and they were granted last.
    /// Answer with `Returned`.
    ReturnExcess { rest: IdRange, identity: Identity },
    /// Give these ids to this caller.
    Reply { waiter: W, ids: Ranges },
    /// Fail this caller.
    Fail { waiter: W, error: Error },
    /// No more ids will follow those in memory, for this reason.
    Finish(ErrorKind),
    /// More ids may follow after all: callers that find memory empty must request some.
    Reopen,
    /// This many ids were reserved and will never be used.
    Gap(u64),
    /// Up to this many ids may have been reserved and will never be used.
    Unknown(u64),
}
