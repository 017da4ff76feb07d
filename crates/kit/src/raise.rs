//! Raises a sequence, and never lowers it.

use idmill::SequenceName;
use idmill::store::{Bounds, Change, GiveBack, Reserve, SequenceInfo, Store, already_exists, not_found};
use idmill::{Error, ErrorKind, Operation, Result};

/// The maximum number of attempts when others change the sequence concurrently.
const TRIES: usize = 16;

/// Raises a sequence so that no id below `to` is granted. Returns the sequence after the change. If `seen` is
/// already at `to` or beyond, it is returned without a request. A late or repeated call is harmless. `to` may
/// be one past the sequence's max, even 2^64; then all ids are used.
///
/// The stored history of the sequence is unchanged: after a failover that makes the store reject reserves, it
/// continues to reject them ([`Change::keep_history`]).
///
/// `seen` is the sequence as you read it. Each `set` expects the identity of `seen`. The reserve of the id
/// 2^64 - 1 (if `to` is 2^64) does not.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> idmill::Result<()> {
/// use idmill::store::{Bounds, MemoryStore, Store};
///
/// let store = MemoryStore::new();
/// let orders = store.create(&"orders".parse()?, Bounds::of::<i32>()).await?;
/// assert_eq!(idmill_kit::raise(&store, &orders, 500).await?.next, Some(500));
/// assert_eq!(idmill_kit::raise(&store, &orders, 100).await?.next, Some(500)); // never lowered
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) if `to` is more than one past the sequence's max;
/// [`Conflict`](ErrorKind::Conflict) if the sequence was reset or recreated since it was read;
/// [`NotFound`](ErrorKind::NotFound) if it was removed; those of [`Store::set`], [`Store::inspect`] and
/// [`Store::reserve`].
pub async fn raise(store: &dyn Store, seen: &SequenceInfo, to: u128) -> Result<SequenceInfo> {
    let mut now = seen.clone();
    let end = u128::from(now.bounds.max()) + 1;
    if to > end {
        let message = format!("{to} is above max {}; raise max first", now.bounds.max());
        return Err(Error::invalid(message).of(&now.name).during(Operation::Set));
    }
    for _ in 0..TRIES {
        if now.reached() >= to {
            return Ok(now);
        }
        now = match step(store, &now, to).await {
            // Others raised the sequence concurrently, or it has a new identity.
            Err(error) if error.kind() == ErrorKind::Conflict => again(store, seen, error).await?,
            outcome => outcome?,
        };
    }
    let message = "other processes changed the sequence in every attempt; try again";
    Err(Error::new(ErrorKind::Unavailable, message).of(&now.name).during(Operation::Set))
}

/// Creates a sequence that grants no id below `to`. If a sequence of this name and with the same bounds
/// exists, and `to` is above its start, raises that sequence. `to` may be one past the max; a larger `to`
/// fails, and uses up a new sequence.
///
/// Usually one reserve creates the sequence, so the sequence never exists below `to`. For a window, or a
/// server that rejects the reserve, `create_at` needs two steps. Ids below `to` can be drawn between the
/// steps.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> idmill::Result<()> {
/// use idmill::store::{Bounds, MemoryStore};
///
/// let store = MemoryStore::new();
/// let orders = idmill_kit::create_at(&store, &"orders".parse()?, Bounds::of::<i32>(), 500).await?;
/// assert_eq!((orders.next, orders.bounds), (Some(500), Bounds::of::<i32>()));
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`AlreadyExists`](ErrorKind::AlreadyExists) if the sequence exists, and its bounds (of an unused one: its
/// start) differ from `bounds`, or `to` is not above the start; those of [`raise`], [`Store::create`] and
/// [`Store::reserve`].
pub async fn create_at(
    store: &dyn Store,
    name: &SequenceName,
    bounds: Bounds,
    to: u128,
) -> Result<SequenceInfo> {
    let Some(below) = to.checked_sub(bounds.start().into()).filter(|below| *below > 0) else {
        return store.create(name, bounds).await;
    };
    let count = u64::try_from(below).unwrap_or(u64::MAX);
    let created = match store.reserve(&Reserve::new(name.clone(), count).create(bounds)).await {
        Ok(grant) if grant.range.start() == bounds.start() => return at(store, name, to).await,
        // Others created the sequence; give these ids back to it.
        Ok(grant) => {
            if store.capabilities().gives_back {
                let _ = store.give_back(&GiveBack::new(name.clone(), grant.identity, grant.range)).await;
            }
            already_exists(name).during(Operation::Create)
        }
        // Nothing was reserved. `Denied` may apply only to the reserve, so try to create the sequence.
        Err(error) if error.kind() == ErrorKind::Denied => {
            store.create(name, bounds).await?;
            return at(store, name, to).await;
        }
        Err(error) => error,
    };
    // The reserve may or may not have been applied, so read the sequence.
    match store.inspect(name).await {
        Ok(Some(found)) if found.bounds == bounds => raise(store, &found, to).await,
        Ok(Some(_)) => Err(already_exists(name).during(Operation::Create)),
        _ => Err(created),
    }
}

async fn at(store: &dyn Store, name: &SequenceName, to: u128) -> Result<SequenceInfo> {
    let found = store.inspect(name).await?.ok_or_else(|| not_found(name).during(Operation::Set))?;
    raise(store, &found, to).await
}

async fn step(store: &dyn Store, now: &SequenceInfo, to: u128) -> Result<SequenceInfo> {
    if now.next == Some(u64::MAX) {
        // No change can set `next` to 2^64. The last id must be reserved, and becomes a gap.
        store.reserve(&Reserve::new(now.name.clone(), 1)).await?;
        let mut all_used = now.clone();
        all_used.next = None;
        return Ok(all_used);
    }
    let next = u64::try_from(to).unwrap_or(u64::MAX);
    let mut change = Change::new().next(next).expect(now.identity);
    change.keep_history = true;
    store.set(&now.name, change).await
}

/// Returns the sequence as it is now, if its identity is unchanged.
async fn again(store: &dyn Store, seen: &SequenceInfo, refused: Error) -> Result<SequenceInfo> {
    let found = store.inspect(&seen.name).await?;
    let now = found.ok_or_else(|| not_found(&seen.name).during(Operation::Set))?;
    if now.identity == seen.identity { Ok(now) } else { Err(refused) }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use proptest::prelude::*;

    use super::*;
    use idmill::store::{Bounds, Grant, MemoryStore, StoreFuture};
    use idmill_testing::faulty::{Fault, FaultyStore};

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
    async fn replaced_sequence_is_not_raised() {
        let store = MemoryStore::new();
        let seen = sequence(&store, 1, 100).await;
        store.remove(&seen.name, None).await.unwrap();
        assert_eq!(raise(&store, &seen, 50).await.unwrap_err().kind(), ErrorKind::NotFound);
        let other = sequence(&store, 1, 100).await;
        assert_eq!(raise(&store, &seen, 50).await.unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(store.inspect(&seen.name).await.unwrap(), Some(other));
    }

    #[tokio::test]
    async fn create_at_needs_neither_create_nor_set() {
        let (name, bounds) = ("s".parse().unwrap(), Bounds::new(5, 100).unwrap());
        for to in [6, 50, 101] {
            let store = MemoryStore::new();
            // With separate create and set calls, the sequence would briefly be at its start.
            let created = create_at(&Reserving(store.clone()), &name, bounds, to).await.unwrap();
            assert_eq!((created.reached(), created.bounds), (to, bounds));
            assert_eq!(store.inspect(&name).await.unwrap(), Some(created));
        }
        let store = MemoryStore::new();
        assert_eq!(create_at(&store, &name, bounds, 5).await.unwrap().next, Some(5));
    }

    #[tokio::test]
    async fn create_at_raises_a_sequence_of_the_same_bounds() {
        let (name, bounds) = ("s".parse().unwrap(), Bounds::new(5, 100).unwrap());
        for (there, to, next) in [(5, 50, 50), (60, 50, 60)] {
            let store = MemoryStore::new();
            let found = store.create(&name, bounds).await.unwrap();
            raise(&store, &found, there).await.unwrap();
            let raised = create_at(&store, &name, bounds, to).await.unwrap();
            assert_eq!((raised.identity, raised.next), (found.identity, Some(next)), "no gap either");
        }
        let store = MemoryStore::new();
        sequence(&store, 1, 90).await;
        let refused = create_at(&store, &name, bounds, 50).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    }

    #[tokio::test]
    async fn create_at_is_complete_after_a_lost_reply() {
        let (name, bounds) = ("s".parse().unwrap(), Bounds::new(1, 100).unwrap());
        let store = FaultyStore::new();
        store.push_fault(Fault::LostReply);
        assert_eq!(create_at(&store, &name, bounds, 50).await.unwrap().next, Some(50));
    }

    #[tokio::test]
    async fn raise_gives_up_after_sixteen_conflicts() {
        let store = Refusing { set: Some(ErrorKind::Conflict), ..Refusing::default() };
        let seen = sequence(&store.inner, 1, 100).await;
        let error = raise(&store, &seen, 50).await.unwrap_err();
        let message = "set `s`: other processes changed the sequence in every attempt; try again";
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Unavailable, message));
        assert_eq!(store.changes().len(), 16);
    }

    /// A change that does not keep the history would permit reserves that only a person may permit.
    #[tokio::test]
    async fn raise_keeps_the_history_and_expects_the_identity() {
        for (max, to, next, reserves) in [
            (100, 50, 50, 0),
            (100, 101, 101, 0),
            (u64::MAX, u128::from(u64::MAX), u64::MAX, 0),
            (u64::MAX, 1 << 64, u64::MAX, 1),
        ] {
            let store = Refusing::default();
            let seen = sequence(&store.inner, 1, max).await;
            assert_eq!(raise(&store, &seen, to).await.unwrap().reached(), to);
            let mut change = Change::new().next(next).expect(seen.identity);
            change.keep_history = true;
            assert_eq!((store.changes(), store.inner.reserves()), (vec![change], reserves), "{max}, {to}");
        }
    }

    #[tokio::test]
    async fn other_errors_are_returned_at_once() {
        let store = Refusing { set: Some(ErrorKind::Denied), ..Refusing::default() };
        let seen = sequence(&store.inner, 1, 100).await;
        assert_eq!(raise(&store, &seen, 50).await.unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(store.changes().len(), 1);
        let beyond = raise(&store, &seen, 102).await.unwrap_err().to_string();
        assert_eq!(beyond, "set `s`: 102 is above max 100; raise max first");
        let raised = raise(&store.inner, &seen, 60).await.unwrap();
        assert_eq!(raise(&store, &raised, 60).await.unwrap(), raised, "there is nothing to do");
        assert_eq!(store.changes().len(), 1);
    }

    #[tokio::test]
    async fn create_at_of_a_store_without_reserves_sets_the_next_id() {
        let store = Refusing { reserve: Some(ErrorKind::Denied), ..Refusing::default() };
        let created =
            create_at(&store, &"s".parse().unwrap(), Bounds::new(1, 100).unwrap(), 50).await.unwrap();
        assert_eq!((created.next, store.changes().len()), (Some(50), 1));
    }

    #[tokio::test]
    async fn create_at_reads_the_sequence_after_an_error() {
        let (name, bounds) = ("s".parse().unwrap(), Bounds::new(1, 100).unwrap());
        let store = Refusing { reserve: Some(ErrorKind::Unavailable), ..Refusing::default() };
        let error = create_at(&store, &name, bounds, 50).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "nothing was created");
        assert_eq!(store.inner.inspect(&name).await.unwrap(), None);
        sequence(&store.inner, 1, 90).await;
        let error = create_at(&store, &name, bounds, 50).await.unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::AlreadyExists, Some(Operation::Create)));
        assert_eq!(create_at(&store, &name, Bounds::new(1, 90).unwrap(), 50).await.unwrap().next, Some(50));
    }

    /// Fails each reserve or each set with an error of this kind.
    #[derive(Debug, Default)]
    struct Refusing {
        inner: MemoryStore,
        reserve: Option<ErrorKind>,
        set: Option<ErrorKind>,
        changes: Mutex<Vec<Change>>,
    }

    impl Refusing {
        /// Returns the change of each `set`.
        fn changes(&self) -> Vec<Change> {
            self.changes.lock().clone()
        }
    }

    impl Store for Refusing {
        idmill::store_calls!(|this| this.inner => capabilities give_back create inspect list remove);

        fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
            match self.reserve {
                Some(kind) => Box::pin(async move { Err(kind.into()) }),
                None => self.inner.reserve(request),
            }
        }

        fn set<'a>(
            &'a self,
            name: &'a SequenceName,
            change: Change,
        ) -> StoreFuture<'a, Result<SequenceInfo>> {
            self.changes.lock().push(change);
            match self.set {
                Some(kind) => Box::pin(async move { Err(kind.into()) }),
                None => self.inner.set(name, change),
            }
        }
    }

    /// Allows reserves and reads, but neither `create` nor `set`.
    #[derive(Debug)]
    struct Reserving(MemoryStore);

    impl Store for Reserving {
        idmill::store_calls!(|this| this.0 => capabilities reserve give_back inspect list remove);

        fn create<'a>(&'a self, name: &'a SequenceName, _: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> {
            panic!("unexpected `create` of {name}")
        }

        fn set<'a>(&'a self, name: &'a SequenceName, _: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
            panic!("unexpected `set` of {name}")
        }
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
                // Others draw between the read and the change.
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
