//! Ids from an SQLite file: one by one, through a handle of one thread, and as a block.
//!
//! `cargo run --release -p idmill-sqlite --example quickstart`

use std::error::Error;

/// Your own id type, over the column type of your schema.
#[derive(Clone, Copy, Debug)]
struct OrderId(#[allow(dead_code)] i32); // printed only
idmill::id_type!(OrderId(i32));

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let ids = idmill_sqlite::connect(&format!("sqlite:{}", folder.path().join("ids.db").display())).await?;

    let orders = ids.sequence::<OrderId>("orders").start(1_000).await?;
    println!("the first: {:?}", orders.next().await?);

    let mut hot = orders.handle();
    println!("through a handle: {:?}", hot.next().await?);

    let block = orders.take(5).await?;
    println!("a block: {:?}", block.iter().collect::<Vec<_>>());

    let seen = orders.snapshot();
    println!("{} handed out, {} more in memory, {} reserves", seen.drawn, seen.remaining, seen.reserves);
    ids.close().await;
    Ok(())
}
