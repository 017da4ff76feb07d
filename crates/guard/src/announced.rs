//! Resets and removals through the guard: announced at the witness, applied to the store, and confirmed at
//! the witness. Pure: no store, no clock.

use super::ledger::{Announced, Ledger};
use idmill::store::{Identity, SequenceInfo};

impl Ledger {
    /// Creates a ledger without claims for a stored sequence. The ids below the next id of the sequence may
    /// be in use.
    pub fn opened(stored: &SequenceInfo) -> Self {
        let is_unused = stored.next == Some(stored.bounds.start());
        let floor = if is_unused { 0 } else { stored.reached() };
        Self::at(stored.identity, floor)
    }

    /// Adds a pending raise to `to`: from now on, no id of the stored sequence below `to` can be claimed.
    /// Returns `None` if an announcement already has this effect, if the sequence was reset since it was
    /// read, or if the claims belong to another sequence that was not removed.
    pub fn raising(seen: Option<&Self>, stored: Identity, to: u128) -> Option<Self> {
        let mut raised = Self::of(seen, stored)?;
        // Announce the raise even if all ids below `to` are claimed: some of them may be about to be
        // released.
        if to <= raised.floor && raised.announced.is_some_and(Announced::is_pending) {
            return None;
        }
        raised.raise_floor(to);
        let announced = raised.announced.filter(|announced| *announced != Announced::Forgotten);
        raised.announced = announced.or(Some(Announced::Raising));
        Some(raised.touched())
    }

    /// Ends a pending raise that the store has confirmed.
    pub fn raised(&self) -> Option<Self> {
        (self.announced == Some(Announced::Raising)).then(|| self.announce(None))
    }

    /// Returns the ledger in which the claims of this sequence belong.
    fn of(seen: Option<&Self>, stored: Identity) -> Option<Self> {
        let Some(seen) = seen else { return Some(Self::at(stored, 0)) };
        if seen.identity.incarnation == stored.incarnation {
            return (seen.identity.epoch <= stored.epoch).then(|| Self { identity: stored, ..seen.clone() });
        }
        match seen.announced? {
            Announced::Removed => Some(Self { version: seen.version, ..seen.followed_by(stored) }),
            Announced::Forgotten => Some(Self { version: seen.version, ..Self::at(stored, 0) }),
            _ => None,
        }
    }

    /// Returns the same ledger with a new version, to check that the witness is writable.
    #[must_use]
    pub fn touched(&self) -> Self {
        Self { version: self.version + 1, ..self.clone() }
    }

    /// Adds a pending reset to `start`. Returns `None` if `stored` is another incarnation. The ledger adopts
    /// the stored epoch if it is higher, so that claims of that epoch do not overtake the reset.
    pub fn resetting(&self, stored: Identity, start: u128) -> Option<Self> {
        let Identity { incarnation, epoch } = self.identity;
        (incarnation == stored.incarnation).then(|| Self {
            identity: Identity { incarnation, epoch: epoch.max(stored.epoch) },
            ..self.announce(Some(Announced::Resetting { start }))
        })
    }

    /// Returns the ledger after the store confirmed the reset to `start` under the identity `now`. Returns
    /// `None` if the ledger no longer has the announced identity `known`, for example because others claimed
    /// under a higher epoch.
    pub fn reset(&self, known: Identity, now: Identity, start: u128) -> Option<Self> {
        (self.identity == known).then(|| Self {
            identity: now,
            floor: start,
            solid: start,
            claims: Vec::new(),
            ..self.announce(None)
        })
    }

    /// Adds a pending removal of the sequence that the store has, if any. All its ids up to the last that was
    /// reserved may be in use. Returns `None` if nothing changes, since a removal is already pending or done.
    pub fn removing(&self, stored: Option<(Identity, u128)>) -> Option<Self> {
        let (identity, reached) = stored.unwrap_or((self.identity, 0));
        let mut raised = Self::of(Some(self), identity).unwrap_or_else(|| self.clone());
        raised.raise_floor(reached);
        let is_new = matches!(self.announced, None | Some(Announced::Resetting { .. } | Announced::Raising))
            || (raised.identity, raised.top()) != (self.identity, self.top());
        is_new.then(|| raised.announce(Some(Announced::Removing)))
    }

    /// Returns the ledger after the store confirmed the removal. Returns `None` if the ledger has another
    /// incarnation, or the removal is already done.
    pub fn removed(&self, incarnation: u64) -> Option<Self> {
        let is_done = self.is_removed() || self.identity.incarnation != incarnation;
        (!is_done).then(|| self.announce(Some(Announced::Removed)))
    }

    /// Allows the next incarnation of a removed sequence to start anywhere. Returns `None` if the sequence
    /// was not removed.
    pub fn forgotten(&self) -> Option<Self> {
        self.is_removed().then(|| self.announce(Some(Announced::Forgotten)))
    }

    /// Withdraws the pending announcement. Returns `None` if there is none.
    pub fn taken_back(&self) -> Option<Self> {
        self.announced.is_some_and(Announced::is_pending).then(|| self.announce(None))
    }

    /// Returns whether the sequence was removed, and another incarnation may follow.
    pub fn is_removed(&self) -> bool {
        matches!(self.announced, Some(Announced::Removed | Announced::Forgotten))
    }

    fn announce(&self, announced: Option<Announced>) -> Self {
        Self { announced, ..self.touched() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refusal;
    use idmill::IdRange;

    const ORDERS: Identity = Identity { incarnation: 7, epoch: 1 };
    const OTHER: Identity = Identity { incarnation: 8, epoch: 0 };
    const RESET: Identity = Identity { incarnation: 7, epoch: 2 };

    fn claim(ledger: &Ledger, identity: Identity, start: u64) -> Result<Ledger, Refusal> {
        Ledger::claim(Some(ledger), identity, IdRange::new(start, 5).unwrap())
    }

    /// A ledger in which ids 1 to 5 are claimed.
    fn ledger() -> Ledger {
        Ledger::claim(None, ORDERS, IdRange::new(1, 5).unwrap()).unwrap()
    }

    #[test]
    fn pending_announcement_permits_nothing() {
        let removing = ledger().removing(None).unwrap();
        assert_eq!(claim(&removing, OTHER, 6), Err(Refusal::Replaced { known: ORDERS }));
        let resetting = ledger().resetting(ORDERS, 1).unwrap();
        for pending in [&removing, &resetting] {
            assert_eq!(claim(pending, ORDERS, 1), Err(Refusal::Claimed { top: 6, went_back: true }));
            assert_eq!(claim(pending, RESET, 1), Err(Refusal::Claimed { top: 6, went_back: true }));
            assert_eq!(pending.taken_back().unwrap().announced, None);
            assert_eq!(claim(pending, ORDERS, 6).unwrap().announced, pending.announced);
        }
        assert_eq!(claim(&resetting, RESET, 6).unwrap().announced, None, "overtaken");
        assert_eq!(ledger().taken_back(), None);
    }

    #[test]
    fn confirmed_reset_lowers_the_floor() {
        let resetting = claim(&ledger(), ORDERS, 11).unwrap().resetting(ORDERS, 3).unwrap();
        let reset = resetting.reset(ORDERS, RESET, 3).unwrap();
        assert_eq!((reset.identity, reset.floor, reset.claims.len(), reset.announced), (RESET, 3, 0, None));
        assert_eq!(claim(&reset, RESET, 1), Err(Refusal::Claimed { top: 3, went_back: false }));
        assert_eq!(claim(&reset, RESET, 3).unwrap().floor, 8);
        assert_eq!(claim(&reset, ORDERS, 16), Err(Refusal::BehindReset { known: RESET }));
        let overtaken = claim(&resetting, RESET, 21).unwrap();
        assert_eq!(overtaken.reset(ORDERS, RESET, 3), None);
        let later = ledger().resetting(RESET, 3).unwrap();
        assert_eq!(claim(&later, RESET, 6).unwrap().announced, later.announced, "from before the reset");
        assert_eq!(overtaken.resetting(ORDERS, 3).unwrap().identity, RESET);
        assert_eq!(overtaken.resetting(OTHER, 3), None);
    }

    #[test]
    fn removed_name_remembers_its_top() {
        let removed = ledger().removing(None).unwrap().removed(7).unwrap();
        assert!(removed.is_removed() && removed.removing(None).is_none() && removed.removed(7).is_none());
        assert_eq!(removed.taken_back(), None, "it is done");
        assert_eq!(claim(&removed, OTHER, 1), Err(Refusal::Recreated { top: 6 }));
        let next = claim(&removed, OTHER, 6).unwrap();
        assert_eq!((next.identity, next.floor, next.announced), (OTHER, 11, None));
        assert_eq!(claim(&next, ORDERS, 11), Err(Refusal::Replaced { known: OTHER }));
        let late = Err(Refusal::Claimed { top: 11, went_back: false });
        assert_eq!(claim(&next, OTHER, 1), late, "granted before the store was raised, not twice");
        let late = claim(&removed, ORDERS, 6).unwrap();
        assert!(late.is_removed(), "a claim of the removed sequence that is late");
        assert_eq!(ledger().removed(8), None);
    }

    #[test]
    fn forgotten_name_starts_anywhere_until_it_is_used_again() {
        assert_eq!(ledger().forgotten(), None);
        let forgotten = ledger().removed(7).unwrap().forgotten().unwrap();
        assert_eq!(claim(&forgotten, OTHER, 1).unwrap().floor, 6);
        assert_eq!(claim(&forgotten, ORDERS, 1), Err(Refusal::Claimed { top: 6, went_back: true }));
        let used = claim(&forgotten, ORDERS, 6).unwrap();
        assert_eq!(claim(&used, OTHER, 1), Err(Refusal::Recreated { top: 11 }));
    }

    #[test]
    fn opened_ledger_rejects_ids_that_may_be_in_use() {
        let mut stored = SequenceInfo::new("s".parse().unwrap(), idmill::store::Bounds::new(5, 90).unwrap());
        stored.identity = ORDERS;
        assert_eq!(Ledger::opened(&stored).top(), 0);
        stored.next = Some(20);
        let opened = Ledger::opened(&stored).touched();
        assert_eq!(claim(&opened, ORDERS, 16), Err(Refusal::Claimed { top: 20, went_back: false }));
        assert_eq!(claim(&opened, ORDERS, 20).unwrap().floor, 25);
    }

    #[test]
    fn raise_is_announced_unless_another_change_covers_it() {
        let raising = |seen: &Ledger, to| Ledger::raising(Some(seen), ORDERS, to);
        let of = |raised: Option<Ledger>| raised.map(|raised| (raised.floor, raised.announced));
        let with = |announced| Ledger { announced: Some(announced), ..ledger() };
        let (raise, remove) = (Some(Announced::Raising), Some(Announced::Removing));
        for (seen, to, expected) in [
            (ledger(), 3, Some((6, raise))),
            (ledger(), 9, Some((9, raise))),
            (with(Announced::Raising), 5, None),
            (with(Announced::Raising), 6, None),
            (with(Announced::Raising), 7, Some((7, raise))),
            (with(Announced::Removing), 6, None),
            (with(Announced::Removing), 7, Some((7, remove))),
            (with(Announced::Removed), 6, Some((6, Some(Announced::Removed)))),
            (with(Announced::Forgotten), 6, Some((6, raise))),
        ] {
            assert_eq!(of(raising(&seen, to)), expected, "{seen:?} {to}");
        }
        assert_eq!(of(Ledger::raising(None, ORDERS, 9)), Some((9, raise)));
    }

    #[test]
    fn raise_belongs_to_the_stored_sequence() {
        let raised = Ledger::raising(Some(&ledger()), RESET, 9).unwrap();
        assert_eq!((raised.identity, raised.version), (RESET, ledger().version + 1));
        assert_eq!(Ledger::raising(Some(&raised), ORDERS, 20), None, "reset since it was read");
        assert_eq!(Ledger::raising(Some(&ledger()), OTHER, 9), None, "not removed");
        // A new sequence keeps the claims of a removed one, unless they are forgotten.
        for (announced, floor) in [(Announced::Removed, 6), (Announced::Forgotten, 3)] {
            let removed = Ledger { announced: Some(announced), version: 40, ..ledger() };
            let raised = Ledger::raising(Some(&removed), OTHER, 3).unwrap();
            let expected = (OTHER, floor, Some(Announced::Raising), 41);
            assert_eq!((raised.identity, raised.floor, raised.announced, raised.version), expected);
        }
    }

    #[test]
    fn only_a_raise_ends_when_it_is_confirmed() {
        let raising = Ledger::raising(Some(&ledger()), ORDERS, 9).unwrap();
        let raised = raising.raised().unwrap();
        assert_eq!((raised.floor, raised.announced, raised.version), (9, None, raising.version + 1));
        for other in [ledger(), ledger().removing(None).unwrap(), ledger().resetting(ORDERS, 3).unwrap()] {
            assert_eq!(other.raised(), None, "{other:?}");
        }
    }
}
