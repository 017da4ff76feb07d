//! The commands.

mod bench;
mod check;
mod doctor;
mod export;
mod import;
mod list;
mod next;
mod plan;
mod sequences;
#[cfg(feature = "serve")]
mod serve;

use clap::CommandFactory as _;
use clap_complete::Shell;
use idmill::store::{SequenceInfo, Store, not_found};
use idmill::{Error, SequenceName};
use idmill_url::StoreUrl;

use crate::args::{Cli, Command, Global};
use crate::error::{CliError, Outcome, quoted};
use crate::{formatted, opening, output, suggest};

pub(crate) use doctor::last_verdict;

/// Runs a command to completion. If the future is dropped, the outcome of a reserve or a change in flight is
/// unknown.
pub(crate) async fn run(cli: Cli) -> Outcome {
    let global = cli.global;
    match cli.command {
        Command::Next(args) => next::run(&global, &args).await,
        Command::Create(args) => sequences::create(&global, &args).await,
        Command::List(args) => list::run(&global, &args).await,
        Command::Show(args) => sequences::show(&global, &args).await,
        Command::Set(args) => sequences::set(&global, &args).await,
        Command::Remove(args) => sequences::remove(&global, &args).await,
        Command::Revoke(args) => sequences::revoke(&global, &args).await,
        Command::Export(args) => export::run(&global, &args).await,
        Command::Import(args) => import::run(&global, &args).await,
        Command::Schema { witness } => schema(&global, witness),
        Command::Encode(args) => formatted::encode(&global, args),
        Command::Decode(args) => formatted::decode(&global, args),
        Command::Bench(args) => bench::run(&global, args).await,
        Command::Check(args) => check::run(&global, &args).await,
        Command::Doctor(args) => doctor::run(&global, &args).await,
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(&global, *args).await,
        #[cfg(feature = "serve")]
        Command::Token(args) => serve::token(&global, &args),
        #[cfg(not(feature = "serve"))]
        Command::Serve(_) | Command::Token(_) => {
            let error = CliError::usage("this `idmill` was built without the server");
            Err(error.hint("build it with `--features serve` or `--features full`"))
        }
        Command::Plan(args) => plan::run(&global, args).await,
        Command::Completions { shell } => completions(shell),
        Command::Man { command } => man(command.as_deref()),
    }
}

/// Prints the statement that creates the table of the store, or of the witness. Without a guard,
/// `--witness` uses the store's own URL.
fn schema(global: &Global, witness: bool) -> Outcome {
    let url = opening::url(global)?;
    let (place, ddl) = match url.guard() {
        Some(guard) if witness => (guard.to_string(), guard.ddl()?),
        None if witness => (url.to_string(), url.witness_ddl()?),
        _ => (url.to_string(), url.ddl()?),
    };
    let none = || {
        format!("`schema` prints no statement for {place}; it is for SQLite, PostgreSQL, MySQL and Spanner")
    };
    let ddl = ddl.ok_or_else(|| CliError::usage(none()))?;
    output::result(global.json, &serde_json::json!({ "ddl": ddl }), |_| format!("{ddl};\n"))
}

/// Prints the completion script of a shell.
fn completions(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "idmill", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

/// Prints the man page of a command, or of `idmill` itself.
fn man(command: Option<&str>) -> Outcome {
    let mut whole = Cli::command();
    whole.build();
    let described = match command {
        None => whole,
        Some(name) => {
            let found = whole.find_subcommand(name).cloned();
            let unknown = || CliError::usage(format!("there is no command `{name}`"));
            found.ok_or_else(unknown)?.display_name(format!("idmill-{name}"))
        }
    };
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(described).render(&mut page);
    rendered.map_err(|error| CliError::io("the man page cannot be rendered", &error))?;
    output::print(&String::from_utf8_lossy(&page))
}

/// Drops the claims of a removed sequence at the witness of the URL, if there is one. The ledger stays,
/// marked as removed: no call deletes a ledger, since a claim that is late must still find it.
async fn forget(store: &dyn Store, url: &StoreUrl, name: &SequenceName) -> idmill::Result<()> {
    if let Some(witness) = url.witness(store).await? {
        idmill_guard::forget(&*witness, name).await?;
    }
    Ok(())
}

/// Returns a sequence, which must exist.
async fn inspect(store: &dyn Store, name: &SequenceName) -> Outcome<SequenceInfo> {
    match store.inspect(name).await? {
        Some(found) => Ok(found),
        None => Err(absent(store, name, not_found(name).during(idmill::Operation::Inspect)).await),
    }
}

/// Returns the error for a missing sequence, with a similar name as a hint.
async fn absent(store: &dyn Store, name: &SequenceName, error: Error) -> CliError {
    let error = CliError::from(error);
    match suggest::nearest(store, name).await {
        Some(near) => {
            error.hint(format!("did you mean {}? `idmill list` shows all sequences", quoted(&near)))
        }
        None => error,
    }
}
