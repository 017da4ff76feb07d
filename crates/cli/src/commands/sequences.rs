//! `idmill create`, `show`, `set`, `revoke` and `remove`: commands for one sequence.

use idmill::store::{Change, SequenceInfo, Store, not_found};
use idmill::{ErrorKind, Operation};
use serde_json::json;

use super::{forget, inspect};
use crate::args::{Create, Global, Named, Remove, Revoke, Set};
use crate::error::{CliError, Outcome, quoted, set_command};
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
    let store = opening::existing(global, args.within.timeout).await?;
    let before = inspect(&*store, &args.name).await?;
    repetition(args, change, &before)?;
    changed(global, &*store, before, change, args.dry_run).await
}

const DRY_RUN: &str = "dry run: no change was made";

/// Rejects `--backwards` without `--yes` if ids could repeat, at once or after a later change of max, and
/// reports these ids.
fn repetition(args: &Set, change: Change, before: &SequenceInfo) -> Outcome {
    let mut after = before.clone();
    // The store rejects a change that cannot be applied.
    let is_refused = after.apply(&change).is_err();
    let (first, last) = (after.reached(), before.reached().saturating_sub(1));
    if is_refused || args.yes || args.dry_run || first > last {
        return Ok(());
    }
    let message = format!("`{}` was reserved up to {last}: ids {first} to {last} could repeat", args.name);
    let command = set_command(&args.name, args.next, args.max);
    let hint = format!("if none of these ids is in use, run `{command} --backwards --yes`");
    Err(CliError::refused(message).hint(hint))
}

/// Makes every process drop its ids in memory.
pub(super) async fn revoke(global: &Global, args: &Revoke) -> Outcome {
    let store = opening::existing(global, args.within.timeout).await?;
    let before = inspect(&*store, &args.name).await?;
    changed(global, &*store, before, Change::new().revoke(true), args.dry_run).await
}

/// Changes a sequence, and prints it before and after.
async fn changed(
    global: &Global,
    store: &dyn Store,
    before: SequenceInfo,
    change: Change,
    dry_run: bool,
) -> Outcome {
    let mut after = before.clone();
    if dry_run {
        after.apply(&change)?;
        output::note(global.json, DRY_RUN);
    } else {
        // Change only the sequence that was read, and not a sequence that has replaced it since then.
        after = store.set(&before.name, change.expect(before.identity)).await?;
    }
    let (before, after) = (Sequence::from(&before), Sequence::from(&after));
    let both = json!({ "before": before, "after": after });
    output::result(global.json, &both, |_| output::change(&before, &after))
}

/// Removes a sequence with `--yes`; otherwise explains the consequences.
pub(super) async fn remove(global: &Global, args: &Remove) -> Outcome {
    if args.forget && opening::url(global)?.guard().is_none() {
        let message = "`--forget` requires a guard, and none is set";
        return Err(CliError::usage(message).hint("set `--guard` or `IDMILL_GUARD`, or drop `--forget`"));
    }
    let store = opening::existing(global, args.within.timeout).await?;
    remove_from(&*store, global, args).await
}

async fn remove_from(store: &dyn Store, global: &Global, args: &Remove) -> Outcome {
    let found = match inspect(store, &args.name).await {
        Err(absent) if absent.is(ErrorKind::NotFound) && args.yes && !args.dry_run => {
            return tell_the_witness(global, store, args, absent).await;
        }
        outcome => outcome?,
    };
    if args.dry_run {
        output::note(global.json, DRY_RUN);
        return removed(global, &found);
    }
    if !args.yes {
        return Err(unsure(global, &found)?);
    }
    // Remove only the sequence that was read, and not a sequence that has replaced it since then.
    let was_there = store.remove(&args.name, Some(found.identity)).await?;
    forget_if_asked(global, store, args).await?;
    if !was_there {
        return Err(not_found(&args.name).during(Operation::Remove).into());
    }
    removed(global, &found)
}

fn removed(global: &Global, found: &SequenceInfo) -> Outcome {
    let removed = Sequence::from(found);
    let human = |_: &_| format!("removed\n{}", output::sequence(&removed));
    output::result(global.json, &json!({ "removed": removed }), human)
}

/// Removes a sequence that only the witness has, because the store was emptied. Afterwards, a new sequence
/// of this name can be created.
async fn tell_the_witness(global: &Global, store: &dyn Store, args: &Remove, absent: CliError) -> Outcome {
    let name = &args.name;
    let Some(witness) = opening::url(global)?.witness(store).await? else { return Err(absent) };
    let Some(ledger) = witness.read(name).await? else { return Err(absent) };
    // A sequence that was created since then has another identity, and is not removed.
    store.remove(name, Some(ledger.identity)).await?;
    forget_if_asked(global, store, args).await?;
    let told = format!("the store has no `{name}`; the witness now allows a new sequence with this name");
    output::note(global.json, &told);
    output::result(global.json, &json!({ "removed": null }), |_| String::new())
}

/// Updates the witness if `--forget` is set, so that the next sequence of this name can start anywhere.
async fn forget_if_asked(global: &Global, store: &dyn Store, args: &Remove) -> Outcome {
    if args.forget {
        forget(store, &opening::url(global)?, &args.name).await?;
    }
    Ok(())
}

/// Returns an error that explains the consequences of the removal.
fn unsure(global: &Global, found: &SequenceInfo) -> Outcome<CliError> {
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
    Ok(CliError::refused(message).hint(format!("`idmill remove {} --yes` removes it", quoted(name))))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use idmill::store::{Bounds, MemoryStore, Reserve};
    use idmill_guard::{FileWitness, Guarded, Witness as _};
    use idmill_testing::replaced::Replaced;

    use super::*;
    use crate::args::{Cli, Command};

    async fn removed(store: &dyn Store, flags: &[&str]) -> Outcome {
        let cli = Cli::parse_from([&["idmill", "remove", "s"], flags].concat());
        let Command::Remove(args) = cli.command else { unreachable!("the command is `remove`") };
        remove_from(store, &cli.global, &args).await
    }

    #[tokio::test]
    async fn remove_spares_a_sequence_created_since_the_read() {
        let (memory, name) = (MemoryStore::new(), "s".parse().unwrap());
        memory.create(&name, Bounds::of::<u64>()).await.unwrap();
        let error = removed(&Replaced(memory.clone()), &["--yes"]).await.unwrap_err();
        assert!(error.is(ErrorKind::Conflict), "{error:?}");
        assert!(memory.inspect(&name).await.unwrap().is_some());
    }

    /// The store was emptied, and another process creates the sequence while its removal is written to the
    /// witness.
    #[tokio::test]
    async fn told_removal_spares_a_sequence_created_since() {
        let (place, memory, name) = (tempfile::tempdir().unwrap(), MemoryStore::new(), "s".parse().unwrap());
        let file = place.path().join("w");
        let guard = format!("file:{}", file.display());
        let guarded = Guarded::new(memory.clone(), FileWitness::open(&file).unwrap());
        guarded.reserve(&Reserve::new("s".parse().unwrap(), 5).create(Bounds::of::<u64>())).await.unwrap();
        memory.remove(&name, None).await.unwrap();
        let guarded = Guarded::new(Replaced(memory.clone()), FileWitness::open(&file).unwrap());
        let error = removed(&guarded, &["--yes", "--store", "memory:", "--guard", &guard]).await.unwrap_err();
        assert!(error.is(ErrorKind::Conflict), "{error:?}");
        assert!(memory.inspect(&name).await.unwrap().is_some());
    }

    /// The store was emptied, and only the witness has the sequence.
    #[tokio::test]
    async fn witness_is_told_of_a_removal_only_with_yes() {
        let (place, memory, name) = (tempfile::tempdir().unwrap(), MemoryStore::new(), "s".parse().unwrap());
        let file = place.path().join("w");
        let guard = format!("file:{}", file.display());
        let witness = FileWitness::open(&file).unwrap();
        let guarded = Guarded::new(memory.clone(), witness.clone());
        guarded.reserve(&Reserve::new("s".parse().unwrap(), 5).create(Bounds::of::<u64>())).await.unwrap();
        memory.remove(&name, None).await.unwrap();
        let before = witness.read(&name).await.unwrap();
        for flags in [&[][..], &["--dry-run"], &["--yes", "--dry-run"], &["--dry-run", "--forget"]] {
            let flags = [flags, &["--store", "memory:", "--guard", &guard]].concat();
            let error = removed(&guarded, &flags).await.unwrap_err();
            assert!(error.is(ErrorKind::NotFound), "{flags:?}: {error:?}");
            assert_eq!(witness.read(&name).await.unwrap(), before, "{flags:?}");
        }
        removed(&guarded, &["--yes", "--store", "memory:", "--guard", &guard]).await.unwrap();
        assert!(witness.read(&name).await.unwrap().unwrap().is_removed());
    }
}
