//! Draws ids from MongoDB in batches of 10: 100 concurrent callers move the counter by exactly 100. Then
//! several instances share one document.
//!
//! `cargo run --release -p idmill-mongodb --example mongodb_batches -- mongodb://localhost/test`
//!
//! Without a URL as an argument or in `IDMILL_MONGODB`, the example starts the server of the tests.

use std::collections::BTreeSet;
use std::error::Error;

use idmill::store::Store as _;
use idmill::{Allocator, Result, SequenceName, Sequences};
use idmill_mongodb::{MongoStore, connect};
use idmill_testing::engines::Engine;

const CALLERS: u64 = 100;
const BATCH: u64 = 10;
const INSTANCES: usize = 4;

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    let given = std::env::args().nth(1).or_else(|| std::env::var("IDMILL_MONGODB").ok());
    let engine = if given.is_none() { Engine::start("ferretdb").await } else { None };
    let own = engine.as_ref().map(|own| format!("mongodb://{}/test?directConnection=true", own.address()));
    let url = given.or(own).ok_or("name a MongoDB server: mongodb://HOST/DATABASE")?;
    let (store, name) = (MongoStore::open(&url).await?, SequenceName::new("example-batches")?);
    store.remove(&name, None).await?; // from the last time

    let (ids, orders) = instance(&url).await?;
    let drawn = draw(&orders, CALLERS).await?;
    let info = store.inspect(&name).await?.ok_or("the sequence is gone")?;
    let advanced = info.reached() - u128::from(info.bounds.start());
    let reserves = orders.snapshot().reserves;
    println!(
        "{CALLERS} concurrent callers drew {} ids, {:?}..={:?}",
        drawn.len(),
        drawn.first(),
        drawn.last()
    );
    println!("the counter advanced by {advanced}, in {reserves} reserves");
    assert_eq!((drawn.len() as u64, advanced), (CALLERS, CALLERS.into()));
    ids.close().await;

    // Each instance has its own connection, like a separate process.
    let mut all = BTreeSet::new();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..INSTANCES {
        let (ids, orders) = instance(&url).await?;
        tasks.spawn(async move {
            let drawn = draw(&orders, CALLERS).await;
            ids.close().await;
            drawn
        });
    }
    for drawn in tasks.join_all().await {
        let drawn = drawn?;
        println!("an instance drew {} ids between {:?} and {:?}", drawn.len(), drawn.first(), drawn.last());
        all.extend(drawn);
    }
    assert_eq!(all.len() as u64, INSTANCES as u64 * CALLERS, "no duplicates");
    println!("{INSTANCES} instances shared the document: {} ids, no duplicates", all.len());
    Ok(())
}

/// Opens an instance that does not prefetch: a caller that finds no ids in memory waits for the current
/// reserve.
async fn instance(url: &str) -> Result<(Sequences, Allocator<u64>)> {
    let ids = connect(url).await?;
    let orders = ids.sequence::<u64>("example-batches").step(BATCH).watermark(0).await?;
    Ok((ids, orders))
}

/// Draws one id for each of `callers` concurrent callers.
async fn draw(orders: &Allocator<u64>, callers: u64) -> Result<BTreeSet<u64>> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let orders = orders.clone();
        tasks.spawn(async move { orders.next().await });
    }
    tasks.join_all().await.into_iter().collect()
}
