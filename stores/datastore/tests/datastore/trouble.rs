//! Faults between the store and the emulator: lost replies, concurrent writes, and unreachable emulators.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Change, Grant, Store};
use idmill::{ErrorKind, Operation, Result};
use idmill_datastore::{DatastoreStore, TokenSource};
use idmill_testing::engines::Engine;

use crate::front::{Fate, Front};
use crate::{behind, first_commit, inspect, name, open, options, request, reserve, shared};

#[tokio::test]
async fn unanswered_commit_is_unknown_and_never_retried() {
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
        assert_eq!(front.count("commit"), 1, "{fate:?}: the commit was sent again");
        let applied = !matches!(fate, Fate::CutBefore | Fate::Answer(..));
        let next = if applied { 21 } else { 11 };
        assert_eq!(reserve(&store, "s", 10).await.unwrap(), (next, 10), "{fate:?}");
    }
}

#[tokio::test]
async fn failed_read_is_unavailable_and_commits_nothing() {
    let Some(engine) = shared("datastore").await else { return };
    for (at, fate) in [Fate::CutBefore, Fate::CutAfter, Fate::Answer(503, ""), Fate::Answer(200, "not JSON")]
        .into_iter()
        .enumerate()
    {
        let (store, front) = behind(&engine, &format!("reads-{at}"), move |seen| async move {
            // The first lookup is sent when the store is opened.
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
async fn conflicts_are_retried_but_rejections_are_not() {
    let Some(engine) = shared("datastore").await else { return };
    let aborted = r#"{"error":{"code":409,"message":"too much contention","status":"ABORTED"}}"#;
    let (store, front) = behind(&engine, "status", move |seen| async move {
        if seen.method == "commit" && seen.nth < 3 { Fate::Answer(409, aborted) } else { Fate::Pass }
    })
    .await;
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10), "an aborted commit is retried");
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
        "a conflict reported in a successful reply is retried"
    );
    assert_eq!(front.count("commit"), 2);
}

/// Runs `meanwhile` with another store, between the read of a reserve and its commit. Returns the result of
/// the reserve.
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
async fn slower_of_two_writers_reads_again() {
    for engine in ["datastore", "firestore"] {
        let Some(engine) = shared(engine).await else { continue };
        let take = |store: DatastoreStore| async move {
            reserve(&store, "s", 5).await.unwrap();
        };
        let (grant, store) = with_another_in_between(&engine, "slower", take).await;
        assert_eq!(grant.unwrap().range.start(), 6, "the other store created the sequence first");
        let (grant, store_again) = with_another_in_between(&engine, "slower", take).await;
        assert_eq!(grant.unwrap().range.start(), 21, "the other store reserved first");
        let backwards = |store: DatastoreStore| async move {
            let change = Change::new().next(3).backwards(true);
            store.set(&name("s"), change).await.unwrap();
        };
        let (grant, _) = with_another_in_between(&engine, "slower", backwards).await;
        let grant = grant.unwrap();
        assert_eq!(
            (grant.range.start(), grant.identity.epoch),
            (3, 1),
            "the other store lowered the next id"
        );
        let before = inspect(&store, "s").await.identity.incarnation;
        let remove = |store: DatastoreStore| async move {
            assert!(store.remove(&name("s"), None).await.unwrap());
        };
        let (grant, _) = with_another_in_between(&engine, "slower", remove).await;
        let grant = grant.unwrap();
        assert_eq!(grant.range.start(), 1, "the other store removed the sequence");
        assert_ne!(grant.identity.incarnation, before);
        let info = inspect(&store_again, "s").await;
        assert_eq!((info.next, info.identity), (Some(11), grant.identity));
    }
}

#[tokio::test]
async fn remove_is_retried_after_a_concurrent_reserve() {
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
    assert!(store.remove(&name("s"), None).await.unwrap());
    assert_eq!(front.count("commit"), 2, "the first commit used an outdated version");
}

#[tokio::test]
async fn dropped_call_blocks_no_other_store() {
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
        // The dropped call has left no open transaction, so there is no conflict and no lock to wait for.
        assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    }
}

#[tokio::test]
async fn paused_emulator_read_is_unavailable_commit_is_unknown() {
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
    let store = DatastoreStore::open_with(options.timeout(Duration::from_secs(10))).await.unwrap();
    let error = reserve(&store, "s", 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    let error = reserve(&store, "s", 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    engine.resume();
    let (start, _) = reserve(&warm, "s", 10).await.unwrap();
    // The commit that waited in the paused emulator may be applied before the commit of `warm`, or fail after
    // it. The two ranges must not overlap.
    assert!(matches!(start, 11 | 21), "{start}");
    assert_eq!(inspect(&warm, "s").await.next, Some(start + 10));
}

#[tokio::test]
async fn stopped_emulator_is_unavailable_until_it_restarts() {
    let Some(engine) = Engine::start("datastore").await else { return };
    let store = open(&engine, "down").await;
    reserve(&store, "s", 10).await.unwrap();
    engine.kill();
    for error in [
        reserve(&store, "s", 10).await.unwrap_err(),
        store.list_all().await.unwrap_err(),
        DatastoreStore::open_with(options(&engine, "down")).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    engine.restart().await;
    // The emulator loses recent writes on a restart, so only check that the reserve succeeds.
    reserve(&store, "s", 10).await.unwrap();
}

/// A source that returns these tokens from the last to the first, then fails.
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
async fn each_request_carries_a_fresh_token_never_printed() {
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
async fn ids_are_drawn_by_url() {
    let Some(engine) = shared("datastore").await else { return };
    let url = format!("datastore://app?namespace=shop&emulator={}&timeout=1m", engine.address());
    let ids = idmill_datastore::connect(&url).await.unwrap();
    let orders = ids.sequence::<i32>("orders").await.unwrap();
    for expected in 1..=100 {
        assert_eq!(orders.next().await.unwrap(), expected);
    }
}
