//! A window and the source behind it, as one store.

use std::collections::HashSet;

use super::{Claimed, Drawn, Installed, Source, Window};
use crate::error::Result;
use crate::name::SequenceName;
use crate::store::{
    Bounds, Capabilities, Change, Grant, Reserve, RetryCost, SequenceInfo, Store, StoreFuture, ensure,
};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};

/// A window in front of a store, as one store.
///
/// Reserving draws from the window, and refills it from the source when it is dry or low; at most one refill of a
/// sequence is under way in a process. Administration goes to the source.
///
/// A reserve takes as long as the window and its refills take: bound it by dropping the future.
#[derive(Debug)]
pub struct Tiered<S, W> {
    inner: Arc<Inner<S, W>>,
}

#[derive(Debug)]
struct Inner<S, W> {
    source: S,
    window: W,
    /// Sequences whose window is being refilled ahead of need.
    ahead: Mutex<HashSet<SequenceName>>,
    abandoned: AtomicU64,
}

impl<S, W> Tiered<S, W> {
    /// Puts `window` in front of `source`.
    pub fn new(source: S, window: W) -> Self {
        let ahead = Mutex::default();
        Self { inner: Arc::new(Inner { source, window, ahead, abandoned: AtomicU64::new(0) }) }
    }

    /// The window.
    pub fn window(&self) -> &W {
        &self.inner.window
    }

    /// The source.
    pub fn source(&self) -> &S {
        &self.inner.source
    }

    /// How many ids this process reserved for the window and could not install: a gap.
    pub fn abandoned(&self) -> u64 {
        self.inner.abandoned.load(Ordering::Relaxed)
    }
}

impl<S: Source<W::Token>, W: Window> Inner<S, W> {
    async fn reserve(self: &Arc<Self>, request: &Reserve) -> Result<Grant> {
        loop {
            match self.window.draw(request).await? {
                Drawn::Ids { grant, low } => {
                    if let Some(token) = low {
                        self.refill_ahead(request, token);
                    }
                    return Ok(grant);
                }
                Drawn::Dry(token) => {
                    if let Some(grant) = self.refill(request, token).await? {
                        return Ok(grant);
                    }
                }
                Drawn::Busy(wait) => tokio::time::sleep(wait).await,
                Drawn::Unacquainted => {
                    let info = ensure(self.source.store(), &request.name, request.create).await?;
                    self.window.introduce(&info);
                }
            }
        }
    }

    /// Claims and installs; the ids that the install answered with, if it did.
    async fn refill(&self, request: &Reserve, token: W::Token) -> Result<Option<Grant>> {
        let claim = Reserve { count: self.window.refill_size(request), ..request.clone() };
        let Claimed::Range { grant, recorded } = self.source.claim(&claim, &token).await? else {
            return Ok(None);
        };
        let installed = self.window.install(request, token, grant).await;
        if !recorded && !matches!(installed, Ok(Installed::Ids(_) | Installed::Done)) {
            self.abandoned.fetch_add(grant.range.len(), Ordering::Relaxed);
            tracing::warn!(sequence = %request.name, ids = grant.range.len(), "a range was reserved but not installed");
        }
        Ok(match installed? {
            Installed::Ids(grant) => Some(grant),
            Installed::Done | Installed::Refused => None,
        })
    }

    fn refill_ahead(self: &Arc<Self>, request: &Reserve, token: W::Token) {
        if !self.ahead.lock().insert(request.name.clone()) {
            return;
        }
        let (inner, request) = (self.clone(), request.clone());
        tokio::spawn(async move {
            if let Err(error) = inner.refill(&request, token).await {
                tracing::debug!(sequence = %request.name, %error, "a refill ahead of need failed");
            }
            inner.ahead.lock().remove(&request.name);
        });
    }
}

impl<S: Source<W::Token>, W: Window> Store for Tiered<S, W> {
    fn capabilities(&self) -> Capabilities {
        let source = self.inner.source.store().capabilities();
        Capabilities { retry: RetryCost::Gap, batches: false, shared: true, ..source }
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(self.inner.reserve(request))
    }

    fn create<'a>(&'a self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> {
        self.inner.source.store().create(name, bounds)
    }

    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        self.inner.source.store().inspect(name)
    }

    fn list(&self) -> StoreFuture<'_, Result<Vec<SequenceInfo>>> {
        self.inner.source.store().list()
    }

    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        self.inner.source.store().set(name, change)
    }

    fn remove<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>> {
        self.inner.source.store().remove(name)
    }
}
