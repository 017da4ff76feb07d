//! The arguments of `idmill plan`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values::{duration, id, length, rate};

#[derive(Args, Debug)]
pub(crate) struct Plan {
    /// Ids drawn a second, by all processes together
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) rate: f64,
    /// How many processes draw
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) processes: u32,
    /// How long every process keeps serving while the store is away
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub(crate) outage: Duration,
    /// How many datacenters share the rate evenly, each with a window of its own
    /// (`cassandra:` with `mode=geo`)
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) datacenters: u32,
    /// How long each datacenter keeps serving while it is cut off from the others
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration, requires = "datacenters")]
    pub(crate) isolation: Duration,
    /// How long the store takes to answer a reserve; `idmill check` measures it
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = duration)]
    pub(crate) latency: Duration,
    /// The most ids a process may have in memory [default: as many as the outage needs]
    #[arg(long, value_name = "IDS", value_parser = length)]
    pub(crate) max_waste: Option<u64>,
    /// How many bits an id may have
    #[arg(long, value_name = "BITS", default_value = "63", value_parser = clap::value_parser!(u32).range(8..=64))]
    pub(crate) bits: u32,
    /// The last id, in place of --bits
    #[arg(long, value_name = "N", value_parser = id, conflicts_with = "bits")]
    pub(crate) max: Option<u64>,
    /// How often a day each process restarts without a clean shutdown, for what that wastes
    #[arg(long, value_name = "N", default_value = "1", value_parser = rate)]
    pub(crate) restarts: f64,
    /// Draw the stock of one process through the outage as an SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}
