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
}
