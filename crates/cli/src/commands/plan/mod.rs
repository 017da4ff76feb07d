//! `idmill plan`: sizes and their cost, computed without a store.

mod simulate;

use std::time::Duration;

use humantime::format_duration;
use idmill::store::Bounds;
use idmill_shared_cache::{RangeSize, Sizing};
use serde_json::{Value, json};

use self::simulate::Outage;
use crate::args::{Global, Plan};
use crate::error::{CliError, Outcome};
use crate::output::{self, flags, grouped, pairs, render, scaled, settings};
use crate::planning::{Sizes, Workload};

const SECONDS_A_DAY: f64 = 86_400.0;
const SECONDS_A_YEAR: f64 = 365.25 * SECONDS_A_DAY;
/// The lowest rate of a process, in ids per second. Below it, there is nothing to plan.
const LEAST: f64 = 1e-6;

pub(super) async fn run(global: &Global, args: Plan) -> Outcome {
    if args.rate / f64::from(args.processes) < LEAST {
        let error = CliError::usage("at this `--rate`, a process draws less than one id in ten days");
        return Err(error.hint("set `--rate` to the ids drawn per second"));
    }
    let planned = Planned::of(args)?;
    let (workload, away) = (planned.workload, planned.args.outage);
    // The simulation pauses time on its runtime, so it needs a runtime of its own.
    let simulated = tokio::task::spawn_blocking(move || simulate::outage(&workload, away));
    let outage = simulated.await.expect("the simulation does not panic")?;
    output::result(global.json, &planned.json(&outage), |_| planned.human(&outage))?;
    planned.verdict(&outage)
}

/// The part of a plan that needs no simulation.
struct Planned {
    args: Plan,
    /// The load of one process.
    workload: Workload,
    sizes: Sizes,
    bounds: Bounds,
    /// The window of each datacenter, if there are several datacenters.
    window: Option<RangeSize>,
    /// Ids per year: drawn, and lost by restarts.
    drawn: f64,
    wasted: f64,
}

impl Planned {
    fn of(args: Plan) -> Outcome<Self> {
        let processes = f64::from(args.processes);
        let mut workload = Workload::surviving(args.outage, args.rate / processes, args.latency);
        workload.max_buffered = args.max_buffered.unwrap_or(workload.max_buffered);
        let sizes = workload.sizes();
        let max = args.max.unwrap_or(u64::MAX >> (64 - args.bits));
        let window = Sizing::new(args.rate / f64::from(args.datacenters), args.isolation);
        let window = window.datacenters(args.datacenters).ids(max);
        let window = (args.datacenters > 1).then(|| window.plan()).transpose()?;
        let restarts = args.restarts * processes * SECONDS_A_YEAR / SECONDS_A_DAY;
        // At a crash, memory holds on average the watermark plus half a step.
        let lost = sizes.watermark as f64 + sizes.step as f64 / 2.0;
        let (drawn, wasted) = (args.rate * SECONDS_A_YEAR, restarts * lost);
        Ok(Self { args, workload, sizes, bounds: Bounds::new(1, max)?, window, drawn, wasted })
    }

    /// Returns the minimum time that memory lasts while the store is unreachable.
    fn lasts(&self) -> Duration {
        self.sizes.lasts(self.workload.rate)
    }

    fn years(&self) -> f64 {
        self.bounds.max() as f64 / (self.drawn + self.wasted)
    }

    fn reserves_per_hour(&self) -> f64 {
        3600.0 * self.args.rate / self.sizes.step as f64
    }

    /// Returns how long a window lasts for an isolated datacenter.
    fn window_lasts(&self, size: &RangeSize) -> f64 {
        size.outlasts(self.args.rate / f64::from(self.args.datacenters)).as_secs_f64()
    }

    /// Returns the smallest `max_buffered` that covers the budget, if it is larger than the given one.
    fn needed(&self) -> Option<u64> {
        Some(self.workload.least_waste()).filter(|needed| *needed > self.workload.max_buffered)
    }

    fn survives(&self, outage: &Outage) -> bool {
        self.lasts() >= self.args.outage && outage.empty_after.is_none()
    }

    /// Returns why the plan fails: it does not survive the outage, or the ids last less than a year.
    fn broken(&self, outage: &Outage) -> Option<String> {
        if !self.survives(outage) {
            return Some("the ids in memory may run out during the outage".to_owned());
        }
        (self.years() < 1.0).then(|| format!("the ids last {}", years(self.years())))
    }

    /// Names and meanings of the fields are stable.
    fn json(&self, outage: &Outage) -> Value {
        json!({
            "ids_per_second_and_process": self.workload.rate,
            "step": self.sizes.step,
            "watermark": self.sizes.watermark,
            // The maximum number of ids that a crash of one process loses.
            "waste_bound": self.sizes.most_in_memory(),
            "lasts_seconds": self.lasts().as_secs_f64(),
            "reserves_per_hour": self.reserves_per_hour(),
            "max": self.bounds.max(),
            "drawn_per_year": self.drawn,
            "wasted_per_year": self.wasted,
            "years_until_exhaustion": self.years(),
            // The sizes of each datacenter's window; `held` is the sum over all datacenters. `null` if there
            // is only one datacenter.
            "window": self.window.as_ref().map(|size| json!({
                "range": size.range,
                "threshold_percent": size.threshold,
                "lasts_seconds": self.window_lasts(size),
                "held": size.held,
            })),
            "simulated": {
                "outage_seconds": self.args.outage.as_secs_f64(),
                // `null` if no caller waited.
                "empty_after_seconds": outage.empty_after.map(|after| after.as_secs_f64()),
                "least_ids_in_memory": outage.least,
                "reserves": outage.reserves,
            },
            "holds": self.broken(outage).is_none(),
        })
    }

    fn human(&self, outage: &Outage) -> String {
        let (work, sizes, rate) = (&self.workload, self.sizes, number(self.workload.rate));
        let (budget, latency) = (format_duration(work.outage_budget), format_duration(work.latency));
        let capped = if self.needed().is_some() { ", capped by --max-buffered" } else { "" };
        let (watermark, step) = (grouped(sizes.watermark), grouped(sizes.step));
        let (drawn, wasted) = (number(self.drawn), number(self.wasted));
        let lost = 100.0 * self.wasted / (self.drawn + self.wasted);
        let mut rows = vec![
            ("each process", format!("{rate} ids/s; processes: {}", self.args.processes)),
            ("watermark", format!("{watermark} ids = {rate}/s x ({budget} + 4 x {latency}){capped}")),
            ("step", format!("{step} ids; {} reserves per hour in total", number(self.reserves_per_hour()))),
            ("waste", format!("at most {} ids if a process crashes", grouped(sizes.most_in_memory()))),
            ("settings", settings(work)),
            ("server", format!("idmill serve {}", flags(work))),
            ("lasts", format!("at least {} without the store", whole(self.lasts().as_secs_f64()))),
            ("simulated", self.simulated(outage)),
            ("a year", format!("{drawn} ids drawn, {wasted} lost in restarts ({lost:.2} %)")),
            ("ids up to", format!("{}: {}", grouped(self.bounds.max()), years(self.years()))),
        ];
        rows.extend(self.window.as_ref().map(|size| ("datacenters", self.of_window(size))));
        let why = self.broken(outage);
        rows.push(("holds", why.map_or_else(|| "yes".to_owned(), |why| format!("NO: {why}"))));
        render(&pairs(rows))
    }

    fn simulated(&self, outage: &Outage) -> String {
        let (away, least) = (format_duration(self.args.outage), grouped(outage.least));
        match outage.empty_after.map(|after| after.as_secs_f64()) {
            None => format!("outage of {away}: no caller waited; at least {least} ids were in memory"),
            Some(after) => {
                format!("outage of {away}: memory was empty after {after:.1} s, and callers waited")
            }
        }
    }

    fn of_window(&self, size: &RangeSize) -> String {
        let (lasts, held) = (whole(self.window_lasts(size)), grouped(size.held));
        let option = format!("range={}&threshold={}", size.range, size.threshold);
        format!(
            "{option}: a window lasts {lasts} without the other datacenters; all windows hold at most \
             {held} ids"
        )
    }

    /// Returns an error if the plan does not hold.
    fn verdict(&self, outage: &Outage) -> Outcome {
        let Some(why) = self.broken(outage) else { return Ok(()) };
        let hint = match self.needed() {
            _ if self.survives(outage) => {
                "use wider ids (`--bits 63`), or plan for a shorter `--outage` to waste fewer ids".to_owned()
            }
            Some(needed) => format!("set `--max-buffered {needed}`, or plan for a shorter `--outage`"),
            None => "allow more ids (`--bits` or `--max`), or plan for a shorter `--outage`".to_owned(),
        };
        Err(CliError::refused(why).hint(hint))
    }
}

fn years(years: f64) -> String {
    match years {
        1000.0.. => "more than a thousand years".to_owned(),
        1.0.. => format!("{years:.1} years"),
        _ => match (years * SECONDS_A_YEAR / SECONDS_A_DAY).floor() {
            0.0 => "less than a day".to_owned(),
            1.0 => "a day".to_owned(),
            days => format!("{days} days"),
        },
    }
}

/// Formats a time span without fractions, up to some 300 years.
fn whole(seconds: f64) -> humantime::FormattedDuration {
    format_duration(Duration::from_secs(Duration::from_secs_f64(seconds.min(1e10)).as_secs()))
}

/// Formats two decimals and a unit, or an exponent from 10^12 and below 0.01.
fn number(value: f64) -> String {
    match scaled(value) {
        (1e3.., _) => format!("{value:.2e}"),
        (value, "") if value > 0.0 && value < 0.01 => format!("{value:.2e}"),
        (value, "") if value.fract() == 0.0 => format!("{value:.0}"),
        (value, unit) => format!("{value:.2}{unit}"),
    }
}

#[cfg(test)]
mod tests;
