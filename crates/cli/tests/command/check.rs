//! `idmill check`: reports the capabilities, recommends sizes from measured latencies, and leaves nothing
//! behind.

use crate::common::Place;

#[test]
fn check_measures_each_operation_and_leaves_no_trace() {
    let place = Place::with_sequence(1, 100);
    let report = place.json(&["check", "--rate", "1000", "--outage", "1s", "--samples", "7", "--json"]);
    let operations = report["operations"].as_array().unwrap();
    let names: Vec<_> = operations.iter().map(|tried| tried["operation"].as_str().unwrap()).collect();
    assert_eq!(names, ["list", "create", "reserve", "inspect", "set", "remove"]);
    assert!(operations.iter().all(|tried| tried["error"].is_null()), "{report}");
    assert_eq!((&report["durability"], &operations[2]["samples"]), (&"disk".into(), &7.into()));
    let (latency, watermark) = (
        report["recommended"]["latency_ms"].as_f64().unwrap(),
        report["recommended"]["watermark"].as_f64().unwrap(),
    );
    // The watermark covers the outage plus 2 %, the time until the store's return is detected (the outage,
    // but at most 10 s), and four latencies.
    assert!((watermark - (2020.0 + 4.0 * latency)).abs() <= 1.0, "{report}");
    let micros = format!("{:.0}us", latency * 1e3);
    let plan = place.json(&["plan", "--rate", "1000", "--outage", "1s", "--latency", &micros, "--json"]);
    for field in ["watermark", "step"] {
        assert_eq!(plan[field], report["recommended"][field], "plan and check disagree: {plan} {report}");
    }
    let left = place.json(&["list", "--json"]);
    assert_eq!(left["sequences"].as_array().unwrap().len(), 1, "{left}");
}

#[test]
fn report_names_rejected_operations() {
    let place = Place::with_sequence(1, 100);
    let ran = place.run(&["check", "--store", "sqlite:idmill.db?mode=ro"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.err.contains("3 of 6 operations failed") && ran.err.contains("`create`"), "{ran:?}");
    assert!(ran.out.contains("write a readonly database"), "{ran:?}");
    assert_eq!(Place::new().run(&["check"]).code, 4, "there is no store to check");
}
