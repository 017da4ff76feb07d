//! Ids drawn through allocators, as an application draws them.

use std::sync::Arc;
use std::time::Duration;

use idmill::{IdRange, Sequences, Status};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client::Client;
use super::order::{Order, State, say_drawn};
use super::outcome::{Outcome, check};

/// Every range of ids that was drawn, by any process. Clones share the list.
#[derive(Clone, Debug, Default)]
pub(super) struct Drawn(Arc<Mutex<Vec<IdRange>>>);

impl Drawn {
    pub(super) fn add(&self, range: IdRange) {
        self.0.lock().push(range);
    }

    pub(super) fn ids(&self) -> u128 {
        self.0.lock().iter().map(|range| u128::from(range.len())).sum()
    }

    /// **The promise** to a user: no id was drawn twice.
    pub(super) fn unique(&self) -> Outcome {
        let mut ranges = self.0.lock().clone();
        ranges.sort_by_key(|range| (range.start(), range.end()));
        for pair in ranges.windows(2) {
            check!(
                !pair[0].overlaps(&pair[1]),
                "duplicate ids were drawn: {:?} overlaps {:?}",
                pair[0],
                pair[1]
            );
        }
        Ok(())
    }
}

/// Draws in several tasks while the state is `Running`, and retries errors that are not permanent.
pub(super) async fn worker(client: Client, order: &Order, orders: watch::Receiver<State>) -> Outcome {
    let ids = Sequences::builder(client.store().clone()).store_timeout(order.timeout).start()?;
    let sequence = ids
        .sequence::<u64>(order.request.name.as_str())
        .max(order.request.creation()?.max())
        .step(40)
        .watermark(20);
    let allocator = sequence.timeout(Duration::from_secs(1)).lazy()?;
    let mut drawing: JoinSet<Outcome> = JoinSet::new();
    for task in 0..order.tasks {
        let (allocator, orders) = (allocator.clone(), orders.clone());
        drawing.spawn(async move {
            while *orders.borrow() == State::Running {
                match allocator.take(1 + task * 3).await {
                    Ok(ranges) => ranges.ranges().iter().copied().for_each(say_drawn),
                    Err(error) => {
                        let passing = error.kind().status() != Status::Permanent;
                        check!(
                            passing,
                            "an allocator returned a permanent error: {error} ({})",
                            error.kind().as_str()
                        );
                    }
                }
                // Draw slowly: the faults must occur during the draws.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        });
    }
    while let Some(outcome) = drawing.join_next().await {
        outcome??;
    }
    Ok(())
}
