//! What a store in memory holds, and what each call does to it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::faults::{Fault, Faults, injected, named};
use crate::error::{ErrorKind, Result};
use crate::name::SequenceName;
use crate::range::Range;
use crate::store::{
    Bounds, Change, GiveBack, Grant, Listing, Page, Records, Reserve, SequenceInfo, already_exists,
    not_found, page_of,
};

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) faults: Faults,
    pub(super) failing: HashMap<String, ErrorKind>,
    pub(super) reserves: u64,
    pub(super) requests: u64,
    pub(super) recording: bool,
    pub(super) granted: HashMap<SequenceName, Vec<Grant>>,
    stored: Stored,
}

/// What a backup has.
#[derive(Clone, Debug, Default)]
struct Stored {
    sequences: BTreeMap<SequenceName, Entry>,
    records: BTreeMap<SequenceName, String>,
}

#[derive(Clone, Debug)]
struct Entry {
    info: SequenceInfo,
    previous: Option<Grant>,
}

/// All that a [`MemoryStore`](super::MemoryStore) holds at one moment, as in a backup.
#[derive(Clone, Debug)]
pub struct Snapshot(Stored);

impl State {
    pub(super) fn begin_reserve(&mut self, requests: usize) -> (Option<Fault>, Duration) {
        self.reserves += 1;
        self.requests += requests as u64;
        self.faults.next_reserve()
    }

    pub(super) fn reserve(&mut self, request: &Reserve) -> Result<Grant> {
        if let Some(kind) = self.failing.get(request.name.as_str()) {
            return Err(injected(*kind));
        }
        let grant = if let Some(entry) = self.stored.sequences.get_mut(&request.name) {
            let grant = entry.info.grant(request.count, request.ceiling)?;
            entry.previous = Some(grant);
            grant
        } else {
            let mut info = SequenceInfo::new(request.name.clone(), request.creation()?);
            // Only a reserve that grants something creates its sequence.
            let grant = info.grant(request.count, request.ceiling)?;
            self.stored.sequences.insert(request.name.clone(), Entry { info, previous: Some(grant) });
            grant
        };
        if self.recording {
            self.granted.entry(request.name.clone()).or_default().push(grant);
        }
        Ok(grant)
    }

    pub(super) fn take_back(&mut self, back: &GiveBack) -> bool {
        let taken = self.stored.sequences.get_mut(&back.name).is_some_and(|entry| entry.info.take_back(back));
        if taken && let Some(granted) = self.granted.get_mut(&back.name) {
            shorten(granted, back);
        }
        taken
    }

    /// An answer that no honest store gives, where the sequence allows for one.
    pub(super) fn lie(&mut self, requests: &[Reserve], nonsense: Fault) -> Vec<Result<Grant>> {
        let lie = |request: &Reserve| self.lie_once(request, nonsense).map_err(|error| named(error, request));
        requests.iter().map(lie).collect()
    }

    fn lie_once(&mut self, request: &Reserve, nonsense: Fault) -> Result<Grant> {
        let entry = self.stored.sequences.get(&request.name);
        let info = match entry {
            Some(entry) => entry.info.clone(),
            None => SequenceInfo::new(request.name.clone(), request.creation()?),
        };
        let answer = |range| Grant { range, identity: info.identity, bounds: info.bounds };
        let made_up = match nonsense {
            Fault::Repeat => entry.and_then(|entry| entry.previous),
            Fault::Empty => Some(answer(Range::EMPTY)),
            Fault::OutOfBounds => outside(info.bounds).map(answer),
            Fault::TooMany => {
                let count = request.count.saturating_add(1);
                return self.reserve(&Reserve { count, ..request.clone() });
            }
            _ => None,
        };
        made_up.map_or_else(|| self.reserve(request), Ok)
    }

    pub(super) fn create(&mut self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        if self.stored.sequences.contains_key(name) {
            return Err(already_exists(name));
        }
        let info = SequenceInfo::new(name.clone(), bounds);
        self.stored.sequences.insert(name.clone(), Entry { info: info.clone(), previous: None });
        Ok(info)
    }

    pub(super) fn inspect(&self, name: &SequenceName) -> Option<SequenceInfo> {
        self.stored.sequences.get(name).map(|entry| entry.info.clone())
    }

    pub(super) fn list(&self, page: &Page) -> Listing {
        let (rows, next) = page_of(&self.stored.sequences, page);
        Listing::new(rows.into_iter().map(|(_, entry)| entry.info.clone()).collect(), next)
    }

    pub(super) fn record(&self, name: &SequenceName) -> Option<String> {
        self.stored.records.get(name).cloned()
    }

    pub(super) fn swap_record(&mut self, name: &SequenceName, seen: Option<&str>, wanted: &str) -> bool {
        let holds = self.stored.records.get(name).map(String::as_str) == seen;
        if holds {
            self.stored.records.insert(name.clone(), wanted.to_owned());
        }
        holds
    }

    pub(super) fn list_records(&self, page: &Page) -> Records {
        let (rows, next) = page_of(&self.stored.records, page);
        Records::new(rows.into_iter().map(|(name, record)| (name.clone(), record.clone())).collect(), next)
    }

    pub(super) fn set(&mut self, name: &SequenceName, change: &Change) -> Result<SequenceInfo> {
        let entry = self.stored.sequences.get_mut(name).ok_or_else(|| not_found(name))?;
        entry.info.apply(change)?;
        Ok(entry.info.clone())
    }

    pub(super) fn remove(&mut self, name: &SequenceName) -> bool {
        self.stored.sequences.remove(name).is_some()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot(self.stored.clone())
    }

    pub(super) fn restore(&mut self, snapshot: &Snapshot) {
        self.stored.clone_from(&snapshot.0);
    }
}

/// What was given back is the end of what was granted last: of one grant, or of
/// several that follow each other.
fn shorten(granted: &mut Vec<Grant>, back: &GiveBack) {
    while let Some(last) = granted.last_mut()
        && last.identity == back.identity
        && last.range.end() > u128::from(back.rest.start())
    {
        let kept = back.rest.start().saturating_sub(last.range.start());
        last.range = last.range.take_front(kept);
        if !last.range.is_empty() {
            return;
        }
        granted.pop();
    }
}

/// One id above the bounds, or below where there is none above.
fn outside(bounds: Bounds) -> Option<Range> {
    let id = bounds.max().checked_add(1).or_else(|| bounds.start().checked_sub(1))?;
    Range::new(id, 1)
}
