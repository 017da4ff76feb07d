//! `idmill next`: prints only ids, without duplicates.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use idmill_sqlite::rusqlite;

use crate::common::{Place, Ran};

#[test]
fn order_is_chosen_by_name() {
    let place = Place::new();
    for order in ["process", "thread", "global"] {
        let ids = place.run(&["next", order, "-n", "3", "--step", "10", "--order", order]).ids();
        assert_eq!(ids, [1, 2, 3], "{order}");
    }
    let ran = place.run(&["next", "s", "--order", "none"]);
    assert!(ran.code == 2 && ran.err.contains("use process, thread or global"), "{ran:?}");
}

#[test]
fn first_run_creates_the_store_and_the_second_continues() {
    let place = Place::new();
    let first = place.run(&["next", "s", "-n", "3"]);
    assert_eq!((first.code, first.out.as_str()), (0, "1\n2\n3\n"));
    assert!(first.err.starts_with("note: created the store sqlite:idmill.db (/"), "{}", first.err);
    assert!(first.err.contains("note: `s` is a new sequence\n"), "{}", first.err);
    assert_eq!(first.err.lines().count(), 2);
    let second = place.run(&["next", "s"]);
    assert_eq!((second.code, second.out.as_str(), second.err.as_str()), (0, "4\n", ""));
    assert_eq!(place.files(), ["idmill.db"]);
}

#[test]
fn new_sequence_note_suggests_a_similar_name() {
    let place = Place::new();
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    let first = place.run(&["next", "orders"]);
    assert_eq!((first.ids(), first.err.as_str()), (vec![1], ""), "it existed");
    let typo = place.run(&["next", "odrers", "--json"]);
    assert_eq!(typo.ids(), [1]);
    let note: serde_json::Value = serde_json::from_str(&typo.err).unwrap();
    assert_eq!(
        note["note"],
        "`odrers` is a new sequence; did you mean orders? `--existing` prevents new sequences"
    );
    let far = place.run(&["next", "invoices", "--start", "5"]);
    assert_eq!((far.ids(), far.err.as_str()), (vec![5], "note: `invoices` is a new sequence\n"));
}

#[test]
fn existing_flag_never_creates_a_sequence() {
    let place = Place::new();
    let nowhere = place.run(&["next", "orders", "--existing"]);
    assert_eq!((nowhere.code, nowhere.out.as_str()), (4, ""));
    assert!(place.files().is_empty(), "a store was made");
    assert_eq!(place.run(&["next", "orders"]).ids(), [1]);
    let by = |args: &[&str], variable: &str| -> Ran {
        place.command(args).env("IDMILL_EXISTING", variable).output().unwrap().into()
    };
    assert_eq!(place.run(&["next", "orders", "--existing"]).ids(), [2]);
    assert_eq!(by(&["next", "orders"], "yes").ids(), [3]);
    for typo in [
        place.run(&["next", "odrers", "--existing"]),
        place.run(&["next", "odrers", "--existing", "--start", "1"]),
        by(&["next", "odrers"], "1"),
        place.run(&["next", "odrers", "--store", "sqlite:idmill.db?existing=true"]),
    ] {
        assert_eq!((typo.code, typo.out.as_str()), (4, ""), "{typo:?}");
        assert!(typo.err.contains("hint: did you mean orders?"), "{}", typo.err);
    }
    assert_eq!(place.lines(&["list", "--json"]).len(), 1);
    assert_eq!(by(&["next", "new"], "no").ids(), [1]);
    let wrong = by(&["next", "new"], "maybe");
    assert!(wrong.code == 2 && wrong.err.contains("use `true` or `false`"), "{wrong:?}");
}

#[test]
fn printed_ids_are_all_that_stay_reserved() {
    let place = Place::with_sequence(1, 10_000_000);
    for (args, printed, next) in [
        (vec!["-n", "250_001"], 250_001, 250_002_u64),
        (vec!["-n", "3", "--step", "10"], 3, 250_005),
        (vec!["-n", "25", "--step", "10"], 25, 250_030),
        (vec!["-n", "250_000", "--step", "150_000"], 250_000, 500_030),
    ] {
        let ran = place.run(&[&["next", "s"], &args[..]].concat());
        assert_eq!(ran.ids().len(), printed);
        assert!(ran.ids().is_sorted_by(|a, b| a < b));
        assert_eq!(place.show()["next"], next, "{args:?}");
    }
}

#[test]
fn count_of_zero_changes_nothing() {
    let place = Place::new();
    let ran = place.run(&["next", "s", "-n", "0"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""));
    assert!(place.files().is_empty());
}

#[test]
fn bounds_create_a_sequence_or_must_match_it() {
    let place = Place::new();
    let bounds = ["--start", "100", "--max", "200"];
    assert_eq!(place.run(&[&["next", "s"], &bounds[..]].concat()).ids(), [100]);
    assert_eq!(place.run(&[&["next", "s"], &bounds[..]].concat()).ids(), [101]);
    for (flag, value, says) in
        [("--start", "1", "exists with start 100, not 1"), ("--max", "300", "exists with max 200, not 300")]
    {
        let ran = place.run(&["next", "s", flag, value]);
        assert_eq!((ran.code, ran.out.as_str()), (5, ""));
        assert!(ran.err.contains(says) && ran.err.contains("hint: "), "{}", ran.err);
    }
    assert_eq!(place.show()["next"], 102);
}

#[test]
fn exhausted_sequence_prints_its_rest_and_an_error() {
    for step in [&[][..], &["--step", "4"], &["--step", "1000"]] {
        let place = Place::with_sequence(1, 7);
        let ran = place.run(&[&["next", "s", "-n", "10"], step].concat());
        assert_eq!((ran.code, ran.ids()), (3, (1..=7).collect()), "{step:?}");
        assert!(ran.err.contains("exhausted; 7 of 10 ids were printed"), "{}", ran.err);
        let ran = place.run(&["next", "s", "--json"]);
        assert_eq!((ran.code, ran.out.as_str()), (3, ""));
        assert!(
            ran.err.contains(r#""kind":"exhausted""#) && ran.err.contains(r#""printed":0"#),
            "{}",
            ran.err
        );
    }
}

#[test]
fn largest_possible_ids_are_printed() {
    let place = Place::with_sequence(u64::MAX - 1, u64::MAX);
    assert_eq!(place.run(&["next", "s", "-n", "2"]).ids(), [u64::MAX - 1, u64::MAX]);
    assert_eq!(place.show()["next"], serde_json::Value::Null);
    assert_eq!(place.run(&["next", "s"]).code, 3);
}

#[test]
fn closed_pipe_exits_silently_and_loses_at_most_a_chunk() {
    let place = Place::with_sequence(1, u64::MAX);
    let mut child = place
        .command(&["next", "s", "-n", "100_000_000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "1\n");
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(place.show()["next"].as_u64().unwrap() <= 100_001);
}

#[test]
#[cfg(target_os = "linux")]
fn full_disk_behind_stdout_is_an_error() {
    let place = Place::with_sequence(1, u64::MAX);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = Ran::from(place.command(&["next", "s"]).stdout(full).output().unwrap());
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("ids cannot be written to stdout"), "{}", ran.err);
}

#[test]
fn concurrent_processes_on_a_new_file_share_no_id() {
    let place = Place::new();
    let start = |_| {
        let mut command = place.command(&["next", "s", "-n", "500", "--step", "7"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..8).map(start).collect();
    let mut all = BTreeSet::new();
    for child in children {
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!(ran.code, 0, "{ran:?}");
        let ids = ran.ids();
        assert_eq!(ids.len(), 500);
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert!(ids.into_iter().all(|id| all.insert(id)), "an id was printed twice");
    }
    assert_eq!(all.len(), 4000);
}

#[test]
#[cfg(unix)]
fn signal_stops_next_after_a_whole_line() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let place = Place::with_sequence(1, u64::MAX);
        let mut command = place.command(&["next", "s", "-n", "1_000_000_000"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        // Wait for output: the command is then running, and soon blocked by a full pipe.
        let mut text = vec![0; 100_000];
        out.read_exact(&mut text).unwrap();
        let kill = format!("kill -{signal} {}", child.id());
        assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(code));
        out.read_to_end(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let printed = text.lines().count();
        // The last id equals the number of lines: no line is missing or truncated.
        assert!(text.ends_with(&format!("\n{printed}\n")));
        assert_eq!(place.run(&["next", "s"]).ids().len(), 1);
    }
}

#[test]
#[cfg(unix)]
fn killed_process_prints_whole_lines_and_no_duplicates() {
    let place = Place::with_sequence(1, u64::MAX);
    let mut last = 0;
    for _ in 0..5 {
        let mut command = place.command(&["next", "s", "-n", "1_000_000_000"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut text = vec![0; 300_000];
        out.read_exact(&mut text).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        out.read_to_end(&mut text).unwrap();
        assert!(text.ends_with(b"\n"));
        for line in String::from_utf8(text).unwrap().lines() {
            let id = line.parse().unwrap();
            assert!(id > last, "{id} after {last}");
            last = id;
        }
    }
}

#[test]
fn locked_store_is_retried_then_fails_as_temporary() {
    let place = Place::with_sequence(1, 100);
    let db = rusqlite::Connection::open(place.path().join("idmill.db")).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    let store = ["--store", "sqlite:idmill.db?busy_timeout=10ms"];
    let ran = place.run(&[&["next", "s", "--timeout", "3s"], &store[..]].concat());
    assert_eq!((ran.code, ran.out.as_str()), (75, ""), "{ran:?}");
    assert!(ran.err.contains("database is locked") && ran.err.contains("hint: "), "{}", ran.err);
    db.execute_batch("ROLLBACK").unwrap();
    assert_eq!(place.run(&["next", "s"]).ids(), [1]);
}
