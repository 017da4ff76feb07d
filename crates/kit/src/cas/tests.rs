//! A storage backend in memory that records each read and each write, and meets the conflicts of a script.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;

use super::*;
use idmill::ErrorKind;
use idmill::store::{Cursor, Durability, Store};

type Seen = Versioned<u64>;

/// The conflict of a write.
enum Conflict {
    /// Another process reserves one id just before the write.
    Drawn,
    /// As `Drawn`, and the reply contains the stored sequence.
    DrawnNow,
    /// The write is applied, but a duplicate of it reports a conflict.
    Duplicate,
}

#[derive(Default)]
struct State {
    stored: BTreeMap<SequenceName, Seen>,
    remembered: Option<Seen>,
    conflicts: VecDeque<Conflict>,
    calls: Vec<String>,
    always_changed: bool,
}

#[derive(Default)]
struct Toy(Mutex<State>);

impl fmt::Debug for Toy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Toy")
    }
}

impl Toy {
    fn meeting(conflicts: impl IntoIterator<Item = Conflict>) -> Self {
        let toy = Self::default();
        toy.0.lock().conflicts.extend(conflicts);
        toy
    }

    /// Returns the calls since the last time.
    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().calls)
    }

    fn remember(&self, info: &SequenceInfo, version: u64) {
        self.0.lock().remembered = Some(Versioned { info: info.clone(), version });
    }

    fn conflict(&self, name: &SequenceName, wanted: Option<&SequenceInfo>) -> Option<Swapped<u64>> {
        let mut state = self.0.lock();
        if state.always_changed {
            let cause = Error::new(ErrorKind::Unavailable, "the version is another");
            return Some(Swapped::Changed(Some(cause)));
        }
        let conflict = state.conflicts.pop_front()?;
        match (state.stored.get_mut(name), wanted) {
            (Some(stored), _) => {
                stored.info.grant(1, u64::MAX).unwrap();
                stored.version += 1;
            }
            (None, Some(wanted)) => {
                state.stored.insert(name.clone(), Versioned { info: wanted.clone(), version: 1 });
            }
            (None, None) => {}
        }
        match conflict {
            Conflict::Drawn => Some(Swapped::Changed(None)),
            Conflict::DrawnNow | Conflict::Duplicate => Some(Swapped::Now(state.stored.get(name).cloned())),
        }
    }
}

impl CompareAndSet for Toy {
    type Version = u64;

    fn can(&self) -> Capabilities {
        Capabilities::new(Durability::Disk).gives_back(true)
    }

    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Seen>>> {
        let mut state = self.0.lock();
        state.calls.push("read".to_owned());
        let seen = state.stored.get(name).cloned();
        Box::pin(async { Ok(seen) })
    }

    fn remembered(&self, _: &SequenceName) -> Option<Seen> {
        self.0.lock().remembered.clone()
    }

    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Seen>,
        wanted: Option<&'a SequenceInfo>,
        resend: Resend,
    ) -> StoreFuture<'a, Result<Swapped<u64>>> {
        self.0.lock().calls.push(format!("swap {resend:?}"));
        let conflict = self.conflict(name, wanted);
        Box::pin(async move {
            if let Some(conflict) = conflict {
                return Ok(conflict);
            }
            let mut state = self.0.lock();
            if state.stored.get(name).map(|stored| stored.version) != seen.map(|seen| seen.version) {
                return Ok(Swapped::Changed(None));
            }
            let version = seen.map_or(1, |seen| seen.version + 1);
            match wanted {
                Some(info) => {
                    state.stored.insert(name.clone(), Versioned { info: info.clone(), version });
                }
                None => drop(state.stored.remove(name)),
            }
            Ok(Swapped::Done)
        })
    }

    fn read_page<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        let state = self.0.lock();
        let sequences = state.stored.values().map(|seen| seen.info.clone()).collect();
        let outcome =
            if page.limit == 7 { Err(Error::invalid("7")) } else { Ok(Listing::new(sequences, None)) };
        Box::pin(async { outcome })
    }

    fn check(&self, bounds: Bounds) -> Result<()> {
        if bounds.max() > 1000 { Err(Error::invalid("at most 1000")) } else { Ok(()) }
    }
}

impl Store for Toy {
    idmill::store_calls!(|this| Swapping(this) => capabilities reserve give_back create inspect list set remove);
}

fn name() -> SequenceName {
    SequenceName::new("s").unwrap()
}

fn bounds() -> Bounds {
    Bounds::new(1, 100).unwrap()
}

async fn reserve(toy: &Toy, count: u64) -> Result<Grant> {
    toy.reserve(&Reserve::new(name(), count).create(bounds())).await
}

fn expect<T: fmt::Debug>(outcome: Result<T>, kind: ErrorKind, message: &str) {
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (kind, message), "{error:?}");
}

#[tokio::test]
async fn reserve_creates_a_sequence_and_then_continues_it() {
    let toy = Toy::default();
    assert_eq!(toy.capabilities(), Capabilities::new(Durability::Disk).gives_back(true));
    let first = reserve(&toy, 10).await.unwrap();
    assert_eq!((first.range.start(), first.range.len()), (1, 10));
    assert_eq!(toy.calls(), ["read", "swap Never"], "two creations would be two sequences");
    let second = reserve(&toy, 10).await.unwrap();
    assert_eq!((second.range.start(), second.identity), (11, first.identity));
    assert_eq!(toy.calls(), ["read", "swap Harmless"]);
    assert_eq!(toy.inspect(&name()).await.unwrap().unwrap().next, Some(21));
    assert_eq!(toy.list(&Page::default()).await.unwrap().sequences.len(), 1);
}

#[tokio::test]
async fn errors_name_the_operation_and_the_sequence() {
    let toy = Toy::default();
    let missing = Reserve::new(name(), 1);
    let no_sequence = not_found(&name()).during(Operation::Reserve).to_string();
    expect(toy.reserve(&missing).await, ErrorKind::NotFound, &no_sequence);
    let no_sequence = not_found(&name()).during(Operation::Set).to_string();
    expect(toy.set(&name(), Change::new().next(5)).await, ErrorKind::NotFound, &no_sequence);
    let wide = Bounds::new(1, 1001).unwrap();
    let creating = Reserve::new(name(), 1).create(wide);
    expect(toy.reserve(&creating).await, ErrorKind::InvalidInput, "reserve `s`: at most 1000");
    expect(toy.create(&name(), wide).await, ErrorKind::InvalidInput, "create `s`: at most 1000");
    assert_eq!(toy.inspect(&name()).await.unwrap(), None);
    toy.create(&name(), bounds()).await.unwrap();
    expect(toy.set(&name(), Change::new().max(1001)).await, ErrorKind::InvalidInput, "set `s`: at most 1000");
    expect(toy.list(&Page::default().limit(7)).await, ErrorKind::InvalidInput, "list: 7");
    assert_eq!(toy.inspect(&name()).await.unwrap().unwrap().bounds, bounds());
}

#[tokio::test]
async fn create_writes_once_and_rejects_an_existing_sequence() {
    let toy = Toy::meeting([Conflict::Duplicate]);
    let created = toy.create(&name(), bounds()).await.unwrap();
    assert_eq!(toy.calls(), ["read", "swap Never"], "the stored sequence is its own");
    assert_eq!(toy.inspect(&name()).await.unwrap(), Some(created));
    let again = toy.create(&name(), bounds()).await;
    expect(again, ErrorKind::AlreadyExists, &already_exists(&name()).during(Operation::Create).to_string());
}

#[tokio::test]
async fn lost_race_is_run_again_with_the_stored_sequence() {
    let toy = Toy::default();
    reserve(&toy, 10).await.unwrap();
    toy.calls();
    toy.0.lock().conflicts.extend([Conflict::Drawn, Conflict::DrawnNow]);
    assert_eq!(reserve(&toy, 10).await.unwrap().range.start(), 13);
    let writes = ["read", "swap Harmless", "read", "swap Harmless", "swap Harmless"];
    assert_eq!(toy.calls(), writes, "a reply with the sequence saves a read");
}

#[tokio::test]
async fn cached_sequence_saves_a_read_until_it_is_stale() {
    let toy = Toy::default();
    let created = toy.create(&name(), bounds()).await.unwrap();
    toy.remember(&created, 1);
    toy.calls();
    assert_eq!(reserve(&toy, 10).await.unwrap().range.start(), 1);
    assert_eq!(toy.calls(), ["swap Harmless"]);
    assert_eq!(reserve(&toy, 10).await.unwrap().range.start(), 11);
    assert_eq!(toy.calls(), ["swap Harmless", "read", "swap Harmless"]);
    // An error or a no-op that follows from the cache is no reason to return it.
    let mut used_up = created.clone();
    used_up.next = None;
    toy.remember(&used_up, 1);
    assert_eq!(reserve(&toy, 10).await.unwrap().range.start(), 21);
    assert_eq!(toy.calls(), ["read", "swap Harmless"]);
    let mut later = created;
    later.next = Some(50);
    toy.remember(&later, 1);
    assert_eq!(toy.set(&name(), Change::new().next(50)).await.unwrap().next, Some(50));
    assert_eq!(toy.calls(), ["read", "swap Harmless"]);
    assert_eq!(toy.inspect(&name()).await.unwrap().unwrap().next, Some(50));
}

#[tokio::test]
async fn set_that_changes_nothing_writes_nothing() {
    let toy = Toy::default();
    toy.create(&name(), bounds()).await.unwrap();
    assert_eq!(toy.set(&name(), Change::new().next(50)).await.unwrap().next, Some(50));
    assert_eq!(toy.calls(), ["read", "swap Never", "read", "swap Harmless"]);
    assert_eq!(toy.set(&name(), Change::new().next(50)).await.unwrap().next, Some(50));
    assert_eq!(toy.calls(), ["read"]);
}

#[tokio::test]
async fn remove_needs_the_expected_identity() {
    let toy = Toy::default();
    assert!(!toy.remove(&name(), None).await.unwrap());
    let info = toy.create(&name(), bounds()).await.unwrap();
    toy.calls();
    let refused = toy.remove(&name(), Some(Identity::fresh())).await.unwrap_err();
    assert_eq!((refused.kind(), refused.operation()), (ErrorKind::Conflict, Some(Operation::Remove)));
    assert_eq!(toy.calls(), ["read"]);
    assert!(toy.remove(&name(), Some(info.identity)).await.unwrap());
    assert_eq!(toy.calls(), ["read", "swap Harmless"]);
    assert_eq!(toy.inspect(&name()).await.unwrap(), None);
}

#[tokio::test]
async fn ids_are_given_back_with_at_most_one_write() {
    let toy = Toy::default();
    let missing = reserve(&Toy::default(), 10).await.unwrap();
    let back = |grant: &Grant| GiveBack::new(name(), grant.identity, grant.range);
    assert!(!toy.give_back(&back(&missing)).await.unwrap(), "there is no sequence");
    let (first, last) = (reserve(&toy, 10).await.unwrap(), reserve(&toy, 10).await.unwrap());
    toy.calls();
    assert!(!toy.give_back(&back(&first)).await.unwrap(), "others follow");
    assert_eq!(toy.calls(), ["read"]);
    toy.0.lock().conflicts.push_back(Conflict::Drawn);
    assert!(!toy.give_back(&back(&last)).await.unwrap());
    assert_eq!(toy.calls(), ["read", "swap Never"]);
    let last = reserve(&toy, 10).await.unwrap();
    toy.calls();
    assert!(toy.give_back(&back(&last)).await.unwrap());
    assert_eq!(toy.calls(), ["read", "swap Never"]);
    assert_eq!(reserve(&toy, 1).await.unwrap().range.start(), last.range.start());
}

#[tokio::test]
async fn cached_sequence_is_enough_to_give_ids_back() {
    let toy = Toy::default();
    let grant = reserve(&toy, 10).await.unwrap();
    let info = toy.inspect(&name()).await.unwrap().unwrap();
    toy.remember(&info, 1);
    toy.calls();
    assert!(toy.give_back(&GiveBack::new(name(), grant.identity, grant.range)).await.unwrap());
    assert_eq!(toy.calls(), ["swap Never"]);
}

#[tokio::test(start_paused = true)]
async fn endless_conflict_ends_with_the_error_of_the_store() {
    let toy = Toy::default();
    toy.0.lock().always_changed = true;
    let error = reserve(&toy, 1).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unavailable, Some(Operation::Reserve)));
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "the version is another");
}

/// A backend that keeps nothing has no cache, allows all bounds and gives up after 30 s.
#[tokio::test]
async fn optional_methods_have_their_documented_defaults() {
    #[derive(Debug)]
    struct Plain;

    impl CompareAndSet for Plain {
        type Version = u64;

        fn can(&self) -> Capabilities {
            Capabilities::new(Durability::Disk)
        }

        fn read<'a>(&'a self, _: &'a SequenceName) -> StoreFuture<'a, Result<Option<Seen>>> {
            Box::pin(async { Ok(None) })
        }

        fn swap<'a>(
            &'a self,
            _: &'a SequenceName,
            _: Option<&'a Seen>,
            _: Option<&'a SequenceInfo>,
            _: Resend,
        ) -> StoreFuture<'a, Result<Swapped<u64>>> {
            Box::pin(async { Ok(Swapped::Done) })
        }

        fn read_page<'a>(&'a self, _: &'a Page) -> StoreFuture<'a, Result<Listing>> {
            Box::pin(async { Ok(Listing::new(Vec::new(), None::<Cursor>)) })
        }
    }

    assert_eq!(Plain.remembered(&name()), None);
    Plain.check(Bounds::of::<u64>()).unwrap();
    assert_eq!(format!("{:?}", Plain.contention()), format!("{:?}", Contention::new()));
}
