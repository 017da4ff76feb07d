//! State that all connections share.

use std::sync::Arc;

use derive_more::Debug;
use idmill::Error;
use tokio_util::sync::CancellationToken;

use crate::access::{Access, Caller, Refusal};
use crate::audit::Audit;
use crate::http::{LastAnswers, Readers};
use crate::peer::Peer;
use crate::readiness::Readiness;
use crate::sequences::{OpenSequence, OpenSequences};
use crate::status::ServerStatus;
use crate::store_proxy::StoreProxy;

/// Returns the metrics as text.
pub(crate) type Render = dyn Fn() -> String + Send + Sync;

#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) draws: Arc<OpenSequences>,
    pub(crate) proxy: StoreProxy,
    pub(crate) access: Access,
    pub(crate) audit: Audit,
    /// The port of the Redis protocol; 0 if it is not served.
    pub(crate) port: u16,
    /// Renders the metrics of this process.
    #[debug(skip)]
    pub(crate) metrics: Option<Arc<Render>>,
    pub(crate) status: ServerStatus,
    pub(crate) readiness: Readiness,
    pub(crate) last_answers: LastAnswers,
    /// The readers of the page's events.
    pub(crate) readers: Readers,
    /// Cancelled when the server ends: clients get their pending replies, then they are disconnected.
    pub(crate) ending: CancellationToken,
}

impl ServerState {
    /// Returns a state over an empty memory store.
    #[cfg(test)]
    pub(crate) fn of_memory(access: Access) -> Arc<Self> {
        let sequences = idmill::Sequences::new(idmill::store::MemoryStore::new()).unwrap();
        let limit = std::time::Duration::from_secs(5);
        Arc::new(Self {
            proxy: StoreProxy::of(sequences.store().clone(), limit),
            draws: Arc::new(OpenSequences::of(sequences.clone(), sequences, limit)),
            audit: Audit::of(access.clock.clone()),
            access,
            port: 0,
            metrics: None,
            status: ServerStatus::of_nothing(),
            readiness: Readiness::default(),
            last_answers: LastAnswers::default(),
            readers: Readers::default(),
            ending: CancellationToken::new(),
        })
    }

    /// Returns the caller with this token. From now on, the connection counts towards this token. A wrong
    /// token is refused after a delay.
    ///
    /// # Errors
    /// The refusal, and whether the connection must be closed.
    pub(crate) async fn caller(&self, secret: &str, peer: &Peer) -> Result<Caller, (Refusal, bool)> {
        let caller = self.access.caller(secret).inspect_err(|refusal| {
            self.audit.guessed(peer, *refusal);
        });
        match caller.and_then(|caller| peer.shows(&caller).map(|()| caller)) {
            Err(refusal) => Err((refusal, refusal.is_guess() && peer.guessed().await)),
            Ok(caller) => Ok(caller),
        }
    }

    /// Counts `requests` requests, if the token [limits requests](Caller::is_metered). Rejects all of them or
    /// none.
    pub(crate) fn pays(&self, caller: &Caller, requests: u64) -> Result<(), Refusal> {
        if caller.is_metered() { caller.pays(requests, self.access.clock.elapsed()) } else { Ok(()) }
    }

    /// Returns the sequence to draw from, and opens it if necessary. A sequence that the call may create
    /// counts towards the caller's limit of new sequences.
    pub(crate) async fn sequence<E>(&self, caller: &Caller, name: &str) -> Result<Arc<OpenSequence>, E>
    where
        E: From<Refusal> + From<Error>,
    {
        if let Some(served) = self.draws.open(name) {
            return Ok(served);
        }
        self.draws.unopened.check(name)?;
        let counts =
            caller.creates_some_only() && self.draws.sequences.admin().inspect(name).await?.is_none();
        let created = if counts { Some(caller.creates(self.access.clock.elapsed())?) } else { None };
        self.draws.find(name).await.map_err(|error| {
            self.readiness.failed(&error);
            if let Some(created) = created {
                created.failed(&error);
            }
            error.into()
        })
    }
}
