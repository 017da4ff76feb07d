//! Tests the guarantees of the Datastore store on Google's emulators, and its behavior under faults.

mod front;
mod trouble;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use front::{Fate, Front, Seen};
use idmill::store::{Bounds, Change, Grant, Page, Reserve, SequenceInfo, Store};
use idmill::{ErrorKind, Operation, Result, SequenceName};
use idmill_datastore::{DatastoreOptions, DatastoreStore};
use idmill_testing::engines::Engine;
use idmill_testing::grants::disjoint;
use idmill_testing::grants::reserving::reserved_at_once;
use tokio::sync::{Barrier, Mutex};

/// Long enough for an emulator on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

fn request(text: &str, count: u64) -> Reserve {
    Reserve::new(name(text), count).create(Bounds::of::<u64>())
}

async fn reserve(store: &DatastoreStore, text: &str, count: u64) -> Result<(u64, u64)> {
    store.reserve(&request(text, count)).await.map(|grant| (grant.range.start(), grant.range.len()))
}

async fn inspect(store: &DatastoreStore, text: &str) -> SequenceInfo {
    store.inspect(&name(text)).await.unwrap().expect("it exists")
}

/// Returns an emulator that is shared by all tests that do not disturb it. Each test has its own project.
async fn shared(engine: &'static str) -> Option<Arc<Engine>> {
    static RUNNING: Mutex<[Weak<Engine>; 2]> = Mutex::const_new([Weak::new(), Weak::new()]);
    let mut running = RUNNING.lock().await;
    let slot = &mut running[usize::from(engine == "firestore")];
    if let Some(engine) = slot.upgrade() {
        return Some(engine);
    }
    let engine = Arc::new(Engine::start(engine).await?);
    *slot = Arc::downgrade(&engine);
    Some(engine)
}

fn options(engine: &Engine, project: &str) -> DatastoreOptions {
    DatastoreOptions::new(project).emulator(engine.address().to_string()).timeout(TIMEOUT)
}

async fn open(engine: &Engine, project: &str) -> DatastoreStore {
    let store = DatastoreStore::open_with(options(engine, project)).await.unwrap();
    // Checked by the trial `rests_are_granted_again`, which a store without give-backs would skip.
    assert!(store.capabilities().gives_back);
    store
}

/// Opens a store that reaches the emulator through a proxy with this plan.
async fn behind<F>(
    engine: &Engine,
    project: &str,
    plan: impl Fn(Seen) -> F + Send + Sync + 'static,
) -> (DatastoreStore, Front)
where
    F: Future<Output = Fate> + Send + 'static,
{
    let front = Front::start(engine.address(), plan).await;
    let options = options(engine, project).emulator(front.address().to_string());
    (DatastoreStore::open_with(options).await.unwrap(), front)
}

/// Like [`behind`], with a plan that handles only the first commit differently.
async fn first_commit(engine: &Engine, project: &str, fate: Fate) -> (DatastoreStore, Front) {
    behind(engine, project, move |seen| {
        let fate = if seen.is("commit", 0) { fate } else { Fate::Pass };
        async move { fate }
    })
    .await
}

async fn ranges_are_disjoint(engine: &Engine) {
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(open(engine, "disjoint").await);
    }
    let grants = reserved_at_once(stores, 2, 25, |count| request("s", count)).await;
    let reserved = disjoint(&grants);
    let info = inspect(&open(engine, "disjoint").await, "s").await;
    assert_eq!(info.next, Some(reserved + 1), "there are no gaps, so every conflict was retried");
    assert!(grants.iter().all(|grant| grant.identity == info.identity));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ranges_are_disjoint_among_tasks_and_stores() {
    let Some(engine) = shared("datastore").await else { return };
    ranges_are_disjoint(&engine).await;
}

/// The newer emulator is a different implementation, whose entity versions differ, and whose locks block.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ranges_are_disjoint_in_the_newer_emulator_too() {
    let Some(engine) = shared("firestore").await else { return };
    ranges_are_disjoint(&engine).await;
}

async fn one_creates(engine: &Engine) {
    for round in 0..5 {
        let barrier = Arc::new(Barrier::new(8));
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..8 {
            let (store, barrier) = (open(engine, "creation").await, Arc::clone(&barrier));
            let name = name(&format!("s{round}"));
            tasks.spawn(async move {
                barrier.wait().await;
                if task < 4 {
                    return Err(store.create(&name, Bounds::of::<u64>()).await);
                }
                Ok(store.reserve(&request(&name, 10)).await.unwrap())
            });
        }
        let (grants, created): (Vec<_>, Vec<_>) =
            tasks.join_all().await.into_iter().partition(std::result::Result::is_ok);
        let grants: Vec<Grant> = grants.into_iter().filter_map(std::result::Result::ok).collect();
        assert_eq!(disjoint(&grants), 40);
        assert_eq!(grants.iter().map(|grant| grant.identity.incarnation).collect::<BTreeSet<_>>().len(), 1);
        let created: Vec<_> = created.into_iter().filter_map(std::result::Result::err).collect();
        assert!(created.iter().filter(|outcome| outcome.is_ok()).count() <= 1);
        for info in created {
            match info {
                Ok(info) => assert_eq!(info.identity, grants[0].identity),
                Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}"),
            }
        }
        let info = inspect(&open(engine, "creation").await, &format!("s{round}")).await;
        assert_eq!((info.next, info.identity), (Some(41), grants[0].identity));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn only_one_of_concurrent_creates_succeeds() {
    for engine in ["datastore", "firestore"] {
        let Some(engine) = shared(engine).await else { continue };
        one_creates(&engine).await;
    }
}

#[tokio::test]
async fn bounds_are_exact_up_to_the_last_id() {
    let Some(engine) = shared("datastore").await else { return };
    let store = open(&engine, "bounds").await;
    for (at, (start, max)) in [
        (1, 5),
        (i64::MAX as u64 - 2, i64::MAX as u64 + 2), // where Datastore's own integers end
        (u64::MAX - 4, u64::MAX),
        (0, 4),
    ]
    .into_iter()
    .enumerate()
    {
        let name = name(&format!("s{at}"));
        let reserve = |count, ceiling| {
            let request =
                Reserve::new(name.clone(), count).ceiling(ceiling).create(Bounds::new(start, max).unwrap());
            let store = store.clone();
            async move { store.reserve(&request).await }
        };
        assert_eq!(reserve(2, u64::MAX).await.unwrap().range.start(), start);
        let error = reserve(2, start + 1).await.unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Exhausted, Some(Operation::Reserve)));
        let last = reserve(10, u64::MAX).await.unwrap();
        assert_eq!((last.range.start(), last.range.len(), last.bounds.max()), (start + 2, 3, max));
        assert_eq!(reserve(1, u64::MAX).await.unwrap_err().kind(), ErrorKind::Exhausted);
        let info = store.inspect(&name).await.unwrap().unwrap();
        assert_eq!((info.next, info.bounds), (None, Bounds::new(start, max).unwrap()));
        let change = Change::new().next(start).backwards(true);
        assert_eq!(store.set(&name, change).await.unwrap().identity.epoch, 1);
        assert_eq!(reserve(1, u64::MAX).await.unwrap().range.start(), start, "the next id was lowered");
    }
}

#[tokio::test]
async fn sequence_exhausted_at_creation_is_not_created() {
    let Some(engine) = shared("datastore").await else { return };
    let store = open(&engine, "nothing").await;
    let request = request("s", 1).ceiling(4).create(Bounds::new(5, 9).unwrap());
    assert_eq!(store.reserve(&request).await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(store.list_all().await.unwrap(), []);
}

#[tokio::test]
async fn any_name_works_and_locations_are_separate() {
    let Some(engine) = shared("datastore").await else { return };
    let names = ["__x__", "~", "~__x__", "a/b", "a~1b", ".", "..", "'; DROP TABLE--", "строка", "a b"];
    let places = [
        "datastore://names",
        "datastore://names/db-1",
        "datastore://names?namespace=n",
        "datastore://names?kind=K%20%26",
    ];
    for place in places {
        let store = open_url(&engine, place).await;
        for name in names {
            assert_eq!(reserve(&store, name, 3).await.unwrap(), (1, 3), "{place} {name}");
        }
        store.remove(&name(".."), None).await.unwrap();
    }
    for place in places {
        let listed = open_url(&engine, place).await.list_all().await.unwrap();
        let listed: Vec<String> = listed.iter().map(|info| info.name.to_string()).collect();
        let mut expected = names.to_vec();
        expected.retain(|name| *name != "..");
        expected.sort_unstable();
        assert_eq!(listed, expected, "{place}");
    }
}

async fn open_url(engine: &Engine, url: &str) -> DatastoreStore {
    let options = match url.strip_prefix("datastore://names").unwrap() {
        "" => DatastoreOptions::new("names"),
        "/db-1" => DatastoreOptions::new("names").database("db-1"),
        "?namespace=n" => DatastoreOptions::new("names").namespace("n"),
        _ => DatastoreOptions::new("names").kind("K &"),
    };
    assert_eq!(options.to_string(), url);
    DatastoreStore::open_with(options.emulator(engine.address().to_string())).await.unwrap()
}

#[tokio::test]
async fn list_returns_more_sequences_than_one_reply() {
    let Some(engine) = shared("datastore").await else { return };
    let (store, front) = behind(&engine, "pages", |_| async { Fate::Pass }).await;
    store.create(&name("s"), Bounds::new(1, 9).unwrap()).await.unwrap();
    let properties = front.seen().pop().unwrap().body;
    let properties = &properties[properties.find(r#""properties":"#).unwrap()..];
    let properties = &properties[..=properties.find("}}").unwrap() + 1];
    let entity = |at| {
        format!(
            r#"{{"insert":{{"key":{{"path":[{{"kind":"IdmillSequence","name":"s{at:03}"}}]}},{properties}}}}}"#
        )
    };
    commit(&engine, "pages", &(0..400).map(entity).collect::<Vec<_>>().join(",")).await;
    let listed: Vec<String> =
        store.list_all().await.unwrap().iter().map(|info| info.name.to_string()).collect();
    let mut expected: Vec<String> = (0..400).map(|at| format!("s{at:03}")).collect();
    expected.insert(0, "s".to_owned());
    assert_eq!(listed, expected);
    assert!(front.count("runQuery") > 1, "the list had one page: nothing was tested");
}

#[tokio::test]
async fn recreated_sequence_has_a_new_identity() {
    let Some(engine) = shared("datastore").await else { return };
    let store = open(&engine, "again").await;
    let bounds = Bounds::new(1, 9).unwrap();
    let first = store.create(&name("s"), bounds).await.unwrap();
    assert_eq!(store.create(&name("s"), bounds).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    let unchanged = store.set(&name("s"), Change::default()).await.unwrap();
    assert_eq!(unchanged, first);
    assert!(store.remove(&name("s"), None).await.unwrap());
    assert!(!store.remove(&name("s"), None).await.unwrap());
    assert_eq!(store.inspect(&name("s")).await.unwrap(), None);
    let error = store.set(&name("s"), Change::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::NotFound, Some("s")));
    let second = store.create(&name("s"), bounds).await.unwrap();
    assert_ne!(first.identity.incarnation, second.identity.incarnation);
}

#[tokio::test]
async fn entity_of_another_format_is_rejected_by_name() {
    let Some(engine) = shared("datastore").await else { return };
    let store = open(&engine, "foreign").await;
    let later = r#"{"upsert":{"key":{"path":[{"kind":"IdmillSequence","name":"s"}]},"properties":{"format":{"integerValue":"2"}}}}"#;
    commit(&engine, "foreign", later).await;
    reserve(&store, "t", 1).await.unwrap();
    let listing = store.list(&Page::default()).await.unwrap();
    let good: Vec<_> = listing.sequences.iter().map(|info| &*info.name).collect();
    let bad: Vec<_> = listing.unreadable.iter().map(|row| (&*row.name, row.error.kind())).collect();
    assert_eq!((good, bad), (vec!["t"], vec![("s", ErrorKind::Unsupported)]));
    for error in [reserve(&store, "s", 1).await.unwrap_err(), store.list_all().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(
            error.to_string().contains("another format") && error.to_string().contains("\"s\""),
            "{error}"
        );
    }
}

/// Commits raw mutations, to create entities that the store would not write.
async fn commit(engine: &Engine, project: &str, mutations: &str) {
    let body = format!(r#"{{"mode":"NON_TRANSACTIONAL","mutations":[{mutations}]}}"#);
    let length = body.len();
    let head = format!(
        "POST /v1/projects/{project}:commit HTTP/1.1\r\nhost: e\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n"
    );
    let (head, body) = front::ask(engine.address(), &head, &body).await.unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}{body}");
}
