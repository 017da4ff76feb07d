//! `idmill draws`: how fast ids are drawn, beside the bare atomic instruction.

mod measure;
mod report;
mod runs;
mod ways;

use std::sync::Arc;

use idmill::store::Store;
use indicatif::ProgressBar;

use self::report::{Report, Row};
use self::runs::Subject;
use crate::args::{Draws, Global};
use crate::failure::{Failure, Outcome};
use crate::measuring::{Measurement, PER_RUN};
use crate::opening::Measured;
use crate::output;

pub(super) async fn run(global: &Global, args: Draws) -> Outcome {
    if args.ids == Some(0) {
        return Err(Failure::usage("0 ids cannot be measured").hint("give --ids at least 1, or a --duration"));
    }
    let store = Measured::open(global, runs::SEQUENCE).await?;
    output::note(global.json, &store.description);
    let rows = measure_all(&store.store, args).await?;
    if global.json {
        output::print_json(&Report { store: store.url.to_string(), runs: rows })
    } else {
        output::print(&report::human(&rows))
    }
}

/// The bare instruction and then every mode, for each number of threads.
async fn measure_all(store: &Arc<dyn Store>, args: Draws) -> Outcome<Vec<Row>> {
    let total = args.threads.len() * (args.mode.len() + 1);
    let bar = output::progress(total as u64 * PER_RUN);
    let args = Arc::new(args);
    let mut rows: Vec<Row> = Vec::new();
    for &threads in &args.threads {
        let modes = args.mode.iter().map(|mode| Subject::Mode(*mode));
        let mut bare = None;
        for subject in std::iter::once(Subject::Bare).chain(modes) {
            bar.set_message(format!("{} x {threads}", subject.name()));
            let row = measure(store, &args, subject, threads, &bar).await?;
            let base = *bare.get_or_insert(row.ns_per_id);
            rows.push(row.beside(base));
            bar.set_position(rows.len() as u64 * PER_RUN);
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

async fn measure(
    store: &Arc<dyn Store>,
    args: &Arc<Draws>,
    subject: Subject,
    threads: u16,
    bar: &ProgressBar,
) -> Outcome<Row> {
    let plan = Measurement::new(threads, args.ids, args.duration);
    let (store, args, of_run) = (store.clone(), args.clone(), plan.clone());
    let run = async move { runs::run(store, &args, subject, &of_run).await };
    Ok(plan.watched(bar, run).await?)
}
