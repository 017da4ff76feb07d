//! The arguments of `idmill bench`, `check`, `plan` and `doctor`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use idmill::SequenceName;
use idmill_doctor::FindingKind;
use serde::Serialize;

use super::values::{accepted, duration, id, length, of_sequence, rate, rate_of, time, type_of};

/// A way to reserve ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// One id, in the transaction that uses it
    InTransaction,
    /// Several ids, in the transaction that uses them
    InTransactionMany,
    /// One reserve per id
    Async,
    /// One reserve for all waiting callers
    Global,
    /// Ranges, fetched when empty
    Batch,
    /// Ranges, fetched ahead
    AsyncBatch,
    /// Ranges, fetched ahead, and thread blocks
    Thread,
}

impl Mode {
    pub(crate) fn is_in_transaction(self) -> bool {
        matches!(self, Self::InTransaction | Self::InTransactionMany)
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Bench {
    /// File for the JSON results; the table is still printed
    #[arg(value_name = "FILE", requires = "json")]
    pub(crate) file: Option<PathBuf>,
    /// Modes to measure, comma-separated [default: all that the store supports]
    #[arg(long, value_name = "MODE", value_delimiter = ',', hide_possible_values = true)]
    pub(crate) mode: Vec<Mode>,
    /// Numbers of threads, comma-separated; each is measured in turn
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "10", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Vec<u16>,
    /// Transactions per thread, instead of --duration
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = id, conflicts_with = "duration")]
    pub(crate) iterations: Option<u64>,
    /// Length of each measurement
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// Length of the simulated transaction around each id
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = time)]
    pub(crate) transaction: Duration,
    /// Ids per transaction of the mode `in-transaction-many`
    #[arg(long, value_name = "N", default_value = "10", value_parser = length)]
    pub(crate) values: u64,
    /// Ids per reserve in the batch modes and in `thread`
    #[arg(long, value_name = "N", default_value = "200", value_parser = length)]
    pub(crate) step: u64,
    /// Ids left when `async-batch` and `thread` fetch the next range
    #[arg(long, value_name = "N", default_value = "50", value_parser = id)]
    pub(crate) watermark: u64,
    /// Print tables as Markdown
    #[arg(long)]
    pub(crate) markdown: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Ids per second that one process draws
    #[arg(long, value_name = "N", default_value = "100", value_parser = rate)]
    pub(crate) rate: f64,
    /// Outage that a process must survive
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub(crate) outage: Duration,
    /// Number of reserves and of reads to time
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) samples: u32,
    /// How long to wait for each answer of the store
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct Plan {
    /// Ids per second, all processes together
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) rate: f64,
    /// Number of processes
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) processes: u32,
    /// Outage that every process must survive
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub(crate) outage: Duration,
    /// Number of datacenters that share the rate evenly
    ///
    /// Each has its own window: `cassandra:` with `mode=geo`.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) datacenters: u32,
    /// How long a datacenter must survive without the others
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration, requires = "datacenters")]
    pub(crate) isolation: Duration,
    /// Latency of a reserve; `idmill check` measures it
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = duration)]
    pub(crate) latency: Duration,
    /// Maximum ids in memory per process [default: as the outage requires]
    #[arg(long, value_name = "IDS", value_parser = length)]
    pub(crate) max_buffered: Option<u64>,
    /// Maximum bits of an id
    #[arg(long, value_name = "BITS", default_value = "63", value_parser = clap::value_parser!(u32).range(8..=64))]
    pub(crate) bits: u32,
    /// Last id, instead of --bits
    #[arg(long, value_name = "N", value_parser = id, conflicts_with = "bits")]
    pub(crate) max: Option<u64>,
    /// Unclean restarts per process and day, to estimate the waste
    #[arg(long, value_name = "N", default_value = "1", value_parser = rate)]
    pub(crate) restarts: f64,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Doctor {
    /// Column that holds the ids of a sequence; repeatable [default: $IDMILL_CHECK]
    ///
    /// The value is NAME=URL?column=[SCHEMA.]TABLE.COLUMN, with the URL of a SQLite, PostgreSQL, MySQL,
    /// MariaDB or MongoDB database (COLLECTION.FIELD). The database can differ from the store. Put a name
    /// that contains a dot in double quotes. The column should have an index. Every user of the machine can
    /// read the arguments of a process: put a URL with a password into the environment variable, which has
    /// one NAME=URL on each line.
    #[arg(long, value_name = "NAME=URL", value_parser = of_sequence)]
    pub(crate) check: Vec<(SequenceName, String)>,
    /// Integer type of the ids of a sequence, such as orders=i32; repeatable
    ///
    /// Types: i8, u8, i16, u16, i32, u32, i64, u64.
    #[arg(long = "type", value_name = "NAME=TYPE", value_parser = type_of)]
    pub(crate) types: Vec<(SequenceName, (String, u64))>,
    /// Rate of a sequence, such as orders=50/s; repeatable
    ///
    /// Units: /s, /m, /h and /d.
    #[arg(long, value_name = "NAME=RATE", value_parser = rate_of)]
    pub(crate) rate: Vec<(SequenceName, f64)>,
    /// Read the store twice, this far apart, to measure the rates
    ///
    /// The next id moves by whole steps, so choose a time in which the sequence is refilled several times.
    /// Not needed with --watch, which compares each check with the previous one.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) rate_over: Option<Duration>,
    /// Warn if a sequence ends within this time, at its rate
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = time)]
    pub(crate) ends_within: Duration,
    /// Report a finding of a sequence as info, such as seats=exhausted; repeatable
    ///
    /// Use it for a sequence that is used up on purpose. Kinds: exhausted, ends_soon, too_narrow,
    /// column_default, incomplete.
    #[arg(long, value_name = "NAME=KIND", value_parser = accepted)]
    pub(crate) accept: Vec<(SequenceName, FindingKind)>,
    /// Report only the store and sequences whose names start with this prefix
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    /// Apply and report the fixes that only raise a next id, then check again
    #[arg(long)]
    pub(crate) fix: bool,
    /// Check repeatedly at this interval and print the changes
    ///
    /// Without a value, the interval is 1m. Ctrl-C or SIGTERM stops it with the exit code of the last check.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "1m", value_parser = duration)]
    pub(crate) watch: Option<Duration>,
    /// Serve Prometheus metrics at this address, such as 127.0.0.1:9187
    ///
    /// Requires --watch and the feature `metrics`, which is part of `full`. Plain HTTP, without
    /// authentication. docs/guide/metrics.md lists the metrics.
    #[arg(long, value_name = "IP:PORT", requires = "watch")]
    pub(crate) metrics: Option<SocketAddr>,
    /// How long to wait for the store to open, and for each column of --check
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
}
