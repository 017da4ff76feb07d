//! The arguments of `idmill bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::values::{duration, id, length, time};

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
