//! The builder.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use idmill::store::{Store, StoreFuture};
use idmill::{Result, Status};
use tokio::time::timeout;

use super::client::Client;
use super::outcome::{Outcome, Stop};
use super::report::Report;
use super::trials::trials;
use super::{Engine, run};

/// Between two tries to connect.
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

    /// Where to connect to: the engine, or a proxy in front of it. A client must reach the
    /// engine by this address alone.
    ///
    /// # Panics
    /// If the suite has no engine.
    pub fn address(&self) -> SocketAddr {
        self.address.expect("this suite has no engine: `Suite::engine` adds one")
    }

    /// A directory, the same for all clients of one run, for stores that are kept in
    /// files. Removed after the run.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// How long the store may wait for its engine: the time limit to open it with.
    ///
    /// It is shorter than the suite's pauses in the trials that pause something or withhold a reply, and
    /// generous in all others, so that a slow machine fails none of them.
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

/// How long the suite waits. Raise them for slow engines: they bound failures, and cost nothing where nothing
/// fails, but for [`pause`](Self::pause).
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
    /// How long one call to a healthy store may take. Default 60 s; more where the first reserves show that
    /// the machine is slow.
    #[must_use]
    pub fn call(mut self, call: Duration) -> Self {
        self.call = call;
        self
    }

    /// How long engines and clients are paused, and replies withheld. [`Endpoint::timeout`] is two thirds of
    /// it in those trials: a store that waits longer is not shown to give up. Default 3 s; more where the
    /// first reserves show that the machine is slow.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// How long after the end of a fault the store may take to work again. Default 60 s.
    #[must_use]
    pub fn recovery(mut self, recovery: Duration) -> Self {
        self.recovery = recovery;
        self
    }

    /// How long one trial may take. Default 5 min.
    #[must_use]
    pub fn trial(mut self, trial: Duration) -> Self {
        self.trial = trial;
        self
    }

    /// For a machine on which a reserve of a healthy store took up to `slowest`: what is short on purpose has
    /// to remain long beside that, and a call may wait for many others. At most ten, or four, times what it
    /// was, so that a run ends.
    pub(super) fn scaled(mut self, slowest: Duration) -> Self {
        self.pause = self.pause.max(slowest.saturating_mul(40).min(self.pause * 10));
        self.call = self.call.max(slowest.saturating_mul(200).min(self.call * 4));
        self
    }

    /// The time limit for a store: shorter than a pause, or than a call.
    pub(super) fn of_the_store(&self, short: bool) -> Duration {
        let millis = (if short { self.pause } else { self.call } * 2 / 3).as_millis();
        // Whole, as some stores want it; also the half of it.
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX) / 2 * 2)
    }
}

type Connect = dyn Fn(Endpoint) -> StoreFuture<'static, Result<Arc<dyn Store>>> + Send + Sync;

/// The conformance suite of one store. See the [module](super).
#[derive(Debug)]
#[must_use = "call `main` or `run`"]
pub struct Suite {
    pub(super) setup: Setup,
    pub(super) filters: Vec<String>,
    pub(super) seed: Option<u64>,
}

pub(super) struct Setup {
    pub(super) name: String,
    connect: Box<Connect>,
    pub(super) engine: Option<Box<dyn Engine>>,
    pub(super) skips: Vec<(String, String)>,
    pub(super) one_process: Option<String>,
    pub(super) window: Option<u64>,
    /// How many ids of a sequence the engine itself may skip when it is killed.
    pub(super) skipped_at_a_kill: u64,
    pub(super) largest: u64,
    pub(super) timeouts: Timeouts,
    pub(super) worker_arguments: Vec<String>,
}

impl Setup {
    /// Where a client finds the store, and how long it may wait there.
    pub(super) fn endpoint(&self, dir: PathBuf, short: bool) -> Endpoint {
        let address = self.engine.as_ref().map(|engine| engine.address());
        Endpoint::new(address, dir, self.timeouts.of_the_store(short))
    }

    /// A client. An engine that began again a moment ago may turn some away at first: what passes is tried
    /// again, for as long as recovery may take.
    pub(super) async fn connect(&self, endpoint: Endpoint) -> Outcome<Client> {
        let (patience, begun) = (self.timeouts.call, Instant::now());
        loop {
            let store = timeout(patience, (self.connect)(endpoint.clone())).await;
            match store.map_err(|_| Stop::Failed(format!("connect: no answer within {patience:?}")))? {
                Ok(store) => return Ok(Client::new(store, patience)),
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

impl Suite {
    /// A suite for the store that `connect` gives clients of: each call a new one, with connections of its
    /// own, as another process would have. It is called with the address of the engine or of a proxy in front
    /// of it, and several times for each trial.
    pub fn new<F>(name: impl Into<String>, connect: impl Fn(Endpoint) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Arc<dyn Store>>> + Send + 'static,
    {
        let setup = Setup {
            name: name.into(),
            connect: Box::new(move |endpoint| Box::pin(connect(endpoint))),
            engine: None,
            skips: Vec::new(),
            one_process: None,
            window: None,
            skipped_at_a_kill: 0,
            largest: u64::MAX,
            timeouts: Timeouts::default(),
            worker_arguments: Vec::new(),
        };
        Self { setup, filters: Vec::new(), seed: None }
    }

    /// The engine to start, kill and pause. A store without one is embedded: it has no
    /// connections that could be cut.
    pub fn engine(mut self, engine: impl Engine + 'static) -> Self {
        self.setup.engine = Some(Box::new(engine));
        self
    }

    /// Leaves a trial out; the report says so, and why.
    ///
    /// # Panics
    /// If there is no such trial.
    pub fn skip(mut self, trial: &str, reason: &str) -> Self {
        assert!(
            trials().iter().any(|known| known.name() == trial),
            "no trial is called {trial:?}: see --list"
        );
        self.setup.skips.push((trial.to_owned(), reason.to_owned()));
        self
    }

    /// Leaves out the trials that need several processes. Those of a store that declares itself not
    /// [shared](idmill::store::Capabilities::shared) are left out anyway.
    pub fn one_process(mut self, reason: &str) -> Self {
        self.setup.one_process = Some(reason.to_owned());
        self
    }

    /// Says that the store has a window in front of it: a grant may be shorter than was asked for, and the
    /// stored sequence up to `ids` ahead of what was granted.
    pub fn window(mut self, ids: u64) -> Self {
        self.setup.window = Some(ids);
        self
    }

    /// Says that the engine skips up to `ids` of a sequence when it is killed, as one does that counts ahead
    /// in its log. Default 0: nothing is lost but what is in doubt.
    pub fn skips_at_a_kill(mut self, ids: u64) -> Self {
        self.setup.skipped_at_a_kill = ids;
        self
    }

    /// The largest id that the store can keep. Default 2^64 − 1.
    pub fn largest_id(mut self, id: u64) -> Self {
        self.setup.largest = id;
        self
    }

    /// How long to wait, and for what.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.setup.timeouts = timeouts;
        self
    }

    /// The arguments with which this executable reaches this suite when it is started again as
    /// another process. None are needed where `main` does; in a test of the usual harness: its
    /// name, `--exact`, `--nocapture`.
    pub fn worker_arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.setup.worker_arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Runs only the trials whose names hold one of the words given here.
    pub fn only(mut self, word: impl Into<String>) -> Self {
        self.filters.push(word.into());
        self
    }

    /// Fixes what is random, to repeat a run. The environment variable
    /// `IDMILL_CONFORMANCE_SEED` does the same.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The name that it was given.
    pub fn name(&self) -> &str {
        &self.setup.name
    }

    /// Runs the suite, printing a line for each trial.
    ///
    /// In a process that was started to work for a suite of this name, does that
    /// instead, and does not return.
    ///
    /// # Panics
    /// If called from within an async runtime.
    pub fn run(self) -> Report {
        run::run(self)
    }

    /// All that the `main` of a test with `harness = false` needs: reads the command line, [runs](Self::run),
    /// and exits with status 1 if a trial failed.
    pub fn main(self) -> ! {
        run::main([self])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_store_gives_up_within_a_pause_only_where_that_is_looked_at() {
        let timeouts = Timeouts::default();
        assert_eq!((timeouts.of_the_store(true), timeouts.of_the_store(false)), (seconds(2), seconds(40)));
        let uneven = timeouts.pause(Duration::from_millis(7_001)).of_the_store(true);
        assert_eq!(
            uneven,
            Duration::from_millis(4_666),
            "in whole milliseconds, of which stores take the half"
        );
    }

    #[test]
    fn limits_grow_with_what_a_reserve_takes_but_not_for_ever() {
        let pause = |slowest| Timeouts::default().scaled(slowest).pause;
        let call = |slowest| Timeouts::default().scaled(slowest).call;
        assert_eq!(call(Duration::from_millis(50)), seconds(60));
        assert_eq!((call(Duration::from_millis(400)), call(seconds(20))), (seconds(80), seconds(240)));
        assert_eq!(pause(Duration::from_millis(50)), seconds(3));
        assert_eq!(pause(Duration::from_millis(200)), seconds(8));
        assert_eq!(pause(seconds(20)), seconds(30));
    }
}
