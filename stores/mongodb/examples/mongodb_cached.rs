//! Cached sequential ids over MongoDB: from 1000 on in steps of 10, one fetch at a time; and an error
//! that reaches everyone who waits.
//!
//! `cargo run --release -p idmill-mongodb --example mongodb_cached -- mongodb://localhost/test`
//!
//! Without a server: `ci/engines/ferretdb serve /tmp/ferret 27017` in another terminal starts one.

use std::error::Error;

use idmill::{Allocator, ErrorKind, SequenceName};
use idmill_url::open_store;

const START: u64 = 1_000;
const STEP: u64 = 10;
const LAST: u64 = 1_049;
const HELP: &str = "name a MongoDB server, as an argument or in IDMILL_MONGODB: mongodb://HOST/DATABASE
without one, start a server of the tests in another terminal:
  ci/engines/ferretdb serve /tmp/ferret 27017
and give it as mongodb://localhost/test?directConnection=true";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Some(url) = std::env::args().nth(1).or_else(|| std::env::var("IDMILL_MONGODB").ok()) else {
        eprintln!("{HELP}");
        std::process::exit(2);
    };
    idmill_url::register(idmill_mongodb::SCHEMES)?;
    let store = open_store(&url).await.unwrap_or_else(|error| {
        eprintln!("{error}\n\n{HELP}");
        std::process::exit(1)
    });
    let name = SequenceName::new("example-cached")?;
    store.remove(&name).await?; // from the last time

    let ids = idmill_url::connect(&url).await?;
    let users = ids.sequence::<i32>("example-cached").start(START).max(LAST).step(STEP).watermark(0).await?;

    let first: Vec<i32> = vec![users.next().await?, users.next().await?, users.next().await?];
    println!("the first three: {first:?}, in {} reserve", users.snapshot().reserves);

    // More callers than ids in memory: the rest wait in one queue, and one fetch at a time serves it.
    let outcomes = together(&users, 27).await;
    let reserves = users.snapshot().reserves;
    println!("27 callers at once: {} have an id, {reserves} reserves so far", served(&outcomes));

    // More callers than the sequence has ids: those who get none all hear why.
    let outcomes = together(&users, 40).await;
    let refused: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    println!("40 callers at once, of 20 ids that are left: {} have an id", served(&outcomes));
    assert!(refused.iter().all(|error| error.kind() == ErrorKind::Exhausted));
    println!("{} heard: {}", refused.len(), refused.first().ok_or("nobody was refused")?);

    let snapshot = users.snapshot();
    assert_eq!((snapshot.drawn, snapshot.gaps.total()), (LAST - START + 1, 0), "all of them, and no gap");
    ids.close().await;
    Ok(())
}

async fn together(users: &Allocator<i32>, callers: usize) -> Vec<idmill::Result<i32>> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let users = users.clone();
        tasks.spawn(async move { users.next().await });
    }
    tasks.join_all().await
}

fn served(outcomes: &[idmill::Result<i32>]) -> usize {
    outcomes.iter().filter(|outcome| outcome.is_ok()).count()
}
