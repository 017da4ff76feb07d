//! The arguments of `idmill bench`, `draws`, `check`, `plan` and `doctor`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use idmill::SequenceName;
use serde::Serialize;

use super::values::{duration, id, length, of_sequence, rate, rate_of, time, type_of};

/// A way to come by ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// One in the transaction that uses it
    InTransaction,
    /// Several in one transaction
    InTransactionMany,
    /// Each by itself
    Async,
    /// Each by itself, shared by those who wait
    Global,
    /// Ranges, fetched when empty
    Batch,
    /// Ranges, fetched ahead
    AsyncBatch,
    /// Ranges, fetched ahead, and stripes
    Thread,
}

impl Mode {
    pub(crate) fn is_in_transaction(self) -> bool {
        matches!(self, Self::InTransaction | Self::InTransactionMany)
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Bench {
    /// After --json: where to write the results; the table is printed all the same
    #[arg(value_name = "FILE", requires = "json")]
    pub(crate) file: Option<PathBuf>,
    /// How to come by ids; several, comma separated, run one after the other
    /// [default: all that the store has]
    #[arg(long, value_name = "MODE", value_delimiter = ',', hide_possible_values = true)]
    pub(crate) mode: Vec<Mode>,
    /// How many threads; several numbers, comma separated, are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "10", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Vec<u16>,
    /// How many transactions each thread makes, in place of --duration
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = id, conflicts_with = "duration")]
    pub(crate) iterations: Option<u64>,
    /// How long each measurement lasts
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// The simulated transaction around each id
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = time)]
    pub(crate) transaction: Duration,
    /// How many ids a transaction of `in-transaction-many` takes
    #[arg(long, value_name = "N", default_value = "10", value_parser = length)]
    pub(crate) values: u64,
    /// How many ids one reserve of the batch modes brings
    #[arg(long, value_name = "N", default_value = "200", value_parser = length)]
    pub(crate) step: u64,
    /// How many are left when `async-batch` and `thread` fetch the next
    #[arg(long, value_name = "N", default_value = "50", value_parser = id)]
    pub(crate) watermark: u64,
    /// Measure as was published for Cloud Spanner, and print ratios beside the published ones
    #[arg(long, conflicts_with_all = ["mode", "threads", "transaction", "values", "step", "watermark"])]
    pub(crate) published: bool,
    /// Print the tables as Markdown
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Draw throughput and times by mode as an SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

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

#[derive(Args, Clone, Debug)]
pub(crate) struct Doctor {
    /// A column that holds ids of a sequence: NAME=URL?column=[SCHEMA.]TABLE.COLUMN; can be given several
    /// times
    ///
    /// The URL is that of any SQLite, PostgreSQL, MySQL or MariaDB database, or of a MongoDB, where the
    /// column is COLLECTION.FIELD; it need not be that of the store. A name that contains a dot stands in
    /// double quotes. The column should have an index.
    #[arg(long, value_name = "NAME=URL", value_parser = of_sequence)]
    pub(crate) check: Vec<(SequenceName, String)>,
    /// The type that holds the ids of a sequence: NAME=i8, u8, i16, u16, i32, u32, i64 or u64; can be given
    /// several times
    #[arg(long = "type", value_name = "NAME=TYPE", value_parser = type_of)]
    pub(crate) types: Vec<(SequenceName, (String, u64))>,
    /// How many ids a sequence gives: NAME=50/s, or a minute (/m), hour (/h) or day (/d); can be given
    /// several times
    #[arg(long, value_name = "NAME=RATE", value_parser = rate_of)]
    pub(crate) rate: Vec<(SequenceName, f64)>,
    /// Look twice, with this time in between, to tell the rate of every sequence
    ///
    /// A sequence comes on by whole steps: choose a time in which it is refilled several times. With --watch,
    /// each look is compared with the one before, and this is not needed.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) rate_over: Option<Duration>,
    /// Warn of sequences that end within this time, at the rate given or seen
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = time)]
    pub(crate) ends_within: Duration,
    /// Carry out the remedies that only raise a next id, say each, and look again
    #[arg(long)]
    pub(crate) fix: bool,
    /// Look again and again, with this time in between, and print what changed
    ///
    /// A minute, unless it says otherwise. Ctrl-C or SIGTERM ends it, with the exit code of the last look.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "1m", value_parser = duration)]
    pub(crate) watch: Option<Duration>,
    /// With --watch, serve what the last look found to Prometheus, at this address: 127.0.0.1:9187
    ///
    /// Over plain HTTP, to everybody who reaches it. docs/metrics.md lists what is served. Needs
    /// a build with the feature `metrics`, which `full` contains.
    #[arg(long, value_name = "IP:PORT", requires = "watch")]
    pub(crate) metrics: Option<SocketAddr>,
}
