//! Whether what a store says of a failed reserve is true.
//!
//! Every reserve asks for another power of two. Of how far the stored sequence has moved, take away what was
//! granted: the bits of the rest name the reserves that took effect without a grant. Each of them must be one
//! that was left in doubt: the bit of a reserve that was said to have done nothing convicts the store.

use idmill::SequenceName;
use idmill::store::SequenceInfo;

use super::client::Client;
use super::ledger::Reply;
use super::outcome::{Outcome, check, fail};

/// How many reserves can have failed before one trial ends: the sequence is far from its end by then.
const BITS: u32 = 44;

/// Follows the reserves of one sequence, one after the other.
#[derive(Debug)]
pub(super) struct Tracker {
    name: SequenceName,
    start: u64,
    granted: u128,
    doubtful: u64,
    /// Said to have done nothing, and with which words.
    denied: Vec<(u64, String)>,
    free: Vec<u32>,
}

impl Tracker {
    /// Begins with a sequence as it is now.
    pub(super) fn new(info: &SequenceInfo) -> Outcome<Self> {
        let Some(start) = info.next else { fail!("`{}` is exhausted", info.name) };
        let free = (0..BITS).rev().collect();
        Ok(Self { name: info.name.clone(), start, granted: 0, doubtful: 0, denied: Vec::new(), free })
    }

    /// How many ids the next reserve asks for; `None` when too many have failed.
    pub(super) fn count(&self) -> Option<u64> {
        self.free.last().map(|bit| 1 << bit)
    }

    /// Notes what came of a reserve of [`count`](Self::count) ids.
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

    /// How many reserves that were left in doubt took effect, and how many there were.
    pub(super) fn verify(&self, info: &SequenceInfo) -> Outcome<(u32, u32)> {
        let Some(next) = info.next else { fail!("`{}` is exhausted, far from its end", self.name) };
        let moved = u128::from(next.saturating_sub(self.start));
        check!(moved >= self.granted, "{} ids were granted, but the sequence moved by {moved}", self.granted);
        let unseen = moved - self.granted;
        for (bit, said) in &self.denied {
            check!(
                unseen & u128::from(*bit) == 0,
                "a reserve of {bit} ids said that nothing was reserved, but they are: {said}"
            );
        }
        let unexplained = unseen & !u128::from(self.doubtful);
        check!(
            unexplained == 0,
            "the sequence moved by {unseen} without a grant, of which {unexplained} were in no doubt: something was asked for twice"
        );
        Ok((unseen.count_ones(), self.doubtful.count_ones()))
    }

    /// As [`verify`](Self::verify), by a client that is not disturbed.
    pub(super) async fn look(&self, observer: &Client) -> Outcome<(u32, u32)> {
        self.verify(&observer.look(&self.name).await?)
    }
}
