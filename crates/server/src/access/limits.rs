//! Limits of a token, and its usage.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use derive_more::Debug;
use idmill::{Error, Status};
use tokio::time::Instant;

/// The fill rate and the size of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    /// Time per unit, in nanoseconds.
    every: u64,
    /// Nanoseconds in which an empty bucket fills up.
    room: u64,
}

impl Flow {
    pub(crate) fn new(amount: NonZeroU32, time: Duration, most: NonZeroU32) -> Self {
        let every = nanos(time) / u64::from(amount.get());
        Self { every, room: every.saturating_mul(most.get().into()) }
    }

    /// Returns the size of the bucket.
    pub(crate) fn most(self) -> u64 {
        self.room / self.every.max(1)
    }
}

/// A token bucket in one number: the time at which it is full again, in nanoseconds since the start of the
/// [clock](super::Clock). Each take moves this time ahead.
///
/// All accesses are relaxed, because no other data depends on this value.
#[derive(Debug, Default)]
pub(crate) struct Bucket(AtomicU64);

impl Bucket {
    /// Takes one unit.
    ///
    /// # Errors
    /// Returns the time until one unit is available.
    pub(crate) fn take(&self, flow: Flow, now: u64) -> Result<(), Duration> {
        self.take_some(flow, 1, now)
    }

    /// Takes `amount` units, or none.
    ///
    /// # Errors
    /// Returns the time until this amount is available. The amount must not exceed the [size](Flow::most).
    pub(crate) fn take_some(&self, flow: Flow, amount: u64, now: u64) -> Result<(), Duration> {
        let time = flow.every.saturating_mul(amount);
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let full = seen.max(now).saturating_add(time);
            if let Some(wait @ 1..) = (full - now).checked_sub(flow.room) {
                return Err(Duration::from_nanos(wait));
            }
            match self.0.compare_exchange_weak(seen, full, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => seen = other,
            }
        }
    }

    /// Adapts the bucket to a new flow. A bucket from which more than the new size was taken counts as empty,
    /// so that no caller waits for the excess.
    pub(crate) fn fit(&self, flow: Flow, now: u64) {
        self.0.fetch_min(now.saturating_add(flow.room), Ordering::Relaxed);
    }

    /// Puts back one unit that was taken but not used.
    pub(crate) fn give_back(&self, flow: Flow) {
        let back = |full: u64| Some(full.saturating_sub(flow.every));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, back);
    }
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The time of day, for the expiry of tokens, and the time since the start, for rates. The time of day may
/// jump in both directions. The time since the start never goes back.
#[derive(Clone, Debug)]
#[debug("Clock(…)")]
pub(crate) struct Clock {
    day: Arc<dyn Fn() -> SystemTime + Send + Sync>,
    began: Instant,
}

impl Clock {
    pub(crate) fn of(day: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self { day: Arc::new(day), began: Instant::now() }
    }

    pub(crate) fn with_day(self, day: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self { day: Arc::new(day), ..self }
    }

    pub(crate) fn day(&self) -> SystemTime {
        (self.day)()
    }

    /// Returns the nanoseconds since the start.
    pub(crate) fn elapsed(&self) -> u64 {
        nanos(self.began.elapsed())
    }
}

/// The usage of one token. Reloading the tokens keeps the usage of each token hash, so new limits also
/// apply to earlier usage. The usage is lost when the server ends.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    pub(super) requests: Bucket,
    pub(super) created: Bucket,
    pub(super) connections: AtomicU32,
    /// Bytes of pending and incomplete commands, on all connections.
    pub(super) held: AtomicUsize,
}

/// A sequence that counts towards its token's limit of new sequences.
#[derive(Debug)]
pub(crate) struct Created {
    pub(super) usage: Arc<Usage>,
    pub(super) flow: Flow,
}

impl Created {
    /// Undoes the count, unless the sequence may have been created.
    pub(crate) fn failed(self, error: &Error) {
        if error.status() != Status::Unknown {
            self.usage.created.give_back(self.flow);
        }
    }
}

/// Bytes that a connection holds. Dropping this value subtracts them from the token's count.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(super) usage: Arc<Usage>,
    pub(crate) bytes: usize,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.usage.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A connection that counts towards its token's limit until this value is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(pub(super) Arc<Usage>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn flow(amount: u32, most: u32) -> Flow {
        let some = |number| NonZeroU32::new(number).unwrap();
        Flow::new(some(amount), Duration::from_secs(1), some(most))
    }

    fn taken(bucket: &Bucket, flow: Flow, now: u64) -> usize {
        (0..10_000).take_while(|_| bucket.take(flow, now).is_ok()).count()
    }

    #[test]
    fn bucket_holds_its_burst_and_refills_at_its_rate() {
        let (bucket, flow) = (Bucket::default(), flow(10, 30));
        assert_eq!(taken(&bucket, flow, 5 * SECOND), 30);
        assert_eq!(bucket.take(flow, 5 * SECOND), Err(Duration::from_millis(100)));
        assert_eq!(taken(&bucket, flow, 5 * SECOND + SECOND / 2), 5);
        assert_eq!(taken(&bucket, flow, 100 * SECOND), 30);
        bucket.give_back(flow);
        assert_eq!(taken(&bucket, flow, 100 * SECOND), 1);
    }

    #[test]
    fn take_some_takes_the_whole_amount_or_nothing() {
        let (bucket, flow) = (Bucket::default(), flow(10, 30));
        assert_eq!(flow.most(), 30);
        assert_eq!(bucket.take_some(flow, 30, 5 * SECOND), Ok(()));
        assert_eq!(bucket.take_some(flow, 3, 5 * SECOND), Err(Duration::from_millis(300)));
        assert_eq!(taken(&bucket, flow, 5 * SECOND + SECOND / 5), 2, "a refusal costs nothing");
    }

    /// After a limit is lowered, clients do not wait for usage under the old limit.
    #[test]
    fn lowered_limit_leaves_an_empty_bucket_without_debt() {
        let (bucket, much) = (Bucket::default(), flow(1, 1000));
        assert_eq!(taken(&bucket, much, 0), 1000);
        let little = flow(1, 10);
        bucket.fit(little, 0);
        assert_eq!(bucket.take(little, 0), Err(Duration::from_secs(1)));
        assert_eq!(taken(&bucket, little, 2 * SECOND), 2);
    }

    proptest! {
        /// The units taken never exceed the initial size of the bucket plus the inflow so far.
        #[test]
        fn takes_never_exceed_initial_size_plus_inflow(amount in 1..1000_u32, most in 1..100_u32, pauses in prop::collection::vec(0..SECOND / 4, 1..200)) {
            let (bucket, flow) = (Bucket::default(), flow(amount, most));
            let (mut now, mut taken) = (0, 0_u64);
            for pause in pauses {
                now += pause;
                taken += u64::from(bucket.take(flow, now).is_ok());
                prop_assert!(taken <= u64::from(most) + now / flow.every);
            }
        }
    }
}
