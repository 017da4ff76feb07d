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
    assert_eq!(place.lines(&["list", "--json"]).len(), 1);
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

#[test]
fn check_with_a_guard_leaves_no_claims() {
    let place = Place::with_sequence(1, 100);
    let guard = ["--guard", "file:w"];
    for _ in 0..2 {
        let ran = place.run(&[&["check", "--samples", "5"], &guard[..]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let ran = place.run(&[&["doctor", "--json"], &guard[..]].concat());
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{ran:?}");
    // A new sequence would start above remaining claims.
    assert_eq!(place.run(&[&["next", "idmill-check"], &guard[..]].concat()).ids(), [1]);
}
