//! Rows in several datacenters, and the network between them and a process.
//!
//! The library's code decides how the rows change. This file models the database: conditional writes are
//! applied in some order, one after the other. A write may be answered, stay unanswered, or be applied long
//! after the caller's timeout.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use idmill::store::{Bounds, Identity};
use idmill_shared_cache::datacenter::{
    Claim, ClaimWrite, Era, GlobalRow, Install, Outcome, Span, Take, WindowRow,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// The timeout for a request.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Fault rates, in percent of all requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    pub(crate) lost_request: u32,
    pub(crate) lost_reply: u32,
    /// Applied up to an hour later.
    pub(crate) late: u32,
    /// Refused immediately, and certainly not applied.
    pub(crate) refused: u32,
}

/// The reason for a missing answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The request was certainly not applied.
    Unavailable,
    /// The request may have been applied, or may still be applied later.
    Unknown,
}

pub(crate) type Answer<T> = Result<T, Silence>;

#[derive(Debug)]
pub(crate) struct Rows {
    era: Era,
    pub(crate) bounds: Bounds,
    pub(crate) next: u128,
    claims: Vec<Option<Claim>>,
    pub(crate) windows: Vec<Option<WindowRow>>,
    /// Every take that was applied.
    pub(crate) taken: Vec<Span>,
    pub(crate) weather: Weather,
    pub(crate) cut_off: Vec<bool>,
    /// A datacenter is cut off at the worst moment: when its window has at most the given number of ids left.
    pub(crate) cut_when_low: Option<(usize, u64)>,
    rng: Rng,
}

#[derive(Clone, Debug)]
pub(crate) struct Cluster(pub(crate) Arc<Mutex<Rows>>);

enum Fate {
    Answered,
    Lost,
    ReplyLost,
    Late(Duration),
    Refused,
}

impl Rows {
    fn fate(&mut self) -> Fate {
        let Weather { lost_request, lost_reply, late, refused } = self.weather;
        let mut roll = self.rng.u32(0..100);
        for (percent, fate) in [
            (lost_request, Fate::Lost),
            (lost_reply, Fate::ReplyLost),
            (late, Fate::Late(Duration::from_millis(self.rng.u64(0..3_600_000)))),
            (refused, Fate::Refused),
        ] {
            if roll < percent {
                return fate;
            }
            roll -= percent;
        }
        Fate::Answered
    }

    pub(crate) fn global(&self, datacenter: usize) -> GlobalRow {
        GlobalRow { era: self.era, bounds: self.bounds, next: self.next, claim: self.claims[datacenter] }
    }

    /// The ids that are claimed for a datacenter and not installed.
    pub(crate) fn owed(&self, datacenter: usize) -> Option<Span> {
        let installed = self.windows[datacenter].map_or(0, |window| window.generation);
        self.claims[datacenter].filter(|claim| claim.token > installed).map(|claim| claim.span)
    }

    /// Whether a datacenter has no ids left.
    pub(crate) fn is_exhausted(&self, datacenter: usize) -> bool {
        let window = self.windows[datacenter];
        let left = window.is_some_and(|window| !window.current.is_empty() || window.preloaded.is_some());
        !left && self.owed(datacenter).is_none() && self.next > u128::from(self.bounds.max())
    }
}

impl Cluster {
    pub(crate) fn new(datacenters: usize, bounds: Bounds, weather: Weather, seed: u64) -> Self {
        let identity = Identity { incarnation: 1, epoch: 0 };
        Self(Arc::new(Mutex::new(Rows {
            era: Era { identity, recalls: 0 },
            bounds,
            next: bounds.start().into(),
            claims: vec![None; datacenters],
            windows: vec![None; datacenters],
            taken: Vec::new(),
            weather,
            cut_off: vec![false; datacenters],
            cut_when_low: None,
            rng: Rng::with_seed(seed),
        })))
    }

    /// One round trip within a datacenter.
    async fn local<T: Send + 'static>(&self, act: impl FnOnce(&mut Rows) -> T + Send + 'static) -> Answer<T> {
        let (fate, latency) = {
            let mut rows = self.0.lock();
            (rows.fate(), rows.rng.u64(200..4_000))
        };
        self.trip(fate, Duration::from_micros(latency), act).await
    }

    /// One round trip to the other datacenters.
    async fn global<T: Send + 'static>(
        &self,
        datacenter: usize,
        act: impl FnOnce(&mut Rows) -> T + Send + 'static,
    ) -> Answer<T> {
        let (fate, latency) = {
            let mut rows = self.0.lock();
            let fate = if rows.cut_off[datacenter] { Fate::Refused } else { rows.fate() };
            (fate, rows.rng.u64(20_000..150_000))
        };
        self.trip(fate, Duration::from_micros(latency), act).await
    }

    async fn trip<T: Send + 'static>(
        &self,
        fate: Fate,
        latency: Duration,
        act: impl FnOnce(&mut Rows) -> T + Send + 'static,
    ) -> Answer<T> {
        let (there, after) = match fate {
            Fate::Refused => {
                sleep(latency).await;
                return Err(Silence::Unavailable);
            }
            Fate::Lost => {
                sleep(TIMEOUT).await;
                return Err(Silence::Unknown);
            }
            Fate::Answered | Fate::ReplyLost => (latency / 2, latency / 2),
            Fate::Late(delay) => (delay, latency / 2),
        };
        let (reply, answer) = oneshot::channel();
        let cluster = self.clone();
        // A request that was sent is executed, even if its sender is gone.
        tokio::spawn(async move {
            sleep(there).await;
            let result = act(&mut cluster.0.lock());
            sleep(after).await;
            if matches!(fate, Fate::ReplyLost) {
                sleep(TIMEOUT).await;
            } else {
                let _ = reply.send(result);
            }
        });
        match timeout(TIMEOUT, answer).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) | Err(_) => Err(Silence::Unknown),
        }
    }

    pub(crate) async fn read_window(&self, datacenter: usize) -> Answer<Option<WindowRow>> {
        self.local(move |rows| rows.windows[datacenter]).await
    }

    pub(crate) async fn create_window(&self, datacenter: usize, row: WindowRow) -> Answer<()> {
        self.local(move |rows| {
            rows.windows[datacenter].get_or_insert(row);
        })
        .await
    }

    pub(crate) async fn take(&self, datacenter: usize, take: Take) -> Answer<bool> {
        self.local(move |rows| {
            let Some(row) = rows.windows[datacenter].as_mut().filter(|row| take.holds(row)) else {
                return false;
            };
            take.apply(row);
            if rows.cut_when_low.is_some_and(|(cut, ids)| cut == datacenter && row.low(ids).is_some()) {
                (rows.cut_when_low, rows.cut_off[datacenter]) = (None, true);
            }
            rows.taken.push(take.ids);
            true
        })
        .await
    }

    pub(crate) async fn install(&self, datacenter: usize, install: Install) -> Answer<bool> {
        self.local(move |rows| {
            let Some(row) = rows.windows[datacenter].as_mut().filter(|row| install.holds(row)) else {
                return false;
            };
            install.apply(row);
            true
        })
        .await
    }

    pub(crate) async fn read_global(&self, datacenter: usize) -> Answer<GlobalRow> {
        self.global(datacenter, move |rows| rows.global(datacenter)).await
    }

    pub(crate) async fn claim(&self, datacenter: usize, write: ClaimWrite) -> Answer<bool> {
        self.global(datacenter, move |rows| {
            let mut row = rows.global(datacenter);
            if !write.holds(&row) {
                return false;
            }
            write.apply(&mut row);
            (rows.next, rows.claims[datacenter]) = (row.next, row.claim);
            true
        })
        .await
    }
}

/// The outcome of a conditional write.
pub(crate) fn outcome(answer: Answer<bool>) -> Outcome {
    match answer {
        Ok(true) => Outcome::Applied,
        Ok(false) => Outcome::Refused,
        Err(_) => Outcome::Unknown,
    }
}
