//! `idmill remove`: takes a sequence out of its store, if that is really meant.

use idmill::store::{SequenceInfo, Store, not_found};
use idmill::{ErrorKind, SequenceName};
use serde::Serialize;

use super::inspect;
use crate::args::{Global, Remove};
use crate::failure::{Failure, Outcome, quoted};
use crate::opening;
use crate::output::{self, Sequence};

#[derive(Serialize)]
struct Removed {
    /// `null` where the store had none, and the witness was told alone.
    removed: Option<Sequence>,
}

pub(super) async fn run(global: &Global, args: &Remove) -> Outcome {
    let store = opening::existing(global).await?;
    let found = match inspect(&*store, &args.name).await {
        Err(absent) if absent.is(ErrorKind::NotFound) && args.yes => {
            return tell_the_witness(global, &*store, &args.name, absent).await;
        }
        outcome => outcome?,
    };
    let removed = Sequence::from(&found);
    if !args.yes {
        return Err(unsure(&found));
    }
    if !store.remove(&args.name).await? {
        return Err(not_found(&args.name).during(idmill::Operation::Remove).into());
    }
    if global.json {
        output::print_json(&Removed { removed: Some(removed) })
    } else {
        output::print(&format!("removed\n{}", output::sequence(&removed)))
    }
}

/// Of a store that was emptied, the witness alone knows the sequence: it is told that another may follow.
async fn tell_the_witness(
    global: &Global,
    store: &dyn Store,
    name: &SequenceName,
    absent: Failure,
) -> Outcome {
    let Some(witness) = opening::witness(&opening::url(global)?).await? else { return Err(absent) };
    if witness.read(name).await?.is_none() {
        return Err(absent);
    }
    store.remove(name).await?;
    output::note(
        global.json,
        &format!("the store has no `{name}`; the witness was told that another may follow"),
    );
    if global.json { output::print_json(&Removed { removed: None }) } else { Ok(()) }
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
