//! How each mode comes by its ids.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use idmill::store::{Bounds, Reserve, Store};
use idmill::{Allocator, Handle, Order, Result, SequenceName, Sequences, Snapshot};
use tokio::runtime::Handle as Runtime;

use super::SEQUENCE;
use super::transactions::{self, Transactions};
use crate::args::{Bench, Mode};
use crate::opening::Measured;

/// How long a transaction may wait for an id before the measurement is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a thread does over and over.
pub(super) trait Way {
    /// One transaction: takes ids and works for so long. Returns how many ids.
    fn transaction(&mut self, hold: Duration) -> Result<u64>;
}

/// A mode, ready to be measured.
pub(super) enum Subject {
    InTransaction {
        transactions: Box<dyn Transactions>,
        values: u64,
    },
    Alone {
        store: Arc<dyn Store>,
        name: SequenceName,
        runtime: Runtime,
        reserves: AtomicU64,
    },
    /// `before`: calls that waited before it began, to fill memory.
    Ranges {
        sequences: Sequences,
        allocator: Allocator,
        shared: bool,
        before: u64,
    },
}

impl Subject {
    pub(super) async fn prepare(store: &Measured, args: &Bench, mode: Mode) -> Result<Self> {
        match mode {
            Mode::InTransaction | Mode::InTransactionMany => {
                let values = if mode == Mode::InTransaction { 1 } else { args.values };
                let transactions = transactions::open(store, SEQUENCE).await?;
                Ok(Self::InTransaction { transactions, values })
            }
            Mode::Async => Ok(Self::Alone {
                store: store.store.clone(),
                name: SequenceName::new(SEQUENCE)?,
                runtime: Runtime::current(),
                reserves: AtomicU64::new(0),
            }),
            Mode::Global | Mode::Batch | Mode::AsyncBatch | Mode::Thread => {
                // Anew for each measurement: settings belong to the open sequence.
                let sequences = Sequences::new(store.store.clone())?;
                let allocator = open(&sequences, args, mode).await?;
                let before = allocator.snapshot().waits;
                Ok(Self::Ranges { sequences, allocator, shared: mode == Mode::Thread, before })
            }
        }
    }

    /// What one thread does.
    pub(super) fn way(&self) -> Box<dyn Way + '_> {
        match self {
            Self::InTransaction { transactions, values } => {
                Box::new(Inside { transactions: &**transactions, values: *values })
            }
            Self::Alone { store, name, runtime, reserves } => {
                Box::new(Alone { store: &**store, name, runtime, reserves })
            }
            Self::Ranges { allocator, shared: true, .. } => Box::new(Shared(allocator)),
            Self::Ranges { allocator, shared: false, .. } => Box::new(Drawn(allocator.handle())),
        }
    }

    /// How many round trips took ids from the store, given how many transactions there were.
    pub(super) fn reserves(&self, transactions: u64) -> u64 {
        match self {
            Self::InTransaction { .. } => transactions,
            Self::Alone { reserves, .. } => reserves.load(Ordering::Relaxed),
            Self::Ranges { allocator, .. } => allocator.snapshot().reserves,
        }
    }

    /// What the allocator counted, where there is one.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        match self {
            Self::Ranges { allocator, .. } => Some(allocator.snapshot()),
            Self::InTransaction { .. } | Self::Alone { .. } => None,
        }
    }

    /// How many calls found no id in memory, where there is one.
    pub(super) fn waits(&self) -> Option<u64> {
        match self {
            Self::Ranges { allocator, before, .. } => Some(allocator.snapshot().waits - before),
            Self::InTransaction { .. } | Self::Alone { .. } => None,
        }
    }

    pub(super) async fn close(self) {
        if let Self::Ranges { sequences, .. } = self {
            sequences.close().await;
        }
    }
}

async fn open(sequences: &Sequences, args: &Bench, mode: Mode) -> Result<Allocator> {
    let (order, watermark) = match mode {
        Mode::Global => (Order::Global, 0),
        Mode::Thread => (Order::Thread, args.watermark),
        Mode::AsyncBatch => (Order::Process, args.watermark),
        _ => (Order::Process, 0),
    };
    let sequence = sequences.sequence::<u64>(SEQUENCE).order(order).patience(PATIENCE);
    let allocator = sequence.step(args.step).watermark(watermark.min(args.step)).await?;
    if watermark > 0 {
        allocator.warm().await?;
    }
    Ok(allocator)
}

/// The id commits with the transaction.
struct Inside<'a> {
    transactions: &'a dyn Transactions,
    values: u64,
}

impl Way for Inside<'_> {
    fn transaction(&mut self, hold: Duration) -> Result<u64> {
        self.transactions.run(self.values, hold)?;
        Ok(self.values)
    }
}

/// Each id by a reserve of its own.
struct Alone<'a> {
    store: &'a dyn Store,
    name: &'a SequenceName,
    runtime: &'a Runtime,
    reserves: &'a AtomicU64,
}

impl Way for Alone<'_> {
    fn transaction(&mut self, hold: Duration) -> Result<u64> {
        let create = Bounds::of::<i64>();
        let request = Reserve::new(self.name.clone(), 1).ceiling(create.max()).create(create);
        self.reserves.fetch_add(1, Ordering::Relaxed);
        let grant = self.runtime.block_on(self.store.reserve(&request))?;
        sleep(hold);
        Ok(grant.range.len())
    }
}

/// From memory, each thread by a view of its own.
struct Drawn(Handle);

impl Way for Drawn {
    fn transaction(&mut self, hold: Duration) -> Result<u64> {
        self.0.blocking(PATIENCE).next()?;
        sleep(hold);
        Ok(1)
    }
}

/// From memory, all through one allocator.
struct Shared<'a>(&'a Allocator);

impl Way for Shared<'_> {
    fn transaction(&mut self, hold: Duration) -> Result<u64> {
        self.0.blocking(PATIENCE).next()?;
        sleep(hold);
        Ok(1)
    }
}
