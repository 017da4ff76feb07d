//! Plants each known bug of the table in a copy of the source, and has the models that are named there catch it.
//!
//! The copy lies in the target directory, always in the same place, so that from one mutant to the next only this crate is
//! compiled. A catch is a model that ran and failed: a mutant that does not compile, or a text that is not
//! found exactly once, is a broken table, which fails the run.

mod table;
mod tree;

use std::process::ExitCode;
use std::time::Duration;

use table::{MUTANTS, Mutant};
use tree::{Outcome, Tree};

/// Several times what the slowest model takes.
const LIMIT: Duration = Duration::from_secs(120);

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

/// How many survived, or what is wrong with the table.
fn run(chosen: &[&Mutant]) -> Result<usize, String> {
    if chosen.is_empty() {
        return Err("no such mutant".to_owned());
    }
    let tree = Tree::copy()?;
    check(&tree, chosen)?;
    let mut survived = 0;
    for mutant in chosen {
        survived += usize::from(!is_caught(&tree, mutant)?);
    }
    Ok(survived)
}

/// The models that are named must pass while nothing is planted, and every text must be there once.
fn check(tree: &Tree, chosen: &[&Mutant]) -> Result<(), String> {
    for mutant in chosen {
        for edit in mutant.edits {
            tree.planted(edit).map_err(|fault| format!("{}: {fault}", mutant.name))?;
        }
    }
    let models: std::collections::BTreeSet<_> = chosen.iter().map(|mutant| mutant.model).collect();
    let program = tree.build()?;
    for model in models {
        match tree.run(&program, model, LIMIT)? {
            Outcome::Passed => println!("passes unplanted: {model}"),
            outcome => return Err(format!("{model} does not pass without a mutant: {outcome:?}")),
        }
    }
    Ok(())
}

fn is_caught(tree: &Tree, mutant: &Mutant) -> Result<bool, String> {
    let named = |fault| format!("{}: {fault}", mutant.name);
    let planted = tree.plant(mutant.edits).map_err(named)?;
    let program = tree.build().map_err(named)?;
    let outcome = tree.run(&program, mutant.model, LIMIT).map_err(named)?;
    drop(planted);
    let caught = outcome == Outcome::Failed || outcome == Outcome::TimedOut && mutant.hangs;
    if caught {
        println!("caught {} by {}", mutant.name, mutant.model);
    } else {
        println!("SURVIVED {} ({}: {outcome:?})", mutant.name, mutant.model);
    }
    Ok(caught)
}
