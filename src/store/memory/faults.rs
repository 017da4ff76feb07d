//! What can go wrong, on demand.

use std::collections::VecDeque;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Operation};
use crate::store::Reserve;

/// One thing that goes wrong with one round trip to a [`MemoryStore`](super::MemoryStore).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The request never arrives: nothing is reserved, and the answer says so ([`ErrorKind::Unavailable`]).
    LostRequest,
    /// The range is reserved, but the answer is lost ([`ErrorKind::UnknownOutcome`]).
    LostReply,
    /// The range is reserved, and no answer ever comes.
    Hang,
    /// Nothing is reserved, and no answer ever comes.
    HangBefore,
    /// Nothing is reserved, and the answer is an error of this kind.
    Refuse(ErrorKind),
    /// This round trip takes so long, instead of the usual latency, and succeeds.
    Latency(Duration),
    /// Nonsense: the previous grant of the sequence again (nothing, if there was none: then it succeeds).
    Repeat,
    /// Nonsense: an id beyond the sequence's bounds (if they are all of `u64`, it succeeds).
    OutOfBounds,
    /// Nonsense: one id more than was asked for (really reserved; fewer, at the end of the bounds).
    TooMany,
    /// Nonsense: a grant without ids.
    Empty,
}

/// The faults and the latency of a [`MemoryStore`](super::MemoryStore).
///
/// A fault *of every call* comes first, then the script, then chance. Only the first concerns calls other
/// than reserves and give-backs. Chance is drawn from one seeded generator in the order of the calls: the
/// same calls in the same order meet the same faults.
#[derive(Clone, Debug)]
pub struct Faults {
    shortest: Duration,
    longest: Duration,
    always: Option<Fault>,
    script: VecDeque<Fault>,
    random: Vec<(Fault, f64)>,
    rng: fastrand::Rng,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            shortest: Duration::ZERO,
            longest: Duration::ZERO,
            always: None,
            script: VecDeque::new(),
            random: Vec::new(),
            rng: fastrand::Rng::with_seed(0),
        }
    }
}

impl Faults {
    /// No faults and no latency.
    pub fn none() -> Self {
        Self::default()
    }

    /// The store is away: every call fails with [`ErrorKind::Unavailable`] and does nothing.
    pub fn outage() -> Self {
        Self::none().always(Fault::LostRequest)
    }

    /// Every call takes this long; half of it passes before the call is applied.
    #[must_use]
    pub fn latency(self, latency: Duration) -> Self {
        self.latency_between(latency, latency)
    }

    /// Every call takes a random time between the two, both included.
    #[must_use]
    pub fn latency_between(mut self, shortest: Duration, longest: Duration) -> Self {
        self.shortest = shortest.min(longest);
        self.longest = longest.max(shortest);
        self
    }

    /// Every call meets this fault. Nonsense concerns reserves only.
    #[must_use]
    pub fn always(mut self, fault: Fault) -> Self {
        self.always = Some(fault);
        self
    }

    /// Adds faults that the next reserves and give-backs meet, one each, in this order.
    #[must_use]
    pub fn script(mut self, faults: impl IntoIterator<Item = Fault>) -> Self {
        self.script.extend(faults);
        self
    }

    /// Adds a fault that each reserve meets with this probability (0 to 1; all faults' together at most
    /// 1, those beyond never happen).
    #[must_use]
    pub fn random(mut self, fault: Fault, probability: f64) -> Self {
        self.random.push((fault, probability));
        self
    }

    /// Seeds chance (0 unless told otherwise).
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.rng = fastrand::Rng::with_seed(seed);
        self
    }

    pub(super) fn push(&mut self, fault: Fault) {
        self.script.push_back(fault);
    }

    /// The fault and the latency of the next reserve or give-back.
    pub(super) fn next_reserve(&mut self) -> (Option<Fault>, Duration) {
        let latency = self.draw_latency();
        let chance = self.draw_chance();
        let fault = self.always.or_else(|| self.script.pop_front()).or(chance);
        match fault {
            Some(Fault::Latency(instead)) => (fault, instead),
            _ => (fault, latency),
        }
    }

    /// The fault and the latency of the next administrative call.
    pub(super) fn next_other(&mut self) -> (Option<Fault>, Duration) {
        (self.always, self.draw_latency())
    }

    fn draw_latency(&mut self) -> Duration {
        let spread = u64::try_from(self.longest.saturating_sub(self.shortest).as_nanos()).unwrap_or(u64::MAX);
        // Nothing is drawn where there is no choice, so that latency does not shift the faults of a seed.
        if spread == 0 {
            self.shortest
        } else {
            self.shortest + Duration::from_nanos(self.rng.u64(0..=spread))
        }
    }

    fn draw_chance(&mut self) -> Option<Fault> {
        if self.random.is_empty() {
            return None;
        }
        // One number per call whatever comes of it: the faults of one call do not depend on those of another.
        let mut point = self.rng.f64();
        self.random.iter().find_map(|&(fault, probability)| {
            point -= probability;
            (point < 0.0).then_some(fault)
        })
    }
}

pub(super) fn injected(kind: ErrorKind) -> Error {
    Error::new(kind, format!("injected fault: {}", kind.as_str()))
}

pub(super) fn named(error: Error, request: &Reserve) -> Error {
    error.of(&request.name).during(Operation::Reserve)
}
