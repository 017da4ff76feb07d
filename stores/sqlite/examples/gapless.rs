//! Invoice numbers without gaps: drawn inside the transaction that writes the invoice.
//!
//! `cargo run --release -p idmill-sqlite --example gapless`

use std::error::Error;

use idmill_sqlite::rusqlite::Connection;
use idmill_sqlite::{next_in, reserve_in};

fn main() -> Result<(), Box<dyn Error>> {
    let mut database = Connection::open_in_memory()?;
    database.execute_batch("CREATE TABLE invoices (number INTEGER PRIMARY KEY, total INTEGER NOT NULL)")?;

    for (total, goes_wrong) in [(100, false), (250, true), (300, false)] {
        let tx = database.transaction()?;
        let number: i64 = next_in(&tx, "invoices")?;
        tx.execute("INSERT INTO invoices VALUES (?1, ?2)", (number, total))?;
        if goes_wrong {
            println!("invoice {number} for {total}: rolled back, so {number} is free again");
            tx.rollback()?;
        } else {
            println!("invoice {number} for {total}");
            tx.commit()?;
        }
    }

    let tx = database.transaction()?;
    let several = reserve_in::<i64>(&tx, "invoices", 3)?;
    println!("several in one transaction: {:?}", several.iter().collect::<Vec<_>>());
    tx.commit()?;
    Ok(())
}
