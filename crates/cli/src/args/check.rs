//! The arguments of `idmill check`.

use std::time::Duration;

use clap::Args;

use super::values::{duration, rate};

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Ids that one process draws a second, to recommend sizes for
    #[arg(long, value_name = "N", default_value = "100", value_parser = rate)]
    pub(crate) rate: f64,
    /// How long a process is to keep serving while the store is away
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub(crate) outage: Duration,
    /// How many reserves to time
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) samples: u32,
}
