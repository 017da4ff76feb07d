use clap::Parser as _;

use super::*;
use crate::args::{Cli, Command};

fn planned(args: &str) -> Planned {
    let cli = Cli::parse_from(format!("idmill plan {args}").split(' '));
    let Command::Plan(plan) = cli.command else { unreachable!("the command is `plan`") };
    Planned::of(plan).unwrap()
}

fn outage(empty_after: Option<Duration>) -> Outage {
    Outage { empty_after, reserves: 33, least: 1234 }
}

#[test]
fn years_are_rounded_and_short_times_are_days() {
    for (value, text) in [
        (1e9, "more than a thousand years"),
        (1000.0, "more than a thousand years"),
        (999.0, "999.0 years"),
        (1.25, "1.2 years"),
        (1.0, "1.0 years"),
        (0.5, "182 days"),
        (0.006, "2 days"),
        (0.003, "a day"),
        (0.001, "less than a day"),
        (0.0, "less than a day"),
    ] {
        assert_eq!(years(value), text, "{value}");
    }
}

#[test]
fn numbers_have_units_and_two_decimals() {
    for (value, text) in [
        (0.0, "0"),
        (7.0, "7"),
        (1e-6, "1.00e-6"),
        (0.01, "0.01"),
        (0.125, "0.12"),
        (999.5, "999.50"),
        (1500.0, "1.50 k"),
        (2e6, "2.00 M"),
        (9.99e11, "999.00 G"),
        (1e12, "1.00e12"),
    ] {
        assert_eq!(number(value), text, "{value}");
    }
}

#[test]
fn time_spans_are_whole_seconds_up_to_a_limit() {
    assert_eq!(whole(3661.9).to_string(), "1h 1m 1s");
    assert_eq!(whole(0.5).to_string(), "0s");
    assert_eq!(whole(1e300).to_string(), whole(1e10).to_string());
}

/// A datacenter draws 50 ids a second, and a process 25.
#[test]
fn plan_has_the_figures_of_its_arguments() {
    let args = "--rate 100 --processes 4 --outage 1m --latency 1s --datacenters 2 --isolation 1h --restarts 2 \
                --bits 40";
    let plan = planned(args);
    let expected = json!({
        "ids_per_second_and_process": 25.0,
        "step": 1880,
        "watermark": 1880,
        "waste_bound": 3760,
        "lasts_seconds": 75.2,
        "reserves_per_hour": 3600.0 * 100.0 / 1880.0,
        "max": (1_u64 << 40) - 1,
        "drawn_per_year": 100.0 * 31_557_600.0,
        // Two restarts a day of each of four processes lose a watermark and half a step.
        "wasted_per_year": 2922.0 * 2820.0,
        "years_until_exhaustion": 1_099_511_627_775.0 / (3_155_760_000.0 + 8_240_040.0),
        "window": { "range": 360_000, "threshold_percent": 50, "lasts_seconds": 3600.0, "held": 1_080_000 },
        "simulated": {
            "outage_seconds": 60.0,
            "empty_after_seconds": 9.876,
            "least_ids_in_memory": 1234,
            "reserves": 33,
        },
        "holds": false,
    });
    let emptied = outage(Some(Duration::from_millis(9_876)));
    assert_eq!(plan.json(&emptied), expected);
    let sound = plan.json(&outage(None));
    assert_eq!((&sound["holds"], &sound["simulated"]["empty_after_seconds"]), (&true.into(), &Value::Null));
    let expected = "\
each process  25 ids/s; processes: 4
watermark     1_880 ids = 25/s x (1m 11s 200ms + 4 x 1s)
step          1_880 ids; 191.49 reserves per hour in total
waste         at most 3_760 ids if a process crashes
settings      .outage_budget(Duration::from_millis(71_200)).max_buffered(3_760)
server        idmill serve --outage-budget 1m11s200ms --max-buffered 3760
lasts         at least 1m 15s without the store
simulated     outage of 1m: no caller waited; at least 1_234 ids were in memory
a year        3.16 G ids drawn, 8.24 M lost in restarts (0.26 %)
ids up to     1_099_511_627_775: 347.5 years
datacenters   range=360000&threshold=50: a window lasts 1h without the other datacenters; \
all windows hold at most 1_080_000 ids
holds         yes
";
    assert_eq!(plan.human(&outage(None)), expected);
    let text = plan.human(&emptied);
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert_eq!(
        [line("simulated"), line("holds")],
        [
            "simulated     outage of 1m: memory was empty after 9.9 s, and callers waited",
            "holds         NO: the ids in memory may run out during the outage",
        ]
    );
}

#[test]
fn plan_of_one_datacenter_has_no_window() {
    let plan = planned("--rate 100");
    assert_eq!(plan.json(&outage(None))["window"], Value::Null);
    assert!(!plan.human(&outage(None)).contains("datacenters"));
    assert_eq!(plan.bounds.max(), i64::MAX.unsigned_abs());
    assert_eq!(planned("--rate 100 --bits 64").bounds.max(), u64::MAX);
    assert_eq!(planned("--rate 100 --max 7").bounds.max(), 7);
}

#[test]
fn plan_that_does_not_hold_is_refused_with_a_remedy() {
    let (whole, emptied) = (outage(None), outage(Some(Duration::from_secs(9))));
    let runs_out = "the ids in memory may run out during the outage";
    let more_memory = "set `--max-buffered 63208`, or plan for a shorter `--outage`";
    let more_ids = "allow more ids (`--bits` or `--max`), or plan for a shorter `--outage`";
    let wider = "use wider ids (`--bits 63`), or plan for a shorter `--outage` to waste fewer ids";
    for (more, seen, refused) in [
        ("", &whole, None),
        ("", &emptied, Some((runs_out, more_ids))),
        (" --max-buffered 63208", &whole, None),
        (" --max-buffered 63208", &emptied, Some((runs_out, more_ids))),
        (" --max-buffered 63207", &emptied, Some((runs_out, more_memory))),
        // The simulation may be lucky, but the plan must cover the worst case.
        (" --max-buffered 100", &whole, Some((runs_out, more_memory))),
        (" --bits 31", &whole, Some(("the ids last 247 days", wider))),
        (" --bits 31", &emptied, Some((runs_out, more_ids))),
        (" --bits 31 --max-buffered 100", &whole, Some((runs_out, more_memory))),
        (" --bits 32", &whole, None),
    ] {
        let plan = planned(&format!("--rate 100{more}"));
        let error = plan.verdict(seen).err();
        assert_eq!(error.as_ref().map(CliError::message), refused.map(|(message, _)| message), "{more}");
        let hint = format!("hint: {:?}", refused.map(|(_, hint)| hint));
        assert!(error.is_none() || format!("{error:?}").contains(&hint), "{more}: {error:?}");
        let capped = plan.human(seen).contains("capped by --max-buffered");
        assert_eq!(capped, more.contains("63207") || more.contains("100"), "{more}");
    }
}
