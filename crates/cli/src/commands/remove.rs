//! `idmill remove`: takes a sequence out of its store, if that is really meant.

use idmill::ErrorKind;
use idmill::store::{SequenceInfo, Store, not_found};
use idmill_guard as guard;
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
    if args.forget && opening::url(global)?.guard().is_none() {
        let message = "--forget is about what a witness knows, and there is no guard";
        return Err(Failure::usage(message).hint("name the guard with --guard, or leave --forget out"));
    }
    let store = opening::existing(global).await?;
    let found = match inspect(&*store, &args.name).await {
        Err(absent) if absent.is(ErrorKind::NotFound) && args.yes => {
            return tell_the_witness(global, &*store, args, absent).await;
        }
        outcome => outcome?,
    };
    let removed = Sequence::from(&found);
    if !args.yes {
        return Err(unsure(global, &found)?);
    }
    let was_there = store.remove(&args.name).await?;
    forget(global, args).await?;
    if !was_there {
        return Err(not_found(&args.name).during(idmill::Operation::Remove).into());
    }
    if global.json {
        output::print_json(&Removed { removed: Some(removed) })
    } else {
        output::print(&format!("removed\n{}", output::sequence(&removed)))
    }
}

/// Of a store that was emptied, the witness alone knows the sequence: it is told that another may follow.
async fn tell_the_witness(global: &Global, store: &dyn Store, args: &Remove, absent: Failure) -> Outcome {
    let name = &args.name;
    let Some(witness) = opening::witness(&opening::url(global)?).await? else { return Err(absent) };
    if witness.read(name).await?.is_none() {
        return Err(absent);
    }
    store.remove(name).await?;
    forget(global, args).await?;
    output::note(
        global.json,
        &format!("the store has no `{name}`; the witness was told that another may follow"),
    );
    if global.json { output::print_json(&Removed { removed: None }) } else { Ok(()) }
}

/// With `--forget`, the next sequence of this name may start anywhere.
async fn forget(global: &Global, args: &Remove) -> Outcome {
    if args.forget
        && let Some(witness) = opening::witness(&opening::url(global)?).await?
    {
        guard::forget(&*witness, &args.name).await?;
    }
    Ok(())
}

/// What removing would mean, in place of doing it.
fn unsure(global: &Global, found: &SequenceInfo) -> Outcome<Failure> {
    let reserved = match found.next {
        None => "all its ids are reserved".to_owned(),
        Some(next) if next == found.bounds.start() => "none of its ids is reserved".to_owned(),
        Some(next) => format!("its ids before {next} are reserved"),
    };
    let name = &found.name;
    let then = match opening::url(global)?.guard() {
        Some(_) => "a sequence created later under this name starts above them",
        None => "a sequence created later under this name repeats them",
    };
    let message = format!("remove `{name}`: not without --yes; {reserved}, and {then}");
    Ok(Failure::refused(message).hint(format!("`idmill remove {} --yes` removes it", quoted(name))))
}
