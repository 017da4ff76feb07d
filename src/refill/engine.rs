//! The decisions of the refill, without clock, I/O or runtime: events in, commands out.
//!
//! What it guarantees, whatever order events come in (and the `oracle` beside this file checks):
//!
//! - at most one reserve is in flight, and every [`Command::Reserve`] is answered by one event;
//! - waiting callers get the head of a range, first come, first served; the rest is published, and before they are
//!   answered, so that whoever has an answer finds ids in memory;
//! - every waiting caller is answered: with ids, or with an error by its deadline;
//! - no id of a range is used twice, and those that are not used at all are counted as a gap;
//! - a range whose outcome is unknown is never used;
//! - with a watermark of 0 nothing is reserved that nobody asked for; under [`Order::Global`] a range serves only
//!   callers that were waiting before it was asked for.

use std::collections::VecDeque;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

use super::policy::Policy;
use crate::error::{Error, ErrorKind, Operation, Result, Status};
use crate::mailbox::Time;
use crate::range::{Range, Ranges};
use crate::segment::MAX_LEN;
use crate::settings::{Order, Settings};
use crate::store::{Grant, Identity};
use crate::sync::Arc;

/// For how long the end of a sequence is believed, before the next who asks has the store asked again: its max may
/// have been raised. Long enough for callers that do not stop asking to be no load on the store.
pub(super) const END_STANDS: Duration = Duration::from_secs(30);

/// A caller that waits, as far as the engine knows it.
pub(crate) trait Waiter {
    /// Whether it has given up, so that ids would be lost on it.
    fn is_gone(&self) -> bool;
}

#[derive(Debug)]
pub(crate) enum Event<W> {
    /// A draw crossed the watermark, or memory may be low for another reason; `level` ids are left.
    Low { level: u64 },
    /// A caller found nothing in memory. `want` 0 asks to be told when there is something.
    /// `got` is what it has already, of the `want` ids that it asks for in all.
    Request { waiter: W, want: u64, got: Ranges, deadline: Time },
    /// The reserve in flight was granted; `level` ids are left in memory besides.
    Reserved { grant: Grant, level: u64 },
    /// The reserve in flight failed, or its outcome is unknown.
    Failed(Error),
    /// Everything in memory was revoked.
    Revoked,
    /// Time has passed; see [`Engine::next_timer`]. `level` ids are left in memory.
    Tick { level: u64 },
    /// No more refills.
    Close,
}

#[derive(Debug)]
pub(crate) enum Command<W> {
    /// Ask the store for a range; answer with `Reserved` or `Failed`.
    Reserve { count: u64 },
    /// The grant that came is sound: each of its ids will be used or counted as a gap.
    Accept(Grant),
    /// The grant that came, of so many ids, is void since a revocation: they will never be used.
    Void(u64),
    /// The grant that came cannot be right: nothing of it counts.
    Distrust(Error),
    /// Void what is in memory: it belongs to another identity of the sequence than what comes.
    Discard,
    /// Let callers draw from this range.
    Publish { range: Range, watermark: u64 },
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

struct Waiting<W> {
    /// Counts the callers in the order of their arrival.
    ticket: u64,
    waiter: W,
    want: u64,
    got: Ranges,
    deadline: Time,
}

struct Flight {
    count: u64,
    asked: Time,
    /// Under `Order::Global` it serves only tickets before this one: those who waited when it was asked for.
    before: u64,
    revoked: bool,
}

pub(crate) struct Engine<W> {
    settings: Arc<Settings>,
    policy: Policy,
    waiting: VecDeque<Waiting<W>>,
    next_ticket: u64,
    flight: Option<Flight>,
    /// Whether memory is low and nothing was reserved for that yet.
    low: bool,
    /// The delays between attempts, while they fail. Boxed, as most sequences have none at most times.
    backoff: Option<Box<ExponentialBackoff>>,
    retry_at: Option<Time>,
    last_error: Option<Error>,
    /// Why there will be no more reserves.
    ended: Option<ErrorKind>,
    /// When the end of the sequence is not believed any longer.
    doubt_at: Option<Time>,
    /// Which sequence ids came from last, and the largest of them.
    origin: Option<(Identity, u64)>,
    /// No deadline is earlier than this.
    earliest: Option<Time>,
}

impl<W: Waiter> Engine<W> {
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        Self {
            policy: Policy::new(&settings.sizing),
            waiting: VecDeque::new(),
            next_ticket: 0,
            flight: None,
            low: false,
            backoff: None,
            retry_at: None,
            last_error: None,
            ended: None,
            doubt_at: None,
            origin: None,
            earliest: None,
            settings,
        }
    }

    /// Takes one event; what is to be done about it is added to `out`, in order.
    pub(crate) fn on(&mut self, event: Event<W>, now: Time, out: &mut Vec<Command<W>>) {
        match event {
            // A signal that comes after the end would keep a sequence from ever being idle.
            Event::Low { .. } if self.ended.is_some() => {}
            Event::Low { level } => self.low |= self.prefetches() && level < self.policy.plan().watermark,
            Event::Request { waiter, want, got, deadline } => {
                let ticket = self.next_ticket;
                self.next_ticket += 1;
                self.queue(Waiting { ticket, waiter, want, got, deadline }, out);
            }
            Event::Reserved { grant, level } => self.reserved(grant, level, now, out),
            Event::Failed(error) => self.failed(error, now, out),
            Event::Revoked => self.revoked(),
            Event::Tick { level } => {
                self.expire(now, out);
                self.doubt(level, now, out);
            }
            Event::Close => self.end(ErrorKind::Closed, &ErrorKind::Closed.into(), now, out),
        }
        self.reserve(now, out);
        if self.waiting.is_empty() {
            // Idle sequences are many: they hold no memory for callers that once waited.
            self.waiting.shrink_to_fit();
        }
    }

    /// When to send the next [`Event::Tick`].
    pub(crate) fn next_timer(&self) -> Option<Time> {
        let retry = self.retry_at.filter(|_| self.flight.is_none() && self.is_needed());
        let deadline = self.earliest.filter(|_| !self.waiting.is_empty());
        [deadline, retry, self.doubt_at].into_iter().flatten().min()
    }

    /// Measurements and sizes.
    pub(crate) fn policy(&mut self) -> &mut Policy {
        &mut self.policy
    }

    /// Which sequence the ids in memory come from.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.origin.map(|(identity, _)| identity)
    }

    /// How many callers wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits, is under way or is about to be.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.flight.is_none() && !self.low
    }

    fn prefetches(&self) -> bool {
        self.settings.order != Order::Global
    }

    fn is_needed(&self) -> bool {
        self.low || !self.waiting.is_empty()
    }

    fn queue(&mut self, waiting: Waiting<W>, out: &mut Vec<Command<W>>) {
        if let Some(reason) = self.ended {
            Self::refuse(waiting, reason.into(), out);
            return;
        }
        self.earliest =
            Some(self.earliest.map_or(waiting.deadline, |earliest| earliest.min(waiting.deadline)));
        self.waiting.push_back(waiting);
    }

    /// Asks for a range if one is needed, none is under way, and no retry is being waited for.
    fn reserve(&mut self, now: Time, out: &mut Vec<Command<W>>) {
        if self.flight.is_some() || self.ended.is_some() || self.retry_at.is_some_and(|at| now < at) {
            return;
        }
        self.forget_gone(out);
        if !self.is_needed() {
            return;
        }
        self.retry_at = None;
        let demand = self.demand();
        let count = if self.prefetches() { demand.max(self.policy.plan().step) } else { demand };
        let count = count.clamp(1, MAX_LEN);
        self.flight = Some(Flight { count, asked: now, before: self.next_ticket, revoked: false });
        out.push(Command::Reserve { count });
    }

    /// How many ids callers wait for.
    pub(crate) fn demand(&self) -> u64 {
        self.waiting.iter().fold(0, |sum, waiting| sum.saturating_add(waiting.want - waiting.got.len()))
    }

    /// Drops callers that have given up, so that nothing is reserved for them.
    fn forget_gone(&mut self, out: &mut Vec<Command<W>>) {
        self.waiting.retain(|waiting| {
            let gone = waiting.waiter.is_gone();
            if gone {
                lose(&waiting.got, out);
            }
            !gone
        });
    }

    fn reserved(&mut self, grant: Grant, level: u64, now: Time, out: &mut Vec<Command<W>>) {
        let Some(flight) = self.flight.take() else { return };
        self.policy.reserved(now.saturating_sub(flight.asked), &self.settings.sizing);
        if flight.revoked || self.ended.is_some() {
            // Whether it was reserved before or after what a revocation was for cannot be told.
            out.push(Command::Void(grant.range.len()));
            return;
        }
        if let Err(error) = self.check(&grant, flight.count) {
            out.push(Command::Distrust(error.clone()));
            self.give_up(&error, out);
            return;
        }
        out.push(Command::Accept(grant));
        let level = if self.take_over(&grant, out) { 0 } else { level };
        let before = if self.prefetches() { u64::MAX } else { flight.before };
        self.serve(&grant, before, level, now, out);
    }

    /// Refuses what a store that keeps its contract cannot have granted.
    fn check(&self, grant: &Grant, asked: u64) -> Result<()> {
        let range = grant.range;
        let last_allowed = self.last_allowed(grant);
        let fault = if range.is_empty() || range.len() > asked {
            format!("granted {} ids where {asked} were asked for", range.len())
        } else if range.start() < grant.bounds.start().max(self.settings.floor)
            || range.end() > last_allowed + 1
        {
            format!("granted {range:?}, outside the bounds up to {last_allowed}")
        } else if let Some(fault) = self.gone_back(grant) {
            fault
        } else {
            return Ok(());
        };
        let message =
            format!("the store {fault}; nothing of it is used. Find out what happened to the store first");
        Err(Error::new(ErrorKind::StoreViolation, message).during(Operation::Reserve))
    }

    /// What shows that the store has lost what it had committed: by a restored backup, or a failover that lost writes.
    fn gone_back(&self, grant: &Grant) -> Option<String> {
        let (identity, last) = self.origin?;
        let (range, epoch) = (grant.range, grant.identity.epoch);
        if identity == grant.identity && range.start() <= last {
            return Some(format!(
                "granted {range:?}, although {last} was granted before: it went back in time"
            ));
        }
        // Resets count up, so an epoch that was left does not come again.
        let earlier = identity.incarnation == grant.identity.incarnation && epoch < identity.epoch;
        earlier.then(|| {
            format!("is at epoch {epoch}, although it was at {} before: it went back in time", identity.epoch)
        })
    }

    fn last_allowed(&self, grant: &Grant) -> u128 {
        u128::from(grant.bounds.max().min(self.settings.ceiling))
    }

    /// Notes where the ids come from. Ids of another identity in memory could be handed out by others too: whether
    /// they had to be thrown away is returned.
    fn take_over(&mut self, grant: &Grant, out: &mut Vec<Command<W>>) -> bool {
        let other = self.origin.is_some_and(|(identity, _)| identity != grant.identity);
        if other {
            out.push(Command::Discard);
            self.void_parts(out);
        }
        self.origin = grant.range.last().map(|last| (grant.identity, last));
        self.backoff = None;
        self.last_error = None;
        self.low = false;
        other
    }

    /// What waiting callers have of another identity goes the way of what is in memory: together with what comes, they could
    /// get a number twice, and not in growing order.
    fn void_parts(&mut self, out: &mut Vec<Command<W>>) {
        for waiting in &mut self.waiting {
            lose(&std::mem::replace(&mut waiting.got, Ranges::none()), out);
        }
    }

    /// Hands a range out: to those who wait, then to memory.
    fn serve(&mut self, grant: &Grant, before: u64, level: u64, now: Time, out: &mut Vec<Command<W>>) {
        let mut rest = grant.range;
        let before_replies = out.len();
        let at_end = grant.range.end() == self.last_allowed(grant) + 1;
        while self.waiting.front().is_some_and(|first| first.ticket < before) {
            if !self.serve_first(&mut rest, at_end, out) {
                break;
            }
        }
        if at_end {
            self.publish(rest, 0, before_replies, out);
            self.end(ErrorKind::Exhausted, &ErrorKind::Exhausted.into(), now, out);
            return;
        }
        let watermark = self.policy.plan().watermark;
        self.low = self.prefetches() && level + rest.len() < watermark;
        self.publish(rest, watermark, before_replies, out);
    }

    /// Answers the caller who waits longest; `false` if it must wait on.
    fn serve_first(&mut self, rest: &mut Range, at_end: bool, out: &mut Vec<Command<W>>) -> bool {
        let Some(mut first) = self.waiting.pop_front() else { return false };
        let missing = first.want - first.got.len();
        if first.waiter.is_gone() {
            lose(&first.got, out);
        } else if rest.len() >= missing && !(first.want == 0 && rest.is_empty()) {
            first.got.push(rest.take_front(missing));
            out.push(Command::Reply { waiter: first.waiter, ids: first.got });
        } else if at_end {
            // What is left stays for those who want less.
            Self::refuse(first, ErrorKind::Exhausted.into(), out);
        } else {
            first.got.push(rest.take_front(missing));
            self.waiting.push_front(first);
            return false;
        }
        true
    }

    fn publish(&self, rest: Range, watermark: u64, position: usize, out: &mut Vec<Command<W>>) {
        if rest.is_empty() {
            return;
        }
        let command = if self.prefetches() {
            Command::Publish { range: rest, watermark }
        } else {
            Command::Gap(rest.len())
        };
        out.insert(position, command);
    }

    fn failed(&mut self, error: Error, now: Time, out: &mut Vec<Command<W>>) {
        let Some(flight) = self.flight.take() else { return };
        match (error.kind(), error.status()) {
            // The end that was seen before a revocation may be another now: who asks next finds out.
            (ErrorKind::Exhausted, _) if !flight.revoked => self.end(ErrorKind::Exhausted, &error, now, out),
            (_, Status::Permanent) => self.give_up(&error, out),
            (_, status) => {
                if status == Status::Unknown {
                    out.push(Command::Unknown(flight.count));
                }
                let seed = self.settings.seed;
                let delay = self.backoff.get_or_insert_with(|| Box::new(backoff(seed))).next();
                self.retry_at = delay.map(|delay| now + delay);
                self.last_error = Some(error);
            }
        }
    }

    /// A permanent failure: everybody who waits hears of it, and the next who asks makes the next attempt.
    fn give_up(&mut self, error: &Error, out: &mut Vec<Command<W>>) {
        self.low = false;
        self.last_error = Some(error.clone());
        while let Some(waiting) = self.waiting.pop_front() {
            Self::refuse(waiting, error.clone(), out);
        }
        self.earliest = None;
    }

    fn end(&mut self, reason: ErrorKind, error: &Error, now: Time, out: &mut Vec<Command<W>>) {
        if self.ended == Some(ErrorKind::Closed) {
            return;
        }
        if let Some(flight) = self.flight.take() {
            // Nobody will hear what became of it.
            out.push(Command::Unknown(flight.count));
        }
        self.give_up(error, out);
        self.ended = Some(reason);
        self.doubt_at = (reason == ErrorKind::Exhausted).then(|| now.saturating_add(END_STANDS));
        out.push(Command::Finish(reason));
    }

    /// Lets the next caller find out whether the sequence still ends where it did. Not while ids are in memory: what
    /// comes after them must not overtake them.
    fn doubt(&mut self, level: u64, now: Time, out: &mut Vec<Command<W>>) {
        if self.doubt_at.is_none_or(|at| now < at) {
            return;
        }
        if level > 0 {
            self.doubt_at = Some(now.saturating_add(END_STANDS));
            return;
        }
        self.doubt_at = None;
        self.ended = None;
        out.push(Command::Reopen);
    }

    fn refuse(waiting: Waiting<W>, error: Error, out: &mut Vec<Command<W>>) {
        lose(&waiting.got, out);
        out.push(Command::Fail { waiter: waiting.waiter, error });
    }

    fn revoked(&mut self) {
        if let Some(flight) = &mut self.flight {
            flight.revoked = true;
        }
        self.low = false;
        self.ended = self.ended.filter(|reason| *reason != ErrorKind::Exhausted);
        self.doubt_at = None;
    }

    fn expire(&mut self, now: Time, out: &mut Vec<Command<W>>) {
        if self.earliest.is_none_or(|earliest| now < earliest) {
            return;
        }
        let all = std::mem::take(&mut self.waiting);
        let (late, waiting): (VecDeque<_>, VecDeque<_>) = all.into_iter().partition(|w| w.deadline <= now);
        self.earliest = waiting.iter().map(|waiting| waiting.deadline).min();
        self.waiting = waiting;
        for waiting in late {
            Self::refuse(waiting, self.too_late(), out);
        }
    }

    fn too_late(&self) -> Error {
        let Some(last) = &self.last_error else { return ErrorKind::Deadline.into() };
        let message = format!("the deadline passed before the store granted ids; its last error: {last}");
        Error::new(ErrorKind::Deadline, message).because(last.clone())
    }
}

/// Counts the part that a caller had got of its ids, and that nobody will use.
fn lose<W>(got: &Ranges, out: &mut Vec<Command<W>>) {
    if !got.is_empty() {
        out.push(Command::Gap(got.len()));
    }
}

/// 10 ms, doubling up to 5 s, each with up to as much again at random, without end.
fn backoff(seed: Option<u64>) -> ExponentialBackoff {
    let backoff = ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(Duration::from_secs(5))
        .with_factor(2.0)
        .with_jitter()
        .without_max_times();
    seed.map_or(backoff, |seed| backoff.with_jitter_seed(seed)).build()
}
