//! Random faults, selected by a seed.

use std::time::Duration;

use fastrand::Rng;

/// A fault of a trio. The servers are numbered. The first server is never restarted, so its memory shows
/// leaks over a long time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server gets SIGKILL. A new server starts after this time.
    Killed(usize, Duration),
    /// The server gets SIGTERM. A new server starts after this time.
    Ended(usize, Duration),
    /// The server is stopped with SIGSTOP for this time.
    Paused(usize, Duration),
    EnginePaused(Duration),
    /// The engine is killed, and started again after this time.
    EngineKilled(Duration),
    /// All connections to the engine are closed once.
    Cut,
    /// Connections are dropped silently, as by a firewall.
    Forgotten,
    /// Connections to the engine are refused for this time.
    Refused(Duration),
    /// A hostile client: its server, and the client's kind, duration and seed.
    Hostile(usize, usize, Duration, u64),
}

impl Fault {
    pub(crate) const NAMES: [&str; 9] = [
        "kill -9",
        "SIGTERM",
        "SIGSTOP",
        "engine paused",
        "engine killed",
        "connections cut",
        "forgotten",
        "refused",
        "hostile clients",
    ];

    pub(crate) fn kind(self) -> usize {
        match self {
            Self::Killed(..) => 0,
            Self::Ended(..) => 1,
            Self::Paused(..) => 2,
            Self::EnginePaused(_) => 3,
            Self::EngineKilled(_) => 4,
            Self::Cut => 5,
            Self::Forgotten => 6,
            Self::Refused(_) => 7,
            Self::Hostile(..) => 8,
        }
    }

    pub(crate) fn any(random: &mut Rng) -> Self {
        let brief = Duration::from_millis(random.u64(0..1500));
        let long = Duration::from_millis(random.u64(200..6000));
        match random.usize(0..12) {
            0 | 1 => Self::Killed(random.usize(1..3), brief),
            2 | 3 => Self::Ended(random.usize(1..3), brief),
            4 => Self::Paused(random.usize(0..3), long),
            5 => Self::EnginePaused(long),
            6 => Self::EngineKilled(brief),
            7 => Self::Cut,
            8 => Self::Forgotten,
            9 => Self::Refused(long),
            _ => Self::Hostile(random.usize(0..3), random.usize(0..5), brief, random.u64(..)),
        }
    }
}
