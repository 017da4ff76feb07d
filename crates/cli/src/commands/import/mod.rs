//! `idmill import`: creates missing sequences, and raises lower ones.

mod lines;

use std::sync::Arc;
use std::time::Duration;

use idmill::store::{MemoryStore, SequenceInfo, Store};
use idmill::{Error, ErrorKind};
use idmill_kit::{create_at, raise};
use serde::Serialize;
use serde_json::json;

use crate::args::{Global, Import};
use crate::error::{CliError, Outcome, set_command};
use crate::exported::{self, Content, Entry};
use crate::output::or_dash;
use crate::retrying::{Effect, after, retry};
use crate::{opening, output, unbroken};
use lines::Lines;

pub(super) async fn run(global: &Global, args: &Import) -> Outcome {
    let mut lines = Lines::open(args.file.as_deref())?;
    let looked = lines.look(global.json)?;
    if !args.keep_going {
        looked.verdict()?;
    }
    let store = open(global, args).await?;
    let progress = output::progress(looked.good, output::PERCENT);
    let mut importing = Importing {
        store,
        within: args.within.timeout,
        dry_run: args.dry_run,
        json: global.json,
        done: Done::default(),
    };
    let outcome = async {
        for line in lines.entries()? {
            // Invalid lines were reported earlier.
            let (number, Ok(Content::Sequence(entry))) = line? else { continue };
            unbroken(importing.take(&entry, number)).await?;
            progress.inc(1);
        }
        Ok(())
    };
    let outcome: Outcome = outcome.await;
    progress.finish_and_clear();
    output::note(global.json, &importing.done.summary(looked.bad, args.dry_run));
    outcome?;
    importing.done.verdict()?;
    looked.remainder()
}

/// Opens the store. If the store is missing, a dry run uses an empty memory store instead of creating the
/// store.
async fn open(global: &Global, args: &Import) -> Outcome<Arc<dyn Store>> {
    if !args.dry_run {
        return opening::create(global, args.within.timeout).await;
    }
    match opening::existing(global, args.within.timeout).await {
        Err(error) if error.is(ErrorKind::NotFound) => Ok(Arc::new(MemoryStore::new())),
        outcome => outcome,
    }
}

/// The outcome of a line. Names are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Became {
    Created,
    Raised,
    Kept,
    Refused,
}

/// Number of lines per outcome, in the order of [`Became`].
#[derive(Debug, Default)]
struct Done([u64; 4]);

struct Importing {
    store: Arc<dyn Store>,
    /// How long a creation is retried.
    within: Duration,
    dry_run: bool,
    json: bool,
    done: Done,
}

impl Importing {
    /// Imports one line. The import continues after an error that concerns only one sequence, and stops at
    /// any other error.
    async fn take(&mut self, entry: &Entry, line: u64) -> Outcome {
        match self.place(entry).await {
            Ok((became, before, after)) => {
                self.done.count(became);
                self.tell(entry, became, before, &after)
            }
            Err(error) if is_of_one(&error) => {
                self.done.count(Became::Refused);
                error.at(&format!("line {line}")).report(self.json);
                Ok(())
            }
            Err(error) => Err(error.at(&format!("line {line}"))),
        }
    }

    async fn place(&self, entry: &Entry) -> Outcome<(Became, Option<SequenceInfo>, SequenceInfo)> {
        let found = self.store.inspect(&entry.name).await?;
        if let Some(found) = found.as_ref().filter(|found| found.bounds != entry.bounds) {
            return Err(differs(entry, found));
        }
        let became = match &found {
            None => Became::Created,
            Some(found) if found.reached() < entry.reached => Became::Raised,
            Some(_) => Became::Kept,
        };
        let after = if self.dry_run {
            as_if(entry, found.as_ref())
        } else {
            self.raised(entry, found.as_ref()).await?
        };
        Ok((became, found, after))
    }

    async fn raised(&self, entry: &Entry, found: Option<&SequenceInfo>) -> Outcome<SequenceInfo> {
        if let Some(found) = found {
            return Ok(raise(&*self.store, found, entry.reached).await?);
        }
        let create = || create_at(&*self.store, &entry.name, entry.bounds, entry.reached);
        match retry(Effect::Change, after(self.within), |_| {}, create).await {
            // Another process created the sequence first.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let found = self.store.inspect(&entry.name).await?.ok_or(error)?;
                if found.bounds != entry.bounds {
                    return Err(differs(entry, &found));
                }
                Ok(raise(&*self.store, &found, entry.reached).await?)
            }
            outcome => Ok(outcome?),
        }
    }

    fn tell(
        &self,
        entry: &Entry,
        outcome: Became,
        before: Option<SequenceInfo>,
        after: &SequenceInfo,
    ) -> Outcome {
        let (is_new, before) = (before.is_none(), before.and_then(|before| before.next));
        let (name, after) = (&entry.name, after.next);
        if self.json {
            // Ids are strings, as in the file; `null` if there was no sequence, or no id is left.
            let [before, after] = [before, after].map(|next| next.map(|next| next.to_string()));
            let taken =
                json!({ "sequence": name.as_str(), "outcome": outcome, "before": before, "after": after });
            return output::print(&output::line(&taken));
        }
        let (before, after) = (or_dash(before), or_dash(after));
        match outcome {
            Became::Kept => Ok(()),
            _ if is_new => output::print(&format!("created {name}: next {after}\n")),
            _ => output::print(&format!("raised {name}: next {before} -> {after}\n")),
        }
    }
}

/// Returns the sequence as it would be after the import.
fn as_if(entry: &Entry, found: Option<&SequenceInfo>) -> SequenceInfo {
    let reached = entry.reached.max(found.map_or(0, SequenceInfo::reached));
    let next = exported::next(reached, entry.bounds);
    let identity = found.map_or_else(idmill::store::Identity::fresh, |found| found.identity);
    SequenceInfo::stored(entry.name.clone(), next, entry.bounds, identity)
}

/// Returns the error for different bounds. Nothing is changed, because only the operator can decide which
/// bounds are right.
fn differs(entry: &Entry, found: &SequenceInfo) -> CliError {
    let (theirs, ours) = (entry.bounds, found.bounds);
    let message = format!(
        "`{}` has start {} and max {} in the store, but start {} and max {} in the file; the sequence was \
         not changed",
        entry.name,
        ours.start(),
        ours.max(),
        theirs.start(),
        theirs.max()
    );
    // If all ids are reserved, this is max + 1: `--next max` would hand out the last id again.
    let max = Some(theirs.max()).filter(|max| *max != ours.max());
    let hint = match u64::try_from(entry.reached) {
        Err(_) => "the file's sequence has reserved all ids up to 2^64 - 1; use another sequence".to_owned(),
        Ok(next) if entry.reached > found.reached() => {
            let command = set_command(&entry.name, Some(next), max);
            format!("`{command}` sets next and max as in the file, if no larger id is in use")
        }
        _ if max.is_none() => {
            "no id repeats, since the store's next id is not below the file's; correct `start` in the file"
                .to_owned()
        }
        _ => {
            let (command, reached) = (set_command(&entry.name, None, max), found.reached());
            format!("`{command}` sets max as in the file, if no id from {reached} on is in use")
        }
    };
    CliError::from(Error::new(ErrorKind::Conflict, message)).hint(hint)
}

impl Done {
    fn count(&mut self, became: Became) {
        self.0[became as usize] += 1;
    }

    fn summary(&self, bad: u64, dry_run: bool) -> String {
        let Self([created, raised, kept, refused]) = self;
        let would = if dry_run { "dry run, nothing was changed: " } else { "" };
        let bad = if bad > 0 { format!(", {bad} lines skipped") } else { String::new() };
        format!("{would}{created} created, {raised} raised, {kept} unchanged, {refused} refused{bad}")
    }

    fn verdict(&self) -> Outcome {
        let refused = self.0[Became::Refused as usize];
        if refused == 0 {
            return Ok(());
        }
        let what = if refused == 1 { "sequence was" } else { "sequences were" };
        Err(CliError::refused(format!("{refused} {what} not imported"))
            .hint("the rejected sequences are listed above with their fixes"))
    }
}

/// Returns whether the error concerns only one sequence, so that the import can continue.
fn is_of_one(error: &CliError) -> bool {
    use ErrorKind::{Conflict, InvalidInput, StoreViolation};
    [Conflict, InvalidInput, StoreViolation].into_iter().any(|kind| error.is(kind))
}

#[cfg(test)]
mod tests {
    use idmill::SequenceName;
    use idmill::store::{Bounds, Identity, StoreFuture};
    use idmill_testing::faulty::{Faults, FaultyStore};

    use super::*;

    /// A store in which another import creates each sequence first.
    #[derive(Debug, Default)]
    struct Raced(MemoryStore);

    impl Store for Raced {
        idmill::store_calls!(|this| this.0 => capabilities reserve give_back inspect list set remove);

        fn create<'a>(
            &'a self,
            name: &'a SequenceName,
            bounds: Bounds,
        ) -> StoreFuture<'a, idmill::Result<SequenceInfo>> {
            Box::pin(async move {
                self.0.create(name, bounds).await?;
                Err(ErrorKind::AlreadyExists.into())
            })
        }
    }

    #[tokio::test]
    async fn sequence_that_was_created_meanwhile_is_raised() {
        let store = Arc::new(Raced::default());
        let within = Duration::from_secs(1);
        let importing =
            Importing { store: store.clone(), within, dry_run: false, json: false, done: Done::default() };
        let entry = |name: &str, reached| Entry {
            name: name.parse().unwrap(),
            bounds: Bounds::new(1, 100).unwrap(),
            reached,
        };
        for (name, reached) in [("unused", 1), ("used", 50)] {
            let (_, _, after) = importing.place(&entry(name, reached)).await.unwrap();
            assert_eq!(after.reached(), reached, "{name}");
        }
    }

    fn entry(start: u64, max: u64, reached: u128) -> Entry {
        Entry { name: "s".parse().unwrap(), bounds: Bounds::new(start, max).unwrap(), reached }
    }

    fn stored(next: Option<u64>, start: u64, max: u64) -> SequenceInfo {
        let identity = Identity { incarnation: 1, epoch: 0 };
        SequenceInfo::stored("s".parse().unwrap(), next, Bounds::new(start, max).unwrap(), identity)
    }

    #[test]
    fn dry_run_shows_the_larger_next_id() {
        for (reached, found, next) in [
            (5, None, Some(5)),
            (100, None, Some(100)),
            (101, None, None),
            (5, Some(stored(Some(7), 1, 100)), Some(7)),
            (7, Some(stored(Some(5), 1, 100)), Some(7)),
            (7, Some(stored(None, 1, 100)), None),
        ] {
            assert_eq!(as_if(&entry(1, 100, reached), found.as_ref()).next, next, "{reached}, {found:?}");
        }
    }

    #[test]
    fn hint_for_other_bounds_never_repeats_an_id() {
        let largest = entry(0, u64::MAX, 1 << 64);
        for (entry, found, says) in [
            (
                entry(1, 100, 50),
                stored(Some(9), 1, 90),
                "`idmill set s --next 50 --max 100` sets next and max",
            ),
            (entry(2, 90, 50), stored(Some(9), 1, 90), "`idmill set s --next 50` sets next and max"),
            (entry(2, 90, 9), stored(Some(9), 1, 90), "no id repeats, since the store's next id"),
            (
                entry(1, 100, 9),
                stored(Some(9), 1, 90),
                "`idmill set s --max 100` sets max as in the file, if \
              no id from 9 on is in use",
            ),
            (largest, stored(Some(9), 1, 90), "the file's sequence has reserved all ids up to 2^64 - 1"),
        ] {
            let error = format!("{:?}", differs(&entry, &found));
            assert!(error.contains(says), "{says}: {error}");
        }
        let error = differs(&entry(2, 100, 9), &stored(Some(9), 1, 90));
        let message = "refused: `s` has start 1 and max 90 in the store, but start 2 and max 100 in the file; \
                       the sequence was not changed";
        assert!(message.ends_with(error.message()), "{}", error.message());
    }

    #[test]
    fn summary_counts_each_outcome() {
        let mut done = Done::default();
        assert_eq!(done.summary(0, false), "0 created, 0 raised, 0 unchanged, 0 refused");
        for (became, times) in
            [(Became::Created, 4), (Became::Raised, 3), (Became::Kept, 2), (Became::Refused, 1)]
        {
            assert!(done.verdict().is_ok());
            (0..times).for_each(|_| done.count(became));
        }
        let counts = "4 created, 3 raised, 2 unchanged, 1 refused";
        assert_eq!(done.summary(0, false), counts);
        let dry = format!("dry run, nothing was changed: {counts}, 5 lines skipped");
        assert_eq!(done.summary(5, true), dry);
        assert_eq!(done.verdict().unwrap_err().message(), "1 sequence was not imported");
        done.count(Became::Refused);
        assert_eq!(done.verdict().unwrap_err().message(), "2 sequences were not imported");
    }

    #[test]
    fn only_errors_of_one_sequence_let_the_import_go_on() {
        use ErrorKind::{
            Conflict, Deadline, Denied, Exhausted, InvalidInput, NotFound, StoreViolation, Unavailable,
            UnknownOutcome, Witness,
        };
        for kind in [Conflict, InvalidInput, StoreViolation] {
            assert!(is_of_one(&CliError::from(Error::from(kind))), "{kind:?}");
        }
        for kind in [Unavailable, Deadline, UnknownOutcome, Denied, Exhausted, NotFound, Witness] {
            assert!(!is_of_one(&CliError::from(Error::from(kind))), "{kind:?}");
        }
    }

    #[tokio::test]
    async fn line_is_created_raised_or_kept_once() {
        let store = Arc::new(MemoryStore::new());
        let within = Duration::from_secs(1);
        let mut importing = Importing { store, within, dry_run: false, json: true, done: Done::default() };
        for (reached, became) in
            [(5, Became::Created), (5, Became::Kept), (4, Became::Kept), (6, Became::Raised)]
        {
            let (outcome, _, after) = importing.place(&entry(1, 9, reached)).await.unwrap();
            assert_eq!((outcome, after.reached()), (became, reached.max(5)), "{reached}");
        }
        importing.dry_run = true;
        let (outcome, before, after) = importing.place(&entry(1, 9, 8)).await.unwrap();
        assert_eq!((outcome, before.unwrap().next, after.next), (Became::Raised, Some(6), Some(8)));
        let (_, kept, _) = importing.place(&entry(1, 9, 6)).await.unwrap();
        assert_eq!(kept.unwrap().next, Some(6), "a dry run changes nothing");
        assert!(importing.place(&entry(1, 8, 9)).await.unwrap_err().is(ErrorKind::Conflict));
    }

    #[tokio::test]
    async fn taken_lines_are_counted_until_the_store_fails() {
        let memory = MemoryStore::new();
        memory.create(&"s".parse().unwrap(), Bounds::new(1, 9).unwrap()).await.unwrap();
        let within = Duration::from_secs(1);
        let store = Arc::new(memory);
        let mut importing = Importing { store, within, dry_run: false, json: false, done: Done::default() };
        for (max, reached) in [(9, 1), (9, 1), (8, 1)] {
            importing.take(&entry(1, max, reached), 7).await.unwrap();
        }
        assert_eq!(importing.done.0, [0, 0, 2, 1]);
        importing.store = Arc::new(FaultyStore::with_faults(Faults::outage()));
        let error = importing.take(&entry(1, 9, 1), 7).await.unwrap_err();
        assert!(error.message().starts_with("line 7: "), "{}", error.message());
        assert_eq!(importing.done.0, [0, 0, 2, 1]);
    }
}
