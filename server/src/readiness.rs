//! Whether clients should be sent here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idmill::{Error, ErrorKind, Health, HealthReport, SequenceName, Sequences, Status, Trouble};
use tokio::sync::watch;
use tokio::time::{interval, timeout};

/// Without the store, memory has to last at least so long: a probe needs a while to send clients elsewhere.
/// Much less than the 5 s that memory is sized for, so that a short failure of the store passes unnoticed.
const SOON: Duration = Duration::from_secs(2);
/// How often a store that does not answer is asked again, and how long it has.
const ASK: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);
/// How long who asks waits for the store's first answer. Kubernetes gives a probe a second.
const MOMENT: Duration = Duration::from_millis(500);
/// The sequence that is looked for. It need not exist.
const NAME: &str = "readyz";

#[derive(Debug)]
pub(crate) struct Readiness {
    /// The server is about to end, and still serves.
    leaving: AtomicBool,
    /// The store has answered, since the start and since memory ran low.
    answers: watch::Sender<bool>,
}

/// What a probe is told.
#[derive(Debug)]
pub(crate) struct Standing {
    /// Why nobody should be sent here; `None` for a server that is ready.
    pub(crate) fault: Option<&'static str>,
    pub(crate) report: HealthReport,
}

impl Readiness {
    pub(crate) fn new() -> Self {
        Self { leaving: AtomicBool::new(false), answers: watch::Sender::new(false) }
    }

    /// From now on nobody should be sent here.
    pub(crate) fn leave(&self) {
        // Relaxed: nothing else is learned from it.
        self.leaving.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        // Relaxed, as above.
        self.leaving.load(Ordering::Relaxed)
    }

    /// The standing, after a moment for a store that was not heard yet.
    pub(crate) async fn standing(&self, sequences: &Sequences) -> Standing {
        let _ = timeout(MOMENT, self.answers.subscribe().wait_for(|heard| *heard)).await;
        self.standing_now(sequences)
    }

    /// Once memory ran low, this server is not ready before the store has answered: without clients, the
    /// little that is left lasts forever, and they would come and go.
    pub(crate) fn standing_now(&self, sequences: &Sequences) -> Standing {
        let report = sequences.health();
        let is_low = report.troubles.iter().any(is_low);
        if is_low {
            self.answers.send_replace(false);
        }
        let fault = if self.is_leaving() || is_closed(&report) {
            Some("the server is ending")
        } else if is_low {
            Some("the store is away, and memory does not last")
        } else if *self.answers.borrow() {
            None
        } else {
            Some("the store has not answered yet")
        };
        Standing { fault, report }
    }

    /// Asks a store that was not heard, until it answers.
    pub(crate) async fn watch(&self, sequences: &Sequences) {
        let name: SequenceName = NAME.parse().expect("a name");
        let (mut ticks, mut told) = (interval(ASK), false);
        loop {
            ticks.tick().await;
            if *self.answers.borrow() {
                continue;
            }
            let asked = timeout(PATIENCE, sequences.inspect(&name)).await;
            match asked.unwrap_or_else(|_| Err(ErrorKind::UnknownOutcome.into())) {
                Err(error) if !is_of_sequence(&error) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(%error, "the store does not answer; clients should be sent elsewhere");
                    }
                }
                // Whoever refuses has answered: others may be served, and those who are not are told why.
                _ => {
                    self.answers.send_replace(true);
                    told = false;
                }
            }
        }
    }
}

fn is_closed(report: &HealthReport) -> bool {
    let mut troubles = report.troubles.iter();
    report.health == Health::Ended && troubles.all(|trouble| trouble.error.kind() == ErrorKind::Closed)
}

/// Another server may do better: the store fails, and memory has nothing, or nothing soon. A sequence that is
/// exhausted, or was removed, is served by nobody.
fn is_low(trouble: &Trouble) -> bool {
    let lasts = trouble.health == Health::Failing && trouble.time_to_dry.is_none_or(|time| time >= SOON);
    !lasts && !is_of_sequence(&trouble.error)
}

fn is_of_sequence(error: &Error) -> bool {
    error.status() == Status::Permanent
}
