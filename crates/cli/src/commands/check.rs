//! `idmill check`: what a store allows, how long it takes, and what sizes follow from that.

use std::time::{Duration, Instant};

use idmill::planning::{Sizes, Workload};
use idmill::store::{Bounds, Capabilities, Change, Durability, Page, Reserve, Store};
use idmill::{Result, SequenceName};
use serde::Serialize;

use crate::args::{Check, Global};
use crate::failure::{Failure, Outcome};
use crate::measuring::{in_micros, micros, millis_at};
use crate::opening;
use crate::output::{self, digits, pairs, render, settings, table};

/// What was found. Names and meanings of the fields are stable.
#[derive(Debug, Serialize)]
struct Report {
    store: String,
    /// `disk` or `process`.
    durability: &'static str,
    /// Whether several processes may use it at the same time.
    shared: bool,
    /// What another try costs after a lost reply: always `gap`.
    retry: &'static str,
    operations: Vec<Tried>,
    /// `null` where reserves failed.
    recommended: Option<Recommended>,
}

/// One operation, by the time it took.
#[derive(Debug, Serialize)]
struct Tried {
    operation: &'static str,
    samples: u64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// `null` where it went well.
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Recommended {
    ids_per_second: f64,
    outage_seconds: f64,
    latency_ms: f64,
    step: u64,
    watermark: u64,
    max_waste: u64,
    #[serde(skip)]
    workload: Workload,
}

pub(super) async fn run(global: &Global, args: &Check) -> Outcome {
    let url = opening::url(global)?;
    let store = opening::existing(global).await?;
    let name = scratch()?;
    let mut checked = Checked { store: &*store, name: &name, operations: Vec::new() };
    checked.all(args.samples).await;
    let operations = checked.operations;
    let recommended = recommend(&operations, args)?;
    let Capabilities { durability, shared, .. } = store.capabilities();
    let report = Report {
        store: url.to_string(),
        durability: if durability == Durability::Disk { "disk" } else { "process" },
        shared,
        retry: "gap",
        operations,
        recommended,
    };
    if global.json {
        output::print_json(&report)?;
    } else {
        output::print(&report.human())?;
    }
    report.verdict()
}

/// A name that nobody else has: what is checked is left as it was.
fn scratch() -> Result<SequenceName> {
    SequenceName::new(&format!("idmill-check-{:016x}", fastrand::u64(..)))
}

struct Checked<'a> {
    store: &'a dyn Store,
    name: &'a SequenceName,
    operations: Vec<Tried>,
}

impl Checked<'_> {
    /// All that a store is asked for in its life, on a sequence that is removed in the end.
    async fn all(&mut self, samples: u32) {
        let (store, name, create) = (self.store, self.name, Bounds::of::<i32>());
        let request = Reserve::new(name.clone(), 1).ceiling(create.max()).create(create);
        let page = Page::default();
        self.time("list", 1, || store.list(&page)).await;
        self.time("create", 1, || store.create(name, create)).await;
        self.time("reserve", samples, || store.reserve(&request)).await;
        self.time("inspect", samples, || store.inspect(name)).await;
        let change = Change::new().max(create.max() - 1);
        self.time("set", 1, || store.set(name, change)).await;
        self.time("remove", 1, || store.remove(name)).await;
    }

    async fn time<T, F>(&mut self, operation: &'static str, samples: u32, call: impl Fn() -> F)
    where
        F: Future<Output = Result<T>>,
    {
        let mut times = in_micros();
        let mut error = None;
        for _ in 0..samples {
            let before = Instant::now();
            if let Err(failed) = call().await {
                error = Some(failed.to_string());
                break;
            }
            times.saturating_record(micros(before.elapsed()));
        }
        let (p50_ms, p99_ms, max_ms) =
            (millis_at(&times, 0.5), millis_at(&times, 0.99), millis_at(&times, 1.0));
        self.operations.push(Tried { operation, samples: times.len(), p50_ms, p99_ms, max_ms, error });
    }
}

/// Sizes by the latency that nearly every reserve keeps to.
fn recommend(operations: &[Tried], args: &Check) -> Outcome<Option<Recommended>> {
    let reserve = operations.iter().find(|tried| tried.operation == "reserve" && tried.error.is_none());
    let Some(reserve) = reserve else { return Ok(None) };
    let latency = Duration::from_secs_f64(reserve.p99_ms / 1e3);
    let workload = Workload::surviving(args.outage, args.rate, latency)?;
    let Sizes { step, watermark } = workload.sizes()?;
    Ok(Some(Recommended {
        ids_per_second: args.rate,
        outage_seconds: args.outage.as_secs_f64(),
        latency_ms: reserve.p99_ms,
        step,
        watermark,
        max_waste: workload.max_waste,
        workload,
    }))
}

impl Report {
    fn human(&self) -> String {
        let mut operations =
            table(&["OPERATION", "SAMPLES", "P50 MS", "P99 MS", "MAX MS", "RESULT"], &[0, 5]);
        for tried in &self.operations {
            let mut cells = vec![tried.operation.to_owned(), tried.samples.to_string()];
            let times = [tried.p50_ms, tried.p99_ms, tried.max_ms];
            cells.extend(times.map(|time| if tried.samples > 0 { digits(time) } else { "-".to_owned() }));
            cells.push(if tried.error.is_some() { "FAILED" } else { "ok" }.to_owned());
            operations.add_row(cells);
        }
        let errors = self.operations.iter().filter_map(|tried| tried.error.as_deref());
        let errors: String = errors.flat_map(|error| [error, "\n"]).collect();
        let durable = match self.durability {
            "disk" => "a reserve outlives a crash of the machine",
            _ => "NONE: what was reserved last may be reserved again after a crash of the store",
        };
        let shared = if self.shared { "several at a time" } else { "ONE at a time" };
        let mut facts = vec![
            ("store", self.store.clone()),
            ("durability", durable.to_owned()),
            ("processes", shared.to_owned()),
            ("lost reply", "costs a gap of one step".to_owned()),
        ];
        facts.extend(self.recommended.iter().flat_map(Recommended::facts));
        format!("{}{errors}\n{}", render(&operations), render(&pairs(facts)))
    }

    fn verdict(&self) -> Outcome {
        let failed: Vec<_> = self.operations.iter().filter(|tried| tried.error.is_some()).collect();
        let Some(first) = failed.first() else { return Ok(()) };
        let failure =
            Failure::refused(format!("{} of {} operations failed", failed.len(), self.operations.len()));
        Err(failure.hint(format!(
            "grant what `{}` needs: see the page of the store, stores/NAME/README.md",
            first.operation
        )))
    }
}

impl Recommended {
    fn facts(&self) -> [(&'static str, String); 4] {
        let budget = humantime::format_duration(self.workload.outage_budget);
        let (rate, latency) = (self.ids_per_second, digits(self.latency_ms));
        [
            ("watermark", format!("{} = {rate}/s x ({budget} + 4 x {latency} ms)", self.watermark)),
            ("step", format!("{}, at least the watermark and 0.1 s or 20 latencies of ids", self.step)),
            ("waste", format!("at most {} ids by a crash", self.step + self.watermark)),
            ("settings", settings(&self.workload)),
        ]
    }
}
