//! Checks a store's answers about failed reserves.
//!
//! Every reserve requests a power of two that no failed reserve has requested. The movement of the stored
//! sequence minus the granted ids is therefore a set of bits, one for each reserve that took effect without a
//! grant. Each such reserve must have been in doubt. If the store reported that one of them had no effect,
//! the store is wrong.

use idmill::SequenceName;
use idmill::store::SequenceInfo;

use super::client::Client;
use super::ledger::Reply;
use super::outcome::{Outcome, check, fail};

/// Maximum number of failed reserves per trial: the sequence is far from its end by then.
const BITS: u32 = 44;

/// Follows the reserves of one sequence, one after the other.
#[derive(Debug)]
pub(super) struct Tracker {
    name: SequenceName,
    start: u64,
    granted: u128,
    doubtful: u64,
    /// Reserves that were reported to have had no effect, with the error messages.
    denied: Vec<(u64, String)>,
    free: Vec<u32>,
}

impl Tracker {
    /// Starts with the current state of a sequence.
    pub(super) fn new(info: &SequenceInfo) -> Outcome<Self> {
        let Some(start) = info.next else { fail!("`{}` is exhausted", info.name) };
        let free = (0..BITS).rev().collect();
        Ok(Self { name: info.name.clone(), start, granted: 0, doubtful: 0, denied: Vec::new(), free })
    }

    /// Number of ids for the next reserve; `None` when too many have failed.
    pub(super) fn count(&self) -> Option<u64> {
        self.free.last().map(|bit| 1 << bit)
    }

    /// Records the result of a reserve of [`count`](Self::count) ids.
    pub(super) fn note(&mut self, reply: &Reply) {
        let Some(bit) = self.free.pop() else { return };
        match reply {
            Reply::Granted(grant) => {
                self.granted += u128::from(grant.range.len());
                self.free.push(bit);
            }
            reply if reply.in_doubt() => self.doubtful |= 1 << bit,
            Reply::Failed(kind, said) => self.denied.push((1 << bit, format!("{said} ({})", kind.as_str()))),
            Reply::Silent => unreachable!("silence is doubt"),
        }
    }

    /// Returns how many reserves in doubt took effect, and how many were in doubt.
    pub(super) fn verify(&self, info: &SequenceInfo) -> Outcome<(u32, u32)> {
        let Some(next) = info.next else { fail!("`{}` is exhausted, although it has ids left", self.name) };
        let moved = u128::from(next.saturating_sub(self.start));
        check!(moved >= self.granted, "{} ids were granted, but the sequence moved by {moved}", self.granted);
        let unseen = moved - self.granted;
        for (bit, said) in &self.denied {
            check!(
                unseen & u128::from(*bit) == 0,
                "a reserve of {bit} ids reported no effect, but the ids were reserved: {said}"
            );
        }
        let unexplained = unseen & !u128::from(self.doubtful);
        check!(
            unexplained == 0,
            "the store sent a reserve twice: {unexplained} of {unseen} ids were reserved, but neither granted nor \
             in a lost reply"
        );
        Ok((unseen.count_ones(), self.doubtful.count_ones()))
    }

    /// Like [`verify`](Self::verify), but reads the sequence with a client without faults.
    pub(super) async fn look(&self, observer: &Client) -> Outcome<(u32, u32)> {
        self.verify(&observer.look(&self.name).await?)
    }
}
