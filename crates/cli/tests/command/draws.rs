//! Tests `idmill draws`: its figures are consistent, and it removes its sequences.

use serde_json::Value;

use crate::common::{Place, keys};

const MODES: &str = "handle,shared,thread,block,take,async,batch,global";

#[test]
fn each_mode_is_measured_per_thread_count_with_a_baseline() {
    let place = Place::new();
    let report = place.json(&["draws", "--mode", MODES, "--threads", "1,2", "-n", "100", "--json"]);
    let runs = report["runs"].as_array().unwrap();
    let subjects: Vec<_> =
        runs.iter().map(|run| (run["mode"].as_str().unwrap(), run["threads"].as_u64().unwrap())).collect();
    let expected: Vec<_> = [1, 2]
        .iter()
        .flat_map(|threads| std::iter::once("bare").chain(MODES.split(',')).map(|mode| (mode, *threads)))
        .collect();
    assert_eq!(subjects, expected);
    for run in runs {
        check(run);
    }
    for of_threads in runs.chunks(runs.len() / 2) {
        let number = |run: &Value, field: &str| run[field].as_f64().unwrap();
        for run in of_threads {
            let ratio = number(run, "ns_per_id") / number(&of_threads[0], "ns_per_id");
            assert!((number(run, "ratio_to_bare") / ratio - 1.0).abs() < 1e-6, "{run} {}", of_threads[0]);
        }
    }
    assert!(place.files().is_empty());
    let store = report["store"].as_str().unwrap().trim_start_matches("sqlite:");
    assert!(!std::path::Path::new(store).exists(), "{store}");
}

fn check(run: &Value) {
    let fields = [
        "draw_ns",
        "gaps",
        "ids",
        "ids_per_second",
        "left",
        "mode",
        "ns_per_id",
        "ratio_to_bare",
        "reserves",
        "seconds",
        "threads",
        "waits",
    ];
    assert_eq!(keys(run), fields, "{run}");
    assert_eq!(keys(&run["draw_ns"]), ["max", "p50", "p90", "p99", "p99_9", "p99_99"]);
    let all = 100 * run["threads"].as_u64().unwrap();
    assert_eq!(run["ids"], all, "{run}");
    let (nanos, rate) = (run["ns_per_id"].as_f64().unwrap(), run["ids_per_second"].as_f64().unwrap());
    assert!((nanos * rate * 1e-7 / all as f64 - 1.0).abs() < 1e-6, "{run}");
    assert_eq!(run["reserves"].is_null(), run["mode"] == "bare", "{run}");
    if run["mode"] == "global" {
        assert!(run["waits"].as_u64() >= run["ids"].as_u64(), "{run}");
    }
}

#[test]
fn persistent_store_is_used_only_with_the_store_flag() {
    let place = Place::new();
    let args = ["draws", "--mode", "batch", "-n", "1000", "--step", "100"];
    let ran = place.command(&args).env("IDMILL_STORE", "sqlite:env.db").output().unwrap();
    assert!(ran.status.success() && place.files().is_empty());
    assert!(String::from_utf8(ran.stderr).unwrap().contains("a temporary store"));
    let ran = place.run(&[&args[..], &["--store", "sqlite:ids.db"]].concat());
    assert!(ran.code == 0 && ran.err.contains("`idmill-draws` of sqlite:ids.db"), "{ran:?}");
    let left = place.json(&["show", "idmill-draws", "--store", "sqlite:ids.db", "--json"]);
    assert_eq!(left["next"], 1001);
}

#[test]
fn tables_have_headings_for_all_figures() {
    let ran = Place::new().run(&["draws", "--mode", "handle", "--duration", "50ms"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for heading in ["IDS/S", "NS/ID", "X BARE", "RESERVES", "WAITED", "GAPS", "LEFT", "P99.99", "MAX"] {
        assert!(ran.out.contains(heading), "{}", ran.out);
    }
    assert!(ran.out.lines().all(|line| line.len() <= 80), "{}", ran.out);
}
