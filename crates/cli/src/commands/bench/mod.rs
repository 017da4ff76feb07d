//! `idmill bench`: what each mode costs on a store.

mod callers;
mod modes;
mod pictures;
mod published;
mod report;
mod row;
mod transactions;

use indicatif::ProgressBar;

use self::modes::Subject;
use self::report::Report;
use self::row::Row;
use crate::args::{Bench, Global, Mode};
use crate::failure::{Failure, Outcome};
use crate::measuring::{Measurement, PER_RUN, off_runtime};
use crate::opening::Measured;
use crate::output;

const SEQUENCE: &str = "idmill-bench";

pub(super) async fn run(global: &Global, args: Bench) -> Outcome {
    if args.iterations == Some(0) {
        let failure = Failure::usage("0 transactions cannot be measured");
        return Err(failure.hint("give --iterations at least 1, or a --duration"));
    }
    if args.markdown && global.json {
        return Err(
            Failure::usage("JSON is no Markdown").hint("give --json a FILE, or leave one of the two out")
        );
    }
    let args = if args.published { published::settings(args) } else { args };
    let store = Measured::open(global, SEQUENCE).await?;
    let modes = modes(&args, &store)?;
    output::note(global.json, &store.description);
    let report = Report::new(&store, &args, measure_all(&store, &args, &modes).await?);
    if let Some(file) = &args.file {
        output::write_file(file, &(output::json(&report) + "\n"))?;
    }
    if let Some(file) = &args.plot {
        output::write_file(file, &pictures::svg(&report))?;
    }
    if global.json { output::print_json(&report) } else { output::print(&report.human(args.markdown)) }
}

/// What was asked for, or everything that the store can do.
fn modes(args: &Bench, store: &Measured) -> Outcome<Vec<Mode>> {
    let in_transactions = transactions::are_known(store);
    if let Some(mode) = args.mode.iter().find(|mode| mode.is_in_transaction() && !in_transactions) {
        let message = format!("the mode {} is not there for `{}:` stores", mode.name(), store.url.scheme());
        return Err(Failure::usage(message).hint(format!("it is for {}", transactions::known())));
    }
    if !args.mode.is_empty() {
        return Ok(args.mode.clone());
    }
    let all = [Mode::InTransaction, Mode::InTransactionMany, Mode::Async, Mode::Global, Mode::Batch];
    let all = all.into_iter().chain([Mode::AsyncBatch, Mode::Thread]);
    Ok(all.filter(|mode| in_transactions || !mode.is_in_transaction()).collect())
}

async fn measure_all(store: &Measured, args: &Bench, modes: &[Mode]) -> Outcome<Vec<Row>> {
    let total = args.threads.len() * modes.len();
    let bar = output::progress(total as u64 * PER_RUN);
    let mut rows = Vec::new();
    for &threads in &args.threads {
        for &mode in modes {
            bar.set_message(format!("{} x {threads}", mode.name()));
            rows.push(measure(store, args, mode, threads, &bar).await?);
            bar.set_position(rows.len() as u64 * PER_RUN);
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

async fn measure(
    store: &Measured,
    args: &Bench,
    mode: Mode,
    threads: u16,
    bar: &ProgressBar,
) -> Outcome<Row> {
    let subject = Subject::prepare(store, args, mode).await?;
    let plan = Measurement::new(threads, args.iterations, args.duration);
    let (of_run, hold) = (plan.clone(), args.transaction);
    let run = off_runtime(move || (callers::run(&of_run, &subject, hold), subject));
    let (seen, subject) = plan.watched(bar, run).await;
    let row = Row::new(mode, threads, &seen?, &subject);
    subject.close().await;
    Ok(row)
}
