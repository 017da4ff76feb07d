//! `idmill set`: moves a sequence, forwards unless told otherwise.

use idmill::SequenceName;
use idmill::store::Change;
use serde::Serialize;

use super::inspect;
use crate::args::{Global, Set};
use crate::failure::Outcome;
use crate::opening;
use crate::output::{self, Sequence};

#[derive(Serialize)]
struct Changed {
    before: Sequence,
    after: Sequence,
}

pub(super) async fn run(global: &Global, args: &Set) -> Outcome {
    changed(global, &args.name, Change::new().next(args.next).max(args.max).backwards(args.backwards)).await
}

/// Changes a sequence, and prints it before and after.
pub(super) async fn changed(global: &Global, name: &SequenceName, change: Change) -> Outcome {
    let store = opening::existing(global).await?;
    let before = inspect(&*store, name).await?;
    // The command means the sequence that was shown, not one created in its place since then.
    let after = Sequence::from(&store.set(name, change.expect(before.identity)).await?);
    let before = Sequence::from(&before);
    if global.json {
        output::print_json(&Changed { before, after })
    } else {
        output::print(&output::change(&before, &after))
    }
}
