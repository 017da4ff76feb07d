//! Draws sequential ids from MongoDB, starting at 1000, in batches of 10, with one reserve at a time. Then
//! shows an error that all waiting callers get.
//!
//! `cargo run --release -p idmill-mongodb --example mongodb_cached -- mongodb://localhost/test`
//!
//! Without a URL as an argument or in `IDMILL_MONGODB`, the example starts the server of the tests.

use std::error::Error;

use idmill::store::Store as _;
use idmill::{Allocator, ErrorKind, SequenceName};
use idmill_mongodb::{MongoStore, connect};
use idmill_testing::engines::Engine;

const START: u64 = 1_000;
const STEP: u64 = 10;
const LAST: u64 = 1_049;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let given = std::env::args().nth(1).or_else(|| std::env::var("IDMILL_MONGODB").ok());
    let engine = if given.is_none() { Engine::start("ferretdb").await } else { None };
    let own = engine.as_ref().map(|own| format!("mongodb://{}/test?directConnection=true", own.address()));
    let url = given.or(own).ok_or("name a MongoDB server: mongodb://HOST/DATABASE")?;
    MongoStore::open(&url).await?.remove(&SequenceName::new("example-cached")?, None).await?; // from the last time

    let ids = connect(&url).await?;
    let users = ids.sequence::<i32>("example-cached").start(START).max(LAST).step(STEP).watermark(0).await?;

    let first = [users.next().await?, users.next().await?, users.next().await?];
    println!("the first three ids: {first:?}, from {} reserve", users.snapshot().reserves);

    // There are more callers than ids in memory. The others wait in one queue, served by one reserve at a
    // time.
    let served = together(&users, 27).await.iter().filter(|outcome| outcome.is_ok()).count();
    let reserves = users.snapshot().reserves;
    println!("27 concurrent callers: {served} have an id, {reserves} reserves so far");

    // There are more callers than ids in the sequence. Every caller without an id gets the error.
    let outcomes = together(&users, 40).await;
    let refused: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    println!("40 concurrent callers for the last 20 ids: {} have an id", outcomes.len() - refused.len());
    assert!(refused.iter().all(|error| error.kind() == ErrorKind::Exhausted));
    println!("{} failed: {}", refused.len(), refused.first().ok_or("nobody was refused")?);

    let snapshot = users.snapshot();
    assert_eq!(
        (snapshot.drawn, snapshot.gaps.total()),
        (LAST - START + 1, 0),
        "all ids were drawn, without a gap"
    );
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
