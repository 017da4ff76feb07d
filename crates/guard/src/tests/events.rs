//! The log: a store that went back in time is an error, and nothing else is one.

use idmill_testing::log::Log;
use tracing::Level;

use super::*;

/// Returns the level, the text and the sequence of each event of `work`, which returns `start`.
async fn logged(work: impl Future<Output = u64>, start: u64) -> Vec<[String; 3]> {
    let (log, guard) = Log::begin(Level::TRACE);
    assert_eq!(work.await, start);
    drop(guard);
    let own =
        log.lines().into_iter().filter(|line| line["target"].as_str().unwrap().starts_with("idmill_guard"));
    own.map(|line| {
        let shown = [&line["level"], &line["fields"]["message"], &line["fields"]["sequence"]];
        shown.map(|value| value.as_str().unwrap().to_owned())
    })
    .collect()
}

fn line(level: &str, message: &str) -> Vec<[String; 3]> {
    vec![[level, message, "orders"].map(str::to_owned)]
}

#[tokio::test]
async fn only_a_store_that_went_back_is_an_error() {
    let (store, _, guarded) = guarded();
    let next = async || starts(&guarded, 10).await.unwrap();
    assert!(logged(next(), 1).await.is_empty());
    let backup = store.snapshot();
    assert!(logged(next(), 11).await.is_empty());
    store.restore(&backup);
    let went_back = "the store went back in time: it repeated ids from 11 on; none was used, and ids \
                     continue from 21 or above";
    assert_eq!(logged(next(), 21).await, line("ERROR", went_back));
    guarded.remove(&name(), None).await.unwrap();
    let removed = "ids start at 31, above the ids of the removed sequence with this name";
    assert_eq!(logged(next(), 31).await, line("INFO", removed));
}
