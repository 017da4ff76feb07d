//! `idmill next`: ids, one a line.

use std::io::{IsTerminal, StdoutLock, stderr, stdout};

use idmill::{Allocator, ErrorKind, Ranges, Sequences};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{Global, Next};
use crate::failure::Outcome;
use crate::formatted::{Line, unwritten};
use crate::lines::{Lines, Reader};
use crate::opening;

/// The most ids taken at a time: what a reader that leaves early wastes at most, and few enough for ids to stream.
const AT_ONCE: u64 = 100_000;

pub(super) async fn run(global: &Global, args: &Next) -> Outcome {
    args.bounds.check()?;
    let line = Line::new(args.format.as_deref(), global.json)?;
    if args.count == 0 {
        return Ok(());
    }
    let sequences = Sequences::new(opening::create(global).await?)?;
    let outcome = print(&sequences, args, line).await;
    // The store is let go of in good order, which for SQLite tidies its log away.
    sequences.close().await;
    outcome
}

async fn print(sequences: &Sequences, args: &Next, line: Line) -> Outcome {
    let ids = open(sequences, args).await?;
    let progress = progress(args.count);
    // Larger than a step, a `take` would have a range of its own size reserved.
    let at_once = args.step.map_or(AT_ONCE, |step| step.min(AT_ONCE));
    let mut run = Run { lines: 0, left: args.count, at_once, line };
    let outcome = run.print(&ids, &progress).await;
    progress.finish_and_clear();
    outcome.map_err(|failure| failure.after_printing(run.lines, args.count))
}

/// Without prefetching, so that nothing is reserved that is not printed; and with the smallest step, a reserve is
/// exactly as large as what was asked for.
async fn open(sequences: &Sequences, args: &Next) -> idmill::Result<Allocator> {
    let mut sequence = sequences.sequence::<u64>(&*args.name);
    if let Some(start) = args.bounds.start {
        sequence = sequence.start(start);
    }
    if let Some(max) = args.bounds.max {
        sequence = sequence.max(max);
    }
    let sequence = sequence.step(args.step.unwrap_or(1)).watermark(0).patience(args.timeout);
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
    async fn print(&mut self, ids: &Allocator, progress: &ProgressBar) -> Outcome {
        while self.left > 0 {
            let ranges = take(ids, self.left.min(self.at_once)).await?;
            self.left -= ranges.len();
            // A reader may stall; whoever listens for signals and drives the refills must not stall with it.
            if tokio::task::block_in_place(|| self.write(ranges))? == Reader::Left {
                return Ok(());
            }
            progress.inc(self.lines - progress.position());
        }
        Ok(())
    }

    fn write(&mut self, ranges: Ranges) -> Outcome<Reader> {
        let mut lines: Lines<StdoutLock<'_>> = Lines::new(stdout().lock());
        let outcome = self.line.write(ranges, &mut lines);
        // Also those before one that failed.
        let flushed = lines.flush().map_err(|error| unwritten(&error));
        self.lines += lines.written();
        if outcome? == Reader::Left { Ok(Reader::Left) } else { flushed }
    }
}

/// Up to `want` ids, at least one: what is in memory, or else what the store has left.
async fn take(ids: &Allocator, want: u64) -> idmill::Result<Ranges> {
    // A `take` that begins in memory and fails in the store would lose what it began with.
    let within = |remaining: u64| if remaining > 0 { want.min(remaining) } else { want };
    match ids.take(within(ids.snapshot().remaining)).await {
        // The sequence ended with fewer ids than were asked for, and those are now in memory.
        Err(error) if error.kind() == ErrorKind::Exhausted && ids.snapshot().remaining > 0 => {
            ids.take(within(ids.snapshot().remaining)).await
        }
        outcome => outcome,
    }
}

/// Shown where the work is long, and seen only where it does not get between the ids.
fn progress(count: u64) -> ProgressBar {
    if count <= AT_ONCE || stdout().is_terminal() || !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = "{bar:30} {human_pos} of {human_len} ids, {eta} left";
    ProgressBar::new(count).with_style(ProgressStyle::with_template(style).expect("a fixed template"))
}
