//! Draws ids in each mode.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use idmill::store::{Bounds, Reserve, Store};
use idmill::{Allocator, Order, Result, SequenceName, Sequences};
use tokio::runtime::Handle;

use super::SEQUENCE;
use super::transactions::{self, Transactions};
use crate::args::{Bench, Mode};
use crate::measuring::{Counts, TIMEOUT};
use crate::opening::Measured;

/// The transaction that a thread repeats: it takes ids and works for the given time. Returns the number of
/// ids.
pub(super) type Way<'a> = Box<dyn FnMut(Duration) -> Result<u64> + 'a>;

/// A mode, ready to be measured.
pub(super) enum Subject {
    /// Ids that commit with the transaction.
    InTransaction(Transactions, u64),
    /// One reserve per id.
    Alone { store: Arc<dyn Store>, runtime: Handle, reserves: AtomicU64 },
    /// Ids from memory. Each thread has its own handle unless the allocator is shared. `before` is the number
    /// of waits while memory was filled, before the start.
    Ranges { sequences: Sequences, allocator: Allocator<u64>, shared: bool, before: u64 },
}

impl Subject {
    pub(super) async fn prepare(store: &Measured, args: &Bench, mode: Mode) -> Result<Self> {
        let (order, watermark) = match mode {
            Mode::InTransaction | Mode::InTransactionMany => {
                let values = if mode == Mode::InTransaction { 1 } else { args.values };
                return Ok(Self::InTransaction(transactions::open(store, SEQUENCE).await?, values));
            }
            Mode::Async => {
                let (store, runtime) = (store.store.clone(), Handle::current());
                return Ok(Self::Alone { store, runtime, reserves: AtomicU64::new(0) });
            }
            Mode::Global => (Order::Global, 0),
            Mode::Batch => (Order::Process, 0),
            Mode::AsyncBatch => (Order::Process, args.watermark),
            Mode::Thread => (Order::Thread, args.watermark),
        };
        // Use a new instance for each measurement: an open sequence keeps its settings.
        let sequences = Sequences::new(store.store.clone())?;
        let sequence = sequences.sequence::<u64>(SEQUENCE).order(order).timeout(TIMEOUT);
        let allocator = sequence.step(args.step).watermark(watermark.min(args.step)).await?;
        if watermark > 0 {
            allocator.warm(1).await?;
        }
        let before = allocator.snapshot().waits;
        Ok(Self::Ranges { sequences, allocator, shared: mode == Mode::Thread, before })
    }

    /// Returns the transaction that one thread repeats.
    pub(super) fn way(&self) -> Result<Way<'_>> {
        Ok(match self {
            Self::InTransaction(run, values) => Box::new(move |hold| run(*values, hold).map(|()| *values)),
            Self::Alone { store, runtime, reserves } => {
                let create = Bounds::of::<i64>();
                let request =
                    Reserve::new(SequenceName::new(SEQUENCE)?, 1).ceiling(create.max()).create(create);
                Box::new(move |hold| {
                    reserves.fetch_add(1, Ordering::Relaxed);
                    let grant = runtime.block_on(store.reserve(&request))?;
                    sleep(hold);
                    Ok(grant.range.len())
                })
            }
            Self::Ranges { allocator, shared: true, .. } => drawing(move || allocator.blocking().next()),
            Self::Ranges { allocator, .. } => {
                let mut handle = allocator.handle();
                drawing(move || handle.blocking().next())
            }
        })
    }

    /// Returns the counts after this number of transactions.
    pub(super) fn counts(&self, transactions: u64) -> Counts {
        let reserves = match self {
            Self::InTransaction(..) => transactions,
            Self::Alone { reserves, .. } => reserves.load(Ordering::Relaxed),
            Self::Ranges { allocator, before, .. } => {
                let counts = Counts::of(&allocator.snapshot());
                return Counts { waits: counts.waits.map(|waits| waits - before), ..counts };
            }
        };
        Counts { reserves: Some(reserves), ..Counts::default() }
    }

    pub(super) async fn close(self) {
        if let Self::Ranges { sequences, .. } = self {
            sequences.close().await;
        }
    }
}

fn drawing<'a>(mut draw: impl FnMut() -> Result<u64> + 'a) -> Way<'a> {
    Box::new(move |hold| {
        draw()?;
        sleep(hold);
        Ok(1)
    })
}
