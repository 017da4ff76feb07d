//! The rules that turn observations into findings. The rules access neither a store nor a clock.

use std::time::Duration;

use super::ColumnUrl;
use super::finding::{Finding, FindingKind, Remedy, Severity};
use idmill::SequenceName;
use idmill::store::{Bounds, Durability, SequenceInfo, Unreadable};
use idmill::{Error, ErrorKind, Operation, Status};
use idmill_guard::{Announced, Ledger};
use idmill_kit::{Largest, chain};

/// Creates a finding about a sequence.
fn about(
    name: &SequenceName,
    kind: FindingKind,
    asked: impl Into<String>,
    found: impl Into<String>,
    remedy: Remedy,
) -> Finding {
    Finding::new(kind, name.to_string(), asked, found, remedy)
}

/// The columns that hold the ids of a sequence, and the configured type of the ids.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    pub(super) columns: Vec<(ColumnUrl, Largest)>,
    pub(super) of_type: Option<(String, u64)>,
}

impl Holders {
    /// Returns the largest id in all columns. `reached` is as in [`Largest::as_id`].
    fn largest(&self, reached: u128) -> Option<u128> {
        self.columns.iter().filter_map(|(_, largest)| largest.as_id(reached)).max()
    }

    /// Returns the id above the largest one in all columns; 0 without ids.
    fn above(&self, reached: u128) -> u128 {
        self.largest(reached).map_or(0, |id| id + 1)
    }

    /// Returns the largest id that fits all columns and the type.
    fn hold(&self) -> Option<u64> {
        let columns = self.columns.iter().filter_map(|(_, largest)| largest.holds);
        columns.chain(self.of_type.as_ref().map(|(_, holds)| *holds)).min()
    }
}

/// Returns all findings about the sequence that its columns yield.
pub(super) fn of_columns(stored: &SequenceInfo, holders: &Holders) -> Vec<Finding> {
    let of_column = |(column, largest): &(ColumnUrl, Largest)| {
        // No counter reaches 2^63 in practice, so a column that holds 2^63 - 1 is never too narrow.
        let holds = largest.holds.filter(|holds| *holds < u64::MAX >> 1);
        let narrow =
            holds.and_then(|holds| too_narrow(stored, &format!("{column} ({})", largest.of_type), holds));
        [in_use(stored, column, largest, holders), wrapped(stored, column, largest), narrow]
    };
    holders.columns.iter().flat_map(of_column).flatten().collect()
}

/// Returns the findings about a column itself: rows that are hidden, and a default that assigns other ids.
pub(super) fn of_column(name: &SequenceName, column: &ColumnUrl, largest: &Largest) -> Vec<Finding> {
    let asked = || format!("the largest id in {column}");
    let incomplete = largest.hidden_by.as_ref().map(|why| {
        let remedy =
            Remedy::advice("name the table itself, and connect as a role that can read all its rows");
        about(name, FindingKind::Incomplete, asked(), format!("{why}: a larger id may be hidden"), remedy)
    });
    let default = largest.default.as_ref().map(|default| {
        let found = format!("new rows without an id get {default}: ids will repeat");
        let remedy = Remedy::advice("insert only ids from idmill, and drop the default of the column");
        about(name, FindingKind::ColumnDefault, asked(), found, remedy)
    });
    incomplete.into_iter().chain(default).collect()
}

/// Reports negative values in a column of a sequence that could hand out ids above 2^63, but has not reached
/// them. A signed column stores such ids as negative values.
fn wrapped(stored: &SequenceInfo, column: &ColumnUrl, largest: &Largest) -> Option<Finding> {
    let signed = i64::MAX.unsigned_abs();
    let negative = largest.negative.filter(|_| stored.bounds.max() > signed)?;
    let id = i64::try_from(negative).ok()?.cast_unsigned();
    (stored.reached() <= u128::from(signed) + 1).then(|| {
        let found = format!("{negative} would be the id {id}, but {}", next(stored));
        let remedy = Remedy::advice(
            "if these are ids, the store went back: raise next; otherwise set max to 2^63 - 1 (`idmill set --max`)",
        );
        let asked = format!("negative ids in {column}");
        about(&stored.name, FindingKind::Incomplete, asked, found, remedy)
    })
}

/// Reports a column with ids that are still to be handed out. The column was read first, so the ids in it
/// from this sequence are already reserved when the sequence is read.
fn in_use(
    stored: &SequenceInfo,
    column: &ColumnUrl,
    largest: &Largest,
    holders: &Holders,
) -> Option<Finding> {
    let largest = largest.as_id(stored.reached())?;
    // An exhausted sequence hands out no more ids.
    if stored.next.is_none_or(|next| largest < u128::from(next)) {
        return None;
    }
    let found = format!("{largest} is in use, and {}: ids will repeat", next(stored));
    let asked = format!("the largest id in {column}");
    let remedy = match u64::try_from(largest) {
        Ok(largest) if largest < stored.bounds.max() => raise(stored, largest + 1),
        _ => widen(stored, holders),
    };
    Some(about(&stored.name, FindingKind::InUse, asked, found, remedy))
}

/// Raises next and max above the ids in use, up to the limit of the narrowest column or type. Without a
/// column, there is no command, because ids above max may be in use.
fn widen(stored: &SequenceInfo, holders: &Holders) -> Remedy {
    if holders.columns.is_empty() {
        return Remedy::advice(format!(
            "set `--check` to find the largest id; then `idmill set {} --next N --max MAX`, with N above it",
            stored.name
        ));
    }
    let (largest, max) = (holders.largest(stored.reached()), stored.bounds.max());
    let Some(used) = largest.map_or(Some(max), |largest| u64::try_from(largest.max(max.into())).ok()) else {
        return Remedy::advice(
            "no sequence can exceed 2^64 - 1: check the column's name, and find the program that wrote the \
             id",
        );
    };
    match holders.hold() {
        Some(holds) if holds <= used => Remedy::advice(format!(
            "the column or type holds ids up to {holds}: widen it first, then raise max"
        )),
        holds => match holds.or_else(|| wider(used)) {
            Some(max) => {
                let next = largest.filter(|largest| *largest >= stored.reached()).map(|_| used + 1);
                Remedy::SetMax { name: stored.name.clone(), next, max }
            }
            None => Remedy::advice(
                "no id can exceed 2^64 - 1: start another sequence, with ids that cannot be confused with \
                 the old ones",
            ),
        },
    }
}

fn raise(stored: &SequenceInfo, next: u64) -> Remedy {
    Remedy::Raise { name: stored.name.clone(), identity: stored.identity, next }
}

/// Compares a ledger with the sequence of the same name. The sequence was read after the ledger.
pub(super) fn against(
    name: &SequenceName,
    ledger: &Ledger,
    stored: Option<&SequenceInfo>,
    holders: &Holders,
) -> Option<Finding> {
    let asked = OF_WITNESS;
    if ledger.is_removed() && stored.is_none_or(|stored| stored.identity != ledger.identity) {
        return stored.and_then(|stored| below_removed(ledger, stored, holders));
    }
    let Some(stored) = stored else {
        if ledger.announced == Some(Announced::Removing) {
            return pending(name, ledger);
        }
        let found = format!(
            "ids below {} were claimed, but the sequence is missing: the store was emptied, restored or \
             replaced",
            ledger.top()
        );
        let remedy = recreate(name, ledger.top().max(holders.above(0)), None, holders);
        return Some(about(name, FindingKind::Missing, asked, found, remedy));
    };
    let (known, here) = (ledger.identity, stored.identity);
    if known.incarnation != here.incarnation {
        let found = format!(
            "ids below {} of incarnation {:016x} were claimed; the store has {:016x}: it was emptied, \
             restored or replaced",
            ledger.top(),
            known.incarnation,
            here.incarnation
        );
        // Processes without the guard may have drawn from the sequence that the command removes.
        let next = ledger.top().max(stored.reached()).max(holders.above(stored.reached()));
        let remedy = recreate(name, next, Some(stored.bounds), holders);
        return Some(about(name, FindingKind::Replaced, asked, found, remedy));
    }
    if known.epoch > here.epoch {
        let found = format!(
            "the sequence was reset to epoch {}, but the store has epoch {}",
            known.epoch, here.epoch
        );
        let remedy =
            Remedy::advice("restore a later backup, or reset the sequence again: see `idmill set --help`");
        return Some(about(name, FindingKind::BehindReset, asked, found, remedy));
    }
    // Otherwise, the next guarded draw completes the raise.
    let is_raised = ledger.announced == Some(Announced::Raising);
    // The store has a reset that is not confirmed.
    let is_reset = known.epoch < here.epoch
        && matches!(ledger.announced, Some(Announced::Resetting { start }) if start == stored.reached());
    let went_back = (ledger.top() > stored.reached() && !is_raised && !is_reset).then(|| {
        let found = format!(
            "ids below {} were claimed, but {}: the store went back in time",
            ledger.top(),
            next(stored)
        );
        // A larger id than max is another finding: the sequence must not end because of it.
        let used = Some(holders.above(stored.reached())).filter(|used| *used <= stored.bounds.max().into());
        let top = ledger.top().max(used.unwrap_or(0));
        about(name, FindingKind::WentBack, asked, found, raise_to(stored, top))
    });
    went_back.or_else(|| pending(name, ledger))
}

/// Reports a sequence below the claims of the removed sequence whose name it has. A guarded draw raises it.
/// If it ends below the claims, it cannot hand out any id.
fn below_removed(ledger: &Ledger, stored: &SequenceInfo, holders: &Holders) -> Option<Finding> {
    let (top, max) = (ledger.top(), stored.bounds.max());
    if ledger.announced != Some(Announced::Removed) || top <= stored.reached() {
        return None;
    }
    let used = format!("a removed sequence of this name used all ids below {top}");
    if top <= u128::from(max) {
        let found = format!("{used}, but {}: draws without the guard repeat ids", next(stored));
        let remedy = raise_to(stored, top.max(holders.above(stored.reached())));
        return Some(about(&stored.name, FindingKind::Recreated, OF_WITNESS, found, remedy));
    }
    let found = format!("{used}, but max is {max}: no id can be drawn");
    let remedy = Remedy::advice(format!(
        "raise max above {top} (`idmill set {} --max`); or, if no id is in use, remove the sequence with \
         `--forget`",
        stored.name
    ));
    Some(about(&stored.name, FindingKind::Exhausted, OF_WITNESS, found, remedy))
}

/// Reports a ledger that was written for a store at another place, if this store has another sequence of this
/// name or none.
pub(super) fn shared(
    name: &SequenceName,
    ledger: &Ledger,
    stored: Option<&SequenceInfo>,
    here: Option<&str>,
) -> Option<Finding> {
    let (known, here) = (ledger.store.as_deref()?, here?);
    let is_its = stored.is_some_and(|stored| stored.identity.incarnation == ledger.identity.incarnation);
    (known != here && !is_its && !ledger.is_removed()).then(|| {
        let found = format!("ids below {} were claimed for {known}, and this is {here}", ledger.top());
        let remedy =
            Remedy::advice("two stores need two witnesses; if one store was moved, restore its sequences");
        let finding = about(name, FindingKind::Shared, OF_WITNESS, found, remedy);
        let severity = if stored.is_some() { Severity::Error } else { finding.severity };
        Finding { severity, ..finding }
    })
}

/// Reports an announcement that the store has not confirmed. The announcement alone does not permit lower
/// ids: ids continue above all claims, or are rejected if the sequence is gone.
fn pending(name: &SequenceName, ledger: &Ledger) -> Option<Finding> {
    let (what, remedy) = match ledger.announced.filter(|announced| announced.is_pending())? {
        Announced::Resetting { start } => (
            format!("a reset to {start}"),
            format!(
                "if no id from {start} on is in use, repeat `idmill set {name} --next {start} --backwards --yes`; \
                 otherwise, do nothing"
            ),
        ),
        Announced::Raising => (
            format!("a raise to {}", ledger.top()),
            format!("repeat `idmill set {name} --next {}`, or draw an id with the guard", ledger.top()),
        ),
        _ => (
            "a removal".to_owned(),
            format!(
                "repeat `idmill remove {name} --yes`, or to keep the sequence, run `idmill revoke {name}`"
            ),
        ),
    };
    let found = format!("{what} was announced, but the store did not confirm it");
    Some(about(name, FindingKind::Pending, OF_WITNESS, found, Remedy::advice(remedy)))
}

/// Returns the remedy that raises the sequence to `top`, or to its end.
fn raise_to(stored: &SequenceInfo, top: u128) -> Remedy {
    let top = top.min(u128::from(stored.bounds.max()) + 1);
    u64::try_from(top).map_or_else(|_| used_up(), |top| raise(stored, top))
}

/// Reports a window that ends at `end`, above the grants of the store. The store was read after the window.
pub(super) fn behind_window(stored: &SequenceInfo, end: u128) -> Option<Finding> {
    (end > stored.reached()).then(|| {
        let found = format!(
            "ids below {end} were put into the window, but {}: the store went back in time",
            next(stored)
        );
        about(&stored.name, FindingKind::WentBack, "the window", found, raise_to(stored, end))
    })
}

fn used_up() -> Remedy {
    Remedy::advice(
        "all ids were claimed: use another sequence, and keep the guard, which prevents duplicates",
    )
}

/// Returns the remedy that creates a sequence again. The remedy keeps the bounds of the current sequence.
/// Without a current sequence, only the columns and types limit the bounds.
fn recreate(name: &SequenceName, top: u128, bounds: Option<Bounds>, holders: &Holders) -> Remedy {
    let Ok(next) = u64::try_from(top) else { return used_up() };
    let bounds = bounds.or_else(|| Bounds::new(1, holders.hold()?).ok());
    match bounds.filter(|bounds| next > bounds.max()) {
        None => Remedy::Recreate { name: name.clone(), next, bounds },
        Some(bounds) => Remedy::advice(format!(
            "the next id is {next}, but max is {}: restore the store, or raise max (`idmill set --max`)",
            bounds.max()
        )),
    }
}

/// Returns whether the sequence of the ledger has reserved ids above all claims.
pub(super) fn is_ahead(ledger: &Ledger, stored: &SequenceInfo) -> bool {
    ledger.announced.is_none() && stored.identity == ledger.identity && stored.reached() > ledger.top()
}

/// Reports reserved ids above all claims. The ledger must be unchanged, because a process claims its ids
/// just after the reserve.
pub(super) fn not_claimed(ledger: &Ledger, stored: &SequenceInfo) -> Option<Finding> {
    is_ahead(ledger, stored).then(|| {
        let (top, last) = (ledger.top(), stored.reached() - 1);
        let found = format!("ids {top} to {last} were reserved or skipped, but not claimed");
        let remedy = Remedy::advice(
            "set the guard in every process that draws; after `idmill set` or a crash, the next guarded \
             draw clears this finding",
        );
        let finding = about(&stored.name, FindingKind::Unguarded, OF_WITNESS, found, remedy);
        Finding { severity: Severity::Warning, ..finding }
    })
}

/// Reports a sequence whose ids are drawn without the guard.
pub(super) fn unguarded(stored: &SequenceInfo) -> Option<Finding> {
    let used = stored.next != Some(stored.bounds.start());
    used.then(|| {
        let found = format!("nothing was claimed, but {}", next(stored));
        let remedy = Remedy::advice("set the guard in every process that draws");
        about(&stored.name, FindingKind::Unguarded, OF_WITNESS, found, remedy)
    })
}

pub(super) fn exhausted(stored: &SequenceInfo, holders: &Holders) -> Option<Finding> {
    stored.next.is_none().then(|| {
        let max = stored.bounds.max();
        let more = match holders.largest(stored.reached()) {
            _ if holders.columns.is_empty() => "; no column was compared".to_owned(),
            Some(largest) if largest > u128::from(max) => format!(", and {largest} is in use"),
            _ => String::new(),
        };
        let found = format!("all ids up to max {max} are reserved{more}");
        let remedy = widen(stored, holders);
        about(&stored.name, FindingKind::Exhausted, "the ids that are left", found, remedy)
    })
}

/// Reports a sequence whose reserves the store rejects, with the error.
pub(super) fn refused(name: &SequenceName, error: &Error) -> Finding {
    let remedy = Remedy::advice(
        "compare the sequence with the ids in use (`--check`) or with the witness, then fix the error",
    );
    about(
        name,
        FindingKind::Refused,
        "whether the store accepts reserves of the sequence",
        error.to_string(),
        remedy,
    )
}

/// Returns the smallest of 2^31 - 1, 2^63 - 1 and 2^64 - 1 that is larger than `max`.
fn wider(max: u64) -> Option<u64> {
    [u64::from(u32::MAX >> 1), u64::MAX >> 1, u64::MAX].into_iter().find(|wider| *wider > max)
}

/// Returns the seconds until the sequence ends, at `rate` ids per second; `None` for a rate of 0.
pub(super) fn lasts(stored: &SequenceInfo, rate: f64) -> Option<f64> {
    (rate > 0.0).then(|| stored.remaining() as f64 / rate)
}

/// Reports a sequence that ends within this time, at `rate` ids per second.
pub(super) fn ends(stored: &SequenceInfo, rate: f64, within: Duration, holders: &Holders) -> Option<Finding> {
    let left = stored.remaining();
    let seconds = lasts(stored, rate)?;
    let soon = left > 0 && seconds <= within.as_secs_f64();
    soon.then(|| {
        let found = format!("{left} ids are left; they last {} at {rate:.1} per second", days(seconds));
        let remedy = widen(stored, holders);
        about(&stored.name, FindingKind::EndsSoon, "how long the ids last", found, remedy)
    })
}

/// Formats a time in seconds, minutes, hours or days.
fn days(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        ..7_200.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.0} h", seconds / 3_600.0),
        _ => format!("{:.1} days", seconds / 86_400.0),
    }
}

/// Reports a sequence that ends above the largest id of the type or column `of_type`.
pub(super) fn too_narrow(stored: &SequenceInfo, of_type: &str, holds: u64) -> Option<Finding> {
    let max = stored.bounds.max();
    (max > holds).then(|| {
        let found = format!("{of_type} holds ids up to {holds}, but the sequence's max is {max}");
        let reached = stored.reached() > u128::from(holds) + 1;
        let severity = if reached { Severity::Error } else { Severity::Warning };
        let remedy = if reached {
            Remedy::advice(format!("ids above {holds} are already reserved: widen {of_type}"))
        } else {
            Remedy::SetMax { name: stored.name.clone(), next: None, max: holds }
        };
        let asked = format!("whether the sequence's ids fit {of_type}");
        Finding { severity, ..about(&stored.name, FindingKind::TooNarrow, asked, found, remedy) }
    })
}

/// Reports a configured sequence that does not exist.
pub(super) fn missing(name: &SequenceName) -> Finding {
    let remedy = Remedy::advice(
        "correct the name or `--store`; if the store was lost, restore it: a new store repeats the ids of \
         every sequence",
    );
    about(name, FindingKind::Missing, "the sequence", "the store has no sequence of this name", remedy)
}

/// Reports an unreadable entry among the sequences or ledgers.
pub(super) fn unreadable(found: Unreadable, of: &str) -> Finding {
    let remedy = Remedy::advice(
        "restore the entry; a new sequence of this name must start above every id in use (`idmill create`)",
    );
    let asked = format!("the entries of {of}");
    Finding::new(FindingKind::Unreadable, found.name, asked, found.error.to_string(), remedy)
}

/// Reports a store that is not durable. The finding is only a warning if there is a witness.
pub(super) fn forgets(durability: Durability, guarded: bool) -> Option<Finding> {
    (durability < Durability::Disk).then(|| {
        let found =
            "the store loses grants when its process or machine stops, then grants the same ids again";
        let remedy = Remedy::advice(
            "configure the store to sync to disk before it replies, or set a guard whose witness syncs",
        );
        let severity = if guarded { Severity::Warning } else { Severity::Error };
        let finding = Finding::new(FindingKind::LosesWrites, None, "the durability of grants", found, remedy);
        Finding { severity, ..finding }
    })
}

/// Reports another object with the store's name, as described by the store.
pub(super) fn ambiguous(found: String) -> Finding {
    let remedy = Remedy::advice(
        "find out which object is in use; select it in every URL, as in `schema=NAME`, or drop the other \
         object",
    );
    Finding::new(FindingKind::Ambiguous, None, LOOKALIKES, found, remedy)
}

pub(super) const LOOKALIKES: &str = "other objects with the store's name";
pub(super) const OF_WITNESS: &str = "the sequence's ledger in the witness";
pub(super) const REFUSALS: &str = "the sequences that the store rejects";

fn next(stored: &SequenceInfo) -> String {
    match stored.next {
        Some(next) => format!("the next id is {next}"),
        None => format!("all ids up to {} are reserved", stored.bounds.max()),
    }
}

/// Reports a failed check: its result is unknown, or the store cannot be opened.
pub(super) fn not_seen(asked: impl Into<String>, sequence: Option<&SequenceName>, error: &Error) -> Finding {
    let refused =
        matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unsupported | ErrorKind::StoreViolation)
            && error.operation() == Some(Operation::Connect);
    let kind = if refused { FindingKind::Refused } else { FindingKind::NotSeen };
    let remedy = match error.status() {
        Status::Permanent => "fix the error; the result is unknown until this check succeeds",
        _ => "retry later; the result is unknown until this check succeeds",
    };
    let sequence = sequence.map(ToString::to_string);
    Finding::new(kind, sequence, asked, chain(error), Remedy::advice(remedy))
}

#[cfg(test)]
mod tests;
