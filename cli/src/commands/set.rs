//! `idmill set`: moves a sequence, forwards unless told otherwise.

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
    let store = opening::existing(global).await?;
    let before = inspect(&*store, &args.name).await?;
    // The command means the sequence that was shown, not one created in its place since then.
    let expect = Some(before.identity);
    let change = Change::new().next(args.next).max(args.max).backwards(args.backwards).expect(expect);
    let after = Sequence::from(&store.set(&args.name, change).await?);
    let before = Sequence::from(&before);
    if global.json {
        output::print_json(&Changed { before, after })
    } else {
        output::print(&output::change(&before, &after))
    }
}
