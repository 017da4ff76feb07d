//! Batches over MongoDB: 100 callers at once at a batch of 10 move the counter by exactly 100, and several
//! instances share one document.
//!
//! `cargo run --release -p idmill-mongodb --example mongodb_batches -- mongodb://localhost/test`
//!
//! Without a server: `ci/engines/ferretdb serve /tmp/ferret 27017` in another terminal starts one.

use std::collections::BTreeSet;
use std::error::Error;

use idmill::{Allocator, Result, SequenceName, Sequences};
use idmill_url::open_store;

const CALLERS: u64 = 100;
const BATCH: u64 = 10;
const INSTANCES: usize = 4;
const HELP: &str = "name a MongoDB server, as an argument or in IDMILL_MONGODB: mongodb://HOST/DATABASE
without one, start a server of the tests in another terminal:
  ci/engines/ferretdb serve /tmp/ferret 27017
and give it as mongodb://localhost/test?directConnection=true";

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    let Some(url) = std::env::args().nth(1).or_else(|| std::env::var("IDMILL_MONGODB").ok()) else {
        eprintln!("{HELP}");
        std::process::exit(2);
    };
    idmill_url::register(idmill_mongodb::SCHEMES).unwrap();
    let store = open_store(&url).await.unwrap_or_else(|error| {
        eprintln!("{error}\n\n{HELP}");
        std::process::exit(1)
    });
    let name = SequenceName::new("example-batches")?;
    store.remove(&name).await?; // from the last time

    let (ids, orders) = instance(&url).await?;
    let drawn = draw(&orders, CALLERS).await?;
    let info = store.inspect(&name).await?.ok_or("the sequence is gone")?;
    let advanced = info.next.ok_or("the sequence is used up")? - info.bounds.start();
    let reserves = orders.snapshot().reserves;
    println!("{CALLERS} callers at once drew {} ids, {:?}..={:?}", drawn.len(), drawn.first(), drawn.last());
    println!("the counter advanced by {advanced}, in {reserves} reserves");
    assert_eq!((drawn.len() as u64, advanced), (CALLERS, CALLERS));
    ids.close().await;

    // Each with its own connection, as other processes would have.
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
    assert_eq!(all.len() as u64, INSTANCES as u64 * CALLERS, "not one id was drawn twice");
    println!("{INSTANCES} instances shared the document: {} ids, none of them twice", all.len());
    Ok(())
}

/// Batches, and nothing ahead of need: whoever finds memory empty waits for the one fetch that is under way.
async fn instance(url: &str) -> Result<(Sequences, Allocator<u64>)> {
    let ids = idmill_url::connect(url).await?;
    let orders = ids.sequence::<u64>("example-batches").step(BATCH).watermark(0).await?;
    Ok((ids, orders))
}

/// So many callers at once, one id each.
async fn draw(orders: &Allocator<u64>, callers: u64) -> Result<BTreeSet<u64>> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let orders = orders.clone();
        tasks.spawn(async move { orders.next().await });
    }
    tasks.join_all().await.into_iter().collect()
}
