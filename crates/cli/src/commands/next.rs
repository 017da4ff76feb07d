//! `idmill next`: ids, one a line.

use std::io::{IsTerminal, StdoutLock, stdout};
use std::sync::Arc;
use std::time::Duration;

use idmill::store::Store;
use idmill::{Allocator, Error, ErrorKind, Ranges, Sequences, Status};
use indicatif::ProgressBar;
use tokio::time::{Instant, sleep, timeout_at};

use super::absent;
use crate::args::{Global, Next};
use crate::failure::{Failure, Outcome, quoted};
use crate::formatted::{Line, Lines, unwritten};
use crate::{opening, output, suggest};

/// The most ids taken at a time: what a reader that leaves early wastes at most, and
/// few enough for ids to stream.
const AT_ONCE: u64 = 100_000;
/// How much longer than its timeout the command waits for itself.
const MARGIN: Duration = Duration::from_millis(250);
/// How long a store is let go of, however late it is.
const CLOSING: Duration = Duration::from_secs(2);
/// Longer than any command runs.
const FAR: Duration = Duration::from_secs(10 * 365 * 86_400);

pub(super) async fn run(global: &Global, args: &Next) -> Outcome {
    args.bounds.check()?;
    let line = Line::new(args.format.as_deref(), global.json)?;
    if args.count == 0 {
        return Ok(());
    }
    // Of connecting, looking and the first ids together.
    let end = after(args.timeout);
    let url = opening::url(global)?;
    let store = if opening::requires_existing(args.existing)? {
        opening::existing_sequences(global, args.timeout).await?
    } else {
        opening::create(global, args.timeout).await?
    };
    let sequences = Sequences::new(store.clone())?;
    // What ends by itself in time says more of why.
    let begun = timeout_at(end + MARGIN, begin(&store, &sequences, args, end, global)).await;
    let outcome = match begun.unwrap_or_else(|_| Err(no_answer(args))) {
        Ok((ids, first)) => print(&ids, first, args, line).await,
        Err(error) if error.kind() == ErrorKind::NotFound => Err(absent(&*store, &args.name, error).await),
        Err(error) => Err(Failure::from(error).after_printing(0, args.count)),
    };
    let outcome = outcome.map_err(|failure| failure.of_store(&url));
    // The store is let go of in good order, which for SQLite tidies its log away.
    let _ = timeout_at(end.max(after(CLOSING)), sequences.close()).await;
    outcome
}

/// When this time is over; a moment far away if it is too long to compute.
fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now + FAR)
}

fn no_answer(args: &Next) -> idmill::Error {
    let message = format!("the store has not answered within {:?}", args.timeout);
    idmill::Error::new(ErrorKind::Deadline, message).of(&args.name)
}

/// What a `take` came to.
struct Got {
    ids: Ranges,
    /// Why there are fewer than were asked for: told once these are printed.
    then: Option<Error>,
}

/// Takes the first ids, and says so where they are those of a new sequence: it may
/// not be the one that was meant.
async fn begin(
    store: &Arc<dyn Store>,
    sequences: &Sequences,
    args: &Next,
    end: Instant,
    global: &Global,
) -> idmill::Result<(Allocator, Got)> {
    let is_new = is_new(&**store, args, end).await?;
    // What is left of the time, so that the draw ends by itself and says what the store, or its window, last
    // said.
    let ids = open(sequences, args, end.saturating_duration_since(Instant::now())).await?;
    let first = get(&ids, args.count.min(at_once(args))).await?;
    if is_new {
        output::note(global.json, &announcement(&**store, args).await);
    }
    Ok((ids, first))
}

/// Larger than a step, a `take` would have a range of its own size reserved.
fn at_once(args: &Next) -> u64 {
    args.step.map_or(AT_ONCE, |step| step.min(AT_ONCE))
}

/// Whether there is no such sequence yet. A store that is busy or away is asked again, as for ids.
async fn is_new(store: &dyn Store, args: &Next, end: Instant) -> idmill::Result<bool> {
    let (mut pause, mut last) = (Duration::from_millis(20), None);
    loop {
        let Ok(found) = timeout_at(end, store.inspect(&args.name)).await else {
            return Err(last.unwrap_or_else(|| no_answer(args)));
        };
        match found {
            Ok(found) => return Ok(found.is_none()),
            // Reading it again is safe, whatever became of the first.
            Err(error) if error.status() == Status::Permanent => return Err(error),
            Err(error) if Instant::now() + pause >= end => return Err(error),
            Err(error) => last = Some(error),
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

async fn announcement(store: &dyn Store, args: &Next) -> String {
    let new = format!("`{}` is a new sequence", args.name);
    match suggest::nearest(store, &args.name).await {
        Some(near) => format!("{new}; there is {} too, and --existing creates none", quoted(&near)),
        None => new,
    }
}

async fn print(ids: &Allocator, first: Got, args: &Next, line: Line) -> Outcome {
    let progress = progress(args.count);
    let mut run = Run { lines: 0, left: args.count, at_once: at_once(args), line };
    let outcome = run.print(ids, first, &progress).await;
    progress.finish_and_clear();
    outcome.map_err(|failure| failure.after_printing(run.lines, args.count))
}

/// Without prefetching, so that nothing is reserved that is not printed; and with the smallest step, a
/// reserve is exactly as large as what was asked for.
async fn open(sequences: &Sequences, args: &Next, patience: Duration) -> idmill::Result<Allocator> {
    let mut sequence = sequences.sequence::<u64>(&*args.name);
    if let Some(start) = args.bounds.start {
        sequence = sequence.start(start);
    }
    if let Some(max) = args.bounds.max {
        sequence = sequence.max(max);
    }
    let sequence = sequence.step(args.step.unwrap_or(1)).watermark(0).patience(patience);
    let sequence = sequence.order(args.order);
    // Only bounds that were asked for have to be compared with what is stored: one transaction less.
    if args.bounds.are_given() { sequence.await } else { sequence.lazy() }
}

/// How far the printing has come.
struct Run {
    lines: u64,
    left: u64,
    at_once: u64,
    line: Line,
}

impl Run {
    async fn print(&mut self, ids: &Allocator, first: Got, progress: &ProgressBar) -> Outcome {
        let mut got = first;
        loop {
            self.left -= got.ids.len();
            // A reader may stall. The thread that listens for signals and drives the
            // refills must not stall with it.
            tokio::task::block_in_place(|| self.write(got.ids))?;
            progress.inc(self.lines - progress.position());
            match got.then {
                Some(error) => return Err(error.into()),
                None if self.left == 0 => return Ok(()),
                None => got = get(ids, self.left.min(self.at_once)).await?,
            }
        }
    }

    fn write(&mut self, ranges: Ranges) -> Outcome {
        let mut lines: Lines<StdoutLock<'_>> = Lines::new(stdout().lock());
        let outcome = self.line.write(ranges, &mut lines);
        // Also those before one that failed.
        let flushed = lines.flush().map_err(unwritten);
        self.lines += lines.written();
        outcome.and(flushed)
    }
}

/// Up to `want` ids, at least one. What a `take` had got before it failed is in memory, and would be a gap.
async fn get(ids: &Allocator, want: u64) -> idmill::Result<Got> {
    match take(ids, want).await {
        Ok(ids) => Ok(Got { ids, then: None }),
        Err(error) => match ids.snapshot().remaining.min(want) {
            0 => Err(error),
            left => Ok(Got { ids: ids.take(left).await?, then: Some(error) }),
        },
    }
}

/// Up to `want` ids, at least one: what is in memory, or else what the store has left.
async fn take(ids: &Allocator, want: u64) -> idmill::Result<Ranges> {
    let mut count = want;
    loop {
        let remaining = ids.snapshot().remaining;
        if (1..count).contains(&remaining) {
            count = remaining;
        }
        match ids.take(count).await {
            // The sequence ends with fewer ids than were asked for.
            Err(error) if error.kind() == ErrorKind::Exhausted && count > 1 => count /= 2,
            outcome => return outcome,
        }
    }
}

/// Shown where the work is long, and seen only where it does not get between the ids.
fn progress(count: u64) -> ProgressBar {
    if count <= AT_ONCE || stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    output::progress(count, "{bar:30} {human_pos} of {human_len} ids, {eta} left")
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use idmill::store::{Capabilities, Grant, MemoryStore, Reserve, StoreFuture};
    use idmill_testing::hooked::{Hooked, Hooks};

    use super::*;

    /// Grants ten ids at a time, thirty in all, and then never answers.
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
    async fn what_came_before_the_deadline_is_printed_and_then_the_deadline_told() {
        let sequences = Sequences::new(Hooked(Scarce::default())).unwrap();
        let opening = sequences.sequence::<u64>("s").step(1).watermark(0);
        let ids = opening.patience(Duration::from_millis(500)).lazy().unwrap();
        let got = get(&ids, 100).await.unwrap();
        assert_eq!(got.ids.ids().collect::<Vec<_>>(), (1..=30).collect::<Vec<_>>());
        assert_eq!(got.then.unwrap().kind(), ErrorKind::Deadline);
        assert_eq!(get(&ids, 70).await.err().unwrap().kind(), ErrorKind::Deadline, "nothing more came");
    }
}
