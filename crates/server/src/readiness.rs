//! Whether clients should be sent here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idmill::{Error, ErrorKind, Health, HealthReport, Result, SequenceName, Sequences, Status, Trouble};
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

#[derive(Debug, Default)]
pub(crate) struct Readiness {
    /// The server is about to end, and still serves.
    leaving: AtomicBool,
    store: watch::Sender<Heard>,
    /// An error may concern all sequences: the next tick probes the store.
    doubted: AtomicBool,
}

/// The store's answer to the last probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Heard {
    /// None yet, since the start.
    #[default]
    Nothing,
    /// It answered, and no sequence ran low or failed to open since.
    Answer,
    /// It did not answer.
    Silence,
    /// It refuses every request.
    Fault,
}

impl Heard {
    fn fault(self) -> Option<&'static str> {
        match self {
            Self::Answer => None,
            Self::Nothing => Some("the store has not answered yet"),
            Self::Silence => Some("the store does not answer"),
            Self::Fault => {
                Some("the store cannot be used: mend it, or restart the server; its log has the error")
            }
        }
    }

    fn of<T>(outcome: &Result<T>) -> Self {
        match outcome {
            Err(error) if error.status() != Status::Permanent => Self::Silence,
            // Every request fails so: the file was replaced, or the tables are missing.
            Err(error) if matches!(error.kind(), ErrorKind::StoreViolation | ErrorKind::NotFound) => {
                Self::Fault
            }
            // `Denied`, for one, may concern only this name.
            _ => Self::Answer,
        }
    }
}

/// What a probe is told.
#[derive(Debug)]
pub(crate) struct Standing {
    /// Why nobody should be sent here; `None` for a server that is ready.
    pub(crate) fault: Option<&'static str>,
    pub(crate) report: HealthReport,
}

impl Readiness {
    /// From now on nobody should be sent here.
    pub(crate) fn leave(&self) {
        // Relaxed: nothing else is learned from it.
        self.leaving.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        // Relaxed, as above.
        self.leaving.load(Ordering::Relaxed)
    }

    /// A sequence could not be opened. After a transient error the server is unready until the store answers.
    pub(crate) fn failed(&self, error: &Error) {
        if error.status() != Status::Permanent {
            self.lose_store();
        }
        self.doubt(error);
    }

    /// Has the store probed if the error may concern all sequences. Transient errors do not count: memory serves.
    pub(crate) fn doubt(&self, error: &Error) {
        if error.kind() == ErrorKind::StoreViolation {
            // Relaxed: nothing else is learned from it.
            self.doubted.store(true, Ordering::Relaxed);
        }
    }

    fn lose_store(&self) {
        self.store.send_if_modified(|heard| {
            let answered = *heard == Heard::Answer;
            if answered {
                *heard = Heard::Silence;
            }
            answered
        });
    }

    /// The standing, after a moment for a store that was not heard yet.
    pub(crate) async fn standing(&self, sequences: &Sequences) -> Standing {
        let _ = timeout(MOMENT, self.store.subscribe().wait_for(|heard| *heard == Heard::Answer)).await;
        self.standing_now(sequences)
    }

    /// Once memory ran low, this server is not ready before the store has answered: without clients, the
    /// little that is left lasts forever, and they would come and go.
    pub(crate) fn standing_now(&self, sequences: &Sequences) -> Standing {
        let report = sequences.health();
        let is_low = report.troubles.iter().any(is_low);
        if is_low {
            self.lose_store();
        }
        report.troubles.iter().for_each(|trouble| self.doubt(&trouble.error));
        let fault = if self.is_leaving() || is_closed(&report) {
            Some("the server is ending")
        } else if is_low {
            Some("the store is away, and memory does not last")
        } else {
            self.store.borrow().fault()
        };
        Standing { fault, report }
    }

    /// Probes a store that has not answered, or is doubted, until it answers.
    pub(crate) async fn watch(&self, sequences: &Sequences) {
        let name: SequenceName = NAME.parse().expect("a name");
        let (mut ticks, mut told) = (interval(ASK), Heard::Answer);
        loop {
            ticks.tick().await;
            let is_doubted = self.doubted.swap(false, Ordering::Relaxed);
            if *self.store.borrow() == Heard::Answer && !is_doubted {
                continue;
            }
            let asked = timeout(PATIENCE, sequences.inspect(&name)).await;
            let asked = asked.unwrap_or_else(|_| Err(ErrorKind::UnknownOutcome.into()));
            let heard = match (Heard::of(&asked), *self.store.borrow()) {
                (Heard::Silence, Heard::Nothing) => Heard::Nothing,
                (heard, _) => heard,
            };
            self.store.send_replace(heard);
            if std::mem::replace(&mut told, heard) == heard {
                continue;
            }
            match asked {
                Err(error) if heard == Heard::Fault => {
                    tracing::error!(%error, "the store cannot be used; clients should be sent elsewhere");
                }
                Err(error) if heard != Heard::Answer => {
                    tracing::warn!(%error, "the store does not answer; clients should be sent elsewhere");
                }
                _ => tracing::info!("the store answers again"),
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
