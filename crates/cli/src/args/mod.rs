//! What can be typed: the command line, and the help that teaches it.

mod measuring;
mod serve;
mod values;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand};
use clap_complete::Shell;
use idmill::store::Bounds;
use idmill::{Order, SequenceName};
use idmill_url::Schemes;

pub(crate) use measuring::{Bench, Check, Doctor, Drawing, Draws, Mode, Plan};
#[cfg(feature = "serve")]
pub(crate) use serve::{Keys, LogFormat, Spot};
pub(crate) use serve::{Serve, Token};
use values::{duration, length, order, sequence};
pub(crate) use values::{id, spelled};

use crate::failure::Outcome;

/// Small, unique, ordered numeric ids from the store you already run
///
/// A sequence is a named counter in a store. `idmill` reserves ranges of it and prints the ids.
/// No id is ever printed twice, by however many processes, whatever crashes: an id that was
/// reserved and not printed is a gap.
#[derive(Debug, Parser)]
#[command(name = "idmill", version, max_term_width = 100, after_long_help = include_str!("help/main.txt"))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Reads what was typed. JSON that goes to a file leaves the terminal to
    /// people: nothing else is JSON then.
    pub(crate) fn read() -> clap::error::Result<Self> {
        let mut cli = Self::try_parse()?;
        if matches!(&cli.command, Command::Bench(Bench { file: Some(_), .. })) {
            cli.global.json = false;
        }
        Ok(cli)
    }
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// The store, such as `sqlite:ids.db` [default: $IDMILL_STORE, else sqlite:idmill.db]
    ///
    /// `sqlite:PATH?table=NAME&busy_timeout=5s&mode=ro|rw|rwc` names an SQLite database. `next` and
    /// `create` make it where it is missing, and say so on stderr; `mode=rw` keeps them from it. The
    /// other commands never make one.
    ///
    /// Built with the feature `full`: `postgres://HOST/DATABASE`, `mysql://HOST/DATABASE`,
    /// `mongodb://HOST/DATABASE`, `cassandra://HOST/KEYSPACE`,
    /// `spanner://projects/P/instances/I/databases/D`, `datastore://PROJECT`, `redis://HOST:PORT`,
    /// `etcd://HOST:PORT`; the store behind an `idmill serve`, `idmill://HOST:PORT`; and in front of any
    /// store, with `?window=memcached://HOST:PORT` or `?window=redis://HOST:PORT`, a window in a cache.
    /// stores/NAME/README.md is the page of each.
    #[arg(long, global = true, value_name = "URL", hide_default_value = true)]
    pub(crate) store: Option<String>,
    /// A witness, such as `file:/mnt/other/ids.witness`, that refuses ids which were handed out before
    /// [default: $IDMILL_GUARD]
    ///
    /// A store that is restored from a backup grants the same ids again. With a witness, each range is
    /// claimed there before it is used, and what was claimed before is not. It is a file on another disk, for
    /// the processes of one machine, or a store on another server: `postgres://HOST/DATABASE`. Use the same one
    /// always, for all who use the store; in the store's URL it is `guard=URL`. Where ids were reserved before,
    /// a missing witness is refused; `?new=true` at the end of its URL creates it, once.
    #[arg(long, global = true, value_name = "URL", hide_default_value = true)]
    pub(crate) guard: Option<String>,
    /// Print JSON: results on stdout, errors and notes one a line on stderr
    ///
    /// Field names are stable. Ids are numbers: JavaScript reads them exactly up to 2^53 only.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Log what happens to stderr; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// The stores whose URLs are read.
    #[arg(skip)]
    pub(crate) schemes: Schemes,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the next ids of a sequence, one a line
    ///
    /// Nothing else goes to stdout. The sequence and its store are created on first use, which is said on
    /// stderr; --existing requires that they exist.
    ///
    /// Exactly as many ids are reserved as are printed, unless --step says otherwise, at most
    /// 100,000 at a time, so that any number of ids streams. An id is printed only after its
    /// range is durable in the store.
    #[command(after_long_help = include_str!("help/next.txt"))]
    Next(Next),
    /// Create a sequence
    ///
    /// Only needed to choose its bounds ahead of time: `next` creates a sequence on first use.
    #[command(after_long_help = include_str!("help/create.txt"))]
    Create(Create),
    /// List the sequences of the store
    ///
    /// By name, and as they are read: a store can have millions. From Cassandra, Datastore and Redis, which
    /// keep no order among names, only each thousand is in order. What cannot be read as a sequence is
    /// reported on stderr, and the exit code tells of it.
    #[command(after_long_help = include_str!("help/list.txt"))]
    List(List),
    /// Show one sequence
    #[command(after_long_help = include_str!("help/list.txt"))]
    Show(Named),
    /// Change the next id or the bounds of a sequence
    ///
    /// Prints it before and after. Forwards is always safe: ids that are skipped become a gap. Backwards is
    /// refused without --backwards.
    #[command(after_long_help = include_str!("help/set.txt"))]
    Set(Set),
    /// Remove a sequence
    ///
    /// For good. Refused without --yes: a sequence created later under the same name begins anew, and repeats
    /// ids that this one handed out.
    #[command(after_long_help = include_str!("help/remove.txt"))]
    Remove(Remove),
    /// Have every process drop the ids of a sequence that it has in memory
    ///
    /// For when something went wrong, and nobody is to hand out what was reserved before. Raises the epoch,
    /// and nothing else; prints the sequence before and after.
    #[command(after_long_help = include_str!("help/revoke.txt"))]
    Revoke(Named),
    /// Write sequences as lines of JSON, to keep or to import elsewhere
    ///
    /// One sequence a line, as they are read. Every number is a string of digits: many programs round numbers
    /// beyond 2^53, and a next id that was rounded down repeats ids. --json changes nothing of the lines.
    #[command(after_long_help = include_str!("help/export.txt"))]
    Export(Export),
    /// Create what `export` wrote, and raise what is behind
    ///
    /// Never lowers a next id and never changes bounds: a sequence whose bounds differ is refused with its
    /// remedy, and the others go on. The file is read to its end first; with a line that cannot be read,
    /// nothing is changed.
    #[command(after_long_help = include_str!("help/import.txt"))]
    Import(Import),
    /// Print the statement that creates the table of the store
    ///
    /// For those who create tables by migrations of their own; then open the store with mode=rw in its URL,
    /// which creates nothing. Does not connect to the store.
    #[command(after_long_help = include_str!("help/schema.txt"))]
    Schema {
        /// The table that a witness keeps its records in
        ///
        /// That of --guard, or of the guard in the store's URL; without a guard, that of a store which is the
        /// witness of others. A witness creates it by itself, unless its URL says mode=rw.
        #[arg(long)]
        witness: bool,
    },
    /// Write ids as a format has them, one a line
    ///
    /// The ids are those given, or else those on stdin, one a line.
    #[command(after_long_help = include_str!("help/formats.txt"))]
    Encode(Encode),
    /// Read ids back that a format has written, one a line
    ///
    /// The texts are those given, or else those on stdin, one a line. The first that the format does not
    /// write ends it with exit code 2.
    #[command(after_long_help = include_str!("help/formats.txt"))]
    Decode(Decode),
    /// Measure what each mode costs on a store
    ///
    /// From ids inside one's own transaction to ranges fetched ahead: values a second and how long each took,
    /// with a simulated transaction around every id.
    #[command(after_long_help = include_str!("help/bench.txt"))]
    Bench(Bench),
    /// Measure how fast ids are drawn from memory on this machine
    ///
    /// In several ways, beside the bare atomic instruction (`AtomicU64::fetch_add`) in the same run.
    #[command(after_long_help = include_str!("help/draws.txt"))]
    Draws(Draws),
    /// Check a store: permissions, durability, latency, and the sizes that follow
    ///
    /// Tries everything that a store is asked for, on a sequence of its own that is removed in the end, and
    /// recommends sizes for a rate and an outage by the latency it found.
    #[command(after_long_help = include_str!("help/check.txt"))]
    Check(Check),
    /// Find what is wrong with the sequences of a store, before an id comes twice
    ///
    /// Compares the store with those who remember what it granted: the largest ids in your own tables
    /// (--check), and the witness. Finds sequences that end soon, that do not fit their type, that cannot be
    /// read, and settings that lose writes. Each finding comes with its remedy, as a command to copy where
    /// there is one.
    ///
    /// Changes nothing without --fix.
    #[command(after_long_help = include_str!("help/doctor.txt"))]
    Doctor(Doctor),
    /// Serve ids to programs in any language, over the Redis protocol and HTTP
    ///
    /// `INCR orders` draws an id from memory. The server keeps nothing: all that lasts is in the store, so
    /// any number of servers may run over one. On Ctrl-C or SIGTERM it answers what it has read, gives back
    /// what is in memory, and ends.
    ///
    /// Needs a build with the feature `serve`, which `full` contains.
    #[command(after_long_help = include_str!("help/serve.txt"))]
    Serve(Box<Serve>),
    /// Make a token for a client of the server
    ///
    /// Prints the token, which is for the client and is kept nowhere, and what of it goes into the file that
    /// `idmill serve --tokens` reads.
    #[command(after_long_help = include_str!("help/serve.txt"))]
    Token(Token),
    /// Work out sizes, waste and years until exhaustion, without a store
    ///
    /// From a rate, a number of processes and an outage to be survived: by the arithmetic that sizes refills,
    /// and by running the real engine through such an outage in simulated time.
    #[command(after_long_help = include_str!("help/plan.txt"))]
    Plan(Plan),
    /// Print a completion script for a shell
    #[command(after_long_help = include_str!("help/completions.txt"))]
    Completions {
        /// The shell
        shell: Shell,
    },
}

impl Command {
    /// Whether it serves others until it is told to end.
    pub(crate) fn serves(&self) -> bool {
        matches!(self, Self::Serve(_))
    }

    /// Whether a signal is how it ends, and it does so itself.
    pub(crate) fn ends_by_signal(&self) -> bool {
        matches!(self, Self::Doctor(Doctor { watch: Some(_), .. }) | Self::Serve(_))
    }

    /// The state that a signal leaves behind.
    pub(crate) fn when_stopped(&self) -> &'static str {
        match self {
            Self::Next(_) => "what was reserved and not printed is a gap",
            Self::Create(_) | Self::Set(_) | Self::Remove(_) | Self::Revoke(_) => {
                "the change was made or not: `idmill show` tells"
            }
            Self::Import(_) => {
                "each sequence was imported or left as it was: import the file again for the rest"
            }
            _ => "it did not come to its end",
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Next {
    /// The sequence: 1 to 200 bytes without control characters
    #[arg(value_parser = sequence)]
    pub(crate) name: SequenceName,
    /// How many ids to print
    #[arg(short = 'n', long, value_name = "COUNT", default_value = "1", value_parser = id, allow_negative_numbers = true)]
    pub(crate) count: u64,
    #[command(flatten)]
    pub(crate) bounds: BoundsArgs,
    /// Require that the sequence exists: create nothing [default: $IDMILL_EXISTING, else no]
    ///
    /// A name that was mistyped then is an error, with exit code 4, and does not begin a sequence of its own.
    /// In the environment, or in the store's URL as `existing=true`, it holds for every run.
    #[arg(long)]
    pub(crate) existing: bool,
    /// Reserve in ranges of this size [default: what is printed, at most 100,000 at a time]
    ///
    /// What the last range has left is given back, unless others reserved meanwhile or the store
    /// cannot take it: then it is a gap.
    #[arg(long, value_name = "N", value_parser = length, allow_negative_numbers = true)]
    pub(crate) step: Option<u64>,
    /// How ids of several processes relate: process, thread, or global
    ///
    /// With `global`, an id that any process draws after another id was printed is larger. Within one run, ids
    /// grow in each order.
    #[arg(long, value_name = "ORDER", default_value = "process", value_parser = order)]
    pub(crate) order: Order,
    /// How long to go on trying while the store is busy or away, connecting included
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Write the ids in this format, such as 'base62|prefix(u_)' [default: decimal]
    ///
    /// `idmill encode --help` says what there is, `idmill decode` reads the ids back. With --json, each line
    /// is an object with the fields `id` and `text`.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Encode {
    /// The format, such as 'base62|prefix(u_)'
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: String,
    /// The ids; none: those on stdin
    #[arg(value_name = "ID", value_parser = id, allow_negative_numbers = true)]
    pub(crate) ids: Vec<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Decode {
    /// The format that they were written in
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: String,
    /// The ids as they were written; none: those on stdin
    #[arg(value_name = "TEXT")]
    pub(crate) texts: Vec<String>,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct BoundsArgs {
    /// The first id of a new sequence [default: 1]
    ///
    /// Refused if the sequence exists with another.
    #[arg(long, value_name = "N", value_parser = id, allow_negative_numbers = true)]
    pub(crate) start: Option<u64>,
    /// The last id of a new sequence, handed out too [default: 2^64 - 1]
    ///
    /// Refused if the sequence exists with another. For a column of 32-bit integers: 2147483647; of 64-bit
    /// integers: 9223372036854775807.
    #[arg(long, value_name = "N", value_parser = id, allow_negative_numbers = true)]
    pub(crate) max: Option<u64>,
}

impl BoundsArgs {
    /// The bounds of a sequence created with these.
    pub(crate) fn check(self) -> Outcome<Bounds> {
        let defaults = Bounds::of::<u64>();
        let (start, max) = (self.start.unwrap_or(defaults.start()), self.max.unwrap_or(defaults.max()));
        Ok(Bounds::new(start, max)?)
    }

    pub(crate) fn are_given(self) -> bool {
        self.start.is_some() || self.max.is_some()
    }
}

#[derive(Args, Debug)]
pub(crate) struct Create {
    /// The sequence: 1 to 200 bytes without control characters
    #[arg(value_parser = sequence)]
    pub(crate) name: SequenceName,
    #[command(flatten)]
    pub(crate) bounds: BoundsArgs,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only sequences whose names begin with this
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", value_parser = length, allow_negative_numbers = true)]
    pub(crate) limit: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Named {
    /// The sequence
    #[arg(value_parser = sequence)]
    pub(crate) name: SequenceName,
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("change").required(true).multiple(true).args(["next", "max"])))]
pub(crate) struct Set {
    /// The sequence
    #[arg(value_parser = sequence)]
    pub(crate) name: SequenceName,
    /// The next id to hand out
    #[arg(long, value_name = "N", value_parser = id, allow_negative_numbers = true)]
    pub(crate) next: Option<u64>,
    /// The last id, handed out too
    #[arg(long, value_name = "N", value_parser = id, allow_negative_numbers = true)]
    pub(crate) max: Option<u64>,
    /// Allow going back behind ids that were reserved already: they will be handed out again
    #[arg(long)]
    pub(crate) backwards: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Remove {
    /// The sequence
    #[arg(value_parser = sequence)]
    pub(crate) name: SequenceName,
    /// Remove it: without a guard, nothing keeps a sequence of the same name from repeating its ids
    #[arg(long)]
    pub(crate) yes: bool,
    /// Let the next sequence of this name start anywhere and repeat ids; needs a guard
    ///
    /// Without it, the next sequence of this name starts above all ids that were claimed at the guard.
    #[arg(long)]
    pub(crate) forget: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Export {
    /// The sequences; none: all
    #[arg(value_name = "NAME", value_parser = sequence)]
    pub(crate) names: Vec<SequenceName>,
    /// Only sequences whose names begin with this
    #[arg(long, value_name = "TEXT", conflicts_with = "names")]
    pub(crate) prefix: Option<String>,
    /// Write to this file, which appears once it is whole [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Import {
    /// What `export` wrote [default: stdin]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Leave lines out that cannot be read, and import the others
    #[arg(long)]
    pub(crate) keep_going: bool,
}
