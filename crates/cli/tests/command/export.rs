//! `idmill export` and `import`: a round trip preserves every sequence, and nothing is ever lowered.

use std::fmt::Write as _;
use std::io::{BufRead as _, Write as _};
use std::process::Stdio;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::{Place, Ran};

const OTHER: &str = "sqlite:other.db";

/// Returns the list of sequences, without the incarnation and epoch, which an import does not keep.
fn listed(place: &Place, store: &str) -> Vec<Value> {
    let mut all = place.lines(&["list", "--json", "--store", store]);
    for one in &mut all {
        one.as_object_mut().unwrap().retain(|field, _| field != "incarnation" && field != "epoch");
    }
    all
}

/// Imports the lines of some sequences, with the last line of an export.
fn import(place: &Place, args: &[&str], lines: &str) -> Ran {
    let sequences =
        lines.lines().filter(|line| !line.trim().is_empty() && !line.contains("\"sequences\"")).count();
    let end = if lines.contains("\"sequences\"") { String::new() } else { end(sequences) };
    import_only(place, args, &format!("{lines}{end}"))
}

/// Returns the last line of an export.
fn end(sequences: usize) -> String {
    format!("{{\"format\":\"1\",\"sequences\":\"{sequences}\"}}\n")
}

fn import_only(place: &Place, args: &[&str], lines: &str) -> Ran {
    let mut command = place.command(&[&["import"], args].concat());
    let mut running =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    running.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    running.wait_with_output().unwrap().into()
}

/// Sequences with extreme bounds, and with names that are special in shells, JSON or SQL.
fn odd() -> Place {
    let place = Place::new();
    let max = u64::MAX.to_string();
    place.run(&["create", "first", "--start", &max, "--max", &max]);
    place.run(&["next", "first"]);
    place.run(&["create", "last", "--start", "9007199254740993", "--max", &max]);
    place.run(&["set", "last", "--next", &max]);
    place.run(&["create", "small", "--max", "3"]);
    place.run(&["next", "small", "-n", "3"]);
    for name in ["a b", "\"quoted\"", "back\\slash", "it's", "注文 🧾", "{\"name\":1}", "a=b", "%41"] {
        place.run(&["next", name, "-n", "7"]);
    }
    place
}

#[test]
fn import_restores_exported_sequences() {
    let place = odd();
    let out = place.run(&["export"]).out;
    assert_eq!(out.lines().count(), 12);
    assert!(out.ends_with(&end(11)), "{out}");
    let numbers = |line: &str| {
        serde_json::from_str::<Value>(line).unwrap().as_object().unwrap().values().any(Value::is_number)
    };
    assert!(!out.lines().any(numbers), "{out}");
    let ran = import(&place, &["--store", OTHER], &out);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.ends_with("note: 11 created, 0 raised, 0 unchanged, 0 refused\n"), "{}", ran.err);
    assert_eq!(listed(&place, OTHER), listed(&place, "sqlite:idmill.db"));
    // A second import changes nothing.
    let again = import(&place, &["--store", OTHER], &out);
    assert_eq!((again.code, again.out.as_str()), (0, ""), "{again:?}");
    assert!(again.err.contains("11 unchanged"), "{}", again.err);
}

#[test]
fn output_file_appears_only_when_complete() {
    let place = odd();
    let ran = place.run(&["export", "--output", "ids.jsonl"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", "note: sequences in ids.jsonl: 11\n"));
    assert_eq!(std::fs::read_to_string(place.path().join("ids.jsonl")).unwrap(), place.run(&["export"]).out);
    let lines = |args: &[&str]| place.run(args).out.lines().count();
    assert_eq!((lines(&["export", "--prefix", "s"]), lines(&["export", "a b", "it's"])), (2, 3));
    // If the store or the sequence does not exist, no file is created or overwritten.
    let failed = place.run(&["export", "--store", "sqlite:none.db", "--output", "ids.jsonl"]);
    assert_eq!(failed.code, 4);
    assert_eq!(place.run(&["export", "nobody", "--output", "one.jsonl"]).code, 4);
    assert_eq!(place.files(), ["idmill.db", "ids.jsonl"]);
    assert!(std::fs::metadata(place.path().join("ids.jsonl")).unwrap().len() > 0);
    assert_eq!(place.run(&["export", "--output", "no/where.jsonl"]).code, 1);
    assert_eq!(place.run(&["import", "ids.jsonl", "--store", OTHER]).code, 0);
    assert_eq!(place.run(&["import", "none.jsonl", "--store", OTHER]).code, 1);
}

#[test]
fn dry_run_reports_changes_without_making_them() {
    let place = odd();
    let lines = place.run(&["export"]).out;
    let dry = import(&place, &["--dry-run", "--store", OTHER], &lines);
    assert!(dry.code == 0 && dry.err.contains("nothing was changed: 11 created"), "{dry:?}");
    assert_eq!(place.files(), ["idmill.db"]);
    let done = import(&place, &["--store", OTHER], &lines);
    assert_eq!(dry.out, done.out);
    place.run(&["next", "a b", "-n", "5"]);
    let (before, lines) = (listed(&place, OTHER), place.run(&["export"]).out);
    let dry = import(&place, &["--dry-run", "--json", "--store", OTHER], &lines);
    let raised: Vec<Value> = dry.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let raised: Vec<_> = raised.iter().filter(|line| line["outcome"] == "raised").collect();
    assert_eq!(raised, [&json!({ "sequence": "a b", "outcome": "raised", "before": "8", "after": "13" })]);
    assert_eq!(listed(&place, OTHER), before);
}

#[test]
fn import_rejects_differing_bounds_and_continues() {
    let place = odd();
    let lines = place.run(&["export"]).out;
    place.run(&["create", "small", "--max", "2", "--store", OTHER]);
    place.run(&["create", "a b", "--start", "5", "--store", OTHER]);
    let ran = import(&place, &["--store", OTHER], &lines);
    assert_eq!((ran.code, ran.out.lines().count()), (5, 9), "{ran:?}");
    assert!(
        ran.err.contains("`small` has start 1 and max 2 in the store, but start 1 and max 3"),
        "{}",
        ran.err
    );
    assert!(
        ran.err.contains("hint: `idmill set small --next 4 --max 3 --store sqlite:other.db`"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("hint: `idmill set 'a b' --next 8 --store sqlite:other.db`"), "{}", ran.err);
    assert_eq!(place.json(&["show", "small", "--json", "--store", OTHER])["max"], 2);
    // The suggested command works. The file reserves all ids of `small`, so `next` hands out none.
    assert_eq!(place.run(&["set", "small", "--next", "4", "--max", "3", "--store", OTHER]).code, 0);
    assert_eq!(place.run(&["next", "small", "--store", OTHER]).code, 3);
    assert!(import(&place, &["--store", OTHER], &lines).err.contains("1 refused"));
}

#[test]
fn bad_import_line_is_numbered_and_stops_the_import() {
    let place = odd();
    let good = place.run(&["export", "small"]).out.lines().next().unwrap().to_owned() + "\n";
    let lines = format!("{good}\nnonsense\n{good}{{\"format\":\"1\",\"name\":\"x\"}}\n");
    let ran = import(&place, &["--store", OTHER], &lines);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
    assert!(
        ran.err.contains("stdin, line 3: ") && ran.err.contains("stdin, line 5: missing field"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("2 of 4 lines cannot be read; nothing was changed"), "{}", ran.err);
    assert!(!place.files().contains(&"other.db".to_owned()));
    let ran = import(&place, &["--keep-going", "--store", OTHER], &lines);
    assert_eq!((ran.code, ran.out.as_str()), (2, "created small: next -\n"), "{ran:?}");
    let ran = import(&place, &["--store", OTHER], &"x\n".repeat(16));
    assert!(ran.code == 2 && ran.err.contains("further lines that cannot be read: 6"), "{ran:?}");
    let ran = import(&place, &["--store", OTHER], &"x\n".repeat(10));
    assert!(ran.code == 2 && !ran.err.contains("further lines"), "{ran:?}");
    // The end of a line that is too long is not read as another line.
    let ran = import(
        &place,
        &["--keep-going", "--store", "sqlite:long.db"],
        &format!("{}{good}", "x".repeat(65_536)),
    );
    assert!(ran.code == 1 && ran.err.contains("a line is longer than 65536 bytes"), "{ran:?}");
    // The input is truncated in the middle of a line.
    let cut = &place.run(&["export", "small"]).out;
    assert_eq!(import_only(&place, &["--store", "sqlite:cut.db"], &cut[..cut.len() - 20]).code, 2);
    assert!(!place.files().contains(&"cut.db".to_owned()));
}

#[test]
fn import_requires_the_last_line() {
    let place = odd();
    let whole = place.run(&["export"]).out;
    let first = whole.split_inclusive('\n').next().unwrap();
    let one = |count: usize| format!("{first}{}", end(count));
    let two = format!("{}{first}", one(1));
    for cut in [first, "", "\n", &one(0), &one(2), &two] {
        let ran = import_only(&place, &["--store", "sqlite:cut.db"], cut);
        assert!(
            ran.code == 2 && ran.err.contains("the export is not complete; nothing was changed"),
            "{cut}: {ran:?}"
        );
        assert!(!place.files().contains(&"cut.db".to_owned()), "{cut}");
    }
    let ran = import_only(&place, &["--store", OTHER, "--keep-going"], first);
    assert_eq!((ran.code, ran.out.lines().count()), (2, 1), "{ran:?}");
    assert!(ran.err.contains("the export is not complete; its lines were imported"), "{}", ran.err);
    // Concatenated exports are complete. The empty store has an export too.
    let both = import_only(&place, &["--store", OTHER], &format!("{whole}{}{whole}", end(0)));
    assert_eq!(both.code, 0, "{both:?}");
}

#[test]
fn pipe_is_imported_like_a_file() {
    let place = odd();
    let script =
        "idmill export > ids.jsonl && cat ids.jsonl | idmill import /dev/stdin --store sqlite:other.db";
    let ran: Ran = place.shell(script).output().unwrap().into();
    assert_eq!((ran.code, ran.out.lines().count()), (0, 11), "{ran:?}");
}

#[test]
fn unreadable_sequence_is_omitted_and_reported() {
    let place = odd();
    let database = idmill_sqlite::rusqlite::Connection::open(place.path().join("idmill.db")).unwrap();
    database.execute("UPDATE idmill_sequences SET start = 50 WHERE name = 'a b'", []).unwrap();
    let ran = place.run(&["export"]);
    assert_eq!((ran.code, ran.out.lines().count()), (1, 10), "{ran:?}");
    assert!(!ran.out.contains("\"sequences\""), "the export is not complete: {}", ran.out);
    assert!(ran.err.contains("the row \"a b\"") && ran.err.contains("were skipped"), "{}", ran.err);
}

/// At whatever time the process ends, each sequence is either missing or has its imported next id.
#[cfg(unix)]
#[test]
fn interrupted_import_leaves_no_partial_sequence() {
    let mut lines = String::new();
    for name in 0..400 {
        let line = json!({ "format": "1", "name": name.to_string(), "next": "50001", "start": "1", "max": "9999999" });
        writeln!(lines, "{line}").unwrap();
    }
    lines += &end(400);
    for (round, signal) in ["-KILL", "-TERM", "-INT"].into_iter().cycle().take(24).enumerate() {
        let place = Place::new();
        std::fs::write(place.path().join("ids.jsonl"), &lines).unwrap();
        let mut command = place.command(&["import", "ids.jsonl"]);
        let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        // Keep stdout open: without a reader, the import would end.
        let mut out = std::io::BufReader::new(running.stdout.take().unwrap());
        out.read_line(&mut first).unwrap();
        assert_eq!(first, "created 0: next 50001\n");
        std::thread::sleep(std::time::Duration::from_millis(round as u64));
        let sent = std::process::Command::new("kill").args([signal, &running.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let ended = running.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        if matches!(ended.status.code(), Some(130 | 143)) {
            assert!(said.contains("import the file again to finish") && !said.contains("a gap"), "{said}");
        }
        let all = listed(&place, "sqlite:idmill.db");
        let behind: Vec<_> = all.iter().filter(|one| one["next"] != 50001).collect();
        assert!(!all.is_empty() && behind.is_empty(), "{signal}: {behind:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn importing_never_lowers(pairs in proptest::collection::vec((1..100_u64, 1..100_u64, any::<bool>()), 1..20)) {
        let place = Place::new();
        let (mut stored, mut lines) = (String::new(), String::new());
        let line = |name: usize, next: u64| {
            let next = if next == 99 { json!(null) } else { json!(next.to_string()) };
            json!({ "format": "1", "name": name.to_string(), "next": next, "start": "1", "max": "98" })
        };
        for (name, (before, wanted, exists)) in pairs.iter().enumerate() {
            if *exists {
                writeln!(stored, "{}", line(name, *before)).unwrap();
            }
            writeln!(lines, "{}", line(name, *wanted)).unwrap();
        }
        prop_assert_eq!(import(&place, &[], &stored).code, 0);
        prop_assert_eq!(import(&place, &[], &lines).code, 0);
        let all = listed(&place, "sqlite:idmill.db");
        prop_assert_eq!(all.len(), pairs.len());
        for one in all {
            let (before, wanted, exists) = pairs[one["name"].as_str().unwrap().parse::<usize>().unwrap()];
            let reached = one["next"].as_u64().unwrap_or(99);
            prop_assert_eq!(reached, if exists { before.max(wanted) } else { wanted });
        }
    }
}
