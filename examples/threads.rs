//! A program without an async runtime: each thread with a lease of its own, in the
//! order that scales with cores.
//!
//! `cargo run --release --example threads`

use std::thread;
use std::time::{Duration, Instant};

use idmill::store::MemoryStore;
use idmill::{Order, Result, Sequences};

const THREADS: u64 = 4;
const EACH: u64 = 5_000_000;

fn main() -> Result<()> {
    let ids = Sequences::connect_blocking(async { Ok(MemoryStore::new()) })?;
    let rows = ids.sequence::<u64>("rows").order(Order::Thread).open_blocking()?;

    let begun = Instant::now();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let mut lease = rows.lease(1_024)?;
            Ok(thread::spawn(move || {
                (0..EACH).try_for_each(|_| lease.blocking(Duration::from_secs(5)).next().map(drop))
            }))
        })
        .collect::<Result<_>>()?;
    for thread in threads {
        thread.join().expect("no thread panics")?;
    }
    let seconds = begun.elapsed().as_secs_f64();

    let seen = rows.snapshot();
    println!("{} ids in {seconds:.2} s: {:.0} M/s", THREADS * EACH, (THREADS * EACH) as f64 / seconds / 1e6);
    println!(
        "{} reserves, {} calls waited, {} ids of leases lost",
        seen.reserves, seen.waits, seen.gaps.dropped
    );
    ids.blocking().close()?;
    Ok(())
}
