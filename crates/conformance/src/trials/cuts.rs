//! Creations, changes and removals through connections that are cut, and reserves with a rival.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;

use idmill::store::{Change, Grant, Identity, SequenceInfo};
use idmill::{Result, SequenceName};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::connections::undisturbed;
use crate::client::Client;
use crate::context::Context;
use crate::ledger::{Ledger, Reply, leaves_doubt};
use crate::outcome::{Outcome, Stop, check, fail};
use crate::proxy::{Fault, Gate, Proxy, nth};

const FAULTS: [Fault; 3] = [Fault::CutBefore, Fault::CutAfter, Fault::CutReply];

/// Maximum number of pieces of a call that are cut, one per round.
const PIECES: u64 = 3;

/// Ids per reserve.
const LEN: u64 = 10;

/// A client behind a proxy, and an observer without one.
pub(super) struct Scene {
    context: Arc<Context>,
    proxy: Proxy,
    pub(super) client: Client,
    pub(super) observer: Client,
    /// While it is set, all requests wait for this gate.
    held: Arc<Mutex<Option<Gate>>>,
    pub(super) met: u64,
}

impl Scene {
    pub(super) async fn new(context: Arc<Context>) -> Outcome<Self> {
        let endpoint = context.endpoint();
        let held: Arc<Mutex<Option<Gate>>> = Arc::default();
        let holding = held.clone();
        let proxy = Proxy::builder(endpoint.address());
        let proxy = proxy.requests(move |_| holding.lock().clone().map(Fault::Hold)).start().await?;
        let client = context.connect_to(endpoint.to(proxy.address())).await?;
        let observer = undisturbed(&context).await?;
        Ok(Self { context, proxy, client, observer, held, met: 0 })
    }

    /// Makes one call, without retries, that meets a fault after `skip` pieces.
    pub(super) async fn through<T>(
        &mut self,
        (fault, skip): (Fault, u64),
        call: impl AsyncFnOnce(&Client) -> Result<T>,
    ) -> Outcome<Result<T>> {
        self.proxy.arm(fault, nth(skip, |_| true));
        let limit = self.context.setup.timeouts.call;
        let answer = timeout(limit, call(&self.client)).await;
        self.met += self.proxy.disarm();
        answer.map_err(|_| Stop::Failed(format!("no answer within {limit:?} after a cut connection")))
    }

    /// Injects a fault after `skip` pieces. All later requests wait for the gate.
    fn cut_and_hold(&self, (fault, skip): (Fault, u64)) -> Gate {
        let (gate, held, mut cut) = (Gate::new(), self.held.clone(), nth(skip, |_| true));
        let holding = gate.clone();
        self.proxy.arm(fault, move |request| {
            let is_cut = cut(request);
            if is_cut {
                *held.lock() = Some(holding.clone());
            }
            is_cut
        });
        gate
    }

    /// Makes one call, without retries, that meets a fault after `skip` pieces. Calls `meanwhile` before any
    /// second attempt. Returns both results.
    async fn with_a_rival<T, U>(
        &mut self,
        cut: (Fault, u64),
        call: impl AsyncFnOnce(&Client) -> T,
        meanwhile: impl AsyncFnOnce(&Client) -> U,
    ) -> (T, U) {
        let gate = self.cut_and_hold(cut);
        let mut call = pin!(call(&self.client));
        // A client that does not send again sends nothing that could wait.
        let early = tokio::select! {
            answer = &mut call => Some(answer),
            () = gate.caught() => None,
        };
        let meanwhile = meanwhile(&self.observer).await;
        gate.open();
        let answer = if let Some(answer) = early { answer } else { call.await };
        *self.held.lock() = None;
        self.met += self.proxy.disarm();
        (answer, meanwhile)
    }

    /// Waits until the client works again.
    async fn recovered(&self, name: &SequenceName) -> Outcome {
        let call = || async { Ok(self.client.store().inspect(name).await.ok()) };
        self.context.until("a call after a cut connection", call).await.map(drop)
    }

    pub(super) fn proven(&self) -> Outcome {
        check!(self.met > 0, "no fault occurred: the trial proves nothing");
        Ok(())
    }
}

/// Each fault at each piece.
pub(super) fn rounds() -> impl Iterator<Item = (Fault, u64)> {
    (0..PIECES).flat_map(|skip| FAULTS.map(|fault| (fault, skip)))
}

/// Checks the answer to one call: the result of a success; no effect after any error that is not in doubt.
fn is_true<T: Debug>(
    call: &str,
    answer: &Result<T>,
    done: impl FnOnce(&T) -> bool,
    untouched: bool,
    found: &impl Debug,
) -> Outcome {
    match answer {
        Ok(value) if done(value) => Ok(()),
        Ok(value) => fail!("{call} returned {value:?}, but {found:?} is stored: was it sent twice?"),
        Err(error) if leaves_doubt(error.kind()) || untouched => Ok(()),
        Err(error) => fail!(
            "{call} took effect, so that {found:?} is stored, but reported that it had not, or was sent twice: \
             {error} ({})",
            error.kind().as_str()
        ),
    }
}

pub(super) async fn creation_through_cuts(context: Arc<Context>) -> Outcome {
    let mut scene = Scene::new(context.clone()).await?;
    for (round, cut) in rounds().enumerate() {
        let (created, reserved) =
            (context.name(&format!("created{round}")), context.name(&format!("reserved{round}")));
        let bounds = context.bounds();
        let call = async |client: &Client| client.store().create(&created, bounds).await;
        let answer = scene.through(cut.clone(), call).await?;
        let found = scene.observer.inspect(&created).await??;
        is_true("create", &answer, |info| found.as_ref() == Some(info), found.is_none(), &found)?;
        scene.recovered(&created).await?;
        let request = context.request(&reserved, LEN);
        let answer =
            scene.through(cut, async |client: &Client| client.store().reserve(&request).await).await?;
        let found = scene.observer.inspect(&reserved).await??;
        let (start, next) = (bounds.start(), found.as_ref().and_then(|info| info.next));
        let first = |identity| Some((identity, Some(start + LEN)));
        let stored = found.as_ref().map(|info| (info.identity, info.next));
        check!(
            next.is_none_or(|next| next <= start + LEN),
            "the first reserve of {LEN} ids was sent twice: {found:?} is stored after {answer:?}"
        );
        let done = |grant: &Grant| stored == first(grant.identity) && grant.range.start() == start;
        is_true("the first reserve", &answer, done, next.is_none_or(|next| next == start), &found)?;
        scene.recovered(&reserved).await?;
    }
    scene.proven()
}

pub(super) async fn administration_through_cuts(context: Arc<Context>) -> Outcome {
    let mut scene = Scene::new(context.clone()).await?;
    for (round, cut) in rounds().enumerate() {
        let name = context.name(&format!("changed{round}"));
        let before = scene.observer.create(&name, context.bounds()).await??;
        let (next, epoch) = (before.next.map(|next| next + LEN), before.identity.epoch + 1);
        // A revocation begins another epoch each time that it is sent.
        let change = Change::new().next(next).revoke(true);
        let call = async |client: &Client| client.store().set(&name, change).await;
        let answer = scene.through(cut.clone(), call).await?;
        let after = scene.observer.look(&name).await?;
        let changed =
            SequenceInfo::stored(name.clone(), next, before.bounds, Identity { epoch, ..before.identity });
        check!(
            after == before || after == changed,
            "one change to {before:?} made it {after:?}: it was sent twice"
        );
        is_true("set", &answer, |info| *info == after && after == changed, after == before, &after)?;
        scene.recovered(&name).await?;
        let call = async |client: &Client| client.store().remove(&name, None).await;
        let answer = scene.through(cut, call).await?;
        let found = scene.observer.inspect(&name).await??;
        is_true("remove", &answer, |removed| *removed && found.is_none(), found.is_some(), &found)?;
        scene.recovered(&name).await?;
    }
    scene.proven()
}

pub(super) async fn rival_in_a_cut(context: Arc<Context>) -> Outcome {
    let mut scene = Scene::new(context.clone()).await?;
    let (name, ledger) = (context.name("rival"), Ledger::default());
    let request = context.request(&name, LEN);
    scene.client.granted(&ledger, &request).await?;
    for cut in rounds() {
        let limit = context.setup.timeouts.call;
        let call = async |client: &Client| client.record(&ledger, &request, limit).await;
        let rival = async |observer: &Client| observer.granted(&ledger, &request).await;
        let (reply, granted) = scene.with_a_rival(cut, call, rival).await;
        granted?;
        check!(reply != Reply::Silent, "the client did not detect that its connection was cut");
        if let Err(Stop::Failed(reason)) = ledger.disjoint() {
            fail!(
                "{reason}; after a refused second attempt, only the own claim shows that the first was applied"
            );
        }
        scene.recovered(&name).await?;
    }
    scene.proven()?;
    ledger.one_identity()?;
    ledger.passing()
}

pub(super) async fn removal_in_a_cut(context: Arc<Context>) -> Outcome {
    let mut scene = Scene::new(context.clone()).await?;
    for (round, cut) in rounds().enumerate() {
        let name = context.name(&format!("returning{round}"));
        let request = context.request(&name, LEN);
        let call = async |client: &Client| {
            timeout(context.setup.timeouts.call, client.store().reserve(&request)).await.is_ok()
        };
        let rival = async |observer: &Client| -> Outcome<Identity> {
            let grant = observer.reserve(&request).await??;
            observer.store().remove(&name, None).await?;
            Ok(grant.identity)
        };
        let (is_answered, removed) = scene.with_a_rival(cut, call, rival).await;
        let removed = removed?;
        check!(is_answered, "the client did not detect that its connection was cut");
        let found = scene.observer.inspect(&name).await??;
        check!(
            found.as_ref().is_none_or(|info| info.identity != removed),
            "a removed sequence was created again with its identity: {found:?} is stored"
        );
        scene.recovered(&name).await?;
    }
    scene.proven()
}
