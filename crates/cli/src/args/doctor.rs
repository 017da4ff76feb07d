//! The arguments of `idmill doctor`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use idmill::SequenceName;

use super::values::{duration, of_sequence, rate_of, time, type_of};

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
