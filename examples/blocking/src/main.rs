//! A program without an async runtime: threads draw ids from an SQLite file, and the remaining ids are
//! given back at the end.
//!
//! `cargo run -p blocking -- ids.db`

use std::env;
use std::thread;

use idmill::{Allocator, Result, Sequences};
use idmill_sqlite::SqliteStore;

fn main() -> Result<()> {
    let path = env::args().nth(1).unwrap_or_else(|| "ids.db".to_owned());
    // Without an async runtime, refills run on idmill's own threads. (In a program that has a runtime and
    // must not use it, call `Sequences::builder(store).own_thread()`.)
    let ids = Sequences::connect_blocking(SqliteStore::open(path))?;
    // A short-lived program does not prefetch: ids of a refill that is in flight at its end would be lost.
    let orders = ids.sequence::<i64>("orders").step(100).watermark(0).open_blocking()?;

    thread::scope(|scope| {
        let workers = [(); 4].map(|()| scope.spawn(|| draw(&orders)));
        workers.into_iter().try_for_each(|worker| worker.join().expect("no thread panics"))
    })?;

    ids.blocking().close()?;
    println!("{} given back", orders.snapshot().given_back);
    Ok(())
}

/// Draws some ids one by one, and some more with one call.
fn draw(orders: &Allocator<i64>) -> Result<()> {
    for _ in 0..5 {
        println!("{}", orders.blocking().next()?);
    }
    for id in orders.blocking().take(5)? {
        println!("{id}");
    }
    Ok(())
}
