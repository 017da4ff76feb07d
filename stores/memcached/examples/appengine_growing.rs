//! Draws ids in several instances of a service, through a window on memcached, while the cache is flushed
//! repeatedly. The ids still grow across the instances.
//!
//! ```console
//! $ memcached -p 11211 &
//! $ cargo run -p idmill-memcached --example appengine_growing
//! $ cargo run -p idmill-memcached --example appengine_growing -- memcached://127.0.0.1:11211 sqlite:ids.db
//! ```
//!
//! The second argument is the URL of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idmill::store::Store;
use idmill::{Order, Sequences};
use idmill_memcached::{MemcachedOptions, MemcachedStats, MemcachedWindow};
use idmill_shared_cache::Tiered;
use idmill_url::Schemes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const INSTANCES: usize = 4;
const CALLERS: usize = 8;
const IDS: usize = 500;

type Tier = Tiered<Arc<dyn Store>, MemcachedWindow>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let cache = arguments.next().unwrap_or_else(|| "memcached://127.0.0.1:11211".to_owned());
    let store = arguments.next().unwrap_or_else(|| "sqlite:appengine_growing.db".to_owned());
    let options = MemcachedOptions::parse(&cache)?.block(100);
    if let Err(error) = TcpStream::connect(options.address()).await {
        let advice = "start one with `memcached -p 11211`, or give its URL: memcached://HOST:PORT";
        return Err(format!("no memcached at {}: {error}; {advice}", options.address()).into());
    }
    let behind = Schemes::default().with(idmill_sqlite::SCHEMES)?.open(&store).await?;
    let before = next(&*behind).await?;

    // Each instance acts like a separate process: instances share only the cache and the store.
    let instances: Vec<Arc<Tier>> = (0..INSTANCES)
        .map(|_| Ok(Arc::new(Tiered::new(behind.clone(), MemcachedWindow::new(options.clone())?))))
        .collect::<idmill::Result<_>>()?;
    let done = Arc::new(AtomicBool::new(false));
    let forgetting = tokio::spawn(forget(options.address().to_owned(), done.clone()));
    let began = Instant::now();
    let largest = Arc::new(AtomicU64::new(0));
    let mut callers = tokio::task::JoinSet::new();
    for tier in &instances {
        let ids = Sequences::new(tier.clone())?;
        let orders = ids.sequence::<u64>("orders").order(Order::Global).await?;
        for _ in 0..CALLERS {
            let (ids, orders, largest) = (ids.clone(), orders.clone(), largest.clone());
            callers.spawn(async move {
                for _ in 0..IDS {
                    let returned = largest.load(Ordering::SeqCst);
                    let id = orders.next().await?;
                    assert!(
                        id > returned,
                        "{id} is not above {returned}, which was returned before the call"
                    );
                    largest.fetch_max(id, Ordering::SeqCst);
                }
                drop(ids);
                Ok::<_, idmill::Error>(())
            });
        }
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    let took = began.elapsed();
    done.store(true, Ordering::SeqCst);
    let times = forgetting.await??;
    report(&instances, took, times, next(&*behind).await? - before);
    Ok(())
}

/// Returns the next id that the store would grant.
async fn next(store: &dyn Store) -> idmill::Result<u64> {
    let info = store.inspect(&idmill::SequenceName::new("orders")?).await?;
    Ok(info.and_then(|info| info.next).unwrap_or(1))
}

/// Flushes the cache repeatedly.
async fn forget(address: String, done: Arc<AtomicBool>) -> std::io::Result<u32> {
    let (mut cache, mut times) = (TcpStream::connect(address).await?, 0);
    while !done.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        cache.write_all(b"flush_all\r\n").await?;
        let _ = cache.read(&mut [0; 64]).await?;
        times += 1;
    }
    Ok(times)
}

fn report(instances: &[Arc<Tier>], took: Duration, times: u32, reserved: u64) {
    let stats: Vec<MemcachedStats> = instances.iter().map(|tier| tier.window().stats()).collect();
    let round_trips: u64 = stats.iter().map(|stats| stats.round_trips).sum();
    let ids = INSTANCES * CALLERS * IDS;
    let rate = ids as f64 / took.as_secs_f64();
    println!(
        "{ids} ids for {CALLERS} callers in each of {INSTANCES} instances: unique, and growing across all of them"
    );
    println!("the cache was flushed {times} times meanwhile; {rate:.0} ids per second");
    println!(
        "{:.2} round trips to the cache per id; {} refills",
        round_trips as f64 / ids as f64,
        stats.iter().map(|stats| stats.refills).sum::<u64>()
    );
    println!("{reserved} ids were reserved: the ids that were not drawn are lost, or still in the cache");
}
