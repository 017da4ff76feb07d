//! The commands, one a file.

mod bench;
mod check;
mod completions;
mod create;
mod decode;
mod doctor;
mod draws;
mod encode;
mod export;
mod import;
mod list;
mod next;
mod plan;
mod remove;
mod revoke;
mod schema;
#[cfg(feature = "serve")]
mod serve;
#[cfg(not(feature = "serve"))]
#[path = "unserved.rs"]
mod serve;
mod set;
mod show;

use idmill::store::{SequenceInfo, Store, not_found};
use idmill::{Error, SequenceName};

use crate::args::{Cli, Command};
use crate::failure::{Failure, Outcome, quoted};
use crate::suggest;

/// Runs a command to its end. Dropped early, it may leave a reserve or a change
/// under way that is done or not.
pub(crate) async fn run(cli: Cli) -> Outcome {
    let global = cli.global;
    match cli.command {
        Command::Next(args) => next::run(&global, &args).await,
        Command::Create(args) => create::run(&global, &args).await,
        Command::List(args) => list::run(&global, &args).await,
        Command::Show(args) => show::run(&global, &args).await,
        Command::Set(args) => set::run(&global, &args).await,
        Command::Remove(args) => remove::run(&global, &args).await,
        Command::Revoke(args) => revoke::run(&global, &args).await,
        Command::Export(args) => export::run(&global, &args).await,
        Command::Import(args) => import::run(&global, &args).await,
        Command::Schema(args) => schema::run(&global, &args),
        Command::Encode(args) => encode::run(&global, args),
        Command::Decode(args) => decode::run(&global, args),
        Command::Bench(args) => bench::run(&global, args).await,
        Command::Draws(args) => draws::run(&global, args).await,
        Command::Check(args) => check::run(&global, &args).await,
        Command::Doctor(args) => doctor::run(&global, &args).await,
        Command::Serve(args) => serve::run(&global, *args).await,
        Command::Token(args) => serve::token(&global, &args),
        Command::Plan(args) => plan::run(&global, args).await,
        Command::Completions(args) => completions::run(&args),
    }
}

/// A sequence that must be there.
async fn inspect(store: &dyn Store, name: &SequenceName) -> Outcome<SequenceInfo> {
    match store.inspect(name).await? {
        Some(found) => Ok(found),
        None => Err(absent(store, name, not_found(name).during(idmill::Operation::Inspect)).await),
    }
}

/// The error of a sequence that does not exist, with the name that could have been meant.
async fn absent(store: &dyn Store, name: &SequenceName, error: Error) -> Failure {
    let failure = Failure::from(error);
    match suggest::nearest(store, name).await {
        Some(near) => failure.hint(format!("there is {}; `idmill list` shows all", quoted(&near))),
        None => failure,
    }
}
