//! Servers over PostgreSQL and etcd, under load and random faults. No id is a duplicate, memory stays flat,
//! and clients get no permanent error.
//!
//! `IDMILL_SOAK_SECONDS` (20) is the duration, `IDMILL_SOAK_SEED` selects the faults.

#![cfg(unix)]

#[path = "../common/mod.rs"]
mod common;
mod drawn;
mod figures;
mod guarded;
mod plan;
mod processes;
mod restored;
mod trio;

use std::time::Duration;

use idmill_testing::engines::Engine;
use trio::Trio;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn soak_hands_out_no_duplicates() {
    let time = Duration::from_secs(setting("IDMILL_SOAK_SECONDS", 20));
    let seed = setting("IDMILL_SOAK_SEED", fastrand::u64(..));
    println!("IDMILL_SOAK_SECONDS={} IDMILL_SOAK_SEED={seed}", time.as_secs());
    let (Some(postgres), Some(etcd)) = (Engine::start("postgres").await, Engine::start("etcd").await) else {
        return;
    };
    let postgres = Trio::over("PostgreSQL", postgres, "postgres://postgres@{}/postgres?timeout=2s").await;
    let etcd = Trio::over("etcd", etcd, "etcd://{}?timeout=2s").await;
    let (postgres, etcd) = tokio::join!(postgres.soak(time, seed), etcd.soak(time, seed.wrapping_add(1)));
    postgres.hold();
    etcd.hold();
}
