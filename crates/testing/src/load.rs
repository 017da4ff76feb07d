//! Callers that draw a load, and their measurements.

use std::time::Duration;

use idmill::Allocator;
use tokio::time::{Instant, sleep_until};

/// The number of callers. Each draws an equal share of the load.
pub const CALLERS: u32 = 20;

pub const SETTLED: Duration = Duration::from_secs(6);
pub const AFTER: Duration = Duration::from_secs(2);

/// The measurements of the callers.
#[derive(Debug, Default)]
pub struct Seen {
    /// The number of ids.
    pub drawn: u64,
    /// How often each caller waited.
    pub waits: Vec<u32>,
    pub longest: Duration,
}

impl Seen {
    pub fn most(&self) -> u32 {
        self.waits.iter().copied().max().unwrap_or_default()
    }
}

/// All callers draw for the given time, at a rate that depends on the time.
pub async fn load(
    ids: &Allocator<u64>,
    time: Duration,
    rate: impl Fn(Duration) -> f64 + Clone + Send + 'static,
) -> Seen {
    let callers = (0..CALLERS).map(|index| {
        let (ids, rate) = (ids.clone(), rate.clone());
        tokio::spawn(caller(ids, time, index, rate))
    });
    let callers: Vec<_> = callers.collect();
    let mut seen = Seen::default();
    for caller in callers {
        let (drawn, waits, longest) = caller.await.unwrap();
        seen.drawn += drawn;
        seen.waits.push(waits);
        seen.longest = seen.longest.max(longest);
    }
    assert!(seen.drawn > 0, "the callers drew no id");
    seen
}

/// Draws at a rate, in blocks at least a millisecond apart. Counts the draws that had to wait.
async fn caller(
    ids: Allocator<u64>,
    time: Duration,
    index: u32,
    rate: impl Fn(Duration) -> f64,
) -> (u64, u32, Duration) {
    let begun = Instant::now();
    let phase = f64::from(index) / f64::from(CALLERS);
    let (mut drawn, mut waits, mut longest, mut owed) = (0, 0, Duration::ZERO, 0.0);
    // Stagger the callers: each begins at its own point of the pause.
    let mut due = begun
        + Duration::from_secs_f64(phase * (f64::from(CALLERS) / rate(Duration::ZERO)).clamp(0.001, 1.0));
    while due - begun < time {
        let share = rate(due - begun) / f64::from(CALLERS);
        let pause = Duration::from_secs_f64((1.0 / share).clamp(0.001, 1.0));
        due += pause;
        sleep_until(due).await;
        owed += share * pause.as_secs_f64();
        let whole = ids_in(owed);
        owed -= whole as f64;
        let before = Instant::now();
        if whole > 0 {
            assert_eq!(ids.take(whole).await.unwrap().len(), whole);
            drawn += whole;
        }
        if before.elapsed() > Duration::ZERO {
            waits += 1;
            longest = longest.max(before.elapsed());
        }
    }
    (drawn, waits, longest)
}

// A share is far below 2^63, and never negative.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn ids_in(share: f64) -> u64 {
    share as u64
}

pub fn at_least(share: f64) -> u64 {
    ids_in(share.ceil())
}
