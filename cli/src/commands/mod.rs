//! The commands, one a file.

mod bench;
mod check;
mod completions;
mod create;
mod decode;
mod draws;
mod encode;
mod list;
mod next;
mod plan;
mod remove;
mod set;
mod show;

use idmill::SequenceName;
use idmill::store::{SequenceInfo, Store, not_found};

use crate::args::{Cli, Command};
use crate::failure::Outcome;

/// Runs a command to its end. Dropped early, it may leave a reserve or a change under way that is done or not.
pub(crate) async fn run(cli: Cli) -> Outcome {
    let global = cli.global;
    match cli.command {
        Command::Next(args) => next::run(&global, &args).await,
        Command::Create(args) => create::run(&global, &args).await,
        Command::List => list::run(&global).await,
        Command::Show(args) => show::run(&global, &args).await,
        Command::Set(args) => set::run(&global, &args).await,
        Command::Remove(args) => remove::run(&global, &args).await,
        Command::Encode(args) => encode::run(&global, args),
        Command::Decode(args) => decode::run(&global, args),
        Command::Bench(args) => bench::run(&global, args).await,
        Command::Draws(args) => draws::run(&global, args).await,
        Command::Check(args) => check::run(&global, &args).await,
        Command::Plan(args) => plan::run(&global, args).await,
        Command::Completions(args) => completions::run(&args),
    }
}

/// A sequence that must be there.
async fn inspect(store: &dyn Store, name: &SequenceName) -> idmill::Result<SequenceInfo> {
    let found = store.inspect(name).await?;
    found.ok_or_else(|| not_found(name).during(idmill::Operation::Inspect))
}
