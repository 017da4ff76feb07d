//! Counts round trips, and prints how long they took.

use std::sync::Arc;
use std::time::Instant;

use idmill::SequenceName;
use idmill::store::{Bounds, Reserve, Store};
use idmill_redis::RedisStore;
use idmill_redis::window::{RedisWindow, RedisWindowOptions};
use idmill_shared_cache::Tiered;
use idmill_testing::faulty::FaultyStore;

use crate::server::start;

fn request() -> Reserve {
    let name = SequenceName::new("s").unwrap();
    Reserve::new(name, 1).create(Bounds::new(1, u64::MAX).unwrap())
}

async fn time(what: &str, store: &dyn Store, times: u32) {
    let begun = Instant::now();
    for _ in 0..times {
        store.reserve(&request()).await.unwrap();
    }
    println!("{what}: {:?} each", begun.elapsed() / times);
}

#[tokio::test]
async fn each_draw_and_each_prepared_range_is_one_round_trip() {
    let Some(engine) = start(&["--appendonly", "no"]).await else { return };
    let options = RedisWindowOptions::new(&engine.address().to_string()).unwrap().block(100).max_skip(None);
    let (store, window) = (FaultyStore::new(), RedisWindow::new(options).unwrap());
    let tier = Tiered::new(Arc::new(store) as Arc<dyn Store>, window);
    time("a draw", &tier, 1_000).await;
    let stats = tier.window().stats();
    // The install of the first range returns its first id. The other ranges are prepared without a wait, and
    // are half as long.
    println!("{stats:?}");
    assert_eq!((stats.refills, stats.round_trips), (1, 1_001 + stats.ahead));
    assert!((19..=21).contains(&stats.ahead), "{stats:?}");
    assert_eq!((stats.abandoned, stats.uncertain, stats.waits), (0, 0, 0));
    let Some(engine) = start(&[]).await else { return };
    let store = RedisStore::open(&format!("redis://{}", engine.address())).await.unwrap();
    time("a reserve", &store, 500).await;
}
