//! The setup of a suite: the store's clients, the engine, and timeouts.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use idmill::store::{Store, StoreFuture};
use idmill::{Result, Status};
use tokio::time::timeout;

use super::Engine;
use super::client::Client;
use super::outcome::{Outcome, Stop};

/// The pause between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(50);

/// Where a client finds the store.
#[derive(Clone, Debug)]
pub struct Endpoint {
    address: Option<SocketAddr>,
    dir: PathBuf,
    timeout: Duration,
}

impl Endpoint {
    pub(super) fn new(address: Option<SocketAddr>, dir: PathBuf, timeout: Duration) -> Self {
        Self { address, dir, timeout }
    }

    /// Returns the address to connect to: the engine, or a proxy in front of it. A client must reach the
    /// engine only through this address.
    ///
    /// # Panics
    /// If the suite has no engine.
    pub fn address(&self) -> SocketAddr {
        self.address.expect("this suite has no engine: `Suite::engine` adds one")
    }

    /// Returns a directory for stores that are kept in files. The directory is the same for all clients of a
    /// run, and removed after the run.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the timeout to open the store with, which limits how long it may wait for its engine.
    ///
    /// In trials that kill the engine, pause a process or disturb a connection, it is shorter than
    /// [`Timeouts::pause`]. In all others it is long, so that they do not fail on a slow machine.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn to(&self, address: SocketAddr) -> Self {
        Self { address: Some(address), ..self.clone() }
    }

    pub(super) fn given(&self) -> Option<SocketAddr> {
        self.address
    }
}

/// The timeouts of the suite. Raise them for slow engines. Except for [`pause`](Self::pause), they only take
/// time if a trial fails.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub(super) call: Duration,
    pub(super) pause: Duration,
    pub(super) recovery: Duration,
    pub(super) trial: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            call: Duration::from_secs(60),
            pause: Duration::from_secs(3),
            recovery: Duration::from_secs(60),
            trial: Duration::from_secs(300),
        }
    }
}

impl Timeouts {
    /// Sets the timeout of a call to a healthy store. Default 60 s. The timeout is raised if the first
    /// reserves show that the machine is slow.
    #[must_use]
    pub fn call(mut self, call: Duration) -> Self {
        self.call = call;
        self
    }

    /// Sets how long engines and clients are paused, and replies withheld. In trials with pauses,
    /// [`Endpoint::timeout`] is two thirds of the pause, because a store that waits longer would not give up
    /// within the pause. Default 3 s. The pause is raised if the first reserves show that the machine is
    /// slow.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Sets how long the store may take to recover after a fault. Default 60 s.
    #[must_use]
    pub fn recovery(mut self, recovery: Duration) -> Self {
        self.recovery = recovery;
        self
    }

    /// Sets the time limit of a trial. Default 5 min.
    #[must_use]
    pub fn trial(mut self, trial: Duration) -> Self {
        self.trial = trial;
        self
    }

    /// Extends the timeouts for a slow machine. `slowest` is the slowest reserve of a healthy store. A pause
    /// must be much longer than a reserve, and a call may wait for many others. The factor is at most ten for
    /// pauses and four for calls, so that a run ends.
    pub(super) fn scaled(mut self, slowest: Duration) -> Self {
        self.pause = self.pause.max(slowest.saturating_mul(40).min(self.pause * 10));
        self.call = self.call.max(slowest.saturating_mul(200).min(self.call * 4));
        self
    }

    /// The timeout for a store: two thirds of a pause if `short`, otherwise two thirds of a call.
    pub(super) fn of_the_store(&self, short: bool) -> Duration {
        let millis = (if short { self.pause } else { self.call } * 2 / 3).as_millis();
        // Round down to an even number of milliseconds, as some stores require.
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX) / 2 * 2)
    }
}

type Connect = dyn Fn(Endpoint) -> StoreFuture<'static, Result<Arc<dyn Store>>> + Send + Sync;

pub(super) struct Setup {
    pub(super) name: String,
    pub(super) connect: Box<Connect>,
    pub(super) engine: Option<Box<dyn Engine>>,
    pub(super) skips: Vec<(String, String)>,
    pub(super) one_process: Option<String>,
    pub(super) window: Option<u64>,
    /// Number of ids of a sequence that the engine itself may skip when it is killed.
    pub(super) skipped_at_a_kill: u64,
    pub(super) largest: u64,
    pub(super) timeouts: Timeouts,
    pub(super) worker_arguments: Vec<String>,
}

impl Setup {
    /// The endpoint for a client, with its timeout.
    pub(super) fn endpoint(&self, dir: PathBuf, short: bool) -> Endpoint {
        let address = self.engine.as_ref().map(|engine| engine.address());
        Endpoint::new(address, dir, self.timeouts.of_the_store(short))
    }

    /// Connects a client. An engine that has just restarted may reject some connections. Transient errors
    /// are retried for the recovery time.
    pub(super) async fn connect(&self, endpoint: Endpoint) -> Outcome<Client> {
        let (limit, begun) = (self.timeouts.call, Instant::now());
        loop {
            let store = timeout(limit, (self.connect)(endpoint.clone())).await;
            match store.map_err(|_| Stop::Failed(format!("connect: no answer within {limit:?}")))? {
                Ok(store) => return Ok(Client::new(store, limit)),
                Err(error)
                    if error.status() == Status::Transient && begun.elapsed() < self.timeouts.recovery => {}
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("name", &self.name)
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn store_timeout_fits_the_pause_only_where_tested() {
        let timeouts = Timeouts::default();
        assert_eq!((timeouts.of_the_store(true), timeouts.of_the_store(false)), (seconds(2), seconds(40)));
        let uneven = timeouts.pause(Duration::from_millis(7_001)).of_the_store(true);
        assert_eq!(
            uneven,
            Duration::from_millis(4_666),
            "an even number of milliseconds, which stores halve"
        );
    }

    #[test]
    fn limits_grow_with_reserve_latency_up_to_a_maximum() {
        let pause = |slowest| Timeouts::default().scaled(slowest).pause;
        let call = |slowest| Timeouts::default().scaled(slowest).call;
        assert_eq!(call(Duration::from_millis(50)), seconds(60));
        assert_eq!((call(Duration::from_millis(400)), call(seconds(20))), (seconds(80), seconds(240)));
        assert_eq!(pause(Duration::from_millis(50)), seconds(3));
        assert_eq!(pause(Duration::from_millis(200)), seconds(8));
        assert_eq!(pause(seconds(20)), seconds(30));
    }
}
