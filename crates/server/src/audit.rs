//! The audit log: events of the target `idmill::audit` with the caller, the act and its outcome.
//!
//! Completed acts are logged, unless the client disconnects before the answer. Refusals are limited: a
//! refused client can retry without end, and must not fill a disk.

use std::borrow::Cow;
use std::fmt::Display;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idmill::store::SequenceInfo;

use crate::access::{Bucket, Caller, Clock, Flow, Refusal};
use crate::peer::Peer;

/// Maximum burst of logged refusals, and maximum number per minute.
const LINES: NonZeroU32 = NonZeroU32::new(20).unwrap();
const MINUTE: Duration = Duration::from_secs(60);
/// Maximum number of characters of text that a client supplies. A name has at most 200 bytes, and a reason
/// contains one name.
const LONGEST: usize = 500;

/// An attempt to change a sequence, or to authenticate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Act<'a> {
    /// The caller; `None` if it is unknown.
    pub(crate) by: Option<&'a Caller>,
    pub(crate) peer: &'a Peer,
    pub(crate) did: &'static str,
    /// Empty if the act concerns no sequence.
    pub(crate) sequence: &'a str,
}

/// The outcome of an act.
#[derive(Clone, Copy)]
pub(crate) enum Outcome<'a> {
    /// Done, with the sequence afterwards; `None` if it was removed.
    Done(Option<&'a SequenceInfo>),
    /// Not done: the token does not allow it, or the request is invalid or conflicts with the store.
    Refused(&'a dyn Display),
    /// The store failed. The reason states whether the change may have been made.
    Failed(&'a dyn Display),
}

/// Truncates long text.
fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()).into(),
        None => text.into(),
    }
}

fn done(act: Act<'_>, info: Option<&SequenceInfo>) {
    tracing::info!(
        target: "idmill::audit",
        by = act.by.map(Caller::name), certificate = act.peer.subject.as_deref(), peer = %act.peer,
        sequence = act.sequence, outcome = "done",
        next = info.and_then(|info| info.next), max = info.map(|info| info.bounds.max()),
        incarnation = info.map(|info| info.identity.incarnation), epoch = info.map(|info| info.identity.epoch),
        "{}", act.did
    );
}

/// Logs an act that was refused or failed. Empty fields are omitted.
fn not_done(act: Act<'_>, outcome: &'static str, why: &dyn Display, unlogged: Option<u64>) {
    let sequence = Some(act.sequence).filter(|sequence| !sequence.is_empty());
    tracing::warn!(
        target: "idmill::audit",
        by = act.by.map(Caller::name), certificate = act.peer.subject.as_deref(), peer = %act.peer,
        sequence = sequence.map(|name| display(shortened(name))), outcome,
        why = %shortened(&why.to_string()), unlogged,
        "{}", act.did
    );
}

/// Writes the audit log, and counts refusals that were not logged.
#[derive(Debug)]
pub(crate) struct Audit {
    clock: Clock,
    /// Limits the lines about callers with a valid token.
    known: Lines,
    /// Limits the lines about callers without a valid token.
    unknown: Lines,
}

impl Audit {
    pub(crate) fn of(clock: Clock) -> Self {
        Self { clock, known: Lines::default(), unknown: Lines::default() }
    }

    /// Logs an act with its outcome.
    pub(crate) fn note(&self, act: Act<'_>, outcome: Outcome<'_>) {
        match outcome {
            Outcome::Done(info) => done(act, info),
            Outcome::Refused(why) => self.refused(act, why),
            Outcome::Failed(why) => not_done(act, "failed", why, None),
        }
    }

    fn refused(&self, act: Act<'_>, why: &dyn Display) {
        let lines = if act.by.is_some() { &self.known } else { &self.unknown };
        if let Some(unlogged) = lines.one_more(&self.clock) {
            not_done(act, "refused", why, Some(unlogged));
        }
    }

    /// Logs an unknown or expired token.
    pub(crate) fn guessed(&self, peer: &Peer, refusal: Refusal) {
        self.refused(Act { by: None, peer, did: "authenticate", sequence: "" }, &refusal);
    }
}

/// Limits the log lines that clients can cause. After a burst of [`LINES`], at most [`LINES`] are written per
/// minute, and the other lines are counted.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    written: Bucket,
    unlogged: AtomicU64,
}

impl Lines {
    /// Returns how many lines were dropped since the last written one; `None` if this line must be dropped
    /// too.
    pub(crate) fn one_more(&self, clock: &Clock) -> Option<u64> {
        let flow = Flow::new(LINES, MINUTE, LINES);
        // Relaxed: only a counter.
        if self.written.take(flow, clock.elapsed()).is_ok() {
            return Some(self.unlogged.swap(0, Ordering::Relaxed));
        }
        self.unlogged.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use idmill_testing::log::Log;
    use tracing::Level;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refusal_lines_are_limited_and_the_rest_counted() {
        let (lines, clock) = (Lines::default(), Clock::of(SystemTime::now));
        let written = (0..1000).filter(|_| lines.one_more(&clock).is_some()).count();
        assert_eq!(written, 20);
        tokio::time::advance(MINUTE).await;
        assert_eq!((lines.one_more(&clock), lines.one_more(&clock)), (Some(980), Some(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn lines_show_how_many_refusals_were_left_out() {
        let (log, _guard) = Log::begin(Level::INFO);
        let (audit, peer) = (Audit::of(Clock::of(SystemTime::now)), Peer::default());
        let refuse = |times| (0..times).for_each(|_| audit.guessed(&peer, Refusal::Wrong));
        let unlogged = || {
            let lines = log.lines().into_iter().map(|line| line["fields"]["unlogged"].as_u64().unwrap());
            lines.collect::<Vec<_>>()
        };
        refuse(25);
        assert_eq!(unlogged(), [0; 20]);
        tokio::time::advance(MINUTE).await;
        refuse(2);
        assert_eq!(unlogged()[20..], [5, 0]);
    }

    #[test]
    fn text_of_clients_is_shortened_to_500_characters() {
        let (whole, long) = ("é".repeat(500), "é".repeat(501));
        assert_eq!(shortened(&whole), whole);
        assert_eq!(shortened(&long), format!("{whole}… (1002 bytes)"));
    }
}
