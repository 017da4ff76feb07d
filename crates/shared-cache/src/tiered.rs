//! Combines a window and its source into one store.

use std::collections::HashSet;

use super::counts::{Count, Doubt};
use super::draw_floors::{DrawFloors, Floor};
use super::{Claimed, Drawn, Installed, Source, Window};
use idmill::SequenceName;
use idmill::store::{
    Capabilities, Change, Grant, Reserve, SequenceInfo, Store, StoreFuture, ensure, exhausted, not_found,
};
use idmill::{Error, ErrorKind, Operation, Result};
use parking_lot::Mutex;
use std::sync::Arc;

/// The wait for a busy window grows up to this multiple of the first wait.
const LONGEST_WAIT: u32 = 8;

/// A window in front of a store, as one store.
///
/// A reserve draws from the window. An empty or low window is refilled from the source. A process runs at
/// most one early refill per sequence. Administration goes to the source.
///
/// A reserve has no timeout of its own; drop the future to limit it. Ids in progress then become a gap. A
/// grant may have fewer ids than requested, for example at the end of the window's range.
///
/// Callers of every id type share the window, so a refill ignores the caller's [`ceiling`](Reserve::ceiling).
/// Ids that a caller draws above its ceiling become a gap. If it drew no others, it gets
/// [`Exhausted`](idmill::ErrorKind::Exhausted): the sequence has passed the range of its type.
#[derive(Debug)]
pub struct Tiered<S, W> {
    inner: Arc<Inner<S, W>>,
}

#[derive(Debug)]
struct Inner<S, W> {
    source: S,
    window: W,
    /// Sequences with an early refill in progress.
    ahead: Mutex<HashSet<SequenceName>>,
    floors: DrawFloors,
    lost: Lost,
}

/// Ids that were reserved and did not reach a caller. Only for statistics.
#[derive(Debug, Default)]
struct Lost {
    abandoned: Count,
    uncertain: Count,
    moves: Count,
}

impl<S, W> Tiered<S, W> {
    /// Puts `window` in front of `source`.
    pub fn new(source: S, window: W) -> Self {
        let (ahead, floors, lost) = (Mutex::default(), DrawFloors::default(), Lost::default());
        Self { inner: Arc::new(Inner { source, window, ahead, floors, lost }) }
    }

    /// Returns the window.
    pub fn window(&self) -> &W {
        &self.inner.window
    }

    /// Returns the source.
    pub fn source(&self) -> &S {
        &self.inner.source
    }

    /// Returns how many ids this process took from the source or the window but could not use: a gap.
    pub fn abandoned(&self) -> u64 {
        self.inner.lost.abandoned.read()
    }

    /// Returns how many times the window had ids at or below those drawn before, because the server's name or
    /// address now leads to another window. Those ids are not handed out, so ids still grow within this
    /// process, but not across processes.
    pub fn moves(&self) -> u64 {
        self.inner.lost.moves.read()
    }

    /// Returns how many ids this process reserved for the window without learning whether they were
    /// installed. They are handed out from the window, or are a gap.
    pub fn uncertain(&self) -> u64 {
        self.inner.lost.uncertain.read()
    }
}

impl<S: Source<W::Token>, W: Window> Inner<S, W> {
    async fn reserve(self: &Arc<Self>, request: &Reserve) -> Result<Grant> {
        let mut waits = 0;
        loop {
            let floor = self.floors.floor(&request.name);
            match self.window.draw(request).await? {
                Drawn::Ids { grant, low } => {
                    if let Some(token) = low {
                        self.refill_ahead(request, token);
                    }
                    if let Some(grant) = self.growing(request, floor, grant) {
                        return self.below_ceiling(request, grant);
                    }
                }
                Drawn::Empty(token) => {
                    if let Some(grant) = self.refill(request, token).await? {
                        return self.below_ceiling(request, grant);
                    }
                }
                Drawn::Busy(wait) => {
                    waits += 1;
                    tokio::time::sleep(wait * waits.min(LONGEST_WAIT)).await;
                }
                Drawn::UnknownSequence => {
                    let info = self.acquaint(request).await?;
                    self.window.introduce(&info);
                }
            }
        }
    }

    /// Returns the part of a draw that is above all earlier draws. The rest is a gap: the window was replaced
    /// by another.
    fn growing(&self, request: &Reserve, floor: Option<Floor>, mut grant: Grant) -> Option<Grant> {
        let below = floor.map_or(0, |floor| floor.covers(&grant));
        if below > 0 {
            let lost = grant.range.take_front(below);
            self.lost.abandoned.add(below);
            self.lost.moves.add(1);
            tracing::warn!(
                sequence = %request.name, ?lost,
                "the window returned ids below earlier ones: its server was replaced; for now, ids do not \
                 grow across processes"
            );
        }
        self.floors.drew(&request.name, &grant);
        (below == 0 || !grant.range.is_empty()).then_some(grant)
    }

    /// Returns the sequence from the source. Creates it there if the request allows that.
    async fn acquaint(&self, request: &Reserve) -> Result<SequenceInfo> {
        let (store, name) = (self.source.store(), &request.name);
        match request.create {
            Some(create) => ensure(store, name, create).await,
            None => store.inspect(name).await?.ok_or_else(|| not_found(name).during(Operation::Reserve)),
        }
    }

    /// Claims and installs a range. Returns the ids that the install returned, if any.
    async fn refill(&self, request: &Reserve, token: W::Token) -> Result<Option<Grant>> {
        let claimed = self.claim(request, &token).await;
        let Ok(Claimed::Range { grant, recorded }) = claimed else {
            let lost = claimed.as_ref().is_err_and(|error| error.kind() == ErrorKind::UnknownOutcome);
            self.window.release(request, token, lost).await;
            return claimed.map(|_| None);
        };
        // A recorded claim is not lost: the source returns it again.
        let mut doubt = self.lost.uncertain.doubt(if recorded { 0 } else { grant.range.len() });
        let installed = self.window.install(request, token, grant).await;
        self.lost.settle(request, &mut doubt, &installed);
        Ok(match installed? {
            Installed::Ids(grant) => {
                self.floors.drew(&request.name, &grant);
                Some(grant)
            }
            Installed::Done | Installed::Refused | Installed::Unknown => None,
        })
    }

    async fn claim(&self, request: &Reserve, token: &W::Token) -> Result<Claimed> {
        if self.window.wants_news(request) {
            let info = self.source.store().inspect(&request.name).await?;
            if let Some(info) = &info {
                self.window.introduce(info);
            }
            // The next id is above the caller's ceiling.
            if info.and_then(|info| info.next).is_some_and(|next| next > request.ceiling) {
                return Err(exhausted(&request.name, request.ceiling).during(Operation::Reserve));
            }
        }
        let count = self.window.refill_size(request, token);
        let (floor, asked) =
            (self.floors.floor(&request.name), request.clone().count(count).ceiling(u64::MAX));
        let claimed = self.source.claim(&asked, token).await?;
        // A recorded claim may be returned more than once.
        if let Claimed::Range { grant, recorded: false } = &claimed {
            if let Some((reached, change)) = floor.and_then(|floor| floor.gone_back(grant)) {
                return Err(self.went_back(request, grant, reached, change).await);
            }
            self.floors.claimed(&request.name, grant);
        }
        Ok(claimed)
    }

    /// The source granted ids that are, or were, in the window. Raises the source's `next`, so that other
    /// processes, which may have a lower floor, do not get these ids.
    async fn went_back(&self, request: &Reserve, grant: &Grant, reached: u64, change: Change) -> Error {
        let raised = self.source.store().set(&request.name, change).await;
        let outcome = match &raised {
            Ok(_) => format!("its next id was raised above {reached}"),
            Err(error) => format!("its next id could not be raised above {reached} ({error})"),
        };
        self.lost.abandoned.add(grant.range.len());
        let message = format!(
            "the store went back in time: it granted {:?} after {reached}; {outcome}; check the store \
             before you continue",
            grant.range
        );
        Error::new(ErrorKind::StoreViolation, message).of(&request.name).during(Operation::Reserve)
    }

    fn below_ceiling(&self, request: &Reserve, mut grant: Grant) -> Result<Grant> {
        let drawn = grant.range;
        let allowed = (u128::from(request.ceiling) + 1).saturating_sub(u128::from(drawn.start()));
        grant.range = grant.range.take_front(u64::try_from(allowed).unwrap_or(u64::MAX));
        self.lost.abandoned.add(drawn.len() - grant.range.len());
        if grant.range.is_empty() && !drawn.is_empty() {
            return Err(exhausted(&request.name, request.ceiling).during(Operation::Reserve));
        }
        Ok(grant)
    }

    fn refill_ahead(self: &Arc<Self>, request: &Reserve, token: W::Token) {
        if !self.ahead.lock().insert(request.name.clone()) {
            return;
        }
        let alone = Ahead { inner: self.clone(), name: request.name.clone() };
        // No caller waits for this refill, so its size does not depend on the last request.
        let request = request.clone().count(1);
        tokio::spawn(async move {
            if let Err(error) = alone.inner.refill(&request, token).await {
                tracing::debug!(sequence = %request.name, %error, "a background refill failed");
            }
        });
    }
}

/// Marks the early refill of a sequence as in progress until dropped, also by a panic or the end of a
/// runtime.
struct Ahead<S, W> {
    inner: Arc<Inner<S, W>>,
    name: SequenceName,
}

impl<S, W> Drop for Ahead<S, W> {
    fn drop(&mut self) {
        self.inner.ahead.lock().remove(&self.name);
    }
}

impl Lost {
    /// Counts the ids of a range after its install. They stay in doubt until their state is known.
    fn settle(&self, request: &Reserve, doubt: &mut Doubt<'_>, installed: &Result<Installed>) {
        let refused = match installed {
            Ok(Installed::Unknown) => return,
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => return,
            installed => matches!(installed, Ok(Installed::Refused) | Err(_)),
        };
        let ids = std::mem::take(&mut doubt.ids);
        if refused && ids > 0 {
            self.abandoned.add(ids);
            tracing::warn!(sequence = %request.name, ids, "a range was reserved but not installed");
        }
    }
}

impl<S: Source<W::Token>, W: Window> Store for Tiered<S, W> {
    fn capabilities(&self) -> Capabilities {
        let source = self.inner.source.store().capabilities();
        source.batches(false).shared(true).gives_back(false)
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(self.inner.reserve(request))
    }

    idmill::store_calls!(|this| this.inner.source.store() =>
        create inspect inspect_many list remove server record swap_record list_records);

    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        Box::pin(async move {
            let info = self.inner.source.store().set(name, change).await?;
            if change.next.is_some() || change.revoke {
                self.inner.window.recall(&info).await.map_err(|error| not_recalled(name, error))?;
            }
            Ok(info)
        })
    }
}

fn not_recalled(name: &SequenceName, error: Error) -> Error {
    let message = format!(
        "the change was made, but the window may still hand out earlier ids; repeat the change: {error}"
    );
    Error::new(ErrorKind::UnknownOutcome, message).because(error).of(name).during(Operation::Set)
}
