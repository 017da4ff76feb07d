//! Runs the conformance suite on Cassandra with one node: in flat mode, and in geo mode with one
//! datacenter.
//!
//! The tests in `tests/cassandra/` use two datacenters, and make one of them unreachable.

use std::sync::Arc;
use std::time::Duration;

use idmill::store::Store;
use idmill_cassandra::{CassandraOptions, CassandraStore};
use idmill_conformance::{Endpoint, Suite, Timeouts};
use idmill_testing::engines::OnDemand;

/// Small enough for the suite's loads to need several ranges.
const RANGE: u64 = 500;

fn flat() -> Suite {
    suite("cassandra", |options| options)
}

fn geo() -> Suite {
    // Check on every draw, so that the trials do not wait for the next check.
    let geo = |options: CassandraOptions| options.geo("dc1", RANGE).check_every(Duration::ZERO);
    suite("cassandra_geo", geo).window(2 * RANGE)
}

fn suite(name: &str, kind: fn(CassandraOptions) -> CassandraOptions) -> Suite {
    Suite::new(name, move |endpoint: Endpoint| async move {
        let options = CassandraOptions::new([endpoint.address().to_string()], "ids")
            .create_keyspace([("dc1", 1)])
            .datacenter("dc1")
            .timeout(endpoint.timeout())
            .through(endpoint.address());
        let store: Arc<dyn Store> = Arc::new(CassandraStore::open(kind(options)).await?);
        Ok(store)
    })
    .engine(OnDemand::new("cassandra"))
    .timeouts(Timeouts::default().pause(Duration::from_secs(5)))
}

fn main() {
    idmill_conformance::main([flat(), geo()])
}
