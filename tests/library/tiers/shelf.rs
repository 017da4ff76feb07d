//! A window in memory, with random evictions, lost requests and lost replies; shared like a cache.

use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Grant, Reserve, SequenceInfo, Store, StoreFuture};
use idmill::{Error, ErrorKind, IdRange, Result};
use idmill_shared_cache::{Drawn, Installed, Window};
use idmill_testing::faulty::FaultyStore;
use parking_lot::Mutex;

/// One process's view of the shelf.
#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    pub(crate) item: Arc<Mutex<Item>>,
    /// The probability of each fault, in percent.
    pub(crate) faults: u32,
    pub(crate) evictions: u32,
    /// Installs never return.
    pub(crate) hangs: bool,
    pub(crate) block: u64,
    /// Accepts more than a block if more is requested.
    pub(crate) stretches: bool,
    /// Reports that it runs low when this number of ids is left, and then holds one more range.
    pub(crate) low: Option<u64>,
    /// The store, which is read when the window is recalled.
    pub(crate) behind: Option<FaultyStore>,
}

#[derive(Debug)]
pub(crate) struct Item {
    random: fastrand::Rng,
    stub: bool,
    /// Counts writes, of stubs and of ranges.
    version: u64,
    ranges: Vec<Grant>,
    pub(crate) evicted: u64,
    /// Drawn, but received by no caller.
    pub(crate) lost: u64,
    /// The value of `next` in the store when the window was recalled.
    pub(crate) recalled: Option<u64>,
}

impl Shelf {
    pub(crate) fn new(seed: u64, faults: u32) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        let item =
            Item { random, stub: false, version: 0, ranges: Vec::new(), evicted: 0, lost: 0, recalled: None };
        Self {
            item: Arc::new(Mutex::new(item)),
            faults,
            evictions: faults,
            hangs: false,
            stretches: false,
            block: 10,
            low: None,
            behind: None,
        }
    }

    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut Item) -> R) -> R {
        look(&mut self.item.lock())
    }

    fn chance(&self, percent: u32) -> bool {
        self.with(|item| item.random.u32(..100) < percent)
    }

    /// Lets other processes run, and may evict.
    async fn pass_time(&self) {
        for _ in 0..self.with(|item| item.random.u32(..4)) {
            tokio::task::yield_now().await;
        }
        if self.chance(self.evictions) {
            self.with(Item::evict);
        }
    }
}

impl Item {
    pub(crate) fn left(&self) -> u64 {
        self.ranges.iter().map(|grant| grant.range.len()).sum()
    }

    pub(crate) fn evict(&mut self) {
        self.evicted += self.left();
        self.ranges.clear();
        self.stub = false;
    }

    fn draw(&mut self, request: &Reserve, low: Option<u64>) -> Drawn<u64> {
        self.ranges.retain(|grant| !grant.range.is_empty());
        if self.stub {
            return Drawn::Busy(Duration::from_millis(1));
        }
        let left = self.left();
        let Some(first) = self.ranges.first_mut() else {
            (self.stub, self.version) = (true, self.version + 1);
            return Drawn::Empty(self.version);
        };
        let grant = first.range(first.range.take_front(request.count));
        let low = low.is_some_and(|low| left <= low && self.ranges.len() < 2);
        Drawn::Ids { grant, low: low.then_some(self.version) }
    }

    fn install(&mut self, request: &Reserve, token: u64, mut grant: Grant) -> Installed {
        if token != self.version || (!self.stub && self.ranges.is_empty()) {
            return Installed::Refused;
        }
        self.version += 1;
        if !std::mem::take(&mut self.stub) {
            self.ranges.push(grant);
            return Installed::Done;
        }
        let own = IdRange::take_front(&mut grant.range, request.count);
        self.ranges.push(grant);
        Installed::Ids(grant.range(own))
    }
}

impl Window for Shelf {
    type Token = u64;

    fn draw<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Drawn<u64>>> {
        Box::pin(async move {
            self.pass_time().await;
            if self.chance(self.faults) {
                return Err(Error::new(ErrorKind::Unavailable, "the request was lost"));
            }
            let drawn = self.with(|item| item.draw(request, self.low));
            self.pass_time().await;
            if self.chance(self.faults) {
                if let Drawn::Ids { grant, .. } = drawn {
                    self.with(|item| item.lost += grant.range.len());
                }
                // A stub expires if the reply to its winner was lost.
                if let Drawn::Empty(_) = drawn {
                    self.with(|item| item.stub = false);
                }
                return Err(Error::new(ErrorKind::UnknownOutcome, "the reply was lost"));
            }
            Ok(drawn)
        })
    }

    fn refill_size(&self, request: &Reserve, _token: &u64) -> u64 {
        if self.stretches { self.block.max(request.count) } else { self.block }
    }

    fn install<'a>(
        &'a self,
        request: &'a Reserve,
        token: u64,
        grant: Grant,
    ) -> StoreFuture<'a, Result<Installed>> {
        Box::pin(async move {
            if self.hangs {
                std::future::pending::<()>().await;
            }
            self.pass_time().await;
            if self.chance(self.faults) {
                self.with(|item| item.stub &= item.version != token);
                return Ok(Installed::Unknown);
            }
            let installed = self.with(|item| item.install(request, token, grant));
            self.pass_time().await;
            if self.chance(self.faults) {
                return Ok(Installed::Unknown);
            }
            Ok(installed)
        })
    }

    fn recall<'a>(&'a self, sequence: &'a SequenceInfo) -> StoreFuture<'a, Result<()>> {
        Box::pin(async move {
            self.with(Item::evict);
            if let Some(store) = &self.behind {
                let stored = store.inspect(&sequence.name).await?;
                self.with(|item| item.recalled = stored.and_then(|info| info.next));
            }
            Ok(())
        })
    }

    fn release<'a>(&'a self, _request: &'a Reserve, token: u64, _lost: bool) -> StoreFuture<'a, ()> {
        Box::pin(async move { self.with(|item| item.stub &= item.version != token) })
    }
}
