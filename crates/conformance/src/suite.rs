//! The builder.

use std::sync::Arc;

use idmill::Result;
use idmill::store::Store;

use super::Engine;
use super::setup::{Endpoint, Setup, Timeouts};
use super::trials::trials;

/// The conformance suite of one store. See the [module](super).
#[derive(Debug)]
#[must_use = "call `main` or `run`"]
pub struct Suite {
    pub(super) setup: Setup,
    pub(super) filters: Vec<String>,
    pub(super) seed: Option<u64>,
}

impl Suite {
    /// Creates a suite for a store. `connect` returns a new client for each call, with its own connections,
    /// as another process would have. `connect` is called at least once for each trial that runs, with the
    /// address of the engine or of a proxy in front of it.
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

    /// Sets the engine, which the suite starts, kills and pauses. A store without an engine is embedded: it
    /// has no connections to cut.
    pub fn engine(mut self, engine: impl Engine + 'static) -> Self {
        self.setup.engine = Some(Box::new(engine));
        self
    }

    /// Skips a trial. The report lists it with the reason.
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

    /// Skips the trials that need several processes. These trials are always skipped for a store that is not
    /// [shared](idmill::store::Capabilities::shared).
    pub fn one_process(mut self, reason: &str) -> Self {
        self.setup.one_process = Some(reason.to_owned());
        self
    }

    /// Declares that the store has a window in front of it. A grant may then be shorter than requested, and
    /// the stored sequence may be up to `ids` ahead of the grants.
    pub fn window(mut self, ids: u64) -> Self {
        self.setup.window = Some(ids);
        self
    }

    /// Declares that the engine skips up to `ids` of a sequence when it is killed, because it counts ahead
    /// in its log. Default 0: only ids in doubt may be lost.
    pub fn skips_at_a_kill(mut self, ids: u64) -> Self {
        self.setup.skipped_at_a_kill = ids;
        self
    }

    /// Sets the largest id that the store supports. Default 2^64 − 1.
    pub fn largest_id(mut self, id: u64) -> Self {
        self.setup.largest = id;
        self
    }

    /// Sets the timeouts.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.setup.timeouts = timeouts;
        self
    }

    /// Sets the command-line arguments with which this executable runs this suite when it is started as a
    /// worker process. No arguments are needed if the executable calls [`main`](Self::main). In a test of the
    /// standard harness, pass the name of the test, `--exact` and `--nocapture`.
    pub fn worker_arguments<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.setup.worker_arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Runs only the trials whose names contain one of the words given here.
    pub fn only(mut self, word: impl Into<String>) -> Self {
        self.filters.push(word.into());
        self
    }

    /// Fixes the random choices, to repeat a run. The environment variable `IDMILL_CONFORMANCE_SEED` does
    /// the same.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Returns the name of the suite.
    pub fn name(&self) -> &str {
        &self.setup.name
    }
}
