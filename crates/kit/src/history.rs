//! The policy for a sequence that was last written in another history of its store. A replaced server and a
//! restored backup begin another history.
//!
//! A store that can detect another history stores a string with each sequence, such as `cluster 7, timeline
//! 2`. The string names the history of the last write, and appears in errors. The statement that grants ids
//! has the condition that this history is the current one. If the histories differ, the store applies
//! [`Failover`].

use std::fmt;
use std::str::FromStr;

use super::options::{Kind, Typed, text};
use super::refuse;
use idmill::__private::count;
use idmill::SequenceName;
use idmill::store::{Change, SequenceInfo};
use idmill::{Error, ErrorKind, Result};

/// The policy for a sequence that was last written in another history of its store. The last reserves of that
/// history may be missing from the store.
///
/// ```
/// use idmill_kit::history::Failover;
///
/// let failover: Failover = "skip:10000".parse()?;
/// assert_eq!(failover, Failover::Skip(10_000));
/// # Ok::<(), idmill::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failover {
    /// `refuse`: rejects every reserve until the next id of the sequence is set.
    #[default]
    Refuse,
    /// `allow`: continues after the last id that the store has.
    Allow,
    /// `skip:N`: like `allow`, but skips N ids once. N is at least 1.
    Skip(u64),
}

/// The kind of the option `failover`.
pub const FAILOVER: Kind = text("refuse|allow|skip:N", RULE, |value| read(value).is_some());
const RULE: &str = "`refuse` (no ids until the next id is set), `allow` (continues after the recorded ids), \
                    or `skip:N` (skips N ids once)";

fn read(text: &str) -> Option<Failover> {
    match text {
        "refuse" => Some(Failover::Refuse),
        "allow" => Some(Failover::Allow),
        _ => {
            let digits = text.strip_prefix("skip:").filter(|digits| !digits.starts_with('+'))?;
            digits.parse().ok().filter(|ids| *ids > 0).map(Failover::Skip)
        }
    }
}

/// The history of a sequence's last write and the current history, both as the store words them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "stores construct it")]
pub struct Histories<'a> {
    /// The history stored with the sequence.
    pub was: &'a str,
    /// The current history of the server.
    pub here: &'a str,
}

impl Failover {
    /// Returns the sequence to write so that it continues in the current history. Write it on the condition
    /// that neither `info` nor the stored history has changed. Then at most one of several processes skips
    /// ids.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) for `refuse`, with the remedies.
    pub fn adopt(self, info: &SequenceInfo, seen: Histories<'_>) -> Result<SequenceInfo> {
        if self == Self::Refuse {
            return Err(seen.refuse(&info.name));
        }
        let next = info.reached().saturating_add(self.skips().into());
        let next = u64::try_from(next).ok().filter(|next| *next <= info.bounds.max());
        Ok(SequenceInfo::stored(info.name.clone(), next, info.bounds, info.identity))
    }

    /// Returns the number of ids to skip.
    pub fn skips(self) -> u64 {
        if let Self::Skip(ids) = self { ids } else { 0 }
    }

    /// Logs and counts the decision. Call it once, after you have written the result of
    /// [`adopt`](Self::adopt). Do not call it for a refusal, which `adopt` reports itself.
    pub fn report(self, name: &SequenceName, seen: Histories<'_>) {
        let Histories { was, here } = seen;
        let decided = match self {
            Self::Refuse => "refused",
            Self::Allow => "allowed",
            Self::Skip(_) => "skipped",
        };
        count(CHANGES, &[("decision", decided)]);
        let seen = format_args!("the sequence was last written on {was}, not on {here}");
        match self {
            Self::Refuse => tracing::error!(sequence = %name, "{seen}; nothing is granted"),
            Self::Allow => {
                tracing::warn!(sequence = %name, "{seen}; ids continue after the last id stored here");
            }
            Self::Skip(ids) => {
                tracing::warn!(sequence = %name, "{seen}; ids continue {ids} beyond the last id stored here");
            }
        }
    }
}

/// The counter that [`Failover::report`] increments.
const CHANGES: &str = "idmill_history_changes_total";

/// Returns whether a change sets the next id for the current history.
pub const fn decides(change: &Change) -> bool {
    change.next.is_some() && !change.keep_history
}

impl Histories<'_> {
    /// Reports the refusal and returns its error.
    pub fn refuse(self, name: &SequenceName) -> Error {
        Failover::Refuse.report(name, self);
        self.refusal(name)
    }

    /// Returns the error of a rejected reserve, with both histories and the remedies.
    pub fn refusal(self, name: &SequenceName) -> Error {
        let Self { was, here } = self;
        let message = format!(
            "last written on {was}, not on {here}; run `idmill set NAME --next ID` above all ids, or \
             set `failover=allow|skip:N`"
        );
        Error::new(ErrorKind::Conflict, message).of(name)
    }
}

impl fmt::Display for Failover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refuse => f.write_str("refuse"),
            Self::Allow => f.write_str("allow"),
            Self::Skip(ids) => write!(f, "skip:{ids}"),
        }
    }
}

impl FromStr for Failover {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        read(text).ok_or_else(|| refuse(format!("failover={text:?} cannot be used: write {RULE}")))
    }
}

impl Typed for Failover {
    fn of(text: &str) -> Option<Self> {
        read(text)
    }

    fn text(&self) -> Option<String> {
        Some(self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use idmill::store::{Bounds, Identity};

    const MOVED: Histories<'_> = Histories { was: "cluster 1", here: "cluster 2" };

    fn info(next: Option<u64>) -> SequenceInfo {
        let name = SequenceName::new("orders").unwrap();
        SequenceInfo::stored(name, next, Bounds::new(5, 100).unwrap(), Identity::fresh())
    }

    #[test]
    fn failover_text_round_trips_and_bad_text_is_rejected() {
        for failover in [Failover::Refuse, Failover::Allow, Failover::Skip(1), Failover::Skip(u64::MAX)] {
            assert_eq!(failover.to_string().parse::<Failover>().unwrap(), failover);
            assert_eq!(Failover::of(&failover.text().unwrap()), Some(failover));
        }
        for text in
            ["", "Allow", "skip", "skip:", "skip:0", "skip:-1", "skip:+1", "skip:18446744073709551616"]
        {
            let error = text.parse::<Failover>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
            let words = "`refuse` (no ids until the next id is set), `allow` (continues after the recorded ids), or `skip:N` \
                         (skips N ids once)";
            let message = format!("connect: failover={text:?} cannot be used: write {words}");
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn refusal_names_the_history_and_the_option() {
        let error = Failover::Refuse.adopt(&info(Some(7)), MOVED).unwrap_err();
        assert_eq!((error.kind(), error.sequence()), (ErrorKind::Conflict, Some("orders")));
        let message = "`orders`: last written on cluster 1, not on cluster 2; run `idmill set NAME --next ID` above all ids, \
                       or set `failover=allow|skip:N`";
        assert_eq!(error.to_string(), message);
        let skips = [Failover::Refuse, Failover::Allow, Failover::Skip(9)].map(Failover::skips);
        assert_eq!(skips, [0, 0, 9]);
    }

    #[test]
    fn only_next_is_raised_and_within_the_bounds() {
        for (failover, next, adopted) in [
            (Failover::Allow, Some(7), Some(7)),
            (Failover::Allow, None, None),
            (Failover::Skip(10), Some(7), Some(17)),
            (Failover::Skip(93), Some(7), Some(100)),
            (Failover::Skip(94), Some(7), None),
            (Failover::Skip(u64::MAX), Some(7), None),
            (Failover::Skip(1), None, None),
        ] {
            let before = info(next);
            let after = failover.adopt(&before, MOVED).unwrap();
            assert_eq!((after.next, after.identity), (adopted, before.identity), "{failover}");
        }
    }

    /// `report` counts the decision; `adopt` counts only a refusal.
    #[test]
    fn failover_decisions_are_counted() {
        use idmill_testing::log::Log;
        use metrics_util::debugging::{DebugValue, DebuggingRecorder};
        use tracing::Level;

        let (log, _here) = Log::begin(Level::WARN);
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        metrics::with_local_recorder(&recorder, || {
            let info = info(Some(7));
            Failover::Refuse.adopt(&info, MOVED).unwrap_err();
            for decided in [Failover::Allow, Failover::Skip(9), Failover::Skip(1)] {
                decided.adopt(&info, MOVED).unwrap();
                decided.report(&info.name, MOVED);
            }
        });
        let mut counted = Vec::new();
        for (key, _, _, value) in snapshotter.snapshot().into_vec() {
            let label =
                key.key().labels().find(|label| label.key() == "decision").unwrap().value().to_owned();
            counted.push((key.key().name().to_owned(), label, value));
        }
        counted.sort_by(|a, b| a.1.cmp(&b.1));
        let once = |decision: &str, times| {
            ("idmill_history_changes_total".to_owned(), decision.to_owned(), DebugValue::Counter(times))
        };
        assert_eq!(counted, [once("allowed", 1), once("refused", 1), once("skipped", 2)]);
        let lines: Vec<_> =
            log.lines().iter().map(|line| (line["level"].clone(), line["fields"].clone())).collect();
        let ends = [
            "; nothing is granted",
            "after the last id stored here",
            "9 beyond the last id stored here",
            "1 beyond",
        ];
        for ((level, fields), (expected, end)) in
            lines.iter().zip(["ERROR", "WARN", "WARN", "WARN"].iter().zip(ends))
        {
            assert!(level == expected && fields["sequence"] == "orders", "{level} {fields}");
            assert!(fields["message"].as_str().unwrap().contains(end), "{fields}");
        }
        assert_eq!(lines.len(), 4, "{lines:?}");
    }

    #[test]
    fn only_a_new_next_id_decides_about_the_history() {
        let mut kept = Change::new().next(7);
        assert!(decides(&kept));
        kept.keep_history = true;
        assert!(!decides(&kept));
        assert!(!decides(&Change::new()) && !decides(&Change::new().max(7)));
    }
}
