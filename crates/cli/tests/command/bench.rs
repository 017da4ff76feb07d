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
fn results_are_written_as_json_on_request() {
    let place = Place::new();
    let args = ["bench", "--mode", "async-batch", "--threads", "2", "-n", "5", "--transaction", "1ms"];
    let ran = place.run(&[&args[..], &["--json", "bench.json"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ["VALUES/S", "P99.9", "RESERVES", "RETRIES"].iter().all(|name| ran.out.contains(name)),
        "{ran:?}"
    );
    assert!(ran.out.lines().all(|line| line.len() <= 90), "{}", ran.out);
    let written = std::fs::read_to_string(place.path().join("bench.json")).unwrap();
    let report: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(report["runs"][0]["values"], 10);
    let ran = place.run(&[&args[..], &["bench.json"]].concat());
    assert!(ran.code == 2 && ran.err.contains("--json"), "{ran:?}");
    let ran = place.run(&[&args[..], &["--json", "no/such/place.json"]].concat());
    assert!(ran.code == 1 && ran.err.contains("no/such/place.json cannot be written"), "{ran:?}");
    let ran = place.run(&[&args[..], &["--json", "--markdown"]].concat());
    assert!(ran.code == 2 && ran.err.contains("FILE"), "{ran:?}");
}

#[test]
fn tables_are_printed_as_markdown_on_request() {
    let place = Place::new();
    let ran = place.run(&["bench", "--mode", "async", "--threads", "1", "-n", "2", "--markdown"]);
    assert!(ran.code == 0 && ran.out.contains("\n| mode | threads | values/s |"), "{ran:?}");
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
