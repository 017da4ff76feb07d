//! `idmill check`: the capabilities of a store, its latencies, and recommended sizes.

use std::time::{Duration, Instant};

use idmill::store::{Bounds, Capabilities, Change, Durability, Page, Reserve, Store};
use idmill::{Error, ErrorKind, Result, SequenceName};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::{Check, Global};
use crate::failure::{Failure, Outcome};
use crate::measuring::{self, millis, nanos};
use crate::opening;
use crate::output::{self, digits, pairs, render, settings, table};
use crate::planning::Workload;

/// The sequence of every check. A user without the right to remove it leaves it behind, and uses it again.
const SEQUENCE: &str = "idmill-check";

/// The results.
struct Report {
    store: String,
    capabilities: Capabilities,
    operations: Vec<Tried>,
    outage: Duration,
    /// Based on the 99th percentile of reserves; `None` if reserves failed.
    workload: Option<Workload>,
}

/// The latencies of one operation. Names and meanings of the fields are stable.
#[derive(Debug, Serialize)]
struct Tried {
    operation: &'static str,
    samples: u64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// `null` if the operation succeeded.
    error: Option<String>,
    #[serde(skip)]
    kind: Option<ErrorKind>,
}

impl Tried {
    fn result(&self) -> &'static str {
        match self.kind {
            None => "ok",
            Some(_) if self.has_failed() => "FAILED",
            Some(_) => "no right",
        }
    }

    /// Whether draws would fail too. They do not need the right to remove.
    fn has_failed(&self) -> bool {
        self.kind.is_some_and(|kind| self.operation != "remove" || kind != ErrorKind::Denied)
    }
}

pub(super) async fn run(global: &Global, args: &Check) -> Outcome {
    let store = opening::unretried(global).await?;
    let operations = all(&*store, args.samples).await?;
    let reserve = operations.iter().find(|tried| tried.operation == "reserve" && tried.error.is_none());
    let latency = reserve.map(|reserve| Duration::from_secs_f64(reserve.p99_ms / 1e3));
    let report = Report {
        store: opening::url(global)?.to_string(),
        capabilities: store.capabilities(),
        workload: latency.map(|latency| Workload::surviving(args.outage, args.rate, latency)),
        outage: args.outage,
        operations,
    };
    output::result(global.json, &report.json(), |_| report.human())?;
    report.verdict()
}

/// Runs six operations of a store on a sequence, which is removed at the end.
async fn all(store: &dyn Store, samples: u32) -> Result<Vec<Tried>> {
    let name = &SequenceName::new(SEQUENCE)?;
    let create = Bounds::of::<i32>();
    let request = Reserve::new(name.clone(), 1).ceiling(create.max()).create(create);
    let (page, change) = (Page::default(), Change::new().max(create.max() - 1));
    let created = || async {
        match store.create(name, create).await {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    };
    Ok(vec![
        time("list", 1, || store.list(&page)).await,
        time("create", 1, created).await,
        time("reserve", samples, || store.reserve(&request)).await,
        time("inspect", samples, || store.inspect(name)).await,
        time("set", 1, || store.set(name, change)).await,
        time("remove", 1, || store.remove(name)).await,
    ])
}

async fn time<T, F>(operation: &'static str, samples: u32, call: impl Fn() -> F) -> Tried
where
    F: Future<Output = Result<T>>,
{
    let (mut times, mut error) = (measuring::times(), None);
    for _ in 0..samples {
        let before = Instant::now();
        if let Err(failed) = call().await {
            error = Some(failed);
            break;
        }
        times.saturating_record(nanos(before.elapsed()));
    }
    let [p50_ms, p99_ms, max_ms] = [0.5, 0.99, 1.0].map(|quantile| millis(times.value_at_quantile(quantile)));
    let (kind, error) = (error.as_ref().map(Error::kind), error.map(|error| error.to_string()));
    Tried { operation, samples: times.len(), p50_ms, p99_ms, max_ms, error, kind }
}

impl Report {
    fn is_durable(&self) -> bool {
        self.capabilities.durability == Durability::Disk
    }

    /// Names and meanings of the fields are stable.
    fn json(&self) -> Value {
        json!({
            "store": self.store,
            "durability": if self.is_durable() { "disk" } else { "process" },
            // Whether several processes may use the store at the same time.
            "shared": self.capabilities.shared,
            // The cost of a retry after a lost reply.
            "retry": "gap",
            "operations": self.operations,
            // `null` if reserves failed.
            "recommended": self.workload.map(|workload| json!({
                "ids_per_second": workload.rate,
                "outage_seconds": self.outage.as_secs_f64(),
                "latency_ms": workload.latency.as_secs_f64() * 1e3,
                "step": workload.sizes().step,
                "watermark": workload.sizes().watermark,
                "max_buffered": workload.max_buffered,
            })),
        })
    }

    fn human(&self) -> String {
        let headings = ["OPERATION", "SAMPLES", "P50 MS", "P99 MS", "MAX MS", "RESULT"];
        let mut operations = table(&headings, &[0, 5]);
        for tried in &self.operations {
            let mut cells = vec![tried.operation.to_owned(), tried.samples.to_string()];
            let times = [tried.p50_ms, tried.p99_ms, tried.max_ms];
            cells.extend(times.map(|time| if tried.samples > 0 { digits(time) } else { "-".to_owned() }));
            cells.push(tried.result().to_owned());
            operations.add_row(cells);
        }
        let errors = self.operations.iter().filter_map(|tried| tried.error.as_deref());
        let errors: String = errors.flat_map(|error| [error, "\n"]).collect();
        let durable = if self.is_durable() {
            "reserves survive a crash of the machine"
        } else {
            "NONE: after a crash of the store, the last reserved ids may be reserved again"
        };
        let shared = if self.capabilities.shared { "several at a time" } else { "ONE at a time" };
        let mut facts = vec![
            ("store", self.store.clone()),
            ("durability", durable.to_owned()),
            ("processes", shared.to_owned()),
            ("lost reply", "costs a gap of one step".to_owned()),
        ];
        facts.extend(self.workload.iter().flat_map(recommended));
        format!("{}{errors}\n{}", render(&operations), render(&pairs(facts)))
    }

    fn verdict(&self) -> Outcome {
        let failed: Vec<_> = self.operations.iter().filter(|tried| tried.has_failed()).collect();
        let Some(first) = failed.first() else { return Ok(()) };
        let failure =
            Failure::refused(format!("{} of {} operations failed", failed.len(), self.operations.len()));
        Err(failure.hint(format!(
            "see the error of `{}`; `stores/NAME/README.md` lists the required permissions",
            first.operation
        )))
    }
}

fn recommended(workload: &Workload) -> [(&'static str, String); 4] {
    let (sizes, budget) = (workload.sizes(), humantime::format_duration(workload.outage_budget));
    let (rate, latency) = (workload.rate, digits(workload.latency.as_secs_f64() * 1e3));
    [
        ("watermark", format!("{} = {rate}/s x ({budget} + 4 x {latency} ms)", sizes.watermark)),
        ("step", format!("{}: at least the watermark", sizes.step)),
        ("waste", format!("at most {} ids if a process crashes", sizes.most_in_memory())),
        ("settings", settings(workload)),
    ]
}

#[cfg(test)]
mod tests {
    use idmill::store::{MemoryStore, StoreFuture};

    use super::*;

    /// A store whose user may not delete.
    #[derive(Debug)]
    struct Undeletable(MemoryStore);

    impl Store for Undeletable {
        idmill::store_calls!(|this| this.0 => capabilities reserve create inspect list set);

        fn remove<'a>(&'a self, _: &'a SequenceName) -> StoreFuture<'a, Result<bool>> {
            Box::pin(async { Err(ErrorKind::Denied.into()) })
        }
    }

    #[tokio::test]
    async fn check_without_delete_passes_and_uses_one_sequence() {
        let memory = MemoryStore::new();
        for _ in 0..3 {
            let operations = all(&Undeletable(memory.clone()), 2).await.unwrap();
            assert!(operations.iter().all(|tried| !tried.has_failed()), "{operations:?}");
            assert_eq!(operations.last().unwrap().result(), "no right");
        }
        assert_eq!(memory.list_all().await.unwrap().len(), 1);
    }
}
