//! The command line and its help.

mod measuring;
mod sequences;
mod serve;
#[cfg(all(test, feature = "serve"))]
mod tests;
mod texts;
mod values;

use std::collections::BTreeSet;

use clap::{Arg, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;
use idmill_url::Schemes;

pub(crate) use measuring::{Bench, Check, Doctor, Mode, Plan};
pub(crate) use sequences::{Create, List, Named, Next, Remove, Revoke, Set};
#[cfg(feature = "serve")]
pub(crate) use serve::{Keys, LogFormat, SequenceKeys, Spot};
pub(crate) use serve::{Serve, Token};
pub(crate) use texts::{Decode, Encode, Export, Import};
pub(crate) use values::{boolean, id, of_sequence, spelled};

use crate::error::Stopped;

/// Small, unique, ordered numeric ids from the store you already run
///
/// A sequence is a named counter in a store. `idmill` reserves ranges of ids and prints them. No id is
/// printed twice, even if processes share the store or crash. A crash leaves gaps: ids that were reserved and
/// not printed.
#[derive(Debug, Parser)]
#[command(name = "idmill", version, max_term_width = 100, after_long_help = include_str!("help/main.txt"))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses the command line. If `bench` writes its JSON to a file, no other output is JSON.
    pub(crate) fn read(schemes: &Schemes) -> clap::error::Result<Self> {
        let mut command = Self::with_short_help().long_version(version(schemes));
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        let mut cli = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        if matches!(&cli.command, Command::Bench(Bench { file: Some(_), .. })) {
            cli.global.json = false;
        }
        Ok(cli)
    }

    /// Returns the command with one line about the global options in the help of each subcommand. The
    /// options still parse after a subcommand. Completion scripts need visible options, so they use
    /// `Cli::command`.
    pub(crate) fn with_short_help() -> clap::Command {
        let command = Self::command();
        let global: Vec<_> = command.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
        command.mut_subcommands(|subcommand| hide_global(subcommand, &global))
    }
}

/// Returns the version and the stores, for `--version`.
fn version(schemes: &Schemes) -> String {
    let stores: BTreeSet<_> = schemes.compiled_names().collect();
    let stores = stores.into_iter().collect::<Vec<_>>().join(", ");
    format!("{}\nstores: {stores}", env!("CARGO_PKG_VERSION"))
}

/// Adds hidden copies of the global options to the subcommand and all subcommands below it. clap passes a
/// global option down only to subcommands without an option of the same id.
fn hide_global(command: clap::Command, global: &[Arg]) -> clap::Command {
    let long = command.get_after_long_help().map(|help| format!("{SEE_GLOBAL}\n\n{help}"));
    command
        .args(global.iter().map(|arg| arg.clone().hide(true)))
        .after_help(SEE_GLOBAL)
        .after_long_help(long.unwrap_or_else(|| SEE_GLOBAL.to_owned()))
        .mut_subcommands(|subcommand| hide_global(subcommand, global))
}

const SEE_GLOBAL: &str = "Global options (--store, --guard, --json, --verbose, --quiet): see `idmill --help`";

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Store URL [default: $IDMILL_STORE, else sqlite:idmill.db]
    ///
    /// SQLite: `sqlite:PATH?table=NAME&busy_timeout=5s&mode=ro|rw|rwc`. Only `next`, `create`, `import`,
    /// `serve` and `bench` create a missing file, unless the URL has `mode=rw`; the first four report it on
    /// stderr.
    ///
    /// With the feature `full`: `postgres://HOST/DATABASE`, `mysql://HOST/DATABASE`,
    /// `mongodb://HOST/DATABASE`, `cassandra://HOST/KEYSPACE`,
    /// `spanner://projects/P/instances/I/databases/D`, `datastore://PROJECT`, `redis://HOST:PORT` and
    /// `etcd://HOST:PORT`. `idmill://HOST:PORT` is the store behind an `idmill serve`. Append
    /// `?window=memcached://HOST:PORT` or `?window=redis://HOST:PORT` to put a window in a cache in front of
    /// the store. See stores/NAME/README.md for the options of each store.
    #[arg(long, global = true, value_name = "URL", hide_default_value = true)]
    pub(crate) store: Option<String>,
    /// Witness URL; prevents duplicates after a restore [default: $IDMILL_GUARD]
    ///
    /// A store that is restored from a backup grants the same ids again. If you set a witness, each range is
    /// claimed there before it is used, and ranges that were claimed before are rejected. Use a file on
    /// another disk (`file:/mnt/other/ids.witness`) for the processes of one machine, or a store on another
    /// server (`postgres://HOST/DATABASE`). Every process that uses the store must use the same witness;
    /// `guard=URL` in the store's URL sets the witness instead; do not set both. If ids were reserved before,
    /// a missing witness is an error: add `?new=true` to its URL once to create it.
    #[arg(long, global = true, value_name = "URL", hide_default_value = true)]
    pub(crate) guard: Option<String>,
    /// Print JSON: results on stdout, errors and notes on stderr, one per line
    ///
    /// Field names are stable. Ids are numbers (strings in `import`, `doctor`). JavaScript reads numbers
    /// exactly to 2^53.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Log to stderr; repeat for more detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Print no notes on stderr; errors and warnings are still printed
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// The supported store URLs.
    #[arg(skip)]
    pub(crate) schemes: Schemes,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the next ids of a sequence, one per line
    ///
    /// Only ids go to stdout. The first use creates the sequence and a missing file or table, and reports a
    /// new sequence or file on stderr; --existing requires that they exist.
    ///
    /// Without --step, `next` requests only the ids to print, at most 100,000 at a time. An id is printed
    /// only after its range is durable in the store.
    #[command(after_long_help = include_str!("help/next.txt"))]
    Next(Next),
    /// Create a sequence
    ///
    /// Use it to set the bounds in advance. Otherwise `next` creates a sequence on first use.
    #[command(after_long_help = include_str!("help/create.txt"))]
    Create(Create),
    /// List the sequences of the store
    ///
    /// Sorted by name and streamed. Cassandra, Datastore and Redis do not order names, so only each page of a
    /// thousand is sorted. Records that cannot be read as a sequence are reported on stderr (with --json, in
    /// lines `unreadable`) and by the exit code.
    #[command(visible_alias = "ls", after_long_help = include_str!("help/list.txt"))]
    List(List),
    /// Show one sequence
    #[command(after_long_help = include_str!("help/list.txt"))]
    Show(Named),
    /// Change the next id or the last id of a sequence
    ///
    /// Prints the sequence before and after. Raising the next id is safe: the skipped ids become a gap.
    /// Lowering the next id, or setting --max below reserved ids, requires --backwards and --yes, because ids
    /// can repeat.
    #[command(after_long_help = include_str!("help/set.txt"))]
    Set(Set),
    /// Remove a sequence
    ///
    /// A removal cannot be undone and requires --yes. Without a guard, a sequence created later under the
    /// same name starts from 1 again, unless you set --start, and repeats the ids of the removed sequence.
    #[command(visible_aliases = ["rm", "delete"], after_long_help = include_str!("help/remove.txt"))]
    Remove(Remove),
    /// Make every process drop the ids of a sequence that it holds in memory
    ///
    /// Use it after an incident, when ids that were reserved before must not be handed out. It only raises
    /// the epoch, and prints the sequence before and after.
    #[command(after_long_help = include_str!("help/revoke.txt"))]
    Revoke(Revoke),
    /// Export sequences as JSON lines, for backup or import
    ///
    /// Prints one sequence per line. Numbers are strings of digits, because many programs round numbers above
    /// 2^53 and a next id that is rounded down repeats ids. --json does not change the lines.
    #[command(after_long_help = include_str!("help/export.txt"))]
    Export(Export),
    /// Import sequences from `export`: create missing ones, raise lower ones
    ///
    /// Never lowers a next id and never changes bounds. A sequence with other bounds is rejected, and the
    /// error names the fix; the rest are imported. The whole file is read first: if a line cannot be read,
    /// only --keep-going imports the rest.
    #[command(after_long_help = include_str!("help/import.txt"))]
    Import(Import),
    /// Print the statement that creates the table of the store
    ///
    /// Use it to create the table in your own migrations, and then open the store with `mode=rw` in its URL,
    /// so that idmill does not create the table. Does not connect to the store.
    #[command(after_long_help = include_str!("help/schema.txt"))]
    Schema {
        /// Print the statement for the table of the witness
        ///
        /// The witness is --guard, or the guard in the store's URL; without a guard, --store names the
        /// witness. A witness creates its table, unless its URL has `mode=rw`.
        #[arg(long)]
        witness: bool,
    },
    /// Encode ids in a format, one per line
    ///
    /// Without arguments, reads the ids from stdin, one per line.
    #[command(after_long_help = include_str!("help/formats.txt"))]
    Encode(Encode),
    /// Decode ids from a format, one per line
    ///
    /// Without arguments, reads the texts from stdin, one per line. Stops with exit code 2 at the first text
    /// that does not match the format.
    #[command(after_long_help = include_str!("help/formats.txt"))]
    Decode(Decode),
    /// Benchmark each mode on a store
    ///
    /// Measures throughput and latency of each mode, from ids reserved in your transaction to ranges fetched
    /// ahead. Each id is used in a simulated transaction.
    #[command(after_long_help = include_str!("help/bench.txt"))]
    Bench(Bench),
    /// Check a store: permissions, durability and latency; recommend sizes
    ///
    /// Tries list, create, reserve, inspect, set and remove with a temporary sequence, measures the latency,
    /// and recommends sizes for a rate and an outage.
    #[command(after_long_help = include_str!("help/check.txt"))]
    Check(Check),
    /// Diagnose the sequences of a store before an id repeats
    ///
    /// Compares the store with the largest ids in your tables (--check) and with the witness. Also reports
    /// sequences that end soon, exceed their type or cannot be read, and settings that lose writes. Each
    /// finding has a fix, as a command where possible.
    ///
    /// Without --fix, nothing is changed.
    #[command(after_long_help = include_str!("help/doctor.txt"))]
    Doctor(Doctor),
    /// Serve ids to programs in any language, over the Redis protocol and HTTP
    ///
    /// `INCR orders` draws an id from memory. All durable state is in the store, so several servers can share
    /// one. On Ctrl-C or SIGTERM, the server answers the requests it has read, gives unused ids back
    /// unless later ones were reserved, and exits.
    ///
    /// Requires the feature `serve`, which is part of `full`.
    #[command(hide = cfg!(not(feature = "serve")), after_long_help = include_str!("help/serve.txt"))]
    Serve(Box<Serve>),
    /// Generate a token for a client of the server
    ///
    /// Prints the token for the client, which is not stored, and the entry for the file of
    /// `idmill serve --tokens`.
    #[command(hide = cfg!(not(feature = "serve")), after_long_help = include_str!("help/serve.txt"))]
    Token(Token),
    /// Compute sizes, waste and years until exhaustion, without a store
    ///
    /// Takes a rate, the number of processes and the outage to survive. Computes the sizes and runs the real
    /// engine through the outage in simulated time.
    #[command(after_long_help = include_str!("help/plan.txt"))]
    Plan(Plan),
    /// Print a completion script for a shell
    #[command(after_long_help = include_str!("help/completions.txt"))]
    Completions {
        /// Shell to complete for
        shell: Shell,
    },
    /// Print a man page
    #[command(after_long_help = include_str!("help/man.txt"))]
    Man {
        /// Command to describe [default: idmill itself]
        command: Option<String>,
    },
}

impl Command {
    /// Returns whether the command is a server, which runs until a signal, and handles signals itself.
    pub(crate) fn serves(&self) -> bool {
        matches!(self, Self::Serve(_))
    }

    /// Returns the state that a signal leaves behind.
    pub(crate) fn when_stopped(&self) -> Stopped {
        let (so, changes) = match self {
            Self::Next(_) => ("ids that were reserved but not printed leave a gap", true),
            Self::Create(_) | Self::Set(_) | Self::Remove(_) | Self::Revoke(_) => {
                ("the change may have been made: check with `idmill show`", true)
            }
            Self::Import(_) => {
                ("each sequence was either imported or left unchanged: import the file again to finish", true)
            }
            Self::Doctor(doctor) => ("the command did not finish", doctor.fix),
            Self::Check(_) | Self::Bench(_) => ("the command did not finish", true),
            _ => ("the command did not finish", false),
        };
        Stopped { so, changes, prints: matches!(self, Self::Next(_)) }
    }
}
