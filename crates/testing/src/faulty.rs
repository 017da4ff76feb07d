//! A memory store that can fail in every way, on demand.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{
    Bounds, Capabilities, Change, GiveBack, Grant, Identity, Listing, MemoryStore, Page, Records, Reserve,
    SequenceInfo, Snapshot, Store, StoreFuture,
};
use idmill::{Error, ErrorKind, IdRange, Operation, Result, SequenceName};
use parking_lot::Mutex;

/// A fault of one round trip to a [`FaultyStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The request never arrives: nothing is reserved, and the error is [`ErrorKind::Unavailable`].
    LostRequest,
    /// The range is reserved, but the answer is lost ([`ErrorKind::UnknownOutcome`]).
    LostReply,
    /// The range is reserved, and the call never returns.
    Hang,
    /// Nothing is reserved, and the call never returns.
    HangBefore,
    /// Nothing is reserved, and the call fails with an error of this kind.
    Refuse(ErrorKind),
    /// This round trip has this latency instead of the usual one, and succeeds.
    Latency(Duration),
    /// Nonsense: the previous grant of the sequence again. If there was none, the call succeeds.
    Repeat,
    /// Nonsense: an id beyond the sequence's bounds. If the bounds cover all of `u64`, the call succeeds.
    OutOfBounds,
    /// Nonsense: one id more than requested, which is really reserved. At the end of the bounds, the range is
    /// shorter.
    TooMany,
    /// Nonsense: a grant without ids.
    Empty,
}

/// The faults and the latency of a [`FaultyStore`].
///
/// The fault of [`always`](Self::always) comes first, then the script, then random faults. Calls other than
/// reserves and give-backs meet only the fault of `always`. Random faults are drawn from one seeded generator
/// in the order of the calls: the same calls in the same order meet the same faults.
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

    /// The store is unreachable: every call fails with [`ErrorKind::Unavailable`] and has no effect.
    pub fn outage() -> Self {
        Self::none().always(Fault::LostRequest)
    }

    /// Every call takes this long. Half of it passes before the call is applied.
    #[must_use]
    pub fn latency(self, latency: Duration) -> Self {
        self.latency_between(latency, latency)
    }

    /// Every call takes a random time between the two, inclusive.
    #[must_use]
    pub fn latency_between(mut self, shortest: Duration, longest: Duration) -> Self {
        self.shortest = shortest.min(longest);
        self.longest = longest.max(shortest);
        self
    }

    /// Every call meets this fault. Nonsense affects only reserves.
    #[must_use]
    pub fn always(mut self, fault: Fault) -> Self {
        self.always = Some(fault);
        self
    }

    /// Adds faults for the next reserves and give-backs, one each, in this order.
    #[must_use]
    pub fn script(mut self, faults: impl IntoIterator<Item = Fault>) -> Self {
        self.script.extend(faults);
        self
    }

    /// Adds a fault that each reserve and give-back meets with this probability (0 to 1). The sum of all
    /// probabilities is at most 1; faults beyond that never happen.
    #[must_use]
    pub fn random(mut self, fault: Fault, probability: f64) -> Self {
        self.random.push((fault, probability));
        self
    }

    /// Sets the seed of random faults. Default 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.rng = fastrand::Rng::with_seed(seed);
        self
    }

    fn push(&mut self, fault: Fault) {
        self.script.push_back(fault);
    }

    /// The fault and the latency of the next reserve or give-back.
    fn next_reserve(&mut self) -> (Option<Fault>, Duration) {
        let latency = self.draw_latency();
        let chance = self.draw_chance();
        let fault = self.always.or_else(|| self.script.pop_front()).or(chance);
        match fault {
            Some(Fault::Latency(instead)) => (fault, instead),
            _ => (fault, latency),
        }
    }

    /// The fault and the latency of the next administrative call.
    fn next_other(&mut self) -> (Option<Fault>, Duration) {
        (self.always, self.draw_latency())
    }

    fn draw_latency(&mut self) -> Duration {
        let spread = u64::try_from(self.longest.saturating_sub(self.shortest).as_nanos()).unwrap_or(u64::MAX);
        // A constant latency draws no random number, so that the faults of a seed stay the same.
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
        // Draw one number per call in any case, so that the faults of one call do not depend on those of
        // another.
        let mut point = self.rng.f64();
        self.random.iter().find_map(|&(fault, probability)| {
            point -= probability;
            (point < 0.0).then_some(fault)
        })
    }
}

/// A [`MemoryStore`] with faults, latency and a record of its grants. Clones share one state.
///
/// Half of the latency passes before a call is applied, and half afterwards. So a call whose future is
/// dropped may or may not be applied, as with a database over a network.
#[derive(Clone, Debug, Default)]
pub struct FaultyStore {
    memory: MemoryStore,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    failing: HashMap<String, ErrorKind>,
    reserves: u64,
    requests: u64,
    recording: bool,
    granted: HashMap<String, Vec<Grant>>,
    previous: HashMap<String, Grant>,
}

impl FaultyStore {
    /// An empty store without latency and faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store with faults.
    pub fn with_faults(faults: Faults) -> Self {
        let store = Self::new();
        store.set_faults(faults);
        store
    }

    /// Records every grant from now on, for [`granted`](Self::granted).
    #[must_use]
    pub fn recording(self) -> Self {
        self.state.lock().recording = true;
        self
    }

    /// Replaces the faults, for this store and all its clones. Calls in flight keep the fault they met, and
    /// hanging calls keep hanging.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Adds a fault to the end of the script: one of the next reserves or give-backs meets it.
    pub fn push_fault(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Makes every reserve of one sequence fail, without applying it, until
    /// [`heal_sequence`](Self::heal_sequence).
    pub fn fail_sequence(&self, name: &str, kind: ErrorKind) {
        self.state.lock().failing.insert(name.to_owned(), kind);
    }

    /// Ends the effect of [`fail_sequence`](Self::fail_sequence).
    pub fn heal_sequence(&self, name: &str) {
        self.state.lock().failing.remove(name);
    }

    /// Number of reserves so far: round trips, so a batch counts once.
    pub fn reserves(&self) -> u64 {
        self.state.lock().reserves
    }

    /// Number of requests so far: a batch counts each of its requests.
    pub fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    /// Every grant of a sequence that was applied, in order, without the ids that were given back. Includes
    /// grants whose reply was lost, but no grants that a fault made up. Empty unless
    /// [`recording`](Self::recording).
    pub fn granted(&self, name: &str) -> Vec<Grant> {
        self.state.lock().granted.get(name).cloned().unwrap_or_default()
    }

    /// Like the method of [`MemoryStore`].
    pub fn snapshot(&self) -> Snapshot {
        self.memory.snapshot()
    }

    /// Like the method of [`MemoryStore`].
    pub fn restore(&self, snapshot: &Snapshot) {
        self.memory.restore(snapshot);
    }

    /// One reserve of one or many sequences: a single round trip with a single fault.
    async fn round_trip(&self, requests: &[Reserve]) -> Vec<Result<Grant>> {
        let (fault, latency) = {
            let mut state = self.state.lock();
            state.reserves += 1;
            state.requests += requests.len() as u64;
            state.faults.next_reserve()
        };
        let (before, after) = halves(latency);
        pause(before).await;
        let answer = match fault {
            None | Some(Fault::Latency(_)) => self.apply(requests).await,
            Some(Fault::LostRequest) => refuse(requests, ErrorKind::Unavailable),
            Some(Fault::Refuse(kind)) => refuse(requests, kind),
            Some(Fault::LostReply) => {
                drop(self.apply(requests).await);
                refuse(requests, ErrorKind::UnknownOutcome)
            }
            Some(Fault::Hang) => {
                drop(self.apply(requests).await);
                std::future::pending().await
            }
            Some(Fault::HangBefore) => std::future::pending().await,
            Some(nonsense) => self.lie(requests, nonsense).await,
        };
        pause(after).await;
        answer
    }

    async fn apply(&self, requests: &[Reserve]) -> Vec<Result<Grant>> {
        let mut answers = Vec::new();
        for request in requests {
            answers.push(self.apply_one(request).await.map_err(|error| named(error, request)));
        }
        answers
    }

    async fn apply_one(&self, request: &Reserve) -> Result<Grant> {
        let failing = self.state.lock().failing.get(request.name.as_str()).copied();
        if let Some(kind) = failing {
            return Err(injected(kind));
        }
        let grant = self.memory.reserve(request).await?;
        let mut state = self.state.lock();
        state.previous.insert(request.name.to_string(), grant);
        if state.recording {
            state.granted.entry(request.name.to_string()).or_default().push(grant);
        }
        Ok(grant)
    }

    /// Answers with grants that no correct store returns, if the fault is possible for the sequence.
    async fn lie(&self, requests: &[Reserve], nonsense: Fault) -> Vec<Result<Grant>> {
        let mut answers = Vec::new();
        for request in requests {
            answers.push(self.lie_once(request, nonsense).await.map_err(|error| named(error, request)));
        }
        answers
    }

    async fn lie_once(&self, request: &Reserve, nonsense: Fault) -> Result<Grant> {
        let info = match self.memory.inspect(&request.name).await? {
            Some(info) => info,
            None => SequenceInfo::new(request.name.clone(), request.creation()?),
        };
        let answer = |range| Grant::new(range, info.identity, info.bounds);
        let made_up = match nonsense {
            Fault::Repeat => self.state.lock().previous.get(request.name.as_str()).copied(),
            Fault::Empty => Some(answer(IdRange::new(0, 0).expect("empty"))),
            Fault::OutOfBounds => outside(info.bounds).map(answer),
            Fault::TooMany => {
                let count = request.count.saturating_add(1);
                return self.apply_one(&request.clone().count(count)).await;
            }
            _ => None,
        };
        match made_up {
            Some(grant) => Ok(grant),
            None => self.apply_one(request).await,
        }
    }

    async fn take_back(&self, back: &GiveBack) -> Result<bool> {
        let taken = self.memory.give_back(back).await?;
        if taken && let Some(granted) = self.state.lock().granted.get_mut(back.name.as_str()) {
            shorten(granted, back);
        }
        Ok(taken)
    }

    /// An administrative call, which has latency and may meet the fault of `always`, but not the scripted and
    /// random faults.
    async fn call<R>(&self, operation: Operation, act: impl Future<Output = Result<R>>) -> Result<R> {
        let met = self.state.lock().faults.next_other();
        self.meet(met, operation, act).await
    }

    async fn meet<R>(
        &self,
        (fault, latency): (Option<Fault>, Duration),
        operation: Operation,
        act: impl Future<Output = Result<R>>,
    ) -> Result<R> {
        let (before, after) = halves(latency);
        pause(before).await;
        let outcome = match fault {
            Some(Fault::LostRequest) => Err(injected(ErrorKind::Unavailable)),
            Some(Fault::Refuse(kind)) => Err(injected(kind)),
            Some(Fault::HangBefore) => std::future::pending().await,
            fault => {
                let outcome = act.await;
                match fault {
                    Some(Fault::LostReply) => Err(injected(ErrorKind::UnknownOutcome)),
                    Some(Fault::Hang) => std::future::pending().await,
                    _ => outcome,
                }
            }
        };
        pause(after).await;
        outcome.map_err(|error| error.during(operation))
    }
}

macro_rules! administration {
    ($($operation:ident $call:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $call<'a>(&'a self, $($argument: $type),*) -> StoreFuture<'a, Result<$answer>> {
            Box::pin(self.call(Operation::$operation, self.memory.$call($($argument),*)))
        }
    )*};
}

impl Store for FaultyStore {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            let mut answers = self.round_trip(std::slice::from_ref(request)).await;
            answers.pop().expect("one answer to each request")
        })
    }

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(self.round_trip(requests))
    }

    fn give_back<'a>(&'a self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            let met = self.state.lock().faults.next_reserve();
            self.meet(met, Operation::GiveBack, self.take_back(back)).await
        })
    }

    administration! {
        Create create(name: &'a SequenceName, bounds: Bounds) -> SequenceInfo;
        Inspect inspect(name: &'a SequenceName) -> Option<SequenceInfo>;
        List list(page: &'a Page) -> Listing;
        Set set(name: &'a SequenceName, change: Change) -> SequenceInfo;
        Remove remove(name: &'a SequenceName, expected: Option<Identity>) -> bool;
        Inspect record(name: &'a SequenceName) -> Option<String>;
        Set swap_record(name: &'a SequenceName, seen: Option<&'a str>, wanted: &'a str) -> bool;
        List list_records(page: &'a Page) -> Records;
    }
}

fn injected(kind: ErrorKind) -> Error {
    Error::new(kind, format!("injected fault: {}", kind.as_str()))
}

fn named(error: Error, request: &Reserve) -> Error {
    error.of(&request.name).during(Operation::Reserve)
}

fn refuse(requests: &[Reserve], kind: ErrorKind) -> Vec<Result<Grant>> {
    requests.iter().map(|request| Err(named(injected(kind), request))).collect()
}

fn halves(latency: Duration) -> (Duration, Duration) {
    let before = latency / 2;
    (before, latency.saturating_sub(before))
}

async fn pause(duration: Duration) {
    // Without latency no runtime is needed.
    if !duration.is_zero() {
        tokio::time::sleep(duration).await;
    }
}

/// Removes the given-back ids from the end of the grants: from the last one, or from several consecutive
/// ones.
fn shorten(granted: &mut Vec<Grant>, back: &GiveBack) {
    while let Some(last) = granted.last_mut()
        && last.identity == back.identity
        && last.range.end() > u128::from(back.rest.start())
    {
        let kept = back.rest.start().saturating_sub(last.range.start());
        last.range = last.range.take_front(kept);
        if !last.range.is_empty() {
            return;
        }
        granted.pop();
    }
}

/// One id above the bounds, or below if there is none above.
fn outside(bounds: Bounds) -> Option<IdRange> {
    let id = bounds.max().checked_add(1).or_else(|| bounds.start().checked_sub(1))?;
    IdRange::new(id, 1)
}
