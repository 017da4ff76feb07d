//! A program without an async runtime: each thread has a handle with its own block, under `Order::Thread`,
//! which scales with cores.
//!
//! `cargo run --release --example threads`

use std::thread;
use std::time::Instant;

use idmill::store::MemoryStore;
use idmill::{Allocator, Order, Result, Sequences};

const EACH: u64 = 5_000_000;

fn main() -> Result<()> {
    let ids = Sequences::connect_blocking(async { Ok(MemoryStore::new()) })?;
    let rows = ids.sequence::<i64>("rows").order(Order::Thread).block_size(1_024).open_blocking()?;

    let begun = Instant::now();
    thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(|| draw(&rows)));
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    let (seconds, seen) = (begun.elapsed().as_secs_f64(), rows.snapshot());

    println!("{} ids in {seconds:.2} s: {:.0} M/s", 4 * EACH, (4 * EACH) as f64 / seconds / 1e6);
    println!(
        "{} reserves, {} calls waited, {} ids lost with dropped blocks",
        seen.reserves, seen.waits, seen.gaps.dropped
    );
    ids.blocking().close()
}

fn draw(rows: &Allocator<i64>) -> Result<()> {
    let mut handle = rows.handle();
    (0..EACH).try_for_each(|_| handle.blocking().next().map(drop))
}
