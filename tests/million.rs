//! A million sequences in one process, within the memory that the design promises.

#![cfg(target_os = "linux")] // for /proc

use std::fs;
use std::time::Duration;

use idmill::store::{
    Bounds, Capabilities, Change, Durability, Grant, Identity, Listing, Page, Reserve, SequenceInfo, Store,
    StoreFuture,
};
use idmill::{Error, ErrorKind, IdRange, Result, SequenceName, Sequences};

/// A million in a release build; fewer in a debug build, enough for a measurement.
const SEQUENCES: u64 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };

/// Bytes for each sequence: the feature `metrics` adds the last values of eleven counters. The memory of the
/// process itself counts for more with fewer sequences.
const MOST: u64 =
    900 + if cfg!(feature = "metrics") { 11 * 8 } else { 0 } + if cfg!(debug_assertions) { 64 } else { 0 };

/// Grants each sequence its first ids, and stores nothing, so that all memory counted is the allocators'.
#[derive(Debug)]
struct Forgetful;

fn unsupported<T: Send + 'static>() -> StoreFuture<'static, Result<T>> {
    Box::pin(async { Err(Error::from(ErrorKind::Unsupported)) })
}

impl Store for Forgetful {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::Process).batches(true)
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        let range = IdRange::new(1, request.count).unwrap();
        let identity = Identity { incarnation: 1, epoch: 0 };
        Box::pin(async move { Ok(Grant::new(range, identity, Bounds::of::<u64>())) })
    }

    fn create<'a>(&'a self, _: &'a SequenceName, _: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> {
        unsupported()
    }

    fn inspect<'a>(&'a self, _: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        unsupported()
    }

    fn list<'a>(&'a self, _page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        unsupported()
    }

    fn set<'a>(&'a self, _: &'a SequenceName, _: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        unsupported()
    }

    fn remove<'a>(&'a self, _: &'a SequenceName, _: Option<Identity>) -> StoreFuture<'a, Result<bool>> {
        unsupported()
    }
}

fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn a_million_sequences_take_at_most_900_bytes_each() {
    let ids = Sequences::builder(Forgetful).start().unwrap();
    let open = |n: u64| {
        let sequence = ids.sequence::<u64>(format!("tenant-{n}")).step(100).watermark(0);
        sequence.timeout(Duration::from_secs(5)).lazy().unwrap()
    };
    let before = resident();
    for n in 0..SEQUENCES {
        assert_eq!(open(n).next().await.unwrap(), 1);
    }
    let each = (resident() - before) / SEQUENCES;
    println!("{SEQUENCES} sequences, each drawn from: {each} bytes each");
    assert_eq!(ids.len() as u64, SEQUENCES);
    assert!(each <= MOST, "{each} bytes each");
    // All sequences are still in memory: the second id of each comes from there.
    for n in (0..SEQUENCES).step_by(997) {
        assert_eq!(open(n).try_next().unwrap(), 2);
    }
}
