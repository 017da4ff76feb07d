//! The tools of a trial.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use idmill::SequenceName;
use idmill::store::{Bounds, Reserve};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::client::Client;
use super::outcome::{Outcome, Stop};
use super::setup::{Endpoint, Setup};

/// One trial's view of the suite.
pub(super) struct Context {
    pub(super) setup: Arc<Setup>,
    pub(super) dir: PathBuf,
    trial: &'static str,
    /// Whether the store's timeout must be shorter than a pause of the engine.
    short: bool,
    run: u32,
    rng: Mutex<fastrand::Rng>,
    names: Mutex<Vec<SequenceName>>,
}

impl Context {
    pub(super) fn new(setup: Arc<Setup>, dir: PathBuf, trial: &'static str, short: bool, seed: u64) -> Self {
        // Each trial has its own generator, so that its random choices do not depend on the other trials.
        let mix = |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte));
        let own = trial.bytes().fold(seed, mix);
        let rng = Mutex::new(fastrand::Rng::with_seed(own));
        // Do not derive `run` from the seed: an engine that outlives the suite still has the names of the
        // last run.
        Self { setup, dir, trial, short, run: fastrand::u32(..), rng, names: Mutex::default() }
    }

    /// The store's endpoint, without a proxy.
    pub(super) fn endpoint(&self) -> Endpoint {
        self.setup.endpoint(self.dir.clone(), self.short)
    }

    /// A separate client, as another process would have.
    pub(super) async fn connect(&self) -> Outcome<Client> {
        self.connect_to(self.endpoint()).await
    }

    pub(super) async fn connect_to(&self, endpoint: Endpoint) -> Outcome<Client> {
        self.setup.connect(endpoint).await
    }

    /// Several clients.
    pub(super) async fn connect_many(&self, count: usize) -> Outcome<Vec<Client>> {
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            clients.push(self.connect().await?);
        }
        Ok(clients)
    }

    /// The name of a sequence that only this trial uses.
    pub(super) fn name(&self, label: &str) -> SequenceName {
        let text = format!("{}-{label}-{:08x}", self.trial, self.run);
        let name = SequenceName::new(&text).expect("a legal name");
        self.forget_later(name.clone());
        name
    }

    /// Registers a sequence that is removed after the trial.
    pub(super) fn forget_later(&self, name: SequenceName) {
        self.names.lock().push(name);
    }

    /// Removes the sequences of the trial. Errors are ignored: the removal trials detect them.
    pub(super) async fn clean_up(&self) {
        let names = std::mem::take(&mut *self.names.lock());
        let removing = async {
            let Ok(client) = self.connect().await else { return };
            for name in names {
                let _ = client.remove(&name).await;
            }
        };
        let _ = timeout(self.setup.timeouts.call, removing).await;
    }

    /// The default bounds of a trial.
    pub(super) fn bounds(&self) -> Bounds {
        Bounds::new(1, self.setup.largest).expect("at least one id")
    }

    /// A request that creates its sequence with [`bounds`](Self::bounds).
    pub(super) fn request(&self, name: &SequenceName, count: u64) -> Reserve {
        Reserve::new(name.clone(), count).create(self.bounds())
    }

    /// Number of ids that the store may reserve ahead of its grants.
    pub(super) fn window(&self) -> u64 {
        self.setup.window.unwrap_or(0)
    }

    pub(super) fn windowed(&self) -> bool {
        self.setup.window.is_some()
    }

    /// A random number from the seed.
    pub(super) fn random(&self, range: std::ops::RangeInclusive<u64>) -> u64 {
        self.rng.lock().u64(range)
    }

    /// Retries until `attempt` returns a value, for the recovery time at most.
    pub(super) async fn until<T, F: Future<Output = Outcome<Option<T>>>>(
        &self,
        what: &str,
        mut attempt: impl FnMut() -> F,
    ) -> Outcome<T> {
        let trying = async {
            loop {
                if let Some(value) = attempt().await? {
                    return Ok(value);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let recovery = self.setup.timeouts.recovery;
        let outcome = timeout(recovery, trying).await;
        outcome.unwrap_or_else(|_| Err(Stop::Failed(format!("{what}: not within {recovery:?}"))))
    }
}
