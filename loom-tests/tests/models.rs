//! Runs the models: all of them, or those whose name contains an argument.

use std::process::ExitCode;

fn main() -> ExitCode {
    loom_tests::main()
}
