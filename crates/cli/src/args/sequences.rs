//! The arguments of the commands for ids and sequences, from `next` to `remove`.

use std::time::Duration;

use clap::{ArgGroup, Args};
use idmill::store::{Bounds, SequenceInfo};
use idmill::{Order, SequenceName};

use super::values::{duration, id, length, order, sequence};
use crate::error::{CliError, Outcome};

#[derive(Args, Debug)]
pub(crate) struct Next {
    /// Name of the sequence: 1 to 200 bytes, no control characters
    #[arg(value_parser = sequence)]
    pub(crate) name: SequenceName,
    /// Number of ids to print
    #[arg(short = 'n', long, value_name = "COUNT", default_value = "1", value_parser = id, allow_negative_numbers = true)]
    pub(crate) count: u64,
    #[command(flatten)]
    pub(crate) bounds: BoundsArgs,
    /// Never create the sequence [default: $IDMILL_EXISTING, else off]
    ///
    /// A mistyped name is then an error, with exit code 4. To set --existing for every run, use the
    /// environment variable or `existing=true` in the store's URL.
    #[arg(long)]
    pub(crate) existing: bool,
    /// Ids per reserve [default: the ids to print, at most 100,000]
    ///
    /// The rest of the last range is given back, or becomes a gap if another process has reserved meanwhile
    /// or the store cannot take ids back.
    #[arg(long, value_name = "N", value_parser = length, allow_negative_numbers = true)]
    pub(crate) step: Option<u64>,
    /// Order of ids: process, thread or global
    ///
    /// With `global`, ids grow across processes: an id drawn after another was printed is larger. Within one
    /// run, ids always grow.
    #[arg(long, value_name = "ORDER", default_value = "process", value_parser = order)]
    pub(crate) order: Order,
    #[command(flatten)]
    pub(crate) within: Within,
    /// Format of the ids, such as 'base62|prefix(u_)' [default: decimal]
    ///
    /// `idmill encode --help` lists the formats; `idmill decode` reads the ids back. With --json, each line
    /// is an object with the fields `id` and `text`.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<String>,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Within {
    /// How long to retry while the store is busy or unreachable
    ///
    /// The time to connect counts for the first call of the store; each later call has the whole time. A
    /// change with an unknown outcome is not retried.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct BoundsArgs {
    /// First id of a new sequence [default: 1]
    ///
    /// Rejected if the sequence exists with another first id.
    #[arg(long, value_name = "N", value_parser = id, allow_negative_numbers = true)]
    pub(crate) start: Option<u64>,
    /// Last id of a new sequence, inclusive [default: 9223372036854775807]
    ///
    /// Rejected if the sequence exists with another last id. The default is the largest value of a 64-bit
    /// integer column; if --start is above it, the default is 18446744073709551615. For 32-bit columns use
    /// 2147483647.
    #[arg(long, value_name = "N", value_parser = id, allow_negative_numbers = true)]
    pub(crate) max: Option<u64>,
}

impl BoundsArgs {
    /// Returns the bounds of a sequence created with these arguments.
    pub(crate) fn check(self) -> Outcome<Bounds> {
        Ok(Bounds::new(self.start.unwrap_or(1), self.max.unwrap_or(self.default_max()))?)
    }

    /// The last id of a new sequence without `--max`.
    pub(crate) fn default_max(self) -> u64 {
        let bigint = i64::MAX.unsigned_abs();
        if self.start.is_some_and(|start| start > bigint) { u64::MAX } else { bigint }
    }

    /// Checks that an existing sequence has the bounds that were given.
    pub(crate) fn accept(self, found: &SequenceInfo) -> Outcome {
        let (start, max) = (found.bounds.start(), found.bounds.max());
        for (flag, given, has) in [("--start", self.start, start), ("--max", self.max, max)] {
            if let Some(given) = given.filter(|given| *given != has) {
                let message = format!("`{}` exists with `{flag} {has}`, not {given}", found.name);
                return Err(
                    CliError::refused(message).hint(format!("omit `{flag}`, or give the stored value"))
                );
            }
        }
        Ok(())
    }

    pub(crate) fn are_given(self) -> bool {
        self.start.is_some() || self.max.is_some()
    }
}

#[derive(Args, Debug)]
pub(crate) struct Create {
    /// Name of the sequence: 1 to 200 bytes, no control characters
    #[arg(value_parser = sequence)]
    pub(crate) name: SequenceName,
    #[command(flatten)]
    pub(crate) bounds: BoundsArgs,
    /// Succeed if the sequence exists and matches --start and --max, if given
    #[arg(long)]
    pub(crate) if_not_exists: bool,
    #[command(flatten)]
    pub(crate) within: Within,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only sequences whose names start with this prefix
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    /// Maximum number of sequences
    #[arg(long, value_name = "N", value_parser = length, allow_negative_numbers = true)]
    pub(crate) limit: Option<u64>,
    /// Print all columns
    #[arg(long)]
    pub(crate) wide: bool,
    #[command(flatten)]
    pub(crate) within: Within,
}

#[derive(Args, Debug)]
pub(crate) struct Named {
    /// Name of the sequence
    #[arg(value_parser = sequence)]
    pub(crate) name: SequenceName,
    #[command(flatten)]
    pub(crate) within: Within,
}

#[derive(Args, Debug)]
pub(crate) struct Revoke {
    /// Name of the sequence
    #[arg(value_parser = sequence)]
    pub(crate) name: SequenceName,
    /// Print the change without making it
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) within: Within,
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("change").required(true).multiple(true).args(["next", "max"])))]
pub(crate) struct Set {
    /// Name of the sequence
    #[arg(value_parser = sequence)]
    pub(crate) name: SequenceName,
    /// Next id to reserve
    #[arg(long, value_name = "N", value_parser = id, allow_negative_numbers = true)]
    pub(crate) next: Option<u64>,
    /// Last id, inclusive
    #[arg(long, value_name = "N", value_parser = id, allow_negative_numbers = true)]
    pub(crate) max: Option<u64>,
    /// Allow a lower next id, or a --max below reserved ids: ids can be handed out again
    #[arg(long)]
    pub(crate) backwards: bool,
    /// Confirm that ids will be handed out again
    #[arg(long, requires = "backwards")]
    pub(crate) yes: bool,
    /// Print the change without making it; needs no --yes
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) within: Within,
}

#[derive(Args, Debug)]
pub(crate) struct Remove {
    /// Name of the sequence
    #[arg(value_parser = sequence)]
    pub(crate) name: SequenceName,
    /// Confirm the removal
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print the sequence without removing it; needs no --yes
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Let a later sequence of this name repeat ids; requires a guard
    ///
    /// Without `--forget`, a later sequence of this name starts above all ids that were claimed at the
    /// witness.
    #[arg(long)]
    pub(crate) forget: bool,
    #[command(flatten)]
    pub(crate) within: Within,
}
