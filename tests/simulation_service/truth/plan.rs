//! The events of one seed.

use std::time::Duration;

use fastrand::Rng;
use idmill::ErrorKind;
use idmill_testing::faulty::Fault;

/// What happens once in a world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Event {
    Nothing,
    /// The store meets every call with this fault.
    Store(Fault),
    /// The store fails all reserves of the first sequence with this error.
    Failing(ErrorKind),
    /// The store answers no reserve of the first sequence, whose row another session has locked.
    Locked,
    /// The first sequence reaches its end.
    Exhausted,
    /// An administrator removes the first sequence.
    Removed,
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) event: Event,
    /// When the event begins and ends. The end of a sequence and its removal are final.
    pub(super) begins: Duration,
    pub(super) ends: Duration,
    pub(super) latency: Duration,
    /// Step, watermark, and the pause between draws, for each sequence.
    pub(super) sequences: Vec<(u64, u64, Duration)>,
}

impl Plan {
    pub(super) fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut millis = |range| Duration::from_millis(rng.u64(range));
        let (begins, lasts, latency) = (millis(6_000..10_000), millis(500..30_000), millis(1..30));
        let event = match rng.u32(0..11) {
            0 => Event::Nothing,
            1 => Event::Store(Fault::LostRequest),
            2 => Event::Store(Fault::Hang),
            3 | 4 => Event::Store(Fault::HangBefore),
            5 => Event::Store(Fault::Refuse(ErrorKind::Denied)),
            6 => Event::Failing(ErrorKind::Unavailable),
            7 => Event::Failing(ErrorKind::Denied),
            8 => Event::Locked,
            9 => Event::Exhausted,
            _ => Event::Removed,
        };
        let least = usize::from(event.is_of_one_sequence()) + 1;
        let sequence = |rng: &mut Rng| {
            let step = rng.u64(1..200);
            (step, rng.u64(0..=step), Duration::from_millis(rng.u64(20..300)))
        };
        let sequences = (0..rng.usize(least..5)).map(|_| sequence(&mut rng)).collect();
        let ends = begins + lasts;
        Self { seed, event, begins, ends, latency, sequences }
    }
}

impl Event {
    /// Whether the event affects only the first sequence.
    pub(super) fn is_of_one_sequence(self) -> bool {
        !matches!(self, Self::Nothing | Self::Store(_))
    }
}
