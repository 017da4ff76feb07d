//! The arguments of `idmill draws`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::{duration, id, length};

/// A way to draw ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Drawing {
    /// A handle for each thread
    Handle,
    /// One allocator, shared
    Shared,
    /// One allocator, striped
    Thread,
    /// A lease for each thread
    Lease,
    /// Many ids in one call
    Take,
    /// Futures
    Async,
    /// Handles without prefetching
    Batch,
    /// Ordered everywhere
    Global,
}

#[derive(Args, Debug)]
pub(crate) struct Draws {
    /// How to draw ids; several, comma separated, run one after the other
    #[arg(
        long,
        value_name = "MODE",
        value_delimiter = ',',
        hide_possible_values = true,
        default_value = "handle,shared,thread,lease,take,async,batch,global"
    )]
    pub(crate) mode: Vec<Drawing>,
    /// How many threads draw; several numbers, comma separated, are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Vec<u16>,
    /// How many ids each thread draws, in place of --duration
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = id, conflicts_with = "duration")]
    pub(crate) ids: Option<u64>,
    /// How long each measurement lasts
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// How many ids one reserve brings; the next begins when half of them are left
    #[arg(long, value_name = "N", default_value = "10_000_000", value_parser = length)]
    pub(crate) step: u64,
    /// How many ids a lease or stripe takes for its thread at a time
    #[arg(long, value_name = "N", default_value = "64", value_parser = length)]
    pub(crate) lease: u64,
    /// How many ids one call of the mode `take` asks for
    #[arg(long, value_name = "N", default_value = "100", value_parser = length)]
    pub(crate) take: u64,
}
