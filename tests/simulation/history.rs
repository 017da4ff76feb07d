//! The recorded events, which the checks compare with the plan and the store.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use idmill::store::Grant;
use idmill::{ErrorKind, IdRange, SequenceName, Snapshot};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Ids as start and length, so that large ranges are cheap to count.
pub(crate) type Span = (u64, u64);

/// How a caller drew. `Order::Thread` promises growth within a view, not across views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum View {
    Allocator,
    Handle,
    Block,
    Take,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Ids(Vec<Span>),
    Refused(ErrorKind),
    Cancelled,
}

/// One call of one caller. `began` and `ended` are ticks of the history: a call that began after another
/// had ended has the larger tick, in any process.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Draw {
    pub(crate) life: usize,
    pub(crate) sequence: usize,
    pub(crate) caller: usize,
    pub(crate) view: View,
    pub(crate) waits: bool,
    pub(crate) want: u64,
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// When the call began, since the world began.
    pub(crate) at: Duration,
    pub(crate) took: Duration,
    /// The call's timeout.
    pub(crate) limit: Duration,
    pub(crate) outcome: Outcome,
}

impl Draw {
    /// When the call returned, since the world began.
    pub(crate) fn end(&self) -> Duration {
        self.at + self.took
    }

    pub(crate) fn ids(&self) -> &[Span] {
        match &self.outcome {
            Outcome::Ids(ids) => ids,
            _ => &[],
        }
    }
}

/// One reserve that a process sent. A reserve without a grant failed, or its outcome is unknown.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) life: usize,
    pub(crate) sequence: usize,
    pub(crate) count: u64,
    pub(crate) tick: u64,
    /// Whether the reserve creates the sequence if it does not exist.
    pub(crate) creates: bool,
    pub(crate) grant: Option<Grant>,
    /// When the reserve was sent, and when it was answered or given up, since the world began.
    pub(crate) at: Duration,
    pub(crate) over: Duration,
}

/// One give-back that a process sent.
#[derive(Clone, Debug)]
pub(crate) struct Back {
    pub(crate) life: usize,
    pub(crate) name: String,
    pub(crate) rest: Span,
    pub(crate) tick: u64,
    /// When it was sent, and when it was answered or given up, since the world began.
    pub(crate) at: Duration,
    pub(crate) over: Duration,
}

/// The final state of a sequence in a process that makes no more calls on it.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    pub(crate) life: usize,
    pub(crate) sequence: usize,
    pub(crate) snapshot: Snapshot,
}

#[derive(Debug)]
pub(crate) struct History {
    began: Instant,
    tick: u64,
    trace: DefaultHasher,
    in_flight: BTreeMap<(usize, usize), usize>,
    pub(crate) lives: usize,
    pub(crate) draws: Vec<Draw>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) left: Vec<Left>,
    /// The tick of each sequence's first reset.
    pub(crate) reset: BTreeMap<usize, u64>,
    /// Life, sequence, and the tick of the call, for each revocation.
    pub(crate) revoked: Vec<(usize, usize, u64)>,
    pub(crate) given_back: Vec<Back>,
    /// Ticks at which a process had more than one reserve of a sequence in flight.
    pub(crate) crowded: Vec<u64>,
}

pub(crate) type Shared = Arc<Mutex<History>>;

impl History {
    pub(crate) fn new() -> Shared {
        Arc::new(Mutex::new(Self {
            began: Instant::now(),
            tick: 0,
            trace: DefaultHasher::new(),
            in_flight: BTreeMap::new(),
            lives: 0,
            draws: Vec::new(),
            sent: Vec::new(),
            left: Vec::new(),
            reset: BTreeMap::new(),
            revoked: Vec::new(),
            given_back: Vec::new(),
            crowded: Vec::new(),
        }))
    }

    /// Returns a hash that is the same for two runs with the same events at the same times.
    pub(crate) fn trace(&self) -> u64 {
        self.trace.finish()
    }

    /// Returns the time since the world began.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Records an event at the current time.
    pub(crate) fn tick(&mut self, what: &impl Hash) -> u64 {
        self.tick += 1;
        (self.tick, self.began.elapsed()).hash(&mut self.trace);
        what.hash(&mut self.trace);
        self.tick
    }

    pub(crate) fn drew(&mut self, draw: Draw) {
        self.tick(&draw);
        self.draws.push(draw);
    }

    pub(crate) fn reset(&mut self, sequence: usize) {
        let tick = self.tick(&sequence);
        self.reset.entry(sequence).or_insert(tick);
    }

    pub(crate) fn sends(&mut self, life: usize, sequence: usize, count: u64, creates: bool) -> usize {
        let tick = self.tick(&(life, sequence, count));
        let under_way = self.in_flight.entry((life, sequence)).or_default();
        *under_way += 1;
        if *under_way > 1 {
            self.crowded.push(tick);
        }
        let (at, over) = (self.now(), Duration::MAX);
        self.sent.push(Sent { life, sequence, count, tick, creates, grant: None, at, over });
        self.sent.len() - 1
    }

    pub(crate) fn gives_back(&mut self, life: usize, name: &SequenceName, rest: IdRange) -> usize {
        let tick = self.tick(&(life, rest.start(), rest.len()));
        let (name, rest) = (name.as_str().to_owned(), (rest.start(), rest.len()));
        self.given_back.push(Back { life, name, rest, tick, at: self.now(), over: Duration::MAX });
        self.given_back.len() - 1
    }

    pub(crate) fn hears(&mut self, sent: usize, grant: Option<Grant>) {
        self.tick(&(sent, grant.map(|grant| (grant.range.start(), grant.range.len()))));
        self.sent[sent].grant = grant;
    }

    /// Records that the reserve was answered or given up.
    pub(crate) fn is_over(&mut self, sent: usize) {
        self.sent[sent].over = self.now();
        let Sent { life, sequence, .. } = self.sent[sent];
        *self.in_flight.entry((life, sequence)).or_default() -= 1;
    }
}
