//! What was used of a token's limits.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use idmill::{Error, Status};

use super::Token;
use super::bucket::{Bucket, Flow};
use super::refusal::Refusal;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The most bytes of commands that wait to be carried out, of one token: those of transactions, and of large
/// commands that are still coming in.
const MEMORY: usize = 32 * 1024 * 1024;

/// Of one token, by its hash: it stays when the tokens are read again, and what the token allows by then
/// counts from there. It lasts as long as the server.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    requests: Bucket,
    created: Bucket,
    connections: AtomicU32,
    /// Bytes of commands that are not carried out yet, on all connections.
    held: AtomicUsize,
}

/// How fast a token's limits let things through, worked out once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flows {
    requests: Option<Flow>,
    created: Option<Flow>,
}

impl Flows {
    pub(crate) fn of(token: &Token) -> Self {
        let requests =
            token.requests_per_second.map(|amount| Flow::new(amount, SECOND, token.burst.unwrap_or(amount)));
        let created = token.new_sequences.and_then(NonZeroU32::new).map(|most| Flow::new(most, DAY, most));
        Self { requests, created }
    }

    pub(crate) fn limits_requests(&self) -> bool {
        self.requests.is_some()
    }
}

impl Usage {
    /// From now on, these are the limits.
    pub(crate) fn fit(&self, flows: &Flows, now: u64) {
        for (bucket, flow) in [(&self.requests, flows.requests), (&self.created, flows.created)] {
            if let Some(flow) = flow {
                bucket.fit(flow, now);
            }
        }
    }

    pub(crate) fn request(&self, flows: &Flows, requests: u64, now: u64) -> Result<(), Refusal> {
        let Some(flow) = flows.requests else { return Ok(()) };
        if requests > 1 && requests > flow.most() {
            return Err(Refusal::Burst(flow.most()));
        }
        self.requests.take_some(flow, requests, now).map_err(Refusal::Rate)
    }

    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Result<Memory, Refusal> {
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= MEMORY);
        // Relaxed: a count, and nothing else.
        let held = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        held.map_err(|_| Refusal::Memory)?;
        Ok(Memory { usage: self.clone(), bytes })
    }

    /// A sequence is created. What is returned is to be told if it then was not.
    pub(crate) fn create(self: &Arc<Self>, flows: &Flows, now: u64) -> Result<Created, Refusal> {
        let flow = flows.created.ok_or(Refusal::NoneNew)?;
        self.created.take(flow, now).map_err(Refusal::Created)?;
        Ok(Created { usage: self.clone(), flow })
    }

    /// A connection begins; `most` are allowed.
    pub(crate) fn connect(self: &Arc<Self>, most: Option<u32>) -> Result<Place, Refusal> {
        let one_more = |taken: u32| most.is_none_or(|most| taken < most).then_some(taken + 1);
        // Relaxed: a count, and nothing else.
        let taken = self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.map_err(|_| Refusal::Connections(most.unwrap_or(u32::MAX)))?;
        Ok(Place(self.clone()))
    }
}

/// A sequence that counts as created.
#[derive(Debug)]
pub(crate) struct Created {
    usage: Arc<Usage>,
    flow: Flow,
}

impl Created {
    /// What was certainly not created does not count.
    pub(crate) fn failed(self, error: &Error) {
        if error.status() != Status::Unknown {
            self.usage.created.give_back(self.flow);
        }
    }
}

/// Bytes that are held for one connection, until this is dropped.
#[derive(Debug)]
pub(crate) struct Memory {
    usage: Arc<Usage>,
    bytes: usize,
}

impl Memory {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.usage.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A connection that counts, until this is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Usage>);

impl Place {
    pub(crate) fn is_of(&self, usage: &Arc<Usage>) -> bool {
        Arc::ptr_eq(&self.0, usage)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
