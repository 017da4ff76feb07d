//! Checks that the store's answers are true when connections break at the worst moments.

use std::sync::Arc;
use std::time::Duration;

use idmill::{SequenceName, Status};

use crate::client::Client;
use crate::context::Context;
use crate::ledger::{Ledger, Reply};
use crate::outcome::{Outcome, check};
use crate::proxy::{Fault, Gate, Nonsense, Proxy, nth};
use crate::tracker::Tracker;

/// Number of faults that a client meets in one trial.
const FAULTS: u32 = 12;

/// A client behind a proxy, an observer without one, and one sequence.
struct Scene {
    context: Arc<Context>,
    proxy: Proxy,
    client: Client,
    observer: Client,
    name: SequenceName,
    ledger: Ledger,
    tracker: Tracker,
    probe: SequenceName,
    probed: Ledger,
    /// Number of pieces in which a reserve is sent.
    pieces: u64,
    met: u32,
}

/// A client without faults, which may therefore wait as long as in the trials without faults.
pub(super) async fn undisturbed(context: &Context) -> Outcome<Client> {
    context.connect_to(context.setup.endpoint(context.dir.clone(), false)).await
}

impl Scene {
    async fn new(context: Arc<Context>, label: &str) -> Outcome<Self> {
        let endpoint = context.endpoint();
        let proxy = Proxy::start(endpoint.address()).await?;
        let client = context.connect_to(endpoint.to(proxy.address())).await?;
        let (observer, name, ledger) = (undisturbed(&context).await?, context.name(label), Ledger::default());
        observer.create(&name, context.bounds()).await??;
        let (request, mut pieces) = (context.request(&name, 1), 0);
        for _ in 0..3 {
            let before = proxy.pieces();
            client.granted(&ledger, &request).await?;
            // Keep only the last count: earlier ones include the opening of connections.
            pieces = proxy.pieces() - before;
        }
        check!(
            pieces > 0,
            "reserves do not go through the proxy: `connect` must use only the endpoint's address"
        );
        let tracker = Tracker::new(&observer.look(&name).await?)?;
        let (probe, probed) = (context.name("probe"), Ledger::default());
        Ok(Self { context, proxy, client, observer, name, ledger, tracker, probe, probed, pieces, met: 0 })
    }

    /// Makes one reserve and records it. `None` if too many reserves have failed.
    async fn reserve(&mut self, timeout: Duration) -> Option<Reply> {
        let request = self.context.request(&self.name, self.tracker.count()?);
        let reply = self.client.record(&self.ledger, &request, timeout).await;
        self.tracker.note(&reply);
        Some(reply)
    }

    /// Checks that all answers so far are true.
    async fn verify(&self) -> Outcome {
        if self.context.windowed() {
            return Ok(());
        }
        self.tracker.look(&self.observer).await.map(drop)
    }

    /// Makes one reserve that meets a fault after `skip` pieces. `None` if too many reserves have failed.
    async fn meet(&mut self, fault: Fault, skip: u64, timeout: Duration) -> Outcome<Option<Reply>> {
        self.proxy.arm(fault, nth(skip, |_| true));
        let reply = self.reserve(timeout).await;
        self.met += u32::from(self.proxy.disarm() > 0);
        self.verify().await?;
        Ok(reply)
    }

    /// Checks that the same client works again. Uses a separate sequence: unknown numbers of attempts could
    /// exceed the tracker's limit.
    async fn recover(&mut self) -> Outcome {
        let begun = tokio::time::Instant::now();
        let timeouts = self.context.setup.timeouts;
        let request = self.context.request(&self.probe, 1);
        loop {
            let reply = self.client.record(&self.probed, &request, timeouts.pause).await;
            if matches!(reply, Reply::Granted(_)) {
                break;
            }
            let late = begun.elapsed() > timeouts.recovery;
            check!(!late, "the connection is restored, but the store has not recovered: {reply:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.reserve(timeouts.call).await;
        self.verify().await
    }

    /// The end of every trial.
    async fn close(&mut self, permanent: bool) -> Outcome {
        check!(self.met > 0, "no fault occurred: the trial proves nothing");
        self.recover().await?;
        for ledger in [&self.ledger, &self.probed] {
            ledger.disjoint()?;
            ledger.one_identity()?;
            ledger.sound(self.context.windowed())?;
            if !permanent {
                ledger.passing()?;
            }
        }
        self.verify().await
    }
}

/// Injects one fault per round, at each piece of a reserve in turn, until enough faults were met.
async fn cut(context: Arc<Context>, label: &str, fault: Fault) -> Outcome {
    let mut scene = Scene::new(context, label).await?;
    for round in 0..3 * FAULTS {
        if scene.met >= FAULTS {
            break;
        }
        let (skip, timeout) = (u64::from(round) % scene.pieces, scene.context.setup.timeouts.call);
        match scene.meet(fault.clone(), skip, timeout).await? {
            None => break,
            Some(reply) => check!(
                reply != Reply::Silent,
                "the client did not detect within {timeout:?} that its connection was cut"
            ),
        }
        scene.recover().await?;
    }
    scene.close(false).await
}

pub(super) async fn cut_before_arrival(context: Arc<Context>) -> Outcome {
    cut(context, "before", Fault::CutBefore).await
}

pub(super) async fn cut_after_arrival(context: Arc<Context>) -> Outcome {
    cut(context, "after", Fault::CutAfter).await
}

pub(super) async fn cut_before_the_reply(context: Arc<Context>) -> Outcome {
    cut(context, "reply", Fault::CutReply).await
}

pub(super) async fn reply_withheld(context: Arc<Context>) -> Outcome {
    let mut scene = Scene::new(context, "withheld").await?;
    for round in 0..FAULTS / 2 {
        let (skip, timeout) = (u64::from(round / 2) % scene.pieces, scene.context.setup.timeouts.pause);
        let gate = Gate::new();
        if scene.meet(Fault::Withhold(gate.clone()), skip, timeout).await?.is_none() {
            break;
        }
        // Late answers must not be matched to other requests.
        if round % 2 == 0 {
            gate.open();
        } else {
            scene.proxy.cut();
        }
        scene.recover().await?;
    }
    scene.close(false).await
}

pub(super) async fn garbled_replies(context: Arc<Context>) -> Outcome {
    let mut scene = Scene::new(context, "garbled").await?;
    let kinds = [Nonsense::Noise, Nonsense::Half, Nonsense::Flipped];
    let kinds = kinds.into_iter().chain([400, 500, 503].map(Nonsense::Status));
    for (round, nonsense) in (0..u64::from(FAULTS)).zip(kinds.cycle()) {
        let (skip, timeout) = (round / 6 % scene.pieces, scene.context.setup.timeouts.call);
        match scene.meet(Fault::Garble(nonsense), skip, timeout).await? {
            None => break,
            Some(reply) => {
                check!(
                    reply != Reply::Silent,
                    "the client waited for {timeout:?} after a garbled reply and a closed connection"
                );
            }
        }
        scene.recover().await?;
    }
    scene.close(true).await
}

pub(super) async fn unreachable(context: Arc<Context>) -> Outcome {
    let mut scene = Scene::new(context, "unreachable").await?;
    for _ in 0..3 {
        scene.proxy.refuse(true);
        let reply = scene.reserve(scene.context.setup.timeouts.pause).await;
        if let Some(Reply::Failed(kind, said)) = &reply {
            let passes = kind.status() != Status::Permanent;
            check!(
                passes,
                "the engine is unreachable, but the error is permanent ({}): {said}",
                kind.as_str()
            );
        }
        check!(
            !matches!(reply, Some(Reply::Granted(_))) || scene.context.windowed(),
            "ids were granted while the engine was unreachable: {reply:?}"
        );
        scene.verify().await?;
        scene.met += 1;
        scene.proxy.refuse(false);
        scene.recover().await?;
    }
    scene.close(false).await
}
