//! Hands out 32-bit ids in two datacenters, and cuts one of them off.
//!
//! `cargo run -p idmill-cassandra --example cassandra_geo` starts its own two nodes, through
//! `ci/engines/cassandra`. To use your own cluster, pass one URL for each of two datacenters, and cut the
//! datacenters off from each other yourself:
//!
//! ```sh
//! cargo run … -- 'cassandra://a1/ids?mode=geo&dc=dc1&range=1000' \
//!     'cassandra://b1/ids?mode=geo&dc=dc2&range=1000'
//! ```

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use idmill::{Allocator, Sequences, Status};
use idmill_cassandra::{Sizing, connect};
use idmill_conformance::{Daemon, free_port};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/engines/cassandra");
const DATACENTERS: [&str; 2] = ["dc1", "dc2"];
const LONG: Duration = Duration::from_secs(180);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The range that this load needs to survive a day without the other datacenter.
    let (day, ids) = (Duration::from_secs(24 * 3600), u64::from(i32::MAX.unsigned_abs()));
    let size = Sizing::new(20.0, day).datacenters(2).ids(ids).plan()?;
    println!(
        "20 ids/s, one day without the other datacenter, 32-bit ids: range={}&threshold={}",
        size.range, size.threshold
    );
    let urls: Vec<String> = std::env::args().skip(1).collect();
    match urls.as_slice() {
        [] => with_nodes_of_our_own().await,
        [first, second] => watch([first, second]).await,
        _ => Err("pass two URLs of the cluster, one for each datacenter, or no argument".into()),
    }
}

async fn with_nodes_of_our_own() -> Result<(), Box<dyn Error>> {
    let fetched = Command::new(SCRIPT).arg("fetch").status()?;
    if !fetched.success() {
        return Err("cannot start Cassandra here; pass a URL for each datacenter: \
                    cassandra://HOST/KEYSPACE?mode=geo&dc=NAME&range=N"
            .into());
    }
    let (port, dir) = (free_port(), tempfile::tempdir()?);
    let address = |number: u8| {
        SocketAddr::from((Ipv4Addr::new(127, port.to_be_bytes()[0], port.to_be_bytes()[1], number), port))
    };
    let nodes = [1, 2].map(|number| {
        let dir = dir.path().join(number.to_string());
        let node = Daemon::new(address(number), move || {
            let mut command = Command::new(SCRIPT);
            command.arg("serve").arg(&dir).args([port.to_string(), number.to_string()]).args(DATACENTERS);
            command
        });
        node.deadline(LONG)
    });
    println!("starting a node in each datacenter …");
    tokio::try_join!(nodes[0].start(), nodes[1].start())?;
    let [first, second] = [1, 2].map(|number| {
        let (dc, host) = (DATACENTERS[usize::from(number) - 1], address(number));
        format!("cassandra://{host}/ids?mode=geo&dc={dc}&range=100&create_keyspace=dc1:1,dc2:1&timeout=3s")
    });
    let (_ids, orders) = open([&first, &second]).await?;
    println!("\nboth are there:");
    draw(&orders, 60).await;
    println!("\ndc2 is down: dc1 continues until its window is empty, and then fails");
    nodes[1].kill();
    draw(&orders[..1], 200).await;
    println!("\ndc2 is back:");
    nodes[1].start().await?;
    while orders[0].next().await.is_err() {}
    while orders[1].next().await.is_err() {}
    draw(&orders, 40).await;
    Ok(())
}

/// Opens both stores with small steps and a short timeout, so that the effects show sooner. Retries, since
/// nodes that just started may not have found each other yet.
async fn open(urls: [&String; 2]) -> idmill::Result<(Vec<Sequences>, Vec<Allocator<i32>>)> {
    let (mut all, mut orders, begun) = (Vec::new(), Vec::new(), Instant::now());
    while all.len() < urls.len() {
        let ids = match connect(urls[all.len()]).await {
            Err(error) if error.status() != Status::Permanent && begun.elapsed() < LONG => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            outcome => outcome?,
        };
        let sequence = ids.sequence::<i32>("orders").step(5).watermark(0);
        orders.push(sequence.timeout(Duration::from_secs(5)).lazy()?);
        all.push(ids);
    }
    Ok((all, orders))
}

/// Draws `count` ids in each datacenter, one by one; stops in a datacenter at the first error.
async fn draw(orders: &[Allocator<i32>], count: usize) {
    for (dc, orders) in DATACENTERS.iter().zip(orders) {
        let (mut ids, mut failed) = (Vec::new(), None);
        while ids.len() < count && failed.is_none() {
            match orders.next().await {
                Ok(id) => ids.push(id),
                Err(error) => failed = Some(error),
            }
        }
        if let (Some(first), Some(last)) = (ids.first(), ids.last()) {
            println!("  {dc}: {} ids, from {first} to {last}", ids.len());
        }
        if let Some(error) = failed {
            println!("  {dc}: {error}");
        }
    }
}

async fn watch(urls: [&String; 2]) -> Result<(), Box<dyn Error>> {
    let (_ids, orders) = open(urls).await?;
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        println!("after {:.0?}:", begun.elapsed());
        draw(&orders, 10).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}
