//! Raising a sequence, and never lowering it.

use super::{Change, Reserve, SequenceInfo, Store, not_found};
use crate::error::{Error, ErrorKind, Operation, Result};

/// How often others may be faster before this gives up.
const TRIES: usize = 16;

/// Raises what a store has of a sequence, so that no id below `to` is granted any more; returns the sequence
/// as it is then. Where it is there already, nothing happens: it only ever raises, so that a late or repeated
/// call does no harm. `to` may be one more than the sequence's max, also 2^64: then all of it is used.
///
/// It decides nothing about the store's history: after a failover that the store refuses, it goes on refusing
/// ([`Change::keep_history`]).
///
/// `seen` is the sequence as it was looked at. If it is another one by now, it is left alone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> idmill::Result<()> {
/// use idmill::store::{self, Bounds, MemoryStore, Store};
///
/// let store = MemoryStore::new();
/// let orders = store.create(&"orders".parse()?, Bounds::of::<i32>()).await?;
/// assert_eq!(store::raise(&store, &orders, 500).await?.next, Some(500));
/// assert_eq!(store::raise(&store, &orders, 100).await?.next, Some(500)); // never lowered
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) where `to` is beyond the sequence's max and one;
/// [`Conflict`](ErrorKind::Conflict) if it was reset, or created again, since it was looked at;
/// [`NotFound`](ErrorKind::NotFound) if it was removed; those of [`Store::set`] and [`Store::inspect`].
pub async fn raise(store: &dyn Store, seen: &SequenceInfo, to: u128) -> Result<SequenceInfo> {
    let mut now = seen.clone();
    let end = u128::from(now.bounds.max()) + 1;
    if to > end {
        let message = format!("{to} is beyond max {}; raise max first", now.bounds.max());
        return Err(Error::invalid(message).of(&now.name).during(Operation::Set));
    }
    for _ in 0..TRIES {
        if now.reached() >= to {
            return Ok(now);
        }
        now = match step(store, &now, to).await {
            // Others went further meanwhile, or it is another sequence by now.
            Err(error) if error.kind() == ErrorKind::Conflict => again(store, seen, error).await?,
            outcome => outcome?,
        };
    }
    let message = "others changed it each time; try again";
    Err(Error::new(ErrorKind::Unavailable, message).of(&now.name).during(Operation::Set))
}

async fn step(store: &dyn Store, now: &SequenceInfo, to: u128) -> Result<SequenceInfo> {
    if now.next == Some(u64::MAX) {
        // No change sets 2^64: the last id there is has to be reserved, and becomes a gap.
        store.reserve(&Reserve::new(now.name.clone(), 1)).await?;
        return Ok(SequenceInfo { next: None, ..now.clone() });
    }
    let next = u64::try_from(to).unwrap_or(u64::MAX);
    let change = Change::new().next(next).keep_history(true).expect(now.identity);
    store.set(&now.name, change).await
}

/// The sequence as it is now, if it still is the one that was looked at.
async fn again(store: &dyn Store, seen: &SequenceInfo, refused: Error) -> Result<SequenceInfo> {
    let found = store.inspect(&seen.name).await?;
    let now = found.ok_or_else(|| not_found(&seen.name).during(Operation::Set))?;
    if now.identity == seen.identity { Ok(now) } else { Err(refused) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::{Bounds, MemoryStore};

    async fn sequence(store: &MemoryStore, start: u64, max: u64) -> SequenceInfo {
        store.create(&"s".parse().unwrap(), Bounds::new(start, max).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn it_goes_to_the_very_end_and_not_beyond() {
        for max in [10, u64::MAX - 1, u64::MAX] {
            let store = MemoryStore::new();
            let seen = sequence(&store, 1, max).await;
            let end = u128::from(max) + 1;
            assert_eq!(raise(&store, &seen, end).await.unwrap().next, None, "{max}");
            assert_eq!(store.inspect(&seen.name).await.unwrap().unwrap().next, None, "{max}");
            let beyond = raise(&store, &seen, end + 1).await.unwrap_err();
            assert_eq!(beyond.kind(), ErrorKind::InvalidInput, "{beyond}");
        }
    }

    #[tokio::test]
    async fn another_sequence_of_the_name_is_left_alone() {
        let store = MemoryStore::new();
        let seen = sequence(&store, 1, 100).await;
        store.remove(&seen.name).await.unwrap();
        assert_eq!(raise(&store, &seen, 50).await.unwrap_err().kind(), ErrorKind::NotFound);
        let other = sequence(&store, 1, 100).await;
        assert_eq!(raise(&store, &seen, 50).await.unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(store.inspect(&seen.name).await.unwrap(), Some(other));
    }

    proptest! {
        #[test]
        fn it_never_lowers(start in 0..50_u64, len in 1..200_u64, drawn in 0..200_u64, late in 0..200_u64, to in 0..260_u128) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let store = MemoryStore::new();
                let created = sequence(&store, start, start + len).await;
                let draw = async |count| drop(store.reserve(&Reserve::new(created.name.clone(), count)).await);
                draw(drawn.max(1)).await;
                let seen = store.inspect(&created.name).await.unwrap().unwrap();
                // Others draw between the look and the change.
                draw(late.max(1)).await;
                let before = store.inspect(&created.name).await.unwrap().unwrap().reached();
                let outcome = raise(&store, &seen, to).await;
                let after = store.inspect(&created.name).await.unwrap().unwrap().reached();
                prop_assert!(after >= before);
                let fits = to <= u128::from(start + len) + 1;
                prop_assert_eq!(outcome.is_ok(), fits);
                prop_assert_eq!(after, if fits { before.max(to) } else { before });
                Ok(())
            })?;
        }
    }
}
