//! Readiness: whether load balancers should send clients to this server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idmill::__private::is_answer;
use idmill::{Error, ErrorKind, HealthReport, Result, SequenceName, Sequences, Status};
use tokio::sync::watch;
use tokio::time::{interval, timeout};

/// Interval and timeout of probes of the store.
const ASK: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a readiness probe waits for an answer of the store. Kubernetes gives a probe one second.
const MOMENT: Duration = Duration::from_millis(500);
/// The reason during a shutdown.
pub(crate) const ENDING: &str = "the server is ending";
/// The sequence that probes inspect. The sequence need not exist.
const NAME: &str = "readyz";

#[derive(Debug, Default)]
pub(crate) struct Readiness {
    /// Set during the shutdown delay, while clients are still served.
    leaving: AtomicBool,
    store: watch::Sender<ProbeResult>,
    /// Set after an error that may affect all sequences: the next tick probes the store.
    doubted: AtomicBool,
}

/// The last known state of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ProbeResult {
    /// No answer since the start.
    #[default]
    Nothing,
    /// The store answered. No sequence has temporarily failed to open since.
    Answer,
    /// The store did not answer.
    Silence,
    /// The store rejects every request.
    Fault,
}

impl ProbeResult {
    fn fault(self) -> Option<&'static str> {
        match self {
            Self::Answer => None,
            Self::Nothing => Some("the store has not answered yet"),
            Self::Silence => Some("the store does not answer"),
            Self::Fault => Some(
                "the store cannot be used: fix the error that the server's log shows, or restart the server",
            ),
        }
    }

    fn of<T>(outcome: &Result<T>) -> Self {
        match outcome {
            outcome if is_answer(outcome) => Self::Answer,
            Err(error) if error.status() == Status::Permanent => Self::Fault,
            _ => Self::Silence,
        }
    }
}

/// The result of a readiness probe.
#[derive(Debug)]
pub(crate) struct Standing {
    /// Why the server is not ready; `None` if it is.
    pub(crate) fault: Option<&'static str>,
    pub(crate) report: HealthReport,
}

impl Readiness {
    /// Makes the server permanently unready.
    pub(crate) fn leave(&self) {
        // Relaxed: no other data depends on this flag.
        self.leaving.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        // Relaxed: no other data depends on this flag.
        self.leaving.load(Ordering::Relaxed)
    }

    /// Records that a sequence could not be opened. After a transient error, the server is not ready until
    /// the store answers.
    pub(crate) fn failed(&self, error: &Error) {
        if error.status() != Status::Permanent {
            self.store.send_if_modified(|heard| {
                let answered = *heard == ProbeResult::Answer;
                if answered {
                    *heard = ProbeResult::Silence;
                }
                answered
            });
        }
        self.doubt(error);
    }

    /// Requests a probe if the error may affect all sequences. Transient errors request no probe, because ids
    /// in memory are still served.
    pub(crate) fn doubt(&self, error: &Error) {
        if error.kind() == ErrorKind::StoreViolation && !error.is_of_one_sequence() {
            // Relaxed: no other data depends on this flag.
            self.doubted.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the readiness. Unless the store answered the last probe, waits for an answer for at most
    /// [`MOMENT`].
    pub(crate) async fn standing(&self, sequences: &Sequences) -> Standing {
        let _ = timeout(MOMENT, self.store.subscribe().wait_for(|heard| *heard == ProbeResult::Answer)).await;
        self.standing_now(sequences)
    }

    /// Returns the readiness without a wait.
    pub(crate) fn standing_now(&self, sequences: &Sequences) -> Standing {
        let report = sequences.health();
        report.troubles.iter().for_each(|trouble| self.doubt(&trouble.error));
        let fault = if self.is_leaving() || report.is_closed() {
            Some(ENDING)
        } else if report.is_ready() {
            self.store.borrow().fault()
        } else {
            Some("the store grants no ids, and the ids in memory are used up or running out")
        };
        Standing { fault, report }
    }

    /// Probes the store every [`ASK`] while it has not answered or is in doubt.
    pub(crate) async fn watch(&self, sequences: &Sequences) {
        let name: SequenceName = NAME.parse().expect("a valid name");
        let (mut ticks, mut told) = (interval(ASK), ProbeResult::Answer);
        loop {
            ticks.tick().await;
            let is_doubted = self.doubted.swap(false, Ordering::Relaxed);
            if *self.store.borrow() == ProbeResult::Answer && !is_doubted {
                continue;
            }
            let asked = timeout(TIMEOUT, sequences.admin().inspect(&name)).await;
            let asked = asked.unwrap_or_else(|_| Err(ErrorKind::UnknownOutcome.into()));
            let heard = match (ProbeResult::of(&asked), *self.store.borrow()) {
                (ProbeResult::Silence, ProbeResult::Nothing) => ProbeResult::Nothing,
                (heard, _) => heard,
            };
            self.store.send_replace(heard);
            if std::mem::replace(&mut told, heard) == heard {
                continue;
            }
            match asked {
                Err(error) if heard == ProbeResult::Fault => {
                    tracing::error!(%error, "the store cannot be used; send clients to another server");
                }
                Err(error) if heard != ProbeResult::Answer => {
                    tracing::warn!(%error, "the store does not answer; send clients to another server");
                }
                _ => tracing::info!("the store answers again"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_all_sequences_make_the_store_faulty() {
        let of = |kind: ErrorKind| ProbeResult::of::<()>(&Err(kind.into()));
        assert_eq!(ProbeResult::of(&Ok(())), ProbeResult::Answer);
        for (kind, expected) in [
            (ErrorKind::Unavailable, ProbeResult::Silence),
            (ErrorKind::Deadline, ProbeResult::Silence),
            (ErrorKind::UnknownOutcome, ProbeResult::Silence),
            (ErrorKind::StoreViolation, ProbeResult::Fault),
            (ErrorKind::NotFound, ProbeResult::Fault),
            (ErrorKind::Denied, ProbeResult::Answer),
            (ErrorKind::Conflict, ProbeResult::Answer),
            (ErrorKind::Unsupported, ProbeResult::Answer),
        ] {
            assert_eq!(of(kind), expected, "{kind}");
        }
    }

    #[test]
    fn store_without_an_answer_is_silent_after_a_failed_open() {
        use ErrorKind::{Deadline, Empty, Overloaded, StoreViolation, Unavailable, UnknownOutcome};
        for &kind in ErrorKind::ALL {
            let after = match kind {
                Empty | Overloaded | Deadline | Unavailable | UnknownOutcome => ProbeResult::Silence,
                _ => ProbeResult::Answer,
            };
            for (before, after) in [
                (ProbeResult::Answer, after),
                (ProbeResult::Nothing, ProbeResult::Nothing),
                (ProbeResult::Silence, ProbeResult::Silence),
                (ProbeResult::Fault, ProbeResult::Fault),
            ] {
                let readiness = Readiness::default();
                readiness.store.send_replace(before);
                readiness.failed(&kind.into());
                let seen = (*readiness.store.borrow(), readiness.doubted.load(Ordering::Relaxed));
                assert_eq!(seen, (after, kind == StoreViolation), "{kind} after {before:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn probe_waits_half_a_second_for_the_first_answer() {
        let sequences = Sequences::new(idmill::store::MemoryStore::new()).unwrap();
        let (readiness, begun) = (Readiness::default(), tokio::time::Instant::now());
        let fault = readiness.standing(&sequences).await.fault;
        assert_eq!(fault, Some("the store has not answered yet"));
        assert_eq!(begun.elapsed(), Duration::from_millis(500));
        readiness.store.send_replace(ProbeResult::Answer);
        assert_eq!(readiness.standing(&sequences).await.fault, None);
        assert_eq!(begun.elapsed(), Duration::from_millis(500));
        readiness.leave();
        assert_eq!(readiness.standing(&sequences).await.fault, Some("the server is ending"));
    }

    #[tokio::test]
    async fn server_with_closed_sequences_is_ending() {
        let sequences = Sequences::new(idmill::store::MemoryStore::new()).unwrap();
        let readiness = Readiness::default();
        readiness.store.send_replace(ProbeResult::Answer);
        sequences.close().await;
        assert_eq!(readiness.standing_now(&sequences).fault, Some("the server is ending"));
    }
}
