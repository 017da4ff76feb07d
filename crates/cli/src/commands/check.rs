//! `idmill check`: the capabilities of a store, its latencies, and recommended sizes.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use idmill::store::{Bounds, Capabilities, Change, Durability, Page, Reserve, Store};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_url::StoreUrl;
use serde::Serialize;
use serde_json::{Value, json};

use super::forget;
use crate::args::{Check, Global};
use crate::error::{CliError, Outcome};
use crate::measuring::{self, millis, nanos};
use crate::opening;
use crate::output::{self, digits, pairs, render, settings, table};
use crate::planning::Workload;
use crate::retrying::late;

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
    fn of(operation: &'static str, times: &Histogram<u64>, error: Option<&Error>) -> Self {
        let at = |quantile| millis(times.value_at_quantile(quantile));
        Self {
            operation,
            samples: times.len(),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms: at(1.0),
            error: error.map(Error::to_string),
            kind: error.map(Error::kind),
        }
    }

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
    let store = opening::unretried(global, args.timeout).await?;
    let url = opening::url(global)?;
    let operations = all(&*store, Some(&url), args).await?;
    let report = Report {
        store: url.to_string(),
        capabilities: store.capabilities(),
        workload: latency(&operations).map(|latency| Workload::surviving(args.outage, args.rate, latency)),
        outage: args.outage,
        operations,
    };
    output::result(global.json, &report.json(), |_| report.human())?;
    report.verdict()
}

/// Runs six operations of a store on a sequence, which is removed at the end, with its claims at the witness
/// of the URL.
async fn all(store: &dyn Store, url: Option<&StoreUrl>, args: &Check) -> Result<Vec<Tried>> {
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
    let removed = || async {
        store.remove(name, None).await?;
        match url {
            Some(url) => forget(store, url, name).await,
            None => Ok(()),
        }
    };
    Ok(vec![
        time(args.timeout, "list", 1, || store.list(&page)).await,
        time(args.timeout, "create", 1, created).await,
        time(args.timeout, "reserve", args.samples, || store.reserve(&request)).await,
        time(args.timeout, "inspect", args.samples, || store.inspect(name)).await,
        time(args.timeout, "set", 1, || store.set(name, change)).await,
        time(args.timeout, "remove", 1, removed).await,
    ])
}

/// Measures an operation, whose calls may each take `limit`.
async fn time<T, F>(limit: Duration, operation: &'static str, samples: u32, call: impl Fn() -> F) -> Tried
where
    F: Future<Output = Result<T>>,
{
    let (mut times, mut error) = (measuring::times(), None);
    for _ in 0..samples {
        let before = Instant::now();
        let outcome = tokio::time::timeout(limit, call()).await;
        if let Err(failed) = outcome.unwrap_or_else(|_| Err(late(limit))) {
            error = Some(failed);
            break;
        }
        times.saturating_record(nanos(before.elapsed()));
    }
    Tried::of(operation, &times, error.as_ref())
}

/// Returns the 99th percentile of reserves, unless one failed.
fn latency(operations: &[Tried]) -> Option<Duration> {
    let reserve = operations.iter().find(|tried| tried.operation == "reserve" && tried.error.is_none());
    reserve.map(|reserve| Duration::from_secs_f64(reserve.p99_ms / 1e3))
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
        let error =
            CliError::refused(format!("{} of {} operations failed", failed.len(), self.operations.len()));
        Err(error.hint(format!(
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
    use idmill::store::{Identity, MemoryStore, StoreFuture};
    use idmill_testing::faulty::{Faults, FaultyStore};

    use super::*;

    /// A store whose user may not delete.
    #[derive(Debug)]
    struct Undeletable(MemoryStore);

    impl Store for Undeletable {
        idmill::store_calls!(|this| this.0 => capabilities reserve create inspect list set);

        fn remove<'a>(&'a self, _: &'a SequenceName, _: Option<Identity>) -> StoreFuture<'a, Result<bool>> {
            Box::pin(async { Err(ErrorKind::Denied.into()) })
        }
    }

    #[tokio::test]
    async fn check_without_delete_passes_and_uses_one_sequence() {
        let memory = MemoryStore::new();
        let second = Duration::from_secs(1);
        let args = Check { rate: 1.0, outage: second, samples: 2, timeout: second };
        for _ in 0..3 {
            let operations = all(&Undeletable(memory.clone()), None, &args).await.unwrap();
            assert!(operations.iter().all(|tried| !tried.has_failed()), "{operations:?}");
            assert_eq!(operations.last().unwrap().result(), "no right");
        }
        let left = memory.list_all().await.unwrap();
        let maxima: Vec<_> = left.iter().map(|info| info.bounds.max()).collect();
        assert_eq!(maxima, [2_147_483_646], "`set` lowered the max");
    }

    /// Returns an operation that took 1 ms, 2 ms, and so on to 100 ms.
    fn tried(operation: &'static str, kind: Option<ErrorKind>) -> Tried {
        let mut times = measuring::times();
        (1..=100).for_each(|millis| times.record(millis * 1_000_000).unwrap());
        Tried::of(operation, &times, kind.map(Error::from).as_ref())
    }

    fn report(operations: Vec<Tried>) -> Report {
        let minute = Duration::from_secs(60);
        let workload = Workload::surviving(minute, 500.0, Duration::from_millis(10));
        let capabilities = MemoryStore::new().capabilities();
        let store = "memory:".to_owned();
        Report { store, capabilities, operations, outage: minute, workload: Some(workload) }
    }

    #[test]
    fn each_percentile_is_in_its_field_and_column() {
        let tried = tried("reserve", None);
        let rounded = [tried.p50_ms, tried.p99_ms, tried.max_ms].map(f64::round);
        assert_eq!((tried.samples, rounded), (100, [50.0, 99.0, 100.0]));
        assert_eq!(latency(std::slice::from_ref(&tried)).unwrap().as_millis(), 99);
        let fixed = Tried { p50_ms: 1.5, p99_ms: 12.25, max_ms: 123.4, ..tried };
        let report = report(vec![fixed, Tried { samples: 0, ..self::tried("set", Some(ErrorKind::Denied)) }]);
        let text = report.human();
        let lines: Vec<Vec<_>> = text.lines().take(3).map(|line| line.split_whitespace().collect()).collect();
        let expected: [&[&str]; 3] = [
            &["OPERATION", "SAMPLES", "P50", "MS", "P99", "MS", "MAX", "MS", "RESULT"],
            &["reserve", "100", "1.50", "12.2", "123", "ok"],
            &["set", "0", "-", "-", "-", "FAILED"],
        ];
        assert_eq!(lines, expected.map(<[&str]>::to_vec), "{text}");
        let first = &report.json()["operations"][0];
        assert_eq!((&first["p50_ms"], &first["p99_ms"]), (&json!(1.5), &json!(12.25)), "{first}");
        assert_eq!((&first["max_ms"], &first["error"]), (&json!(123.4), &json!(null)), "{first}");
    }

    #[test]
    fn only_reserves_without_an_error_set_the_latency() {
        assert_eq!(latency(&[tried("inspect", None)]), None);
        assert_eq!(latency(&[tried("reserve", Some(ErrorKind::Unavailable))]), None);
    }

    #[test]
    fn report_explains_the_recommended_sizes() {
        let report = report(Vec::new());
        let text = report.human();
        for line in [
            "store       memory:",
            "durability  NONE: after a crash of the store, the last reserved ids may be reserved again",
            "processes   several at a time",
            "watermark   35620 = 500/s x (1m 11s 200ms + 4 x 10.0 ms)",
            "waste       at most 71240 ids if a process crashes",
            "settings    .outage_budget(Duration::from_millis(71_200)).max_buffered(71_240)",
        ] {
            assert!(text.lines().any(|each| each == line), "{line}: {text}");
        }
        let json = report.json();
        let recommended = json!({
            "ids_per_second": 500.0, "outage_seconds": 60.0, "latency_ms": 10.0, "step": 35_620,
            "watermark": 35_620, "max_buffered": 71_240,
        });
        assert_eq!(json["recommended"], recommended);
        assert_eq!((&json["durability"], &json["shared"]), (&json!("process"), &json!(true)));
    }

    #[test]
    fn durable_store_of_one_process_is_reported() {
        let mut report = report(Vec::new());
        (report.capabilities.durability, report.capabilities.shared) = (Durability::Disk, false);
        report.workload = None;
        let (text, json) = (report.human(), report.json());
        assert!(text.contains("durability  reserves survive a crash of the machine\n"), "{text}");
        assert!(text.contains("processes   ONE at a time\n") && !text.contains("watermark"), "{text}");
        assert_eq!((&json["durability"], &json["shared"]), (&json!("disk"), &json!(false)));
        assert_eq!(json["recommended"], json!(null));
    }

    #[test]
    fn verdict_counts_failures_but_not_a_missing_right() {
        let denied = Some(ErrorKind::Denied);
        let fine = vec![tried("list", None), tried("remove", denied)];
        assert!(report(fine).verdict().is_ok());
        let failed =
            vec![tried("list", None), tried("set", denied), tried("remove", Some(ErrorKind::Conflict))];
        let results: Vec<_> = failed.iter().map(Tried::result).collect();
        assert_eq!(results, ["ok", "FAILED", "FAILED"]);
        let error = report(failed).verdict().unwrap_err();
        assert_eq!(error.message(), "2 of 3 operations failed");
    }

    #[tokio::test(start_paused = true)]
    async fn measuring_stops_at_the_first_error_or_late_answer() {
        let second = Duration::from_secs(1);
        let calls = std::cell::Cell::new(0);
        let call = async || {
            calls.set(calls.get() + 1);
            if calls.get() < 3 { Ok(()) } else { Err(Error::from(ErrorKind::Denied)) }
        };
        let failed = time(second, "set", 5, call).await;
        assert_eq!((calls.get(), failed.samples, failed.kind), (3, 2, Some(ErrorKind::Denied)));
        let late = time(second, "set", 5, std::future::pending::<Result<()>>).await;
        assert_eq!((late.samples, late.kind), (0, Some(ErrorKind::Deadline)));
        assert_eq!(late.error.unwrap(), "the store did not answer within 1s");
        let whole = time(second, "set", 5, async || Ok(())).await;
        assert_eq!((whole.samples, whole.kind), (5, None));
    }
    #[tokio::test]
    async fn each_operation_of_a_failed_store_fails() {
        let second = Duration::from_secs(1);
        let args = Check { rate: 1.0, outage: second, samples: 2, timeout: second };
        let operations = all(&FaultyStore::with_faults(Faults::outage()), None, &args).await.unwrap();
        let failed: Vec<_> = operations.iter().filter(|tried| tried.has_failed()).collect();
        assert_eq!(failed.len(), 6, "{operations:?}");
    }
}
