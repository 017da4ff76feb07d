//! `idmill plan`: sizes and what they cost, without a store.

mod report;
mod simulate;

use std::time::Duration;

use idmill::planning::{Sizes, Workload};
use idmill::store::Bounds;
use idmill_shared_cache::{RangeSize, Sizing};

use self::report::Report;
use self::simulate::Outage;
use crate::args::{Global, Plan};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::plot::{Line, Plot, label};

const SECONDS_A_YEAR: f64 = 365.25 * 24.0 * 3600.0;

pub(super) async fn run(global: &Global, args: Plan) -> Outcome {
    if args.rate <= 0.0 {
        return Err(
            Failure::usage("nothing to plan for a rate of 0").hint("give --rate the ids drawn a second")
        );
    }
    let planned = Planned::of(&args)?;
    let (workload, bounds) = (planned.workload, planned.bounds);
    // Simulated time stands still for everybody on its runtime: it gets one of its own.
    let simulated = tokio::task::spawn_blocking(move || simulate::outage(&workload, args.outage, bounds));
    let outage = simulated.await.expect("the simulation does not panic")?;
    if let Some(file) = &args.plot {
        output::write_file(file, &plot(&planned, args.outage, &outage).svg())?;
    }
    let report = Report::new(&args, &planned, &outage);
    if global.json {
        output::print_json(&report)?;
    } else {
        output::print(&report.human())?;
    }
    report.verdict()
}

/// What follows from the arguments by arithmetic alone.
#[derive(Clone, Copy, Debug)]
struct Planned {
    /// Of one process.
    workload: Workload,
    sizes: Sizes,
    bounds: Bounds,
    /// Of each datacenter, where there are several.
    window: Option<RangeSize>,
    /// Ids a year, drawn and lost by restarts.
    drawn: f64,
    wasted: f64,
}

impl Planned {
    fn of(args: &Plan) -> Outcome<Self> {
        let processes = f64::from(args.processes);
        let mut workload = Workload::surviving(args.outage, args.rate / processes, args.latency)?;
        workload.max_waste = args.max_waste.unwrap_or(workload.max_waste);
        let sizes = workload.sizes()?;
        let max = args.max.unwrap_or(u64::MAX >> (64 - args.bits));
        let window = Sizing::new(args.rate / f64::from(args.datacenters), args.isolation);
        let window = window.datacenters(args.datacenters).ids(max);
        let window = (args.datacenters > 1).then(|| window.plan()).transpose()?;
        let restarts = args.restarts * processes * SECONDS_A_YEAR / (24.0 * 3600.0);
        // A crash finds memory anywhere between the watermark and its fullest.
        let lost = sizes.watermark as f64 + sizes.step as f64 / 2.0;
        Ok(Self {
            workload,
            sizes,
            bounds: Bounds::new(1, max)?,
            window,
            drawn: args.rate * SECONDS_A_YEAR,
            wasted: restarts * lost,
        })
    }

    fn years(&self) -> f64 {
        self.bounds.max() as f64 / (self.drawn + self.wasted)
    }
}

fn plot(planned: &Planned, away: Duration, outage: &Outage) -> Plot {
    Plot {
        title: "Ids in memory while the store is away".to_owned(),
        x: "seconds, from the beginning of the outage".to_owned(),
        y: "ids in memory".to_owned(),
        labels: [label; 2],
        log: false,
        band: Some((0.0, away.as_secs_f64())),
        lines: vec![
            Line { name: "stock".to_owned(), points: outage.stock.clone() },
            Line {
                name: "watermark".to_owned(),
                points: outage.stock.iter().map(|(at, _)| (*at, planned.sizes.watermark as f64)).collect(),
            },
        ],
    }
}
