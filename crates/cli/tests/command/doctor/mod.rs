//! `idmill doctor`: it finds each fault and nothing else, and each remedy works.

use crate::common::{Place, Ran};

#[cfg(unix)]
mod watch;

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idmill_sqlite::rusqlite::Connection;
use serde_json::Value;

/// A file that is not restored together with the store.
const GUARD: &str = "file:ids.witness";
/// The checks that `doctor` requests.
const ASKED: [&str; 6] =
    ["--check", "orders=sqlite:shop.db?column=orders.id", "--type", "users=i32", "--rate", "ends=100/s"];

fn execute(place: &Place, file: &str, sql: &str) {
    Connection::open(place.path().join(file)).unwrap().execute_batch(sql).unwrap();
}

/// Runs a command with the guard.
fn guarded(place: &Place, args: &[&str]) -> Ran {
    place.command(args).env("IDMILL_GUARD", GUARD).output().unwrap().into()
}

fn must(place: &Place, args: &[&str]) {
    let ran = guarded(place, args);
    assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
}

/// Creates a sound store: all draws use the guard, and the shop uses only ids that were handed out.
fn sound() -> Place {
    let place = Place::new();
    execute(
        &place,
        "shop.db",
        "CREATE TABLE orders (id INTEGER PRIMARY KEY); INSERT INTO orders VALUES (1), (100)",
    );
    for name in ["orders", "users", "back", "reset", "replaced", "missing", "empty", "ends", "bad"] {
        must(&place, &["create", name, "--max", "2147483647"]);
        must(&place, &["next", name, "-n", "100"]);
    }
    must(&place, &["set", "reset", "--next", "50", "--backwards", "--yes"]);
    must(&place, &["next", "reset", "-n", "10"]);
    // The witness has no claim for a sequence without draws.
    must(&place, &["create", "unused"]);
    place
}

/// The expected finding of each faulty sequence.
const FAULTS: [(&str, &str); 8] = [
    ("orders", "in_use"),
    ("back", "went_back"),
    ("reset", "behind_reset"),
    ("replaced", "replaced"),
    ("missing", "missing"),
    ("empty", "exhausted"),
    ("ends", "ends_soon"),
    ("bad", "unreadable"),
];

fn plant(place: &Place) {
    must(place, &["set", "empty", "--max", "100"]);
    must(place, &["set", "ends", "--next", "2147480000"]);
    must(place, &["next", "ends"]);
    execute(place, "shop.db", "INSERT INTO orders VALUES (500)");
    execute(
        place,
        "idmill.db",
        "UPDATE idmill_sequences SET next = 41 WHERE name = 'back';
         UPDATE idmill_sequences SET next = 101, epoch = 0 WHERE name = 'reset';
         UPDATE idmill_sequences SET incarnation = incarnation + 1 WHERE name = 'replaced';
         DELETE FROM idmill_sequences WHERE name = 'missing';
         UPDATE idmill_sequences SET start = 900 WHERE name = 'bad';",
    );
}

/// Returns the findings as JSON, and the exit code.
fn doctor(place: &Place, more: &[&str]) -> (Vec<Value>, i32) {
    let ran = guarded(place, &[&["doctor", "--json"], &ASKED[..], more].concat());
    (ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), ran.code)
}

/// Returns each sequence with its kind of finding.
fn kinds(findings: &[Value]) -> Vec<(&str, &str)> {
    let mut kinds: Vec<_> = findings
        .iter()
        .filter_map(|finding| Some((finding["sequence"].as_str().unwrap_or("-"), finding["kind"].as_str()?)))
        .collect();
    kinds.sort_unstable();
    kinds
}

fn all_faults() -> Vec<(&'static str, &'static str)> {
    let mut all = FAULTS.to_vec();
    all.sort_unstable();
    all
}

#[test]
fn a_sound_store_has_no_findings() {
    let place = sound();
    assert_eq!(doctor(&place, &[]), (vec![], 0));
    let ran = guarded(&place, &["doctor"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "sound    no problem was found; sequences: 10\n"),
        "{ran:?}"
    );
}

#[test]
fn each_planted_fault_is_reported_exactly_once() {
    let place = sound();
    plant(&place);
    let before = std::fs::read(place.path().join("idmill.db")).unwrap();
    let (findings, code) = doctor(&place, &[]);
    assert_eq!(kinds(&findings), all_faults(), "{findings:#?}");
    assert_eq!(code, 7);
    for finding in &findings {
        for field in ["asked", "found"] {
            assert!(!finding[field].as_str().unwrap().is_empty(), "{finding}");
        }
        assert!(finding["command"].is_string() || finding["advice"].is_string(), "{finding}");
    }
    assert_eq!(std::fs::read(place.path().join("idmill.db")).unwrap(), before, "looking changes nothing");
    // The text output has the same findings.
    let people = guarded(&place, &[&["doctor"], &ASKED[..]].concat());
    assert!(
        people.out.contains("error    orders: in_use\n") && people.err.contains("7 errors, 1 warning"),
        "{people:?}"
    );
}

#[test]
fn fix_raises_lagging_sequences_and_nothing_else() {
    let place = sound();
    plant(&place);
    let next = |name: &str| place.run(&["show", name, "--json"]).out;
    let (empty, replaced) = (next("empty"), next("replaced"));
    let (lines, code) = doctor(&place, &["--fix"]);
    let fixed: Vec<_> = lines.iter().filter(|line| line["fixed"].is_object()).collect();
    assert_eq!(fixed.len(), 2, "{lines:#?}");
    assert_eq!(code, 7, "findings without an automatic fix remain");
    assert_eq!(place.json(&["show", "orders", "--json"])["next"], 501);
    must(&place, &["next", "orders"]);
    let (left, _) = doctor(&place, &[]);
    let without: Vec<_> =
        all_faults().into_iter().filter(|(name, _)| !["orders", "back"].contains(name)).collect();
    assert_eq!(kinds(&left), without);
    assert_eq!(place.json(&["show", "back", "--json"])["next"], 101);
    assert_eq!((next("empty"), next("replaced")), (empty, replaced));
}

#[test]
fn printed_commands_resolve_their_findings() {
    let place = sound();
    plant(&place);
    execute(
        &place,
        "shop.db",
        "CREATE TABLE others (id INTEGER PRIMARY KEY); INSERT INTO others VALUES (150)",
    );
    let columns = [
        "--check",
        "empty=sqlite:shop.db?column=others.id",
        "--check",
        "ends=sqlite:shop.db?column=others.id",
    ];
    let (findings, _) = doctor(&place, &columns);
    let with_command: Vec<_> = findings.iter().filter(|finding| finding["command"].is_string()).collect();
    assert_eq!(with_command.len(), 6, "{with_command:#?}");
    for finding in with_command {
        shell(&place, finding["command"].as_str().unwrap());
    }
    // New ids are above all ids in use.
    for (name, id) in [("orders", 501), ("back", 101), ("replaced", 101), ("missing", 101), ("empty", 151)] {
        assert_eq!(guarded(&place, &["next", name]).ids(), [id], "{name}");
    }
    assert_eq!(kinds(&doctor(&place, &[]).0), [("bad", "unreadable"), ("reset", "behind_reset")]);
}

/// Runs a printed command with the guard.
fn shell(place: &Place, command: &str) {
    let ran = Ran::from(place.shell(command).env("IDMILL_GUARD", GUARD).output().unwrap());
    assert_eq!(ran.code, 0, "{command}: {ran:?}");
}

#[test]
fn recreation_survives_a_process_that_creates_first() {
    let place = sound();
    execute(
        &place,
        "idmill.db",
        "UPDATE idmill_sequences SET incarnation = incarnation + 1 WHERE name = 'replaced'",
    );
    let (findings, _) = doctor(&place, &[]);
    let command = findings[0]["command"].as_str().unwrap();
    let (remove, create) = command.split_once(" && ").unwrap();
    shell(&place, remove);
    // A process that retries creates the sequence between the two commands.
    must(&place, &["create", "replaced", "--max", "2147483647"]);
    shell(&place, create);
    let replaced = place.json(&["show", "replaced", "--json"]);
    assert_eq!((&replaced["next"], &replaced["max"]), (&101.into(), &2_147_483_647_i64.into()));
    assert_eq!(doctor(&place, &[]), (vec![], 0));
}

#[test]
fn exhausted_remedy_passes_the_ids_in_use() {
    let place = Place::with_sequence(1, 10);
    place.run(&["next", "s", "-n", "10"]);
    execute(&place, "shop.db", "CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (13), (500)");
    let finding = |args: &[&str]| {
        let ran = place.run(&[&["doctor", "--json"], args].concat());
        serde_json::from_str::<Value>(ran.out.lines().next().unwrap()).unwrap()
    };
    let check = ["--check", "s=sqlite:shop.db?column=t.id"];
    let found = finding(&check);
    assert_eq!(found["command"], "idmill set s --next 501 --max 2147483647", "{found}");
    assert!(found["found"].as_str().unwrap().contains("500 is in use"), "{found}");
    let typed = finding(&[&check[..], &["--type", "s=i16"]].concat());
    assert_eq!(typed["command"], "idmill set s --next 501 --max 32767", "{typed}");
    let full = finding(&[&check[..], &["--type", "s=u8"]].concat());
    assert!(
        full["command"].is_null() && full["advice"].as_str().unwrap().contains("holds ids up to 255"),
        "{full}"
    );
    let unchecked = finding(&[]);
    assert!(unchecked["found"].as_str().unwrap().contains("no column was compared"), "{unchecked}");
    let advice = unchecked["advice"].as_str().unwrap_or_default();
    assert!(unchecked["command"].is_null() && advice.contains("with N above"), "{unchecked}");
}

#[test]
fn unguarded_draws_are_a_warning() {
    let place = Place::new();
    must(&place, &["next", "orders", "-n", "10"]);
    assert_eq!(guarded(&place, &["doctor"]).code, 0);
    assert_eq!(place.run(&["next", "orders", "-n", "1000"]).code, 0);
    let ran = guarded(&place, &["doctor"]);
    assert!(ran.code == 6 && ran.out.contains("warning  orders: unguarded\n"), "{ran:?}");
    assert!(ran.out.contains("ids 11 to 1010 were reserved or skipped, but not claimed"), "{ran:?}");
}

#[test]
fn view_is_reported_as_possibly_incomplete() {
    let place = Place::with_sequence(1, 1000);
    execute(
        &place,
        "shop.db",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, site INTEGER); CREATE VIEW mine AS SELECT id FROM t WHERE site = 1",
    );
    let doctor = |column| place.run(&["doctor", "--check", &format!("s=sqlite:shop.db?column={column}")]);
    assert_eq!(doctor("t.id").code, 0);
    let ran = doctor("mine.id");
    assert!(ran.code == 6 && ran.out.contains("warning  s: incomplete\n"), "{ran:?}");
}

#[test]
fn negative_numbers_are_ids_above_two_to_the_63() {
    let place = Place::new();
    let start = (1_u64 << 63) + 5;
    place.run(&["create", "s", "--start", &start.to_string()]);
    execute(&place, "shop.db", "CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (7), (-1000)");
    let ran = place.run(&["doctor", "--json", "--check", "s=sqlite:shop.db?column=t.id"]);
    let finding: Value = serde_json::from_str(ran.out.lines().next().expect("a finding")).unwrap();
    assert_eq!((ran.code, &finding["kind"]), (7, &"in_use".into()), "{finding}");
    assert_eq!(finding["command"], "idmill set s --next 18446744073709550617");
    // For a sequence below 2^63, negative numbers are not ids.
    place.run(&["create", "low"]);
    assert_eq!(place.run(&["doctor", "--check", "low=sqlite:shop.db?column=t.id"]).code, 7, "7 is in use");
    place.run(&["set", "low", "--next", "8"]);
    assert_eq!(place.run(&["doctor", "--check", "low=sqlite:shop.db?column=t.id"]).code, 0);
    // A sequence that may go beyond 2^63, and has not, may have been restored.
    place.run(&["create", "high", "--max", &u64::MAX.to_string(), "--start", "8"]);
    let ran = place.run(&["doctor", "--check", "high=sqlite:shop.db?column=t.id"]);
    assert!(ran.code == 6 && ran.out.contains("-1000 would be the id 18446744073709550616"), "{ran:?}");
}

#[test]
fn store_restored_from_a_copy_is_detected_and_fixed() {
    let place = Place::new();
    let file = |name: &str| place.path().join(name);
    must(&place, &["next", "orders", "-n", "5"]);
    std::fs::copy(file("idmill.db"), file("copy.db")).unwrap();
    assert_eq!(guarded(&place, &["next", "orders", "-n", "5"]).ids(), [6, 7, 8, 9, 10]);
    std::fs::copy(file("copy.db"), file("idmill.db")).unwrap();
    let ran = guarded(&place, &["doctor"]);
    assert!(ran.code == 7 && ran.out.contains("orders: went_back"), "{ran:?}");
    let ran = guarded(&place, &["doctor", "--fix"]);
    assert!(ran.code == 0 && ran.out.contains("fixed    orders: next 6 -> 11\n"), "{ran:?}");
    // The next id is the same without the guard, because the counter itself was raised.
    assert_eq!(place.run(&["next", "orders"]).ids(), [11]);
}

#[test]
fn exit_codes_separate_warnings_errors_and_unknowns() {
    let place = Place::new();
    place.run(&["create", "orders"]);
    let code = |args: &[&str]| place.run(&[&["doctor"], args].concat()).code;
    assert_eq!(code(&[]), 0);
    assert_eq!(code(&["--type", "orders=i32"]), 6);
    assert_eq!(code(&["--type", "nobody=i32"]), 7);
    assert_eq!(code(&["--check", "orders=sqlite:none.db?column=a.b"]), 8);
    assert_eq!(code(&["--check", "orders=sqlite:none.db?column=a.b", "--type", "orders=i32"]), 8);
    assert_eq!(code(&["--check", "orders=sqlite:none.db?column=a.b", "--type", "nobody=i32"]), 7);
    assert_eq!(code(&["--store", "sqlite:none.db"]), 8);
    assert_eq!(code(&["--guard", "file:none.witness"]), 8);
    assert_eq!(
        place.files().iter().filter(|file| file.contains("none")).count(),
        0,
        "`doctor` creates no file"
    );
    for wrong in [&["--check", "orders"][..], &["--check", "orders=sqlite:a.db"], &["--type", "orders=int"]] {
        assert_eq!(code(wrong), 2, "{wrong:?}");
    }
    // The table belongs to another application, so it is refused.
    execute(&place, "other.db", "CREATE TABLE idmill_sequences (a)");
    assert_eq!(code(&["--store", "sqlite:other.db"]), 7);
}

#[test]
fn column_name_is_quoted_and_invalid_column_rejected() {
    let place = Place::new();
    place.run(&["next", "o=1", "-n", "5"]);
    execute(
        &place,
        "shop.db",
        "CREATE TABLE \"my.orders\" (\"the \"\"id\" INTEGER, note TEXT, half REAL); INSERT INTO \"my.orders\" VALUES (7, 'x', 0.5);
         CREATE TABLE none (id INTEGER)",
    );
    let found = |column: &str| {
        let check = format!("o=1=sqlite:shop.db?column={column}");
        let ran = place.run(&["doctor", "--json", "--check", &check]);
        serde_json::from_str::<Value>(ran.out.lines().next().unwrap_or("{}")).unwrap()
    };
    let in_use = found(r#""my.orders"."the ""id""#);
    assert_eq!(
        (in_use["kind"].as_str(), in_use["command"].as_str()),
        (Some("in_use"), Some("idmill set 'o=1' --next 8"))
    );
    assert_eq!(found(r#"main."my.orders"."the ""id""#)["kind"], "in_use");
    assert_eq!(found("none.id"), serde_json::json!({}), "an empty table speaks against nothing");
    for (column, why) in [
        (r#""my.orders".note"#, "is text, not integer"),
        (r#""my.orders".half"#, "is real, not integer"),
        (r#""my.orders".nothing"#, "there is no column"),
        ("my.orders.id", "there is no table"),
        ("orders.id", "there is no table"),
    ] {
        let finding = found(column);
        let said = finding["found"].as_str().unwrap();
        assert!(finding["kind"] == "not_seen" && said.contains(why), "{column}: {finding}");
    }
}

#[test]
fn numbers_are_strings_where_programs_would_round() {
    let place = Place::with_sequence(1, u64::MAX);
    execute(&place, "shop.db", "CREATE TABLE t (id INTEGER); INSERT INTO t VALUES (9223372036854775806)");
    let ran = place.run(&["doctor", "--json", "--fix", "--check", "s=sqlite:shop.db?column=t.id"]);
    let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["command"], "idmill set s --next 9223372036854775807");
    assert_eq!(lines[1]["fixed"]["after"], "9223372036854775807");
    assert_eq!(ran.code, 0);
}

/// Processes reserve, claim, give back and use ids at the same time.
#[test]
fn concurrent_use_of_a_store_causes_no_findings() {
    let place = Place::new();
    execute(&place, "shop.db", "PRAGMA journal_mode = WAL; CREATE TABLE orders (id INTEGER PRIMARY KEY)");
    // A missing sequence would be a finding, so it is created first.
    must(&place, &["next", "orders", "-n", "5"]);
    let over = AtomicBool::new(false);
    let draw = || {
        let shop = Connection::open(place.path().join("shop.db")).unwrap();
        shop.busy_timeout(Duration::from_secs(60)).unwrap();
        while !over.load(Ordering::Relaxed) {
            for id in guarded(&place, &["next", "orders", "-n", "5", "--step", "40"]).ids() {
                shop.execute("INSERT INTO orders VALUES (?1)", [id.cast_signed()]).unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        let drawing = [scope.spawn(draw), scope.spawn(draw)];
        let mut looks = Vec::new();
        let check = ["doctor", "--json", "--check", "orders=sqlite:shop.db?column=orders.id"];
        while looks.len() < 25 {
            let ran = guarded(&place, &check);
            looks.push((ran.code, ran.out));
        }
        over.store(true, Ordering::Relaxed);
        for thread in drawing {
            thread.join().unwrap();
        }
        let alarms: Vec<_> = looks.iter().filter(|look| look.0 != 0).collect();
        assert!(alarms.is_empty(), "{alarms:#?}");
    });
}

#[test]
fn rate_is_measured_between_two_examinations() {
    let place = Place::with_sequence(1, 5000);
    let mut doctor = place.command(&["doctor", "--json", "--rate-over", "2s", "--ends-within", "1d"]);
    let running = doctor.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    for _ in 0..10 {
        place.run(&["next", "s", "-n", "100"]);
        std::thread::sleep(Duration::from_millis(150));
    }
    let ran = Ran::from(running.wait_with_output().unwrap());
    let finding: Value = serde_json::from_str(ran.out.lines().next().expect("a finding")).unwrap();
    assert_eq!((ran.code, finding["kind"].as_str()), (6, Some("ends_soon")), "{finding}");
    assert_eq!(place.run(&["doctor", "--rate-over", "100ms"]).code, 0, "no process draws ids");
}
