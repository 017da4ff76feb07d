//! `idmill create`, `show`, `set`, `revoke` and `remove`: commands for one sequence.

use idmill::store::{Change, SequenceInfo, Store, not_found};
use idmill::{ErrorKind, Operation, SequenceName};
use idmill_guard as guard;
use serde_json::json;

use super::inspect;
use crate::args::{Create, Global, Named, Remove, Set, Within};
use crate::failure::{Failure, Outcome, quoted, set_command};
use crate::opening;
use crate::output::{self, Sequence};

pub(super) async fn create(global: &Global, args: &Create) -> Outcome {
    let bounds = args.bounds.check()?;
    let store = opening::create(global, args.within.timeout).await?;
    let info = match store.create(&args.name, bounds).await {
        Err(error) if args.if_not_exists && error.kind() == ErrorKind::AlreadyExists => {
            let found = inspect(&*store, &args.name).await?;
            args.bounds.accept(&found)?;
            found
        }
        outcome => outcome?,
    };
    output::result(global.json, &Sequence::from(&info), output::sequence)
}

pub(super) async fn show(global: &Global, args: &Named) -> Outcome {
    let store = opening::existing(global, args.within.timeout).await?;
    let found = Sequence::from(&inspect(&*store, &args.name).await?);
    output::result(global.json, &found, output::sequence)
}

pub(super) async fn set(global: &Global, args: &Set) -> Outcome {
    let change = Change::new().next(args.next).max(args.max).backwards(args.backwards);
    changed(global, &args.name, args.within, change, |before| repetition(args, change, before)).await
}

/// Rejects `--backwards` without `--yes` if ids could repeat, at once or after a later change of max, and
/// reports these ids.
fn repetition(args: &Set, change: Change, before: &SequenceInfo) -> Outcome {
    let mut after = before.clone();
    // The store rejects a change that cannot be applied.
    let is_refused = after.apply(&change).is_err();
    let (first, last) = (after.reached(), before.reached().saturating_sub(1));
    if is_refused || args.yes || first > last {
        return Ok(());
    }
    let message = format!("`{}` was reserved up to {last}: ids {first} to {last} could repeat", args.name);
    let command = set_command(&args.name, args.next, args.max);
    let hint = format!("if none of these ids is in use, run `{command} --backwards --yes`");
    Err(Failure::refused(message).hint(hint))
}

/// Makes every process drop its ids in memory.
pub(super) async fn revoke(global: &Global, args: &Named) -> Outcome {
    changed(global, &args.name, args.within, Change::new().revoke(true), |_| Ok(())).await
}

/// Changes a sequence if `allowed` accepts its state, and prints it before and after.
async fn changed(
    global: &Global,
    name: &SequenceName,
    within: Within,
    change: Change,
    allowed: impl Fn(&SequenceInfo) -> Outcome,
) -> Outcome {
    let store = opening::existing(global, within.timeout).await?;
    let before = inspect(&*store, name).await?;
    allowed(&before)?;
    // Change only the sequence that was read, and not a sequence that has replaced it since then.
    let after = Sequence::from(&store.set(name, change.expect(before.identity)).await?);
    let before = Sequence::from(&before);
    let both = json!({ "before": before, "after": after });
    output::result(global.json, &both, |_| output::change(&before, &after))
}

/// Removes a sequence with `--yes`; otherwise explains the consequences.
pub(super) async fn remove(global: &Global, args: &Remove) -> Outcome {
    if args.forget && opening::url(global)?.guard().is_none() {
        let message = "`--forget` requires a guard, and none is set";
        return Err(Failure::usage(message).hint("set `--guard` or `IDMILL_GUARD`, or drop `--forget`"));
    }
    let store = opening::existing(global, args.within.timeout).await?;
    let found = match inspect(&*store, &args.name).await {
        Err(absent) if absent.is(ErrorKind::NotFound) && args.yes => {
            return tell_the_witness(global, &*store, args, absent).await;
        }
        outcome => outcome?,
    };
    if !args.yes {
        return Err(unsure(global, &found)?);
    }
    let was_there = store.remove(&args.name).await?;
    forget(global, &*store, args).await?;
    if !was_there {
        return Err(not_found(&args.name).during(Operation::Remove).into());
    }
    let removed = Sequence::from(&found);
    let human = |_: &_| format!("removed\n{}", output::sequence(&removed));
    output::result(global.json, &json!({ "removed": removed }), human)
}

/// Removes a sequence that only the witness has, because the store was emptied. Afterwards, a new sequence
/// of this name can be created.
async fn tell_the_witness(global: &Global, store: &dyn Store, args: &Remove, absent: Failure) -> Outcome {
    let name = &args.name;
    let Some(witness) = opening::url(global)?.witness(store).await? else { return Err(absent) };
    if witness.read(name).await?.is_none() {
        return Err(absent);
    }
    store.remove(name).await?;
    forget(global, store, args).await?;
    let told = format!("the store has no `{name}`; the witness now allows a new sequence with this name");
    output::note(global.json, &told);
    output::result(global.json, &json!({ "removed": null }), |_| String::new())
}

/// Updates the witness if `--forget` is set, so that the next sequence of this name can start anywhere.
async fn forget(global: &Global, store: &dyn Store, args: &Remove) -> Outcome {
    if args.forget
        && let Some(witness) = opening::url(global)?.witness(store).await?
    {
        guard::forget(&*witness, &args.name).await?;
    }
    Ok(())
}

/// Returns an error that explains the consequences of the removal.
fn unsure(global: &Global, found: &SequenceInfo) -> Outcome<Failure> {
    let is_unused = found.next == Some(found.bounds.start());
    let reserved = match found.next {
        None => "all of its ids are reserved".to_owned(),
        Some(_) if is_unused => "none of its ids are reserved".to_owned(),
        Some(next) => format!("its ids before {next} are reserved"),
    };
    let name = &found.name;
    let then = match opening::url(global)?.guard() {
        Some(_) => ", and without `--forget`, a new sequence with this name starts above the claimed ids",
        None if is_unused => "",
        None => ", and a new sequence with this name may repeat reserved ids",
    };
    let message = format!("removing `{name}` needs `--yes`: {reserved}{then}");
    Ok(Failure::refused(message).hint(format!("`idmill remove {} --yes` removes it", quoted(name))))
}
