//! `idmill remove`: takes a sequence out of its store, if that is really meant.

use idmill::store::{SequenceInfo, not_found};
use serde::Serialize;

use super::inspect;
use crate::args::{Global, Remove};
use crate::failure::{Failure, Outcome, quoted};
use crate::opening;
use crate::output::{self, Sequence};

#[derive(Serialize)]
struct Removed {
    removed: Sequence,
}

pub(super) async fn run(global: &Global, args: &Remove) -> Outcome {
    let store = opening::existing(global).await?;
    let found = inspect(&*store, &args.name).await?;
    let removed = Sequence::from(&found);
    if !args.yes {
        return Err(unsure(&found));
    }
    if !store.remove(&args.name).await? {
        return Err(not_found(&args.name).during(idmill::Operation::Remove).into());
    }
    if global.json {
        output::print_json(&Removed { removed })
    } else {
        output::print(&format!("removed\n{}", output::sequence(&removed)))
    }
}

/// What removing would mean, in place of doing it.
fn unsure(found: &SequenceInfo) -> Failure {
    let reserved = match found.next {
        None => "all its ids are reserved".to_owned(),
        Some(next) if next == found.bounds.start() => "none of its ids is reserved".to_owned(),
        Some(next) => format!("its ids before {next} are reserved"),
    };
    let name = &found.name;
    let message = format!(
        "remove `{name}`: not without --yes; {reserved}, and a sequence created later under this name repeats them"
    );
    Failure::refused(message).hint(format!("`idmill remove {} --yes` removes it", quoted(name)))
}
