//! Runs models by name and prints the results in libtest's format, which the checks in `ci/` parse.

use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use crate::models::MODELS;

/// A model's name, prefixed with its file's, and the function to run.
pub(crate) type Model = (&'static str, fn());

/// Lists the functions of a file that are models.
macro_rules! models {
    ($($name:ident),* $(,)?) => {
        pub(super) const MODELS: &[crate::harness::Model] = &[$((concat!(module_path!(), "::", stringify!($name)), $name)),*];
    };
}
pub(crate) use models;

/// Runs the models whose names contain one of the arguments, or equal it with `--exact`. Runs all models if
/// there are no arguments. `--list` prints the names. Other options of libtest are ignored.
pub fn main() -> ExitCode {
    let (options, names): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with('-'));
    let given = |option: &str| options.iter().any(|given| given == option);
    let wanted = |model: &str| {
        names.is_empty()
            || names
                .iter()
                .any(|name| if given("--exact") { model == name } else { model.contains(name.as_str()) })
    };
    let chosen: Vec<_> = all().filter(|(name, _)| wanted(name)).collect();
    if given("--list") {
        for (name, _) in &chosen {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    run(&chosen, all().count())
}

fn all() -> impl Iterator<Item = (&'static str, fn())> {
    let short = |name: &'static str| name.strip_prefix("loom_tests::models::").unwrap_or(name);
    MODELS.iter().copied().flatten().map(move |(name, model)| (short(name), *model))
}

fn run(chosen: &[(&'static str, fn())], known: usize) -> ExitCode {
    println!("\nrunning {} tests", chosen.len());
    let failed: Vec<_> = chosen.iter().filter(|(name, model)| !passes(name, *model)).collect();
    let result = if failed.is_empty() && !chosen.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {result}. {} passed; {} failed; 0 ignored; 0 measured; {} filtered out",
        chosen.len() - failed.len(),
        failed.len(),
        known - chosen.len()
    );
    if result == "ok" { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a model on its own thread: loom keeps its exploration state in thread-locals, and a panic leaves this
/// state to the next model on the thread.
fn passes(name: &str, model: fn()) -> bool {
    println!("test {name} ...");
    let begun = Instant::now();
    let passed =
        thread::Builder::new().name(name.to_owned()).spawn(model).is_ok_and(|run| run.join().is_ok());
    let outcome = if passed { "ok" } else { "FAILED" };
    println!("test {name} ... {outcome} ({:.1} s)", begun.elapsed().as_secs_f64());
    passed
}
