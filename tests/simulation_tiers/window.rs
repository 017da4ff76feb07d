//! A datacenter's window over the rows of a [`Cluster`], with the decisions that the Cassandra store makes.

use idmill::store::{
    Bounds, Capabilities, Change, Durability, Grant, Identity, Listing, Page, Reserve, SequenceInfo, Store,
    StoreFuture, exhausted,
};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_shared_cache::datacenter::{
    ClaimStep, Draw, Floor, GlobalRow, Install, Outcome, Prepare, Taken, Token, WindowRow, prepare,
};
use idmill_shared_cache::{Claimed, Drawn, Installed, Source, Window};

use crate::cluster::{Answer, Cluster, Silence, outcome};
use crate::gate::Gate;

/// A wrong decision, which the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    UnknownTakenAsSuccess,
    /// A claim with an unknown outcome is sent again, even if the claim was recorded.
    BlindRetry,
    /// The end of the sequence is tested before the recorded claim.
    EndTestedFirst,
    /// The threshold is a quarter of the ids that the isolation needs.
    Undersized,
}

/// One process of one datacenter.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) cluster: Cluster,
    pub(crate) datacenter: usize,
    pub(crate) gate: Gate,
    pub(crate) range: u64,
    pub(crate) threshold: u64,
    pub(crate) bug: Bug,
}

fn silent(silence: Silence) -> Error {
    match silence {
        Silence::Unavailable => Error::new(ErrorKind::Unavailable, "cut off"),
        Silence::Unknown => Error::new(ErrorKind::UnknownOutcome, "no answer"),
    }
}

impl Place {
    /// The process may be paused before the request and before the answer.
    async fn ask<T>(&self, request: impl Future<Output = Answer<T>>) -> Answer<T> {
        self.gate.pass().await;
        let answer = request.await;
        self.gate.pass().await;
        answer
    }

    /// A read changes nothing, so a missing answer counts as `Unavailable`.
    async fn read<T>(&self, request: impl Future<Output = Answer<T>>) -> Result<T> {
        self.ask(request).await.map_err(|_| silent(Silence::Unavailable))
    }

    async fn draw(&self, request: &Reserve) -> Result<Drawn<Token>> {
        let (cluster, datacenter) = (&self.cluster, self.datacenter);
        let mut floor = None;
        loop {
            let Some(window) = self.read(cluster.read_window(datacenter)).await? else {
                floor = self.create(floor).await?;
                continue;
            };
            let take = match window.draw(request.count, request.ceiling) {
                Draw::Take(take) => take,
                Draw::Empty(token) => return Ok(Drawn::Empty(token)),
                Draw::AboveCeiling => return Err(exhausted(&request.name, request.ceiling)),
            };
            let answer = self.ask(cluster.take(datacenter, take)).await;
            let mut outcome = outcome(answer);
            if self.bug == Bug::UnknownTakenAsSuccess && outcome == Outcome::Unknown {
                outcome = Outcome::Applied;
            }
            match take.after(outcome) {
                Taken::Ids(ids) => {
                    let mut left: WindowRow = window;
                    take.apply(&mut left);
                    let low = left.low(self.threshold);
                    return Ok(Drawn::Ids { grant: ids.granted(window.era, window.bounds), low });
                }
                Taken::Again => {}
                Taken::Gap => return Err(silent(answer.expect_err("the outcome is unknown"))),
            }
        }
    }

    async fn create(&self, floor: Option<Floor>) -> Result<Option<Floor>> {
        let (cluster, datacenter) = (&self.cluster, self.datacenter);
        let global: GlobalRow = self.read(cluster.read_global(datacenter)).await?;
        match prepare(None, &global, floor.as_ref()) {
            Prepare::Create(row) => {
                // The window is read again, whatever the outcome is.
                let _ = self.ask(cluster.create_window(datacenter, row)).await;
                Ok(floor)
            }
            Prepare::Again(floor) => Ok(Some(floor)),
            other => Err(Error::new(ErrorKind::StoreViolation, format!("{other:?}"))),
        }
    }

    async fn claim(&self, request: &Reserve, token: &Token) -> Result<Claimed> {
        let (cluster, datacenter) = (&self.cluster, self.datacenter);
        let mut blindly = false;
        loop {
            let mut global = self.read(cluster.read_global(datacenter)).await?;
            if blindly {
                global.claim = global.claim.map(|claim| idmill_shared_cache::datacenter::Claim {
                    token: token.generation - 1,
                    ..claim
                });
            }
            if self.bug == Bug::EndTestedFirst && global.next > u128::from(global.bounds.max()) {
                return Err(exhausted(&request.name, global.bounds.max()));
            }
            let write = match global.claim(token, request.count, request.ceiling) {
                ClaimStep::Recorded(ids) => return Ok(global.claimed(ids)),
                ClaimStep::Send(write) => write,
                ClaimStep::Stale => return Ok(Claimed::Stale),
                ClaimStep::Nothing if token.empty => {
                    return Err(exhausted(&request.name, global.bounds.max()));
                }
                ClaimStep::Nothing => return Ok(Claimed::Nothing),
                ClaimStep::Corrupt(fault) => return Err(Error::new(ErrorKind::StoreViolation, fault)),
            };
            let outcome = outcome(self.ask(cluster.claim(datacenter, write)).await);
            blindly = self.bug == Bug::BlindRetry && outcome == Outcome::Unknown;
            if let Some(ids) = write.after(outcome) {
                return Ok(global.claimed(ids));
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct DatacenterWindow(pub(crate) Place);

#[derive(Debug)]
pub(crate) struct Global(pub(crate) Place);

impl Window for DatacenterWindow {
    type Token = Token;

    fn draw<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Drawn<Token>>> {
        Box::pin(self.0.draw(request))
    }

    fn refill_size(&self, request: &Reserve, _token: &Token) -> u64 {
        self.0.range.max(request.count)
    }

    fn install<'a>(
        &'a self,
        _request: &'a Reserve,
        token: Token,
        grant: Grant,
    ) -> StoreFuture<'a, Result<Installed>> {
        Box::pin(async move {
            let install = Install::new(&token, grant.range.into(), grant.bounds);
            let installed = self.0.ask(self.0.cluster.install(self.0.datacenter, install)).await;
            Ok(if installed == Ok(true) { Installed::Done } else { Installed::Refused })
        })
    }
}

impl Source<Token> for Global {
    fn claim<'a>(&'a self, request: &'a Reserve, token: &'a Token) -> StoreFuture<'a, Result<Claimed>> {
        Box::pin(self.0.claim(request, token))
    }

    fn store(&self) -> &dyn Store {
        self
    }
}

/// Implements only the calls that opening a sequence needs.
impl Store for Global {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::Disk).shared(true)
    }

    fn reserve<'a>(&'a self, _request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        unsupported()
    }

    fn create<'a>(
        &'a self,
        _name: &'a SequenceName,
        _bounds: Bounds,
    ) -> StoreFuture<'a, Result<SequenceInfo>> {
        unsupported()
    }

    fn inspect<'a>(&'a self, _name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        unsupported()
    }

    fn list<'a>(&'a self, _page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        unsupported()
    }

    fn set<'a>(&'a self, _name: &'a SequenceName, _change: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        unsupported()
    }

    fn remove<'a>(
        &'a self,
        _name: &'a SequenceName,
        _expected: Option<Identity>,
    ) -> StoreFuture<'a, Result<bool>> {
        unsupported()
    }
}

fn unsupported<'a, T: Send + 'a>() -> StoreFuture<'a, Result<T>> {
    Box::pin(std::future::ready(Err(ErrorKind::Unsupported.into())))
}
