//! End to end: ids that allocators hand out over the store.

use std::fmt;
use std::sync::Arc;

use idmill::store::{Bounds, Capabilities, Grant, Reserve, Store, StoreFuture};
use idmill::{ErrorKind, IdRange, Result, Sequences};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::context::Context;
use crate::draws::Drawn;
use crate::order::{Job, Order};
use crate::outcome::{Outcome, check, fail};
use crate::proxy::{Fault, Proxy, nth};
use crate::worker::{Books, Worker};

/// How the store's grants are falsified.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// The first range again.
    Repeat,
    /// The new range, one id lower, so that it repeats the last id of the previous one.
    Overlap,
    Beyond,
    Before,
    Empty,
    TooMany,
}

/// The store, with every grant after the first falsified.
struct Liar {
    store: Arc<dyn Store>,
    lie: Lie,
    first: Mutex<Option<Grant>>,
}

impl fmt::Debug for Liar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Liar").field("lie", &self.lie).finish_non_exhaustive()
    }
}

impl Liar {
    fn falsify(&self, grant: Grant) -> Grant {
        let Some(first) = *self.first.lock() else {
            *self.first.lock() = Some(grant);
            return grant;
        };
        let range = |start, len| IdRange::new(start, len).expect("far from the end");
        let (range, bounds) = match self.lie {
            Lie::Repeat => (first.range, grant.bounds),
            Lie::Overlap => (range(grant.range.start() - 1, grant.range.len()), grant.bounds),
            Lie::Beyond => (range(grant.bounds.max() - 1, 5), grant.bounds),
            Lie::Before => (range(grant.bounds.start() - 5, 3), grant.bounds),
            Lie::Empty => (range(grant.range.start(), 0), grant.bounds),
            Lie::TooMany => (range(grant.range.start(), grant.range.len() + 1), grant.bounds),
        };
        Grant::new(range, grant.identity, bounds)
    }
}

impl Store for Liar {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities().batches(false)
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move { self.store.reserve(request).await.map(|grant| self.falsify(grant)) })
    }

    idmill::store_calls!(|this| this.store => create inspect list set remove);
}

pub(super) async fn nonsense_is_refused(context: Arc<Context>) -> Outcome {
    let client = context.connect().await?;
    for lie in [Lie::Repeat, Lie::Overlap, Lie::Beyond, Lie::Before, Lie::Empty, Lie::TooMany] {
        let name = context.name(&format!("{lie:?}"));
        client.create(&name, Bounds::new(1_000, 1_000_000)?).await??;
        let liar = Liar { store: client.store().clone(), lie, first: Mutex::new(None) };
        let store: Arc<dyn Store> = Arc::new(liar);
        let ids = Sequences::new(store)?;
        let allocator =
            ids.sequence::<u64>(name.as_str()).start(1_000).max(1_000_000).step(10).watermark(0).await?;
        let drawn = Drawn::default();
        let refusal = loop {
            check!(drawn.ids() < 100, "{lie:?} was not detected");
            match allocator.take(5).await {
                Ok(ranges) => ranges.ranges().iter().for_each(|range| drawn.add(*range)),
                Err(error) => break error,
            }
        };
        check!(
            refusal.kind() == ErrorKind::StoreViolation,
            "{lie:?}: expected store_violation, got {refusal} ({})",
            refusal.kind().as_str()
        );
        drawn.unique()?;
        check!(drawn.ids() == 10, "{lie:?}: {} ids were drawn before detection, not 10", drawn.ids());
        ids.close().await;
    }
    Ok(())
}

/// Several allocators of one process, each over its own client.
pub(super) async fn drawn_by_allocators(context: Arc<Context>) -> Outcome {
    let (name, drawn) = (context.name("drawn"), Drawn::default());
    let mut drawing: JoinSet<Outcome> = JoinSet::new();
    for client in context.connect_many(3).await? {
        let ids = Sequences::new(client.store().clone())?;
        let sequence = ids.sequence::<u64>(name.as_str()).max(context.setup.largest).step(20).watermark(10);
        let allocator = sequence.await?;
        for task in 0..3 {
            let (allocator, drawn) = (allocator.clone(), drawn.clone());
            drawing.spawn(async move {
                for _ in 0..60 {
                    for range in allocator.take(1 + task).await?.ranges() {
                        drawn.add(*range);
                    }
                }
                Ok(())
            });
        }
    }
    while let Some(outcome) = drawing.join_next().await {
        outcome??;
    }
    check!(drawn.ids() == 3 * 60 * (1 + 2 + 3), "{} ids were drawn", drawn.ids());
    drawn.unique()
}

/// Processes with allocators. Some are killed and paused, their connections are cut, and the engine is paused
/// and killed, if the store has an engine.
pub(super) async fn drawn_by_processes(context: Arc<Context>) -> Outcome {
    let engine = context.setup.engine.as_deref();
    let proxy = match engine {
        Some(engine) => Some(Proxy::start(engine.address()).await?),
        None => None,
    };
    let direct = context.endpoint();
    let endpoint = proxy.as_ref().map_or_else(|| direct.clone(), |proxy| direct.to(proxy.address()));
    let order = Order {
        suite: context.setup.name.clone(),
        endpoint,
        job: Job::Draw,
        request: context.request(&context.name("drawn"), 1),
        tasks: 3,
        times: 0,
        timeout: context.setup.timeouts.pause,
    };
    let books = Books::default();
    let mut workers = Worker::start_many(&context, 3, &order, &books).await?;
    for worker in &mut workers {
        worker.begin()?;
    }
    for round in 0..6_usize {
        drawn(&context, &books, 300).await?;
        if let Some(proxy) = &proxy {
            let faults = [Fault::CutBefore, Fault::CutAfter, Fault::CutReply];
            proxy.arm(faults[round % 3].clone(), nth(context.random(0..=3), |_| true));
        }
        // A paused process may hold a lock, so the other processes need not make progress.
        workers[(round + 1) % 3].pause();
        workers.remove(round % 3).kill().await;
        match engine {
            Some(engine) if round == 2 => {
                engine.pause();
                tokio::time::sleep(context.setup.timeouts.pause).await;
                engine.resume();
            }
            Some(engine) if round == 4 && engine.survives_kill() => {
                engine.kill();
                engine.start().await?;
            }
            _ => tokio::time::sleep(context.setup.timeouts.pause / 4).await,
        }
        if let Some(proxy) = &proxy {
            proxy.disarm();
            proxy.cut();
        }
        workers.iter().for_each(Worker::resume);
        let mut successor = Worker::start(&context, &order, &books).await?;
        successor.begin()?;
        workers.insert(round % 3, successor);
    }
    drawn(&context, &books, 300).await?;
    for worker in workers {
        worker.end(context.setup.timeouts.recovery).await?;
    }
    books.drawn.unique()?;
    let info = context.connect().await?.look(&order.request.name).await?;
    let Some(next) = info.next else { fail!("the sequence is exhausted, although it has ids left") };
    check!(
        u128::from(next) > books.drawn.ids(),
        "{} ids were drawn, but the next id is only {next}",
        books.drawn.ids()
    );
    Ok(())
}

/// Waits until this number of further ids has been drawn.
async fn drawn(context: &Context, books: &Books, more: u128) -> Outcome {
    let enough = books.drawn.ids() + more;
    context
        .until("ids drawn by other processes", || async { Ok((books.drawn.ids() >= enough).then_some(())) })
        .await
}
