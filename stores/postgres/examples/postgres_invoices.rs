//! Invoice numbers without gaps on PostgreSQL: drawn inside the transaction that writes the
//! invoice, by several concurrent clerks.
//!
//! `cargo run --release -p idmill-postgres --example postgres_invoices -- postgres://localhost/shop`

use std::error::Error;

use idmill_postgres::{PostgresOptions, PostgresStore, next_in};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let Some(url) = std::env::args().nth(1) else {
        return Err("pass the URL of a database, such as postgres://localhost/shop".into());
    };
    let options: PostgresOptions = url.parse()?;
    // Creates the table of the sequences.
    PostgresStore::open_with(options.clone()).await?;
    let client = options.client().await?;
    client
        .batch_execute("CREATE TABLE IF NOT EXISTS invoices (number bigint PRIMARY KEY, clerk int)")
        .await?;

    let clerks = (1..=3).map(|clerk| tokio::spawn(work(options.clone(), clerk))).collect::<Vec<_>>();
    for clerk in clerks {
        clerk.await??;
    }
    let row = client.query_one("SELECT count(*), min(number), max(number) FROM invoices", &[]).await?;
    let (count, first, last): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    println!("{count} invoices, numbered {first} to {last}");
    Ok(())
}

async fn work(options: PostgresOptions, clerk: i32) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut client = options.client().await?;
    for round in 0..10 {
        let tx = client.transaction().await?;
        let number: i64 = next_in(&tx, "invoices").await?;
        tx.execute("INSERT INTO invoices VALUES ($1, $2)", &[&number, &clerk]).await?;
        if round % 4 == clerk {
            println!("clerk {clerk}: invoice {number} is rolled back, so {number} is free again");
            tx.rollback().await?;
        } else {
            tx.commit().await?;
        }
    }
    Ok(())
}
