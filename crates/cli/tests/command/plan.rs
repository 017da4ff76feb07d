//! `idmill plan`: its results, and its errors for plans that do not hold.

use crate::common::Place;

#[test]
fn plan_covers_its_outage_and_states_the_waste() {
    let plan = Place::new().json(&["plan", "--rate", "2000", "--processes", "4", "--outage", "1m", "--json"]);
    let watermark = plan["watermark"].as_u64().unwrap();
    assert!((35_620..=35_622).contains(&watermark), "500 a second for 71.2 s and 40 ms: {plan}");
    assert_eq!(plan["waste_bound"], 2 * watermark);
    assert_eq!((&plan["holds"], &plan["simulated"]["empty_after_seconds"]), (&true.into(), &().into()));
    assert!(plan["simulated"]["reserves"].as_u64().unwrap() > 30);
}

#[test]
fn too_low_max_buffered_is_rejected_with_a_sufficient_one() {
    let place = Place::new();
    let args = ["plan", "--rate", "500", "--outage", "1m", "--max-buffered"];
    let ran = place.run(&[&args[..], &["10_000"]].concat());
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.out.contains("memory was empty after 10.0 s"), "{ran:?}");
    assert!(ran.err.contains("--max-buffered 7124"), "{ran:?}");
    assert_eq!(place.run(&[&args[..], &["71_250"]].concat()).code, 0);
}

#[test]
fn ids_that_do_not_last_are_refused() {
    let ran = Place::new().run(&["plan", "--rate", "1000", "--bits", "31", "--outage", "1s"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.err.contains("last 24 days"), "{ran:?}");
    assert!(ran.out.contains("holds         NO: the ids last 24 days\n"), "{ran:?}");
    // Fewer ids than the simulation draws.
    let ran = Place::new().run(&["plan", "--rate", "100", "--max", "100"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.err.contains("last less than a day") && ran.err.contains("wider ids"), "{ran:?}");
    for slow in [&["--rate", "0"][..], &["--rate", "1e-20"], &["--rate", "1e-3", "--processes", "2000"]] {
        let ran = Place::new().run(&[&["plan"], slow].concat());
        assert!(ran.code == 2 && ran.err.contains("less than one id in ten days"), "{ran:?}");
    }
    for enough in [&["--rate", "1e-6"][..], &["--rate", "2e-6", "--processes", "2"]] {
        let ran = Place::new().run(&[&["plan", "--outage", "1s"], enough].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

#[test]
fn slow_sequence_is_planned() {
    let ran = Place::new().run(&["plan", "--rate", "0.01", "--latency", "1s"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn datacenter_window_is_sized_or_rejected_as_too_wide() {
    let place = Place::new();
    let args = ["plan", "--rate", "300", "--datacenters", "3", "--isolation", "24h", "--outage", "1m"];
    let plan = place.json(&[&args[..], &["--json"]].concat());
    assert_eq!(plan["window"]["range"], 17_280_000, "a hundred a second for a day, twice: {plan}");
    assert_eq!(plan["window"]["lasts_seconds"], 86_400.0);
    // The store takes the threshold as a whole number, without a percent sign.
    let ran = place.run(&args);
    assert!(ran.out.contains("range=17280000&threshold=50: "), "{ran:?}");
    let ran = place.run(&[&args[..], &["--bits", "24"]].concat());
    assert!(ran.code == 2 && ran.err.contains("wider ids"), "{ran:?}");
}
