//! The Datastore store against Google's emulators: what it promises, and what it makes of trouble on the way.
#![cfg(all(feature = "datastore", feature = "conformance"))]

mod engines;
#[path = "datastore/front.rs"]
mod front;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use idmill::store::datastore::{DatastoreOptions, DatastoreStore, TokenSource};
use idmill::store::{Bounds, Change, Grant, Reserve, SequenceInfo, Store};
use idmill::{ErrorKind, Operation, Result, SequenceName};
use tokio::sync::{Barrier, Mutex};

use engines::Engine;
use front::{Fate, Front, Seen};

/// Long enough for an emulator on a busy machine, unless a test wants it to be too short.
const TIMEOUT: Duration = Duration::from_secs(60);

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

fn request(text: &str, count: u64) -> Reserve {
    Reserve { name: name(text), count, ceiling: u64::MAX, create: Bounds::of::<u64>() }
}

async fn reserve(store: &DatastoreStore, text: &str, count: u64) -> Result<(u64, u64)> {
    store.reserve(&request(text, count)).await.map(|grant| (grant.range.start(), grant.range.len()))
}

async fn inspect(store: &DatastoreStore, text: &str) -> SequenceInfo {
    store.inspect(&name(text)).await.unwrap().expect("it exists")
}

/// One emulator for all tests that leave it alone; each has a project of its own there.
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
    DatastoreStore::open_with(options(engine, project)).await.unwrap()
}

/// A store that reaches the emulator through a front with this plan.
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

/// As [`behind`], with one fate for the first commit.
async fn first_commit(engine: &Engine, project: &str, fate: Fate) -> (DatastoreStore, Front) {
    behind(engine, project, move |seen| {
        let fate = if seen.is("commit", 0) { fate } else { Fate::Pass };
        async move { fate }
    })
    .await
}

/// Panics if an id is in two of the ranges; returns how many ids there are.
fn disjoint(grants: &[Grant]) -> u64 {
    let mut ranges: Vec<_> = grants.iter().map(|grant| grant.range).collect();
    ranges.sort_by_key(idmill::Range::start);
    for pair in ranges.windows(2) {
        assert!(!pair[0].overlaps(&pair[1]), "{pair:?}");
    }
    ranges.iter().map(idmill::Range::len).sum()
}

async fn ranges_are_disjoint(engine: &Engine) {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let store = open(engine, "disjoint").await;
        for task in 0..2 {
            let store = store.clone();
            tasks.spawn(async move {
                let mut grants = Vec::new();
                for count in 1..=25 {
                    grants.push(store.reserve(&request("s", count + task)).await.unwrap());
                }
                grants
            });
        }
    }
    let grants: Vec<Grant> = tasks.join_all().await.into_iter().flatten().collect();
    let reserved = disjoint(&grants);
    let info = inspect(&open(engine, "disjoint").await, "s").await;
    assert_eq!(info.next, Some(reserved + 1), "and there are no gaps: all conflicts were tried again");
    assert!(grants.iter().all(|grant| grant.identity == info.identity));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ranges_are_disjoint_among_tasks_and_stores() {
    let Some(engine) = shared("datastore").await else { return };
    ranges_are_disjoint(&engine).await;
}

/// Other code, with versions of another kind and locks that wait.
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
async fn of_many_that_create_a_sequence_one_does() {
    for engine in ["datastore", "firestore"] {
        let Some(engine) = shared(engine).await else { continue };
        one_creates(&engine).await;
    }
}

#[tokio::test]
async fn bounds_are_kept_to_the_last_id() {
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
                Reserve { name: name.clone(), count, ceiling, create: Bounds::new(start, max).unwrap() };
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
        let change = Change { next: Some(start), backwards: true, ..Change::default() };
        assert_eq!(store.set(&name, change).await.unwrap().identity.epoch, 1);
        assert_eq!(reserve(1, u64::MAX).await.unwrap().range.start(), start, "it was set back");
    }
}

#[tokio::test]
async fn an_exhausted_new_sequence_is_not_created() {
    let Some(engine) = shared("datastore").await else { return };
    let store = open(&engine, "nothing").await;
    let request = Reserve { ceiling: 4, create: Bounds::new(5, 9).unwrap(), ..request("s", 1) };
    assert_eq!(store.reserve(&request).await.unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(store.list().await.unwrap(), []);
}

#[tokio::test]
async fn any_name_will_do_and_places_are_kept_apart() {
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
        store.remove(&name("..")).await.unwrap();
    }
    for place in places {
        let listed = open_url(&engine, place).await.list().await.unwrap();
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
async fn more_sequences_than_one_answer_holds_are_listed() {
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
    let listed: Vec<String> = store.list().await.unwrap().iter().map(|info| info.name.to_string()).collect();
    let mut expected: Vec<String> = (0..400).map(|at| format!("s{at:03}")).collect();
    expected.insert(0, "s".to_owned());
    assert_eq!(listed, expected);
    assert!(front.count("runQuery") > 1, "it was all one page: this shows nothing");
}

#[tokio::test]
async fn a_sequence_that_is_created_again_is_another() {
    let Some(engine) = shared("datastore").await else { return };
    let store = open(&engine, "again").await;
    let bounds = Bounds::new(1, 9).unwrap();
    let first = store.create(&name("s"), bounds).await.unwrap();
    assert_eq!(store.create(&name("s"), bounds).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    let unchanged = store.set(&name("s"), Change::default()).await.unwrap();
    assert_eq!(unchanged, first);
    assert!(store.remove(&name("s")).await.unwrap());
    assert!(!store.remove(&name("s")).await.unwrap());
    assert_eq!(store.inspect(&name("s")).await.unwrap(), None);
    let error = store.set(&name("s"), Change::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::NotFound, Some("s")));
    let second = store.create(&name("s"), bounds).await.unwrap();
    assert_ne!(first.identity.incarnation, second.identity.incarnation);
}

#[tokio::test]
async fn what_is_not_ours_is_named_and_refused() {
    let Some(engine) = shared("datastore").await else { return };
    let store = open(&engine, "foreign").await;
    let later = r#"{"upsert":{"key":{"path":[{"kind":"IdmillSequence","name":"s"}]},"properties":{"format":{"integerValue":"2"}}}}"#;
    commit(&engine, "foreign", later).await;
    for error in [reserve(&store, "s", 1).await.unwrap_err(), store.list().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(
            error.to_string().contains("another format") && error.to_string().contains("\"s\""),
            "{error}"
        );
    }
}

/// Has the emulator store what the store would not.
async fn commit(engine: &Engine, project: &str, mutations: &str) {
    let body = format!(r#"{{"mode":"NON_TRANSACTIONAL","mutations":[{mutations}]}}"#);
    let length = body.len();
    let head = format!(
        "POST /v1/projects/{project}:commit HTTP/1.1\r\nhost: e\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n"
    );
    let (head, body) = front::ask(engine.address(), &head, &body).await.unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}{body}");
}

#[tokio::test]
async fn a_commit_that_is_not_answered_is_unknown_and_never_sent_again() {
    let Some(engine) = shared("datastore").await else { return };
    let deadline = r#"{"error":{"code":504,"message":"late","status":"DEADLINE_EXCEEDED"}}"#;
    let unavailable = r#"{"error":{"code":503,"message":"later","status":"UNAVAILABLE"}}"#;
    let internal = r#"{"error":{"code":500,"message":"oops","status":"INTERNAL"}}"#;
    for (at, fate) in [
        Fate::CutBefore,
        Fate::CutAfter,
        Fate::AnswerAfter(504, deadline),
        Fate::AnswerAfter(503, unavailable),
        Fate::AnswerAfter(500, internal),
        Fate::AnswerAfter(502, "<html>Bad Gateway</html>"),
        Fate::AnswerAfter(200, "{}"),
        Fate::AnswerAfter(200, "not JSON"),
        Fate::Answer(503, unavailable),
    ]
    .into_iter()
    .enumerate()
    {
        let project = format!("unknown-{at}");
        let before = open(&engine, &project).await;
        reserve(&before, "s", 10).await.unwrap();
        let (store, front) = first_commit(&engine, &project, fate).await;
        let error = reserve(&store, "s", 10).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{fate:?}: {error}");
        assert_eq!((error.operation(), error.sequence()), (Some(Operation::Reserve), Some("s")));
        assert_eq!(front.count("commit"), 1, "{fate:?}: it was sent again");
        let applied = !matches!(fate, Fate::CutBefore | Fate::Answer(..));
        let next = if applied { 21 } else { 11 };
        assert_eq!(reserve(&store, "s", 10).await.unwrap(), (next, 10), "{fate:?}");
    }
}

#[tokio::test]
async fn a_read_that_fails_is_unavailable_and_nothing_is_committed() {
    let Some(engine) = shared("datastore").await else { return };
    for (at, fate) in [Fate::CutBefore, Fate::CutAfter, Fate::Answer(503, ""), Fate::Answer(200, "not JSON")]
        .into_iter()
        .enumerate()
    {
        let (store, front) = behind(&engine, &format!("reads-{at}"), move |seen| async move {
            // The first is that of opening.
            if seen.is("lookup", 1) { fate } else { Fate::Pass }
        })
        .await;
        let error = reserve(&store, "s", 10).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{fate:?}: {error}");
        assert_eq!(front.count("commit"), 0);
        assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    }
}

#[tokio::test]
async fn refusals_are_told_from_conflicts_by_their_status() {
    let Some(engine) = shared("datastore").await else { return };
    let aborted = r#"{"error":{"code":409,"message":"too much contention","status":"ABORTED"}}"#;
    let (store, front) = behind(&engine, "status", move |seen| async move {
        if seen.method == "commit" && seen.nth < 3 { Fate::Answer(409, aborted) } else { Fate::Pass }
    })
    .await;
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10), "certainly not applied: tried again");
    assert_eq!((front.count("lookup"), front.count("commit")), (5, 4), "each time after another read");

    let denied = r#"{"error":{"code":403,"message":"no","status":"PERMISSION_DENIED"}}"#;
    let (store, front) = first_commit(&engine, "status", Fate::Answer(403, denied)).await;
    let error = reserve(&store, "s", 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert_eq!(front.count("commit"), 1);
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10));

    let told = r#"{"mutationResults":[{"version":"3","conflictDetected":true}]}"#;
    let (store, front) = first_commit(&engine, "status", Fate::Answer(200, told)).await;
    assert_eq!(
        reserve(&store, "s", 10).await.unwrap(),
        (21, 10),
        "a conflict that was told, not failed with"
    );
    assert_eq!(front.count("commit"), 2);
}

/// Runs `meanwhile` with another store, between the read of a reserve and its commit; returns what the reserve gave.
async fn with_another_in_between<F>(
    engine: &Arc<Engine>,
    project: &'static str,
    meanwhile: impl Fn(DatastoreStore) -> F + Clone + Send + Sync + 'static,
) -> (Result<Grant>, DatastoreStore)
where
    F: Future<Output = ()> + Send + 'static,
{
    let other = open(engine, project).await;
    let (store, _front) = behind(engine, project, move |seen| {
        let (other, meanwhile) = (other.clone(), meanwhile.clone());
        async move {
            if seen.is("commit", 0) {
                meanwhile(other).await;
            }
            Fate::Pass
        }
    })
    .await;
    let grant = store.reserve(&request("s", 10)).await;
    (grant, open(engine, project).await)
}

#[tokio::test]
async fn who_was_slower_reads_again() {
    for engine in ["datastore", "firestore"] {
        let Some(engine) = shared(engine).await else { continue };
        let take = |store: DatastoreStore| async move {
            reserve(&store, "s", 5).await.unwrap();
        };
        let (grant, store) = with_another_in_between(&engine, "slower", take).await;
        assert_eq!(grant.unwrap().range.start(), 6, "both created it");
        let (grant, store_again) = with_another_in_between(&engine, "slower", take).await;
        assert_eq!(grant.unwrap().range.start(), 21, "both moved it on");
        let backwards = |store: DatastoreStore| async move {
            let change = Change { next: Some(3), backwards: true, ..Change::default() };
            store.set(&name("s"), change).await.unwrap();
        };
        let (grant, _) = with_another_in_between(&engine, "slower", backwards).await;
        let grant = grant.unwrap();
        assert_eq!((grant.range.start(), grant.identity.epoch), (3, 1), "the other set it back");
        let before = inspect(&store, "s").await.identity.incarnation;
        let remove = |store: DatastoreStore| async move {
            assert!(store.remove(&name("s")).await.unwrap());
        };
        let (grant, _) = with_another_in_between(&engine, "slower", remove).await;
        let grant = grant.unwrap();
        assert_eq!(grant.range.start(), 1, "the other removed it");
        assert_ne!(grant.identity.incarnation, before);
        let info = inspect(&store_again, "s").await;
        assert_eq!((info.next, info.identity), (Some(11), grant.identity));
    }
}

#[tokio::test]
async fn removal_spares_a_sequence_that_is_another_by_now() {
    let Some(engine) = shared("datastore").await else { return };
    let other = open(&engine, "spared").await;
    reserve(&other, "s", 1).await.unwrap();
    let third = other.clone();
    let (store, front) = behind(&engine, "spared", move |seen| {
        let other = third.clone();
        async move {
            if seen.is("commit", 0) {
                reserve(&other, "s", 1).await.unwrap();
            }
            Fate::Pass
        }
    })
    .await;
    assert!(store.remove(&name("s")).await.unwrap());
    assert_eq!(front.count("commit"), 2, "the first was of an earlier version");
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_nobody_waiting() {
    for engine in ["datastore", "firestore"] {
        let Some(engine) = shared(engine).await else { continue };
        let arrived = Arc::new(tokio::sync::Notify::new());
        let tell = Arc::clone(&arrived);
        let (store, _front) = behind(&engine, "dropped", move |seen| {
            let tell = Arc::clone(&tell);
            async move {
                if !seen.is("commit", 0) {
                    return Fate::Pass;
                }
                tell.notify_one();
                Fate::Hold
            }
        })
        .await;
        tokio::select! {
            outcome = reserve(&store, "s", 10) => panic!("{outcome:?}"),
            () = arrived.notified() => {}
        }
        // No transaction of the other's is open: not one conflict, and no lock to wait for.
        assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    }
}

#[tokio::test]
async fn a_paused_emulator_is_unavailable_to_a_read_and_unknown_to_a_commit() {
    let Some(engine) = Engine::start("datastore").await else { return };
    let engine = Arc::new(engine);
    let warm = open(&engine, "paused").await;
    reserve(&warm, "s", 10).await.unwrap();
    let pausing = Arc::clone(&engine);
    let front = Front::start(engine.address(), move |seen| {
        let engine = Arc::clone(&pausing);
        async move {
            if seen.is("commit", 0) {
                engine.pause();
            }
            Fate::Pass
        }
    })
    .await;
    let options = options(&engine, "paused").emulator(front.address().to_string());
    let store = DatastoreStore::open_with(options.timeout(Duration::from_secs(2))).await.unwrap();
    let error = reserve(&store, "s", 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    let error = reserve(&store, "s", 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    engine.resume();
    let (start, _) = reserve(&warm, "s", 10).await.unwrap();
    // The commit that waited in the paused emulator may come before this one, or fail after it; never both succeed.
    assert!(matches!(start, 11 | 21), "{start}");
    assert_eq!(inspect(&warm, "s").await.next, Some(start + 10));
}

#[tokio::test]
async fn an_emulator_that_is_down_is_unavailable_and_missed_no_longer_than_it_is() {
    let Some(engine) = Engine::start("datastore").await else { return };
    let store = open(&engine, "down").await;
    reserve(&store, "s", 10).await.unwrap();
    engine.kill();
    for error in [
        reserve(&store, "s", 10).await.unwrap_err(),
        store.list().await.unwrap_err(),
        DatastoreStore::open_with(options(&engine, "down")).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    engine.restart().await;
    // It forgets what it did not write yet, so only that it answers can be asked for.
    reserve(&store, "s", 10).await.unwrap();
}

/// Gives these in turn, then fails.
#[derive(Debug)]
struct Tokens(parking_lot::Mutex<Vec<&'static str>>);

type Token = std::result::Result<String, Box<dyn std::error::Error + Send + Sync>>;

impl TokenSource for Tokens {
    fn token<'a, 'b>(&'a self) -> Pin<Box<dyn Future<Output = Token> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let token = self.0.lock().pop();
        Box::pin(async move { token.map(|token| format!("Bearer {token}")).ok_or_else(|| "no more".into()) })
    }
}

#[tokio::test]
async fn every_request_carries_a_token_of_its_own_and_no_message_does() {
    let Some(engine) = shared("datastore").await else { return };
    let front = Front::start(engine.address(), |_| async { Fate::Pass }).await;
    let tokens = Arc::new(Tokens(parking_lot::Mutex::new(vec!["third", "second", "first"])));
    let options = options(&engine, "tokens").database("db-1").emulator(front.address().to_string());
    let store = DatastoreStore::open_with_tokens(options, tokens).await.unwrap();
    reserve(&store, "s", 1).await.unwrap();
    let seen = front.seen();
    let sent: Vec<_> =
        seen.iter().map(|seen| (&*seen.method, seen.header("authorization").unwrap())).collect();
    let expected = [("lookup", "Bearer first"), ("lookup", "Bearer second"), ("commit", "Bearer third")];
    assert_eq!(sent, expected);
    let routing = seen.iter().all(|seen| {
        seen.header("x-goog-request-params") == Some("project_id=tokens&database_id=db-1")
            && seen.body.contains(r#""databaseId":"db-1""#)
    });
    assert!(routing, "{seen:?}");
    let error = reserve(&store, "s", 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no more"), "{error}");
    assert_eq!(front.seen().len(), 3, "nothing is sent without a token");
    assert!(!format!("{store:?}{error:?}").contains("Bearer"));
}

#[tokio::test]
async fn an_app_draws_by_url() {
    let Some(engine) = shared("datastore").await else { return };
    let url = format!("datastore://app?namespace=shop&emulator={}&timeout=1m", engine.address());
    let ids = idmill::connect(&url).await.unwrap();
    let orders = ids.sequence::<i32>("orders").await.unwrap();
    for expected in 1..=100 {
        assert_eq!(orders.next().await.unwrap(), expected);
    }
}
