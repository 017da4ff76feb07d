//! Requests and replies that are lost in transit.

use idmill::ErrorKind;
use idmill::store::{Bounds, Change, GiveBack, MemoryStore, Store};
use idmill_conformance::Proxy;
use idmill_conformance::proxy::{Fault, Gate, nth};
use idmill_testing::{eventually, holds};

use crate::common::{Running, name, next, open, reserve};

/// Matches a request that contains this word, because each connection first reads the capabilities.
fn contains(word: &'static str) -> impl FnMut(&[u8]) -> bool {
    move |request| request.windows(word.len()).any(|part| part == word.as_bytes())
}

/// In all cases the outcome is unknown and the request is sent once, whether or not the server executed it.
#[tokio::test]
async fn interrupted_reserve_is_unknown_and_not_retried() {
    let memory = MemoryStore::new();
    let server = Running::over(memory.clone()).await;
    let proxy = Proxy::start(server.address).await.unwrap();
    // List the server twice, so that a resend would be possible.
    let remote = open(&[proxy.address(), proxy.address()], "timeout=60s").await.unwrap();
    let mut expected = reserve(&remote, "s", 1).await.unwrap().range.start() + 1;
    let faults = [(Fault::CutBefore, 0), (Fault::CutAfter, 1), (Fault::CutReply, 1)];
    for (fault, applied) in faults.into_iter().cycle().take(9) {
        proxy.arm(fault.clone(), nth(0, contains("reserve")));
        let error = reserve(&remote, "s", 10).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{fault:?}: {error}");
        assert!(error.to_string().contains("may have been applied"), "{error}");
        expected += 10 * applied;
        eventually("the server has executed the request", async || {
            let next = next(&memory, "s").await;
            assert!(next <= Some(expected), "{fault:?}: sent again");
            holds(next == Some(expected), next)
        })
        .await;
        // The next reserve succeeds, and shows whether the interrupted reserve was applied.
        assert_eq!(reserve(&remote, "s", 1).await.unwrap().range.start(), expected);
        expected += 1;
    }
}

#[tokio::test]
async fn interrupted_changes_are_not_sent_again() {
    let memory = MemoryStore::new();
    let server = Running::over(memory.clone()).await;
    let proxy = Proxy::start(server.address).await.unwrap();
    let remote = open(&[proxy.address()], "timeout=60s").await.unwrap();
    let (s, bounds) = (name("s"), Bounds::new(1, 100).unwrap());
    let cut = |word| proxy.arm(Fault::CutReply, nth(0, contains(word)));
    cut("create");
    let mut errors = vec![remote.create(&s, bounds).await.unwrap_err()];
    let grant = reserve(&remote, "s", 5).await.unwrap();
    cut("give_back");
    errors.push(remote.give_back(&GiveBack::new(s.clone(), grant.identity, grant.range)).await.unwrap_err());
    assert_eq!(next(&memory, "s").await, Some(1));
    cut("set");
    errors.push(remote.set(&s, Change::new().next(50)).await.unwrap_err());
    assert_eq!(next(&memory, "s").await, Some(50));
    cut("remove");
    errors.push(remote.remove(&s, None).await.unwrap_err());
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::UnknownOutcome), "{errors:?}");
    assert_eq!(memory.inspect(&s).await.unwrap(), None);
}

#[tokio::test]
async fn reads_are_retried() {
    let memory = MemoryStore::new();
    let server = Running::over(memory.clone()).await;
    let proxy = Proxy::start(server.address).await.unwrap();
    let remote = open(&[proxy.address()], "timeout=60s").await.unwrap();
    reserve(&remote, "s", 4).await.unwrap();
    for fault in [Fault::CutBefore, Fault::CutAfter, Fault::CutReply] {
        proxy.arm(fault.clone(), nth(0, contains("inspect")));
        assert_eq!(next(&remote, "s").await, Some(5), "{fault:?}");
        assert_eq!(proxy.disarm(), 1);
        proxy.arm(fault, nth(0, contains("list")));
        assert_eq!(remote.list_all().await.unwrap().len(), 1);
        assert_eq!(proxy.disarm(), 1);
    }
}

#[tokio::test]
async fn late_reply_is_not_used_for_a_later_call() {
    let memory = MemoryStore::new();
    let server = Running::over(memory.clone()).await;
    let proxy = Proxy::start(server.address).await.unwrap();
    let remote = open(&[proxy.address()], "timeout=5s").await.unwrap();
    reserve(&remote, "s", 1).await.unwrap();
    for start in [2, 13] {
        let gate = Gate::new();
        proxy.arm(Fault::Withhold(gate.clone()), nth(0, contains("reserve")));
        let error = reserve(&remote, "s", 10).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
        assert!(error.to_string().contains("no answer within 5s"), "{error}");
        gate.open();
        assert_eq!(reserve(&remote, "s", 1).await.unwrap().range.start(), start + 10);
    }
}

/// Simulates a firewall that drops connections: the first call times out with an unknown outcome, and the
/// client then discards its other connections.
#[tokio::test]
async fn silent_reply_is_an_unknown_outcome() {
    let memory = MemoryStore::new();
    let server = Running::over(memory.clone()).await;
    let proxy = Proxy::start(server.address).await.unwrap();
    let remote = std::sync::Arc::new(open(&[proxy.address()], "timeout=10s").await.unwrap());
    let all: Vec<_> = (0..40)
        .map(|number| {
            let remote = remote.clone();
            tokio::spawn(async move { reserve(&*remote, &format!("s{number}"), 1).await })
        })
        .collect();
    for one in all {
        one.await.unwrap().unwrap();
    }
    assert!((4..=16).contains(&proxy.connections()), "{}", proxy.connections());
    proxy.forget();
    let mut unknown = 0;
    for _ in 0..6 {
        if let Err(error) = reserve(&*remote, "s0", 1).await {
            assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
            unknown += 1;
        }
    }
    assert_eq!(unknown, 1);
}
