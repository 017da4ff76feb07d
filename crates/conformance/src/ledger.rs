//! The requests and the grants, and the rules that they must follow.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use idmill::store::{Grant, Identity, SequenceInfo};
use idmill::{ErrorKind, Status};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

use super::outcome::{Outcome, check, fail};

/// Nanoseconds on the clock that all processes of the machine share.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The result of a reserve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Granted(Grant),
    Failed(ErrorKind, String),
    /// Timed out: the future was dropped.
    Silent,
}

impl Reply {
    /// Whether the sequence may have moved without a grant.
    pub(super) fn in_doubt(&self) -> bool {
        match self {
            Self::Granted(_) => false,
            Self::Failed(kind, _) => leaves_doubt(*kind),
            Self::Silent => true,
        }
    }
}

/// Whether a write with this error may have taken effect. Its reply may also have been rejected.
pub(super) fn leaves_doubt(kind: ErrorKind) -> bool {
    kind.status() == Status::Unknown || kind == ErrorKind::StoreViolation
}

/// A client of the suite, in this process or another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) client: u32,
    pub(super) process: u32,
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} of process {}", self.client, self.process)
    }
}

/// One reserve of one sequence.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) caller: Caller,
    pub(super) began: u64,
    pub(super) ended: u64,
    pub(super) count: u64,
    pub(super) ceiling: u64,
    pub(super) reply: Reply,
}

/// Every reserve of one sequence, by any process. Clones share the entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl Ledger {
    pub(super) fn add(&self, entry: Entry) {
        self.entries.lock().push(entry);
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.entries.lock().clone()
    }

    pub(super) fn grants(&self) -> Vec<Grant> {
        self.granted().into_iter().map(|(_, grant)| grant).collect()
    }

    fn granted(&self) -> Vec<(Entry, Grant)> {
        let granted = |entry: Entry| match entry.reply {
            Reply::Granted(grant) => Some((entry, grant)),
            _ => None,
        };
        self.entries().into_iter().filter_map(granted).collect()
    }

    /// Number of ids granted.
    pub(super) fn ids(&self) -> u128 {
        self.grants().iter().map(|grant| u128::from(grant.range.len())).sum()
    }

    /// Number of ids that may have been reserved without a grant.
    pub(super) fn doubtful(&self) -> u128 {
        let entries = self.entries();
        entries.iter().filter(|entry| entry.reply.in_doubt()).map(|entry| u128::from(entry.count)).sum()
    }

    fn by_identity(&self) -> HashMap<Identity, Vec<(Entry, Grant)>> {
        let mut identities: HashMap<_, Vec<_>> = HashMap::new();
        for (entry, grant) in self.granted() {
            identities.entry(grant.identity).or_default().push((entry, grant));
        }
        identities
    }

    /// **The promise**: two grants of one identity never share an id.
    pub(super) fn disjoint(&self) -> Outcome {
        let started = self.entries().iter().map(|entry| entry.began).min().unwrap_or(0);
        for mut granted in self.by_identity().into_values() {
            granted.sort_by_key(|(_, grant)| (grant.range.start(), grant.range.end()));
            for pair in granted.windows(2) {
                let ((one, first), (other, second)) = (&pair[0], &pair[1]);
                let milliseconds = |time: u64| (time - started) as f64 / 1e6;
                check!(
                    !first.range.overlaps(&second.range),
                    "duplicate grants: {} got {:?} (requested after {:.1} ms, answered after {:.1} ms), and {} got \
                     {:?} ({:.1} and {:.1} ms)",
                    one.caller,
                    first.range,
                    milliseconds(one.began),
                    milliseconds(one.ended),
                    other.caller,
                    second.range,
                    milliseconds(other.began),
                    milliseconds(other.ended)
                );
            }
        }
        Ok(())
    }

    /// The sequence was not reset or recreated, so it has one identity.
    pub(super) fn one_identity(&self) -> Outcome {
        let identities: Vec<_> = self.by_identity().into_keys().collect();
        check!(
            identities.len() == 1,
            "a sequence that was not reset has {} identities: {identities:?}",
            identities.len()
        );
        Ok(())
    }

    /// Every grant matches its request: not empty, not larger, within the bounds, and not above the ceiling.
    /// A grant is shorter than its request only at the last id or the ceiling, or if the store has a
    /// `window`.
    pub(super) fn sound(&self, window: bool) -> Outcome {
        for (entry, grant) in self.granted() {
            let (range, bounds) = (grant.range, grant.bounds);
            check!(!range.is_empty(), "an empty grant for a request of {} ids", entry.count);
            check!(
                range.len() <= entry.count,
                "{} ids were requested, but {range:?} was granted",
                entry.count
            );
            let last = range.end() - 1;
            check!(range.start() >= bounds.start(), "{range:?} begins before {}", bounds.start());
            check!(last <= u128::from(bounds.max()), "{range:?} goes beyond the last id, {}", bounds.max());
            check!(last <= u128::from(entry.ceiling), "{range:?} goes beyond the ceiling {}", entry.ceiling);
            let end = u128::from(bounds.max().min(entry.ceiling));
            check!(
                window || range.len() == entry.count || last == end,
                "{} ids were requested, but only {range:?} was granted, although ids up to {end} are left",
                entry.count
            );
        }
        Ok(())
    }

    /// A reserve that begins after another was answered gets larger ids.
    pub(super) fn growing(&self) -> Outcome {
        for granted in self.by_identity().into_values() {
            let mut ended: Vec<_> = granted.iter().map(|(entry, grant)| (entry.ended, grant.range)).collect();
            let mut began: Vec<_> = granted.iter().map(|(entry, grant)| (entry.began, grant.range)).collect();
            ended.sort_by_key(|(time, _)| *time);
            began.sort_by_key(|(time, _)| *time);
            let (mut reached, mut ended) = (0, ended.into_iter().peekable());
            for (time, range) in began {
                while let Some((_, before)) = ended.next_if(|(end, _)| *end < time) {
                    reached = before.end().max(reached);
                }
                check!(
                    u128::from(range.start()) >= reached,
                    "{range:?} was granted, but ids up to {} had been granted before the request began",
                    reached - 1
                );
            }
        }
        Ok(())
    }

    /// The stored sequence has moved by the granted ids, plus at most the ids in doubt and the `window` that
    /// the store reserves ahead.
    pub(super) fn accounted(&self, info: &SequenceInfo, window: u64) -> Outcome {
        let reached = info.next.map_or(u128::from(info.bounds.max()) + 1, u128::from);
        let identity = self.by_identity().remove(&info.identity).unwrap_or_default();
        let ids: u128 = identity.iter().map(|(_, grant)| u128::from(grant.range.len())).sum();
        let end = identity.iter().map(|(_, grant)| grant.range.end()).max().unwrap_or(0);
        check!(
            reached >= end,
            "ids below {end} were granted, but the store has reserved only ids below {reached}"
        );
        let moved = reached - u128::from(info.bounds.start());
        let most = ids + self.doubtful() + u128::from(window);
        check!(
            moved <= most,
            "ids were lost: the sequence moved by {moved}, but {ids} were granted and {} are in doubt",
            self.doubtful()
        );
        Ok(())
    }

    /// No error was permanent: a fault must not make a caller give up on a sequence.
    pub(super) fn passing(&self) -> Outcome {
        for entry in self.entries() {
            if let Reply::Failed(kind, said) = &entry.reply
                && kind.status() == Status::Permanent
            {
                fail!("a transient fault caused a permanent error ({}): {said}", kind.as_str());
            }
        }
        Ok(())
    }
}
