//! Who did what, or tried to, for whoever asks later: events of the target `idmill::audit`.
//!
//! What was done always has its line. What was refused has one while there are few: whoever is refused can
//! come back as often as they like, and may not fill a disk.

use std::borrow::Cow;
use std::fmt::Display;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idmill::store::SequenceInfo;

use crate::access::{Bucket, Caller, Clock, Flow, Refusal};
use crate::peer::Peer;

/// So many lines at once, and in a minute.
const LINES: NonZeroU32 = NonZeroU32::new(20).unwrap();
const MINUTE: Duration = Duration::from_secs(60);
/// The most characters of a text that a client chose: a name has at most 200 bytes, and a reason names one.
const LONGEST: usize = 500;

/// Somebody wants to change a sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Act<'a> {
    /// `None` for somebody without a token that is known.
    pub(crate) by: Option<&'a Caller>,
    pub(crate) peer: &'a Peer,
    pub(crate) did: &'static str,
    /// Empty where it is about none.
    pub(crate) sequence: &'a str,
}

/// What came of an act.
#[derive(Clone, Copy)]
pub(crate) enum Outcome<'a> {
    /// It was done, and this is the sequence now; `None` once it is gone.
    Done(Option<&'a SequenceInfo>),
    /// It was not done, since they may not, or asked for what cannot be.
    Refused(&'a dyn Display),
    /// The store failed, and whether it was done is said by the reason.
    Failed(&'a dyn Display),
}

/// The text; a long one is cut.
fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()).into(),
        None => text.into(),
    }
}

fn done(act: Act<'_>, info: Option<&SequenceInfo>) {
    tracing::info!(
        target: "idmill::audit",
        by = act.by.map(Caller::name), certificate = act.peer.subject(), peer = %act.peer,
        sequence = act.sequence, outcome = "done",
        next = info.and_then(|info| info.next), max = info.map(|info| info.bounds.max()),
        incarnation = info.map(|info| info.identity.incarnation), epoch = info.map(|info| info.identity.epoch),
        "{}", act.did
    );
}

/// Without the fields that there are none of.
fn not_done(act: Act<'_>, outcome: &'static str, why: &dyn Display, unlogged: Option<u64>) {
    let sequence = Some(act.sequence).filter(|sequence| !sequence.is_empty());
    tracing::warn!(
        target: "idmill::audit",
        by = act.by.map(Caller::name), certificate = act.peer.subject(), peer = %act.peer,
        sequence = sequence.map(|name| display(shortened(name))), outcome,
        why = %shortened(&why.to_string()), unlogged,
        "{}", act.did
    );
}

/// Writes it, and knows what was written of those who were refused.
#[derive(Debug)]
pub(crate) struct Audit {
    clock: Clock,
    /// Of tokens.
    known: Lines,
    /// Of those who have none.
    unknown: Lines,
}

impl Audit {
    pub(crate) fn of(clock: Clock) -> Self {
        Self { clock, known: Lines::default(), unknown: Lines::default() }
    }

    /// Leaves word of what was done, or was not.
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

    /// Somebody showed a token that is not known, or has ended.
    pub(crate) fn guessed(&self, peer: &Peer, refusal: Refusal) {
        self.refused(Act { by: None, peer, did: "authenticate", sequence: "" }, &refusal);
    }
}

/// Lines that clients can cause at will: [`LINES`] are written in a minute, and the rest is counted.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    written: Bucket,
    unlogged: AtomicU64,
}

impl Lines {
    /// How many were not written since the last; `None` where this one is not either.
    pub(crate) fn one_more(&self, clock: &Clock) -> Option<u64> {
        let flow = Flow::new(LINES, MINUTE, LINES);
        // Relaxed: a count, and nothing else.
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

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_is_refused_writes_so_many_lines_and_the_rest_are_counted() {
        let (lines, clock) = (Lines::default(), Clock::of(SystemTime::now));
        let written = (0..1000).filter(|_| lines.one_more(&clock).is_some()).count();
        assert_eq!(written, 20);
        tokio::time::advance(MINUTE).await;
        assert_eq!((lines.one_more(&clock), lines.one_more(&clock)), (Some(980), Some(0)));
    }
}
