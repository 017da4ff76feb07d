//! `idmill next`: prints ids, one per line.

use std::io::{IsTerminal, StdoutLock, stdout};
use std::sync::Arc;
use std::time::Duration;

use idmill::store::Store;
use idmill::{Allocator, Error, ErrorKind, Ranges, Sequences};
use indicatif::ProgressBar;
use tokio::time::{Instant, timeout_at};

use super::absent;
use crate::args::{Global, Next};
use crate::error::{CliError, Outcome, quoted};
use crate::formatted::{Line, Lines, unwritten};
use crate::retrying::{after, late, until};
use crate::{opening, output, suggest};

/// Maximum number of ids per `take`. The limit bounds the waste if the reader closes stdout early, and lets
/// ids stream.
const AT_ONCE: u64 = 100_000;
/// Time that the command waits after its timeout, so that the draw can report its own error.
const MARGIN: Duration = Duration::from_millis(250);
/// Minimum time for closing the store, even if the timeout has passed.
const CLOSING: Duration = Duration::from_secs(2);

pub(super) async fn run(global: &Global, args: &Next) -> Outcome {
    args.bounds.check()?;
    let line = Line::new(args.format.as_deref(), global.json)?;
    if args.count == 0 {
        return Ok(());
    }
    // One deadline for connecting, inspecting and drawing the first ids.
    let end = after(args.within.timeout);
    let url = opening::url(global)?;
    let store = if opening::requires_existing(args.existing)? {
        opening::existing_sequences(global, args.within.timeout).await?
    } else {
        opening::create(global, args.within.timeout).await?
    };
    let sequences = Sequences::new(store.clone())?;
    // Wait a little longer: an error from `begin` has more details than this timeout.
    let begun = timeout_at(end + MARGIN, begin(&store, &sequences, args, end)).await;
    let begun = begun.unwrap_or_else(|_| Err(late(args.within.timeout).of(&args.name)));
    let is_new = begun.as_ref().is_ok_and(|begun| begun.is_new);
    let outcome = match begun {
        Ok(begun) => print(&begun.ids, begun.first, args, line).await,
        Err(error) if error.kind() == ErrorKind::NotFound => Err(absent(&*store, &args.name, error).await),
        Err(error) => Err(CliError::from(error).after_printing(0, args.count)),
    };
    let outcome = outcome.map_err(|error| error.of_store(&url));
    // An orderly close lets SQLite remove its log.
    let _ = timeout_at(end.max(after(CLOSING)), sequences.close()).await;
    // The search for similar names may take a while, so it runs when the ids are printed.
    if is_new {
        output::note(global.json, &announcement(&*store, args).await);
    }
    outcome
}

/// The result of a `take`.
struct Got {
    ids: Ranges,
    /// Why there are fewer ids than requested. The error is reported after the ids are printed.
    then: Option<Error>,
}

/// An open sequence and its first ids.
struct Begun {
    ids: Allocator<u64>,
    first: Got,
    is_new: bool,
}

/// Opens the sequence and takes the first ids.
async fn begin(
    store: &Arc<dyn Store>,
    sequences: &Sequences,
    args: &Next,
    end: Instant,
) -> idmill::Result<Begun> {
    let is_new = store.inspect(&args.name).await?.is_none();
    let ids = open(sequences, args, is_new).await?;
    // Pass the remaining time, so that the draw itself times out and reports the store's last error. Later
    // draws have the whole time.
    let first = get(&ids.within(until(end)), args.count.min(at_once(args))).await?;
    Ok(Begun { ids, first, is_new })
}

/// Returns the number of ids per `take`, at most a step. A `take` larger than the step would reserve a
/// range of its own size.
fn at_once(args: &Next) -> u64 {
    args.step.map_or(AT_ONCE, |step| step.min(AT_ONCE))
}

/// Announces a new sequence, because its name may be mistyped.
async fn announcement(store: &dyn Store, args: &Next) -> String {
    let new = format!("`{}` is a new sequence", args.name);
    match suggest::nearest(store, &args.name).await {
        Some(near) => format!("{new}; did you mean {}? `--existing` prevents new sequences", quoted(&near)),
        None => new,
    }
}

/// Prints the requested number of ids.
async fn print(ids: &Allocator<u64>, first: Got, args: &Next, mut line: Line) -> Outcome {
    let (progress, mut lines, mut left, mut got) = (progress(args.count), 0, args.count, first);
    let outcome = loop {
        left -= got.ids.len();
        // A write may stall, which must not block the refills.
        let (written, outcome) = tokio::task::block_in_place(|| write(&mut line, &got.ids));
        lines += written;
        progress.set_position(lines);
        got = match (outcome, got.then) {
            (Err(error), _) => break Err(error),
            (_, Some(error)) => break Err(error.into()),
            _ if left == 0 => break Ok(()),
            _ => match get(ids, left.min(at_once(args))).await {
                Ok(got) => got,
                Err(error) => break Err(error.into()),
            },
        };
    };
    progress.finish_and_clear();
    outcome.map_err(|error: CliError| error.after_printing(lines, args.count))
}

/// Writes ids, and returns how many lines were written.
fn write(line: &mut Line, ranges: &Ranges) -> (u64, Outcome) {
    let mut lines: Lines<StdoutLock<'_>> = Lines::new(stdout().lock());
    let outcome = line.write(ranges, &mut lines);
    // Also flush the lines before a line that failed.
    let flushed = lines.flush().map_err(unwritten);
    (lines.written(), outcome.and(flushed))
}

/// Opens the sequence without prefetch, so that no id is reserved before it is needed. Without `--step`, the
/// smallest step makes a reserve exactly as large as the request.
async fn open(sequences: &Sequences, args: &Next, is_new: bool) -> idmill::Result<Allocator<u64>> {
    let mut sequence = sequences.sequence::<u64>(&*args.name);
    if let Some(start) = args.bounds.start {
        sequence = sequence.start(start);
    }
    // An existing sequence keeps its own bounds.
    if let Some(max) = args.bounds.max.or(is_new.then_some(args.bounds.default_max())) {
        sequence = sequence.max(max);
    }
    let sequence = sequence.step(args.step.unwrap_or(1)).watermark(0).timeout(args.within.timeout);
    let sequence = sequence.order(args.order);
    // Only requested bounds must be compared with the stored bounds. Otherwise, a lazy open saves a
    // transaction.
    if args.bounds.are_given() { sequence.await } else { sequence.lazy() }
}

/// Takes up to `want` ids, at least one. If a `take` fails, the ids that it has reserved are in memory.
/// These ids are returned, because they would otherwise be a gap.
async fn get(ids: &Allocator<u64>, want: u64) -> idmill::Result<Got> {
    match take(ids, want).await {
        Ok(ids) => Ok(Got { ids, then: None }),
        Err(error) => match ids.snapshot().remaining.min(want) {
            0 => Err(error),
            left => Ok(Got { ids: ids.take(left).await?, then: Some(error) }),
        },
    }
}

/// Takes up to `want` ids, at least one: fewer if memory holds fewer, or if the store has fewer left.
async fn take(ids: &Allocator<u64>, want: u64) -> idmill::Result<Ranges> {
    let mut count = want;
    loop {
        let remaining = ids.snapshot().remaining;
        if (1..count).contains(&remaining) {
            count = remaining;
        }
        match ids.take(count).await {
            // The sequence has fewer ids left than requested.
            Err(error) if error.kind() == ErrorKind::Exhausted && count > 1 => count /= 2,
            outcome => return outcome,
        }
    }
}

/// Returns a progress bar for long runs. The bar is hidden if the ids go to the terminal too.
fn progress(count: u64) -> ProgressBar {
    if count <= AT_ONCE || stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    output::progress(count, "{bar:30} {human_pos} of {human_len} ids, {eta} left")
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use clap::Parser as _;
    use idmill::store::{Capabilities, Grant, MemoryStore, Reserve, StoreFuture};
    use idmill_testing::hooked::{Hooked, Hooks};

    use super::*;
    use crate::args::{Cli, Command};

    /// A store that grants ten ids at a time, thirty in total, and then never answers.
    #[derive(Debug, Default)]
    struct Scarce(MemoryStore);

    impl Hooks for Scarce {
        fn inner(&self) -> &dyn Store {
            &self.0
        }

        fn capabilities(&self) -> Capabilities {
            self.0.capabilities().gives_back(false).batches(false)
        }

        fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, idmill::Result<Grant>> {
            Box::pin(async move {
                if self.0.reserves() == 3 {
                    pending::<()>().await;
                }
                self.0.reserve(&request.clone().count(request.count.min(10))).await
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ids_before_the_deadline_are_returned_with_the_error() {
        let sequences = Sequences::new(Hooked(Scarce::default())).unwrap();
        let opening = sequences.sequence::<u64>("s").step(1).watermark(0);
        let ids = opening.timeout(Duration::from_millis(500)).lazy().unwrap();
        let got = get(&ids, 100).await.unwrap();
        assert_eq!(got.ids.iter().collect::<Vec<_>>(), (1..=30).collect::<Vec<_>>());
        assert_eq!(got.then.unwrap().kind(), ErrorKind::Deadline);
        assert_eq!(get(&ids, 70).await.err().unwrap().kind(), ErrorKind::Deadline, "nothing more came");
    }

    #[test]
    fn take_is_at_most_a_step() {
        for (flags, ids) in
            [("", AT_ONCE), (" --step 10", 10), (" --step 100000", AT_ONCE), (" --step 100001", AT_ONCE)]
        {
            let cli = Cli::parse_from(format!("idmill next s{flags}").split(' '));
            let Command::Next(args) = cli.command else { unreachable!("the command is `next`") };
            assert_eq!(at_once(&args), ids, "{flags}");
        }
    }

    /// A `take` prefers the ids in memory, and a sequence with too few ids left gives them all.
    #[tokio::test]
    async fn take_is_as_long_as_the_ids_allow() {
        let sequences = Sequences::new(MemoryStore::new()).unwrap();
        let ids = sequences.sequence::<u64>("s").max(20).step(8).watermark(0).lazy().unwrap();
        for (want, taken) in [(3, 1..=3), (8, 4..=8), (4, 9..=12), (8, 13..=16), (2, 17..=18), (9, 19..=20)] {
            let got: Vec<_> = take(&ids, want).await.unwrap().iter().collect();
            assert_eq!(got, taken.collect::<Vec<_>>());
        }
        assert_eq!(take(&ids, 9).await.unwrap_err().kind(), ErrorKind::Exhausted);
    }
}
