//! Rows and sequences that other transactions hold: calls for other sequences do not wait.

use std::sync::Arc;
use std::time::Duration;

use idmill::store::Store;
use idmill::{ErrorKind, Sequences};

use crate::{client, ids, name, open, request, reserve, schemes, server, until_waiting, url};

const OTHERS: usize = 60;

async fn drawn(sequences: &Sequences, name: &str) -> idmill::Result<u64> {
    sequences.sequence::<u64>(name).await?.next().await
}

#[tokio::test]
async fn a_row_that_is_held_is_passed_over_and_waited_for_alone() {
    let Some(engine) = server().await else { return };
    let (store, mut other) = (open(&engine).await, client(&engine).await);
    for sequence in ["a", "b", "c"] {
        reserve(&store, sequence, 1).await.unwrap();
    }
    let tx = other.transaction().await.unwrap();
    tx.execute("SELECT FROM idmill_sequences WHERE name = 'b' FOR UPDATE", &[]).await.unwrap();
    let asked = [request("c", 5), request("b", 5), request("a", 5), request("new", 5)];
    let answers = store.reserve_many(&asked).await;
    for granted in [0, 2] {
        assert_eq!(ids(answers[granted].clone().unwrap().range), (2, 6));
    }
    assert_eq!(ids(answers[3].clone().unwrap().range), (1, 5));
    let error = answers[1].clone().unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::Unavailable, Some("b")), "{error}");
    // A single reserve waits.
    let waiting = store.clone();
    let granted = tokio::spawn(async move { waiting.reserve(&request("b", 5)).await });
    until_waiting(&client(&engine).await, 1).await;
    tx.rollback().await.unwrap();
    assert_eq!(ids(granted.await.unwrap().unwrap().range), (2, 6));
}

/// A row that is released while the batch retries is granted with it.
#[tokio::test]
async fn batches_at_once_over_the_same_rows_are_all_granted() {
    let Some(engine) = server().await else { return };
    let store = open(&engine).await;
    let names: Vec<_> = (0..8).map(|number| format!("s{number}")).collect();
    let batch: Vec<_> = names.iter().map(|name| request(name, 1)).collect();
    store.reserve_many(&batch).await;
    let mut granted = 0;
    for _ in 0..20 {
        let (one, two) = tokio::join!(store.reserve_many(&batch), store.reserve_many(&batch));
        for outcome in one.into_iter().chain(two) {
            match outcome {
                Ok(_) => granted += 1,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
    }
    let next: Vec<_> = store.list_all().await.unwrap().iter().map(|info| info.next.unwrap() - 2).collect();
    assert_eq!(next.iter().sum::<u64>(), granted, "each grant moved one row");
}

/// An open transaction holds six sequences, more than the store has connections: draws from the others
/// continue.
#[tokio::test]
async fn no_sequence_waits_for_the_lock_of_another() {
    let Some(engine) = server().await else { return };
    for (options, holds) in
        [("", "SELECT FROM idmill_sequences WHERE name ~ 'held' FOR UPDATE"), ("&sequences=native", "")]
    {
        // The timeout is longer than the test: the other sequences must not wait until the held ones time
        // out.
        let url = url(&engine, options).replace("timeout=20s", "timeout=600s");
        let store: Arc<dyn Store> = schemes().open(&url).await.unwrap();
        let held: Vec<_> = (0..6).map(|number| format!("held{number}")).collect();
        let others: Vec<_> = (0..OTHERS).map(|number| format!("s{number}")).collect();
        for sequence in held.iter().chain(&others) {
            reserve(&*store, sequence, 1).await.unwrap();
        }
        let mut holder = client(&engine).await;
        let tx = holder.transaction().await.unwrap();
        let restart = |name| format!("ALTER SEQUENCE {name} RESTART WITH 50;");
        let native: String = held.iter().map(restart).collect();
        tx.batch_execute(if holds.is_empty() { &native } else { holds }).await.unwrap();

        let sequences = Sequences::builder(store).store_timeout(Duration::from_secs(700)).start().unwrap();
        let stuck: Vec<_> = held
            .iter()
            .map(|name| {
                let (sequences, name) = (sequences.clone(), name.clone());
                tokio::spawn(async move {
                    loop {
                        match drawn(&sequences, &name).await {
                            Ok(id) => return id,
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Deadline, "{error}"),
                        }
                    }
                })
            })
            .collect();
        until_waiting(&client(&engine).await, 1).await;
        for round in 2..4 {
            for name in &others {
                let id = drawn(&sequences, name).await.unwrap();
                assert!(id >= round, "{name}: {id}");
            }
        }
        let at_once: Vec<_> = others
            .iter()
            .map(|name| {
                let (sequences, name) = (sequences.clone(), name.clone());
                tokio::spawn(async move {
                    for _ in 0..100 {
                        drawn(&sequences, &name).await.unwrap();
                    }
                })
            })
            .collect();
        for one in at_once {
            one.await.unwrap();
        }
        assert!(
            stuck.iter().all(|one| !one.is_finished()),
            "{options}: the reserves of the locked rows still wait"
        );
        tx.rollback().await.unwrap();
        for one in stuck {
            assert!(one.await.unwrap() >= 2);
        }
    }
}

/// Native create, set and remove wait no longer for a lock than a draw.
#[tokio::test]
async fn native_administration_times_out_on_a_held_lock() {
    let Some(engine) = server().await else { return };
    let url = url(&engine, "&sequences=native");
    let store = schemes().open(&url).await.unwrap();
    reserve(&*store, "s", 1).await.unwrap();
    let impatient = schemes().open(&url.replace("timeout=20s", "timeout=4s")).await.unwrap();
    let mut holder = client(&engine).await;
    let tx = holder.transaction().await.unwrap();
    tx.batch_execute("SELECT nextval('s')").await.unwrap();
    let error = impatient.remove(&name("s"), None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("55P03"), "{error}");
    tx.rollback().await.unwrap();
    assert!(store.remove(&name("s"), None).await.unwrap());
}
