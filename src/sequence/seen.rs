//! What a process has seen of one sequence, and what shows that its store has lost what it had committed.

use crate::error::{Error, ErrorKind};
use crate::sequence::held::Held;
use crate::store::{Change, Grant, Identity};

/// So many incarnations are remembered besides the present one. Each of them was removed and
/// created again while the process ran; of more, the earliest is forgotten, and would be taken for
/// a new sequence if it came back.
const LEFT: usize = 64;

/// How far one incarnation was granted to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) identity: Identity,
    /// The store granted all ids up to this one, to this process or to others.
    pub(crate) last: u64,
}

/// What a process has seen of one sequence. It outlives the eviction of the sequence, in the registry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Which sequence ids came from last.
    present: Option<Present>,
    /// What there was before. Boxed, since most sequences are never created again.
    left: Option<Box<Left>>,
}

#[derive(Clone, Debug)]
struct Present {
    identity: Identity,
    held: Held,
}

impl Present {
    fn reached(&self) -> Reached {
        Reached { identity: self.identity, last: self.held.last() }
    }
}

#[derive(Clone, Debug, Default)]
struct Left {
    incarnations: Vec<Reached>,
    forgotten: u64,
}

impl Seen {
    /// What is known from this alone.
    pub(crate) fn up_to(present: Option<Reached>) -> Self {
        let present =
            present.map(|Reached { identity, last }| Present { identity, held: Held::new(0, last) });
        Self { present, left: None }
    }

    /// Which sequence ids came from last.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.present.as_ref().map(|present| present.identity)
    }

    /// How many incarnations were seen and are forgotten.
    pub(crate) fn forgotten(&self) -> u64 {
        self.left.as_ref().map_or(0, |left| left.forgotten)
    }

    /// Notes where ids come from; whether that is another sequence than before.
    pub(crate) fn note(&mut self, grant: &Grant) -> bool {
        let (first, identity) = (grant.range.start(), grant.identity);
        let Some(last) = grant.range.last() else { return false };
        if let Some(same) = self.present.as_mut().filter(|present| present.identity == identity) {
            same.held.add(first, last);
            return false;
        }
        let held = Held::new(first, last);
        let Some(before) = self.present.replace(Present { identity, held }) else { return false };
        if before.identity.incarnation != identity.incarnation {
            self.leave(before.reached());
        }
        true
    }

    /// The ids from this one on, the last that were granted, can be granted again: they are given back.
    pub(crate) fn forget_from(&mut self, id: u64) {
        if let Some(present) = &mut self.present {
            present.held.give_back_from(id);
        }
    }

    fn leave(&mut self, before: Reached) {
        let left = self.left.get_or_insert_default();
        if left.incarnations.len() == LEFT {
            left.incarnations.remove(0);
            left.forgotten += 1;
        }
        left.incarnations.push(before);
    }

    /// What shows that the store has lost what it had committed: by a restored backup, or
    /// a failover that lost writes.
    pub(crate) fn gone_back(&self, grant: &Grant) -> Option<String> {
        let known = self.known(grant.identity.incarnation)?;
        let (range, epoch, last) = (grant.range, grant.identity.epoch, known.last);
        // An incarnation is random: one that was removed is never created again.
        let fault = if self.identity().is_some_and(|now| now.incarnation != known.identity.incarnation) {
            format!("granted {range:?} of an incarnation that another had followed")
        } else if epoch < known.identity.epoch {
            // Resets count up, so an epoch that was left does not come again.
            format!("is at epoch {epoch}, although it was at {} before", known.identity.epoch)
        } else {
            // Of the present identity, as those before it are none of the cases above.
            let held = self.present.as_ref().filter(|present| present.identity == grant.identity)?;
            let largest = held.held.largest().filter(|largest| range.start() <= *largest)?;
            format!("granted {range:?}, although {largest} was granted before")
        };
        Some(format!("{fault}: it went back in time, and was told to go on after {last}"))
    }

    /// What keeps others, who may know less, from being granted again what this process was granted before
    /// the store went back. It only raises `next`: late, or twice, it does no harm.
    pub(crate) fn raise(&self, grant: &Grant) -> Option<Change> {
        self.gone_back(grant)?;
        go_on_after(self.known(grant.identity.incarnation)?.last, grant.identity)
    }

    /// The same, where the store refused because it noticed by itself. What it has of the sequence is not
    /// known: where nothing was lost, this changes nothing.
    pub(crate) fn raise_unseen(&self) -> Option<Change> {
        let present = self.present.as_ref()?;
        go_on_after(present.held.last(), present.identity)
    }

    fn known(&self, incarnation: u64) -> Option<Reached> {
        let left = self.left.iter().flat_map(|left| &left.incarnations).copied();
        let present = self.present.as_ref().map(Present::reached);
        left.chain(present).find(|known| known.identity.incarnation == incarnation)
    }

    /// The error for a sequence that was seen, and is gone: the store answered `absent`.
    pub(crate) fn gone(&self, name: &str, absent: &Error) -> Error {
        let seen = match self.present.as_ref().map(Present::reached) {
            Some(Reached { identity, last }) => format!(
                "ids up to {last} of it were granted to this process (incarnation {:x}, epoch {})",
                identity.incarnation, identity.epoch
            ),
            None => "this process has seen it".to_owned(),
        };
        let message = format!(
            "the sequence is gone, although {seen}: it was removed, or the store was emptied, replaced or restored. It is not begun \
             anew, since that could hand out ids twice. If it was removed on purpose, `idmill create {name}`; else find out what \
             happened to the store, and create it to begin above every id in use, `idmill create {name} --start N`"
        );
        Error::new(ErrorKind::StoreViolation, message).because(absent.clone())
    }
}

fn go_on_after(last: u64, identity: Identity) -> Option<Change> {
    Some(Change { next: Some(last.checked_add(1)?), expect: Some(identity), ..Change::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::Range;
    use crate::store::Bounds;

    fn grant(incarnation: u64, epoch: u64, start: u64) -> Grant {
        let identity = Identity { incarnation, epoch };
        Grant { range: Range::new(start, 10).unwrap(), identity, bounds: Bounds::of::<u64>() }
    }

    fn seen(grants: &[Grant]) -> Seen {
        let mut seen = Seen::default();
        for grant in grants {
            assert_eq!(seen.gone_back(grant), None, "{grant:?}");
            seen.note(grant);
        }
        seen
    }

    #[test]
    fn what_follows_is_believed() {
        let seen = seen(&[grant(1, 0, 1), grant(1, 0, 11), grant(1, 2, 1), grant(2, 0, 1), grant(2, 0, 11)]);
        assert_eq!(seen.identity(), Some(Identity { incarnation: 2, epoch: 0 }));
    }

    #[test]
    fn what_was_left_does_not_come_again_and_is_raised_above_what_is_known() {
        let seen = seen(&[grant(1, 3, 1), grant(1, 3, 11), grant(2, 1, 31)]);
        // Also where it goes on: others may have been granted that.
        for (back, next) in
            [(grant(1, 3, 11), 21), (grant(1, 3, 500), 21), (grant(1, 4, 1), 21), (grant(2, 1, 40), 41)]
        {
            let fault = seen.gone_back(&back).unwrap();
            assert!(fault.contains("went back in time"), "{fault}");
            let change = seen.raise(&back).unwrap();
            assert_eq!(
                (change.next, change.expect, change.backwards),
                (Some(next), Some(back.identity), false)
            );
        }
        assert!(seen.raise(&grant(2, 0, 90)).is_some(), "an epoch that was left");
        assert!(seen.raise(&grant(2, 1, 41)).is_none() && seen.raise(&grant(3, 0, 1)).is_none());
    }

    #[test]
    fn so_many_are_remembered_and_those_that_are_not_are_counted() {
        let all: Vec<_> = (1..=LEFT as u64 + 3).map(|incarnation| grant(incarnation, 0, 1)).collect();
        let seen = seen(&all);
        assert_eq!(seen.forgotten(), 2);
        assert!(seen.gone_back(&all[1]).is_none(), "forgotten");
        assert!(all[2..].iter().all(|grant| seen.gone_back(grant).is_some()));
    }

    #[test]
    fn the_end_of_all_ids_cannot_be_raised() {
        let last = Grant { range: Range::new(u64::MAX - 9, 10).unwrap(), ..grant(1, 0, 1) };
        assert!(seen(&[last]).raise(&grant(1, 0, 1)).is_none());
    }
}
