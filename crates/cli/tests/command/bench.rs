//! `idmill bench`: its figures are consistent, and it leaves nothing behind except the requested files.

use serde_json::Value;

use crate::common::Place;

const MODES: &str = "in-transaction,in-transaction-many,async,global,batch,async-batch,thread";

#[test]
fn every_mode_is_measured_for_each_number_of_threads() {
    let place = Place::new();
    let args =
        ["bench", "--threads", "1,3", "-n", "20", "--transaction", "1ms", "--step", "10", "--watermark", "5"];
    let report = place.json(&[&args[..], &["--json"]].concat());
    let runs = report["runs"].as_array().unwrap();
    let expected: Vec<_> =
        [1, 3].iter().flat_map(|threads| MODES.split(',').map(|mode| (mode, *threads))).collect();
    let measured: Vec<_> =
        runs.iter().map(|run| (run["mode"].as_str().unwrap(), run["threads"].as_u64().unwrap())).collect();
    assert_eq!(measured, expected);
    runs.iter().for_each(check);
    assert!(place.files().is_empty());
}

fn check(run: &Value) {
    let (mode, transactions) = (run["mode"].as_str().unwrap(), 20 * run["threads"].as_u64().unwrap());
    let of_one = if mode == "in-transaction-many" { 10 } else { 1 };
    assert_eq!(run["values"], transactions * of_one, "{run}");
    let reserves = run["reserves"].as_u64().unwrap();
    match mode {
        "in-transaction" | "in-transaction-many" | "async" => assert!(reserves >= transactions, "{run}"),
        // Callers that wait at the same time share a reserve.
        "global" => assert!(reserves <= transactions && run["waits"] == transactions, "{run}"),
        "batch" => assert_eq!(reserves, transactions.div_ceil(10), "{run}"),
        _ => assert!(reserves >= transactions.div_ceil(10), "{run}"),
    }
    let (times, corrected) = (&run["times_ms"], &run["corrected_ms"]);
    for name in ["p50", "p75", "p90", "p99", "p99_9", "max"] {
        assert!(times[name].as_f64() >= Some(1.0), "shorter than the work itself: {run}");
        // The correction keeps the measured times and adds shorter ones, so the corrected maximum is not
        // below any measured percentile.
        assert!(corrected["max"].as_f64() >= times[name].as_f64(), "{run}");
    }
}

#[test]
fn bench_on_a_named_store_consumes_its_ids() {
    let place = Place::new();
    let args =
        ["bench", "--mode", "in-transaction,async,batch", "--threads", "1", "-n", "7", "--step", "100"];
    let ran = place.run(&[&args[..], &["--transaction", "0s", "--store", "sqlite:ids.db"]].concat());
    assert!(ran.code == 0 && ran.err.contains("`idmill-bench` of sqlite:ids.db"), "{ran:?}");
    let left = place.json(&["show", "idmill-bench", "--store", "sqlite:ids.db", "--json"]);
    // The rest of the batch was given back at the end.
    assert_eq!(left["next"], 7 + 7 + 7 + 1);
}

#[test]
fn results_are_written_as_json_and_svg_on_request() {
    let place = Place::new();
    let args = ["bench", "--mode", "async-batch", "--threads", "2", "-n", "5", "--transaction", "1ms"];
    let ran = place.run(&[&args[..], &["--json", "bench.json", "--plot", "bench.svg"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ["VALUES/S", "P99.9", "RESERVES", "RETRIES"].iter().all(|name| ran.out.contains(name)),
        "{ran:?}"
    );
    assert!(ran.out.lines().all(|line| line.len() <= 90), "{}", ran.out);
    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
    let report: Value = serde_json::from_str(&read("bench.json")).unwrap();
    assert_eq!(report["runs"][0]["values"], 10);
    assert!(read("bench.svg").contains("async-batch × 2"));
    let ran = place.run(&[&args[..], &["bench.json"]].concat());
    assert!(ran.code == 2 && ran.err.contains("--json"), "{ran:?}");
    let ran = place.run(&[&args[..], &["--json", "--markdown"]].concat());
    assert!(ran.code == 2 && ran.err.contains("FILE"), "{ran:?}");
}

#[test]
fn published_runs_are_repeated_and_compared() {
    let place = Place::new();
    let report = place.json(&["bench", "--published", "-n", "2", "--plot", "bench.svg", "--json"]);
    let (runs, compared) = (report["runs"].as_array().unwrap(), report["published"].as_array().unwrap());
    assert_eq!((runs.len(), compared.len()), (8, 8));
    assert_eq!(
        (&report["step"], &report["watermark"], &report["transaction_ms"]),
        (&200.into(), &50.into(), &10.0.into())
    );
    for (run, compared) in runs.iter().zip(compared) {
        assert_eq!((&run["mode"], &run["threads"]), (&compared["mode"], &compared["threads"]));
        let of_base = |run: &&Value| run["mode"] == "in-transaction" && run["threads"] == compared["threads"];
        let speed = |run: &Value| run["values_per_second"].as_f64().unwrap();
        let base = speed(runs.iter().find(of_base).unwrap());
        let here = &compared["here"];
        assert!(is(&here["throughput_over_in_transaction"], speed(run) / base), "{run} {compared}");
        assert!(is(&here["p99_over_transaction"], run["corrected_ms"]["p99"].as_f64().unwrap() / 10.0));
    }
    let last = &compared[7]["published"];
    assert!(is(&last["throughput_over_in_transaction"], 53.0065) && is(&last["p99_over_transaction"], 3.0));
    let svg = std::fs::read_to_string(place.path().join("bench.svg")).unwrap();
    assert!(svg.contains("published, on Cloud Spanner"), "{svg}");
}

/// Compares six digits, because JSON parsers differ in the last ones.
fn is(value: &Value, expected: f64) -> bool {
    (value.as_f64().unwrap() / expected - 1.0).abs() < 1e-6
}

#[test]
fn markdown_prints_tables_and_published_rejects_settings() {
    let place = Place::new();
    let args = ["bench", "--mode", "async", "--threads", "1", "-n", "2", "--markdown"];
    let ran = place.run(&args);
    assert!(ran.code == 0 && ran.out.contains("\n| mode | threads | values/s |"), "{ran:?}");
    for args in [["--step", "7"], ["--threads", "2"], ["--mode", "async"], ["--transaction", "1ms"]] {
        let ran = place.run(&[&["bench", "--published"][..], &args].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
    }
    let ran = place.run(&["bench", "--published", "--store", "memory:"]);
    assert!(ran.code == 2 && ran.err.contains("`in-transaction` is not supported"), "{ran:?}");
}

/// The modes with prefetch start with a full memory, and draw too few ids to empty it.
#[test]
fn bench_does_not_count_the_first_fill_as_a_wait() {
    let place = Place::new();
    let args = ["bench", "--mode", "async-batch,thread", "--threads", "2", "-n", "5", "--json"];
    let report = place.json(&args);
    for run in report["runs"].as_array().unwrap() {
        assert_eq!(run["waits"], 0, "{run}");
    }
}

#[test]
fn store_without_transactions_rejects_the_mode() {
    let ran = Place::new().run(&["bench", "--store", "memory:", "--mode", "in-transaction"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("`memory:`") && ran.err.contains("`sqlite:`"), "{ran:?}");
    let ran = Place::new().run(&["bench", "--iterations", "0"]);
    assert_eq!(ran.code, 2, "{ran:?}");
}
