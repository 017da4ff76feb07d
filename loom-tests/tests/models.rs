//! Runs all models, or the models whose names contain an argument.

use std::process::ExitCode;

fn main() -> ExitCode {
    loom_tests::main()
}
