//! `idmill show`: one sequence.

use super::inspect;
use crate::args::{Global, Show};
use crate::failure::Outcome;
use crate::opening;
use crate::output::{self, Sequence};

pub(super) async fn run(global: &Global, args: &Show) -> Outcome {
    let store = opening::existing(global).await?;
    let found = Sequence::from(&inspect(&*store, &args.name).await?);
    if global.json { output::print_json(&found) } else { output::print(&output::sequence(&found)) }
}
