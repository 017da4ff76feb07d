//! The behaviour of callers.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::{Either, select};
use idmill::{Allocator, Handle, Order, Ranges, Result};
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::history::{Draw, Outcome, Shared, Span, View};
use crate::plan::{Bug, SequencePlan};
use crate::store::Gate;

pub(crate) struct Caller {
    pub(crate) life: usize,
    pub(crate) number: usize,
    pub(crate) sequence: usize,
    pub(crate) rng: Rng,
    pub(crate) history: Shared,
    pub(crate) gate: Gate,
    pub(crate) allocator: Allocator<u64>,
    pub(crate) handle: Handle<u64>,
    pub(crate) block: Option<Handle<u64>>,
    /// The timeout of the allocator's calls.
    pub(crate) limit: Duration,
    /// The longest pause between calls; every pause if `calm`.
    pub(crate) think: Duration,
    pub(crate) calm: bool,
    pub(crate) bug: Bug,
}

/// Longer than all faults: a caller that waits this long is stuck.
const PATIENCE: Duration = Duration::from_secs(3600);
/// The pause of a patient caller.
const PATIENT_PAUSE: Duration = Duration::from_secs(1);

fn one(id: u64) -> Vec<Span> {
    vec![(id, 1)]
}

fn several(ranges: &Ranges<u64>) -> Vec<Span> {
    ranges.ranges().iter().map(|range| (range.start(), range.len())).collect()
}

impl Caller {
    pub(crate) fn new(
        (life, number, sequence): (usize, usize, usize),
        allocator: Allocator<u64>,
        plan: &SequencePlan,
        (history, gate): (Shared, Gate),
        rng: Rng,
    ) -> Self {
        let block = (plan.order == Order::Thread).then(|| allocator.handle());
        let handle = allocator.handle();
        let think = Duration::ZERO;
        let limit = plan.timeout;
        Self {
            life,
            number,
            sequence,
            rng,
            history,
            gate,
            allocator,
            handle,
            block,
            limit,
            think,
            calm: false,
            bug: Bug::None,
        }
    }

    /// Draws one id after the other until `end`, and waits for each as long as necessary.
    pub(crate) async fn run_patiently(mut self, end: Duration) {
        self.allocator = self.allocator.within(PATIENCE);
        self.limit = PATIENCE;
        while self.history.lock().now() < end {
            self.next(None).await;
            sleep(PATIENT_PAUSE).await;
        }
    }

    pub(crate) async fn run(mut self, ops: usize) {
        for _ in 0..ops {
            self.think().await;
            self.gate.pass().await;
            if self.calm {
                self.next(None).await;
                continue;
            }
            let cancel = (self.rng.u32(0..8) == 0).then(|| Duration::from_millis(self.rng.u64(0..60)));
            match self.rng.u32(0..100) {
                0..=34 => self.next(cancel).await,
                35..=49 => self.handle_next(cancel).await,
                50..=59 => self.block_next(cancel).await,
                60..=79 => self.take(cancel).await,
                80..=96 => self.burst(),
                97 => drop(self.allocator.warm(1).await),
                98 => drop(self.allocator.snapshot()),
                _ => self.revoke(),
            }
        }
    }

    async fn think(&mut self) {
        let most = u64::try_from(self.think.as_millis()).expect("short");
        let think = if self.calm { most } else { self.rng.u64(0..=most) };
        sleep(Duration::from_millis(think)).await;
    }

    async fn next(&mut self, cancel: Option<Duration>) {
        let allocator = self.allocator.clone();
        let call = async { allocator.next().await.map(one) };
        self.call(View::Allocator, 1, cancel, call).await;
    }

    async fn handle_next(&mut self, cancel: Option<Duration>) {
        // Take the handle out and put it back, because the call borrows the whole caller.
        let spare = self.allocator.handle();
        let mut handle = std::mem::replace(&mut self.handle, spare);
        self.call(View::Handle, 1, cancel, async { handle.next().await.map(one) }).await;
        self.handle = handle;
    }

    async fn block_next(&mut self, cancel: Option<Duration>) {
        let Some(mut block) = self.block.take() else { return self.next(cancel).await };
        self.call(View::Block, 1, cancel, async { block.next().await.map(one) }).await;
        self.block = Some(block);
    }

    async fn take(&mut self, cancel: Option<Duration>) {
        let n = if self.rng.u32(0..4) == 0 { self.rng.u64(0..1000) } else { self.rng.u64(0..30) };
        let allocator = self.allocator.clone();
        let drains = self.bug == Bug::TakeDrainsMemory;
        let call = async {
            let mut ids = Vec::new();
            while drains && (ids.len() as u64) < n {
                let Ok(id) = allocator.try_next() else { break };
                ids.push((id, 1));
            }
            let rest = allocator.take(n - ids.len() as u64).await?;
            Ok(ids.into_iter().chain(several(&rest)).collect())
        };
        self.call(View::Take, n, cancel, call).await;
    }

    /// Draws that never wait, one after the other.
    fn burst(&mut self) {
        for _ in 0..self.rng.u32(1..40) {
            let (view, outcome) = match (self.rng.u32(0..3), &mut self.block) {
                (0, Some(block)) => (View::Block, block.try_next()),
                (1, _) => (View::Handle, self.handle.try_next()),
                _ => (View::Allocator, self.allocator.try_next()),
            };
            let began = self.begins();
            self.note(view, (false, 1), began, outcome.map(one).into());
        }
    }

    fn revoke(&self) {
        let mut history = self.history.lock();
        let tick = history.tick(&(self.life, self.sequence));
        history.revoked.push((self.life, self.sequence, tick));
        self.allocator.discard();
    }

    fn begins(&self) -> (u64, Duration) {
        let mut history = self.history.lock();
        (history.tick(&(self.life, self.number)), history.now())
    }

    async fn call(
        &mut self,
        view: View,
        want: u64,
        cancel: Option<Duration>,
        call: impl Future<Output = Result<Vec<Span>>>,
    ) {
        let began = self.begins();
        let outcome = match cancel {
            None => call.await.into(),
            // Poll the timer after the actor but before the call, so that calls with a finished reply are
            // dropped too.
            Some(after) => match select(pin!(gives_up(after)), pin!(call)).await {
                Either::Left(_) => Outcome::Cancelled,
                Either::Right((result, _)) => result.into(),
            },
        };
        self.note(view, (true, want), began, outcome);
    }

    fn note(&self, view: View, (waits, want): (bool, u64), began: (u64, Duration), outcome: Outcome) {
        let mut history = self.history.lock();
        let ended = history.tick(&self.number);
        let (life, sequence, caller, limit) = (self.life, self.sequence, self.number, self.limit);
        let ((began, at), now) = (began, history.now());
        let took = now.saturating_sub(at);
        history.drew(Draw {
            life,
            sequence,
            caller,
            view,
            waits,
            want,
            began,
            ended,
            at,
            took,
            limit,
            outcome,
        });
    }
}

async fn gives_up(after: Duration) {
    sleep(after).await;
    yield_now().await;
}

impl From<Result<Vec<Span>>> for Outcome {
    fn from(result: Result<Vec<Span>>) -> Self {
        match result {
            Ok(ids) => Self::Ids(ids),
            Err(error) => Self::Refused(error.kind()),
        }
    }
}
