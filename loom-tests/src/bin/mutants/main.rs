//! Plants each known bug of the table in a copy of the source, and checks that the model named there fails.
//!
//! That the models pass without a bug is checked by `cargo test` in this crate, and not again here.
//!
//! The copy is always at the same place in the target directory, so that only this crate is recompiled
//! between mutants. A mutant is caught if its model fails, or hangs as the table expects. A mutant that does
//! not compile, or whose text is not found exactly once, is an error in the table and fails the run.

mod table;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use table::{MUTANTS, Mutant};
use tree::{Outcome, Tree};

/// The timeout of a model: three times the duration of the slowest one, because the machine may be busy.
const LIMIT: Duration = Duration::from_secs(600);
/// The timeout of a model that is expected to hang. Only the slowest models need longer to pass.
const HANGS: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let only: Vec<String> = std::env::args().skip(1).collect();
    let chosen: Vec<_> = MUTANTS
        .iter()
        .filter(|mutant| only.is_empty() || only.iter().any(|name| name == mutant.name))
        .collect();
    match run(&chosen) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(survived) => {
            println!("{survived} of {} survived", chosen.len());
            ExitCode::FAILURE
        }
        Err(fault) => {
            println!("BROKEN: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of survivors, or the error that ended the run.
fn run(chosen: &[&Mutant]) -> Result<usize, String> {
    if chosen.is_empty() {
        return Err("no such mutant".to_owned());
    }
    let tree = Tree::copy()?;
    check(&tree, chosen)?;
    let mut survived = 0;
    // The next mutant is built while models run.
    thread::scope(|scope| {
        let mut running: Option<ScopedJoinHandle<Result<bool, String>>> = None;
        for mutant in chosen {
            let program = build(&tree, mutant)?;
            if let Some(before) = running.take() {
                survived += usize::from(!ended(before)?);
            }
            running = Some(scope.spawn(move || is_caught(mutant, &program)));
        }
        if let Some(last) = running {
            survived += usize::from(!ended(last)?);
        }
        Ok(survived)
    })
}

fn ended<T>(running: ScopedJoinHandle<Result<T, String>>) -> Result<T, String> {
    running.join().unwrap_or_else(|_| Err("running a model panicked".to_owned()))
}

/// Checks that every text occurs exactly once.
fn check(tree: &Tree, chosen: &[&Mutant]) -> Result<(), String> {
    for mutant in chosen {
        for edit in mutant.edits {
            tree.planted(edit).map_err(|fault| format!("{}: {fault}", mutant.name))?;
        }
    }
    Ok(())
}

/// Builds the models with the bug, and copies the program so that the next build does not overwrite it.
fn build(tree: &Tree, mutant: &Mutant) -> Result<PathBuf, String> {
    let built = || {
        let _planted = tree.plant(mutant.edits)?;
        tree.keep(&tree.build()?, mutant.name)
    };
    built().map_err(|fault| format!("{}: {fault}", mutant.name))
}

fn is_caught(mutant: &Mutant, program: &Path) -> Result<bool, String> {
    let limit = if mutant.hangs { HANGS } else { LIMIT };
    let outcome =
        tree::run(program, mutant.model, limit).map_err(|fault| format!("{}: {fault}", mutant.name))?;
    let caught = outcome == Outcome::Failed || outcome == Outcome::TimedOut && mutant.hangs;
    if caught {
        println!("caught {} by {}", mutant.name, mutant.model);
    } else {
        println!("SURVIVED {} ({}: {outcome:?})", mutant.name, mutant.model);
    }
    Ok(caught)
}
