//! `idmill serve` and `idmill token`, where the server was not built in.

use std::future::{Ready, ready};

use crate::args::{Global, Serve, Token};
use crate::failure::{Failure, Outcome};

pub(super) fn run(_global: &Global, _args: Serve) -> Ready<Outcome> {
    ready(Err(absent()))
}

pub(super) fn token(_global: &Global, _args: &Token) -> Outcome {
    Err(absent())
}

fn absent() -> Failure {
    Failure::usage("this `idmill` was built without its server")
        .hint("build it with `--features serve`, or with `full`")
}
