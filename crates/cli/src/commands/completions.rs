//! `idmill completions`: what a shell needs to complete command lines.

use clap::CommandFactory;

use crate::args::{Cli, Completions};
use crate::failure::Outcome;
use crate::output;

pub(super) fn run(args: &Completions) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "idmill", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
