//! A plan as it is printed.

use std::time::Duration;

use idmill::planning::Workload;
use serde::Serialize;

use super::simulate::Outage;
use super::{Planned, SECONDS_A_YEAR};
use crate::args::Plan;
use crate::failure::{Failure, Outcome};
use crate::output::{grouped, pairs, render, settings};

/// The plan. Names and meanings of the fields are stable.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    ids_per_second_and_process: f64,
    step: u64,
    watermark: u64,
    /// The most ids that a crash of one process loses.
    waste_bound: u64,
    /// How long memory lasts at least when the store goes away.
    lasts_seconds: f64,
    reserves_per_hour: f64,
    max: u64,
    drawn_per_year: f64,
    wasted_per_year: f64,
    years_until_exhaustion: f64,
    /// `null` for one datacenter.
    window: Option<Window>,
    simulated: Simulated,
    /// The outage alone.
    #[serde(skip)]
    survives: bool,
    /// The outage is survived, and the ids last for a year.
    holds: bool,
    #[serde(skip)]
    sums: Sums,
}

/// Of each datacenter.
#[derive(Debug, Serialize)]
struct Window {
    range: u64,
    threshold_percent: u8,
    lasts_seconds: f64,
    /// The most ids that all windows hold.
    held: u64,
}

#[derive(Debug, Serialize)]
struct Simulated {
    outage_seconds: f64,
    /// `null` if no caller waited.
    dry_after_seconds: Option<f64>,
    least_ids_in_memory: u64,
    reserves: u64,
}

/// What the human form shows beside the results.
#[derive(Debug)]
struct Sums {
    processes: u32,
    workload: Workload,
    outage: Duration,
    needed: Option<u64>,
}

impl Report {
    pub(super) fn new(args: &Plan, planned: &Planned, outage: &Outage) -> Self {
        let (workload, sizes) = (planned.workload, planned.sizes);
        let lasts = sizes.lasts(workload.rate);
        let report = Self {
            ids_per_second_and_process: workload.rate,
            step: sizes.step,
            watermark: sizes.watermark,
            waste_bound: sizes.most_in_memory(),
            lasts_seconds: lasts.as_secs_f64(),
            reserves_per_hour: 3600.0 * args.rate / sizes.step as f64,
            max: planned.bounds.max(),
            drawn_per_year: planned.drawn,
            wasted_per_year: planned.wasted,
            years_until_exhaustion: planned.years(),
            window: planned.window.map(|size| Window {
                range: size.range,
                threshold_percent: size.threshold,
                lasts_seconds: size.outlasts(args.rate / f64::from(args.datacenters)).as_secs_f64(),
                held: size.held,
            }),
            simulated: Simulated {
                outage_seconds: args.outage.as_secs_f64(),
                dry_after_seconds: outage.dry_after.map(|after| after.as_secs_f64()),
                least_ids_in_memory: outage.least,
                reserves: outage.reserves,
            },
            survives: lasts >= args.outage && outage.dry_after.is_none(),
            holds: false,
            sums: Sums {
                processes: args.processes,
                workload,
                outage: args.outage,
                needed: workload.least_waste().ok().filter(|needed| *needed > workload.max_waste),
            },
        };
        Self { holds: report.broken().is_none(), ..report }
    }

    /// Why it does not hold.
    fn broken(&self) -> Option<String> {
        if !self.survives {
            return Some("the plan does not survive the outage".to_owned());
        }
        let years_left = self.years_until_exhaustion;
        (years_left < 1.0).then(|| format!("the ids last {}", years(years_left)))
    }

    pub(super) fn human(&self) -> String {
        let work = &self.sums.workload;
        let span = |duration: Duration| humantime::format_duration(duration).to_string();
        let (outage, budget) = (span(self.sums.outage), span(work.outage_budget));
        let lasts = span(whole_seconds(self.lasts_seconds));
        let mut rows = vec![
            ("each process", format!("{} ids/s, one of {}", number(work.rate), self.sums.processes)),
            (
                "watermark",
                format!(
                    "{} ids = {}/s x ({budget} + 4 x {}){}",
                    grouped(self.watermark),
                    number(work.rate),
                    span(work.latency),
                    if self.sums.needed.is_some() { ", capped by --max-waste" } else { "" },
                ),
            ),
            (
                "step",
                format!(
                    "{} ids; {} reserves an hour in all",
                    grouped(self.step),
                    number(self.reserves_per_hour)
                ),
            ),
            ("waste", format!("at most {} ids by a crash of a process", grouped(self.waste_bound))),
            ("settings", settings(work)),
            ("lasts", format!("{lasts} without the store, at least")),
            ("simulated", self.simulated(&outage)),
            (
                "a year",
                format!(
                    "{} ids drawn, {} lost by restarts ({:.2} %)",
                    number(self.drawn_per_year),
                    number(self.wasted_per_year),
                    100.0 * self.wasted_per_year / (self.drawn_per_year + self.wasted_per_year),
                ),
            ),
            ("ids up to", format!("{}: {}", grouped(self.max), years(self.years_until_exhaustion))),
            ("holds", self.broken().map_or_else(|| "yes".to_owned(), |why| format!("NO: {why}"))),
        ];
        if let Some(window) = &self.window {
            rows.insert(rows.len() - 1, ("datacenters", window.human()));
        }
        render(&pairs(rows))
    }

    fn simulated(&self, outage: &str) -> String {
        let least = grouped(self.simulated.least_ids_in_memory);
        match self.simulated.dry_after_seconds {
            None => format!("{outage} away: no caller waited; at least {least} ids were in memory"),
            Some(after) => format!("{outage} away: memory was dry after {after:.1} s, and callers waited"),
        }
    }

    /// An error where the plan does not hold.
    pub(super) fn verdict(&self) -> Outcome {
        let Some(why) = self.broken() else { return Ok(()) };
        let failure = Failure::refused(why);
        Err(match self.sums.needed {
            _ if self.survives => {
                failure.hint("use wider ids (--bits 63), or waste fewer by a shorter --outage")
            }
            Some(needed) => failure.hint(format!("it needs --max-waste {needed}, or a shorter --outage")),
            None => failure.hint("give it more ids or a shorter --outage"),
        })
    }
}

impl Window {
    fn human(&self) -> String {
        format!(
            "range={}&threshold={}%25: a window lasts {} cut off; all hold at most {} ids",
            self.range,
            self.threshold_percent,
            humantime::format_duration(whole_seconds(self.lasts_seconds)),
            grouped(self.held),
        )
    }
}

fn years(years: f64) -> String {
    match years {
        1000.0.. => "more than a thousand years".to_owned(),
        1.0.. => format!("{years:.1} years"),
        _ => {
            let days = Duration::from_secs_f64((years * SECONDS_A_YEAR / 86_400.0).floor() * 86_400.0);
            match days.as_secs() / 86_400 {
                0 => "less than a day".to_owned(),
                1 => "a day".to_owned(),
                days => format!("{days} days"),
            }
        }
    }
}

/// As a span of time is printed: nobody reads its fractions, nor what is beyond some 300 years.
fn whole_seconds(seconds: f64) -> Duration {
    Duration::from_secs(Duration::from_secs_f64(seconds.min(1e10)).as_secs())
}

/// Three digits that count.
fn number(value: f64) -> String {
    match value {
        1e12.. => format!("{value:.2e}"),
        1e9.. => format!("{:.2} G", value / 1e9),
        1e6.. => format!("{:.2} M", value / 1e6),
        1e3.. => format!("{:.2} k", value / 1e3),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}
