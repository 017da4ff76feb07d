//! Settings of several commands: variables, `--dry-run`, `--timeout`.

use idmill_sqlite::rusqlite::Connection;

use crate::common::{Place, Ran};

fn with(place: &Place, args: &[&str], variable: (&str, &str)) -> Ran {
    place.command(args).env(variable.0, variable.1).output().unwrap().into()
}

#[test]
fn columns_of_the_doctor_come_from_a_variable() {
    let place = Place::with_sequence(1, 100);
    let app = Connection::open(place.path().join("app.db")).unwrap();
    app.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (50)").unwrap();
    let check = "s=sqlite:app.db?column=t.id";
    let ran = with(&place, &["doctor"], ("IDMILL_CHECK", &format!("\n{check}\n {check} \n")));
    assert!(ran.code == 7 && ran.out.contains("50 is in use"), "{ran:?}");
    // An option replaces the variable.
    let ran = with(&place, &["doctor", "--check", check], ("IDMILL_CHECK", "s=sqlite:none.db?column=t.id"));
    assert!(ran.code == 7 && !ran.out.contains("none.db"), "{ran:?}");
    for (wrong, message) in [
        ("", "IDMILL_CHECK is empty"),
        ("postgres://app:hunter2@db", "the environment variable IDMILL_CHECK"),
        ("s=postgres://app:hunter2@db", "has no column"),
    ] {
        let ran = with(&place, &["doctor"], ("IDMILL_CHECK", wrong));
        assert!(ran.code == 2 && ran.err.contains(message), "{wrong}: {ran:?}");
        assert!(!ran.err.contains("hunter2"), "{ran:?}");
    }
}

#[test]
fn dry_run_of_a_change_prints_it_and_changes_nothing() {
    let place = Place::with_sequence(1, 100);
    place.run(&["next", "s", "-n", "9"]);
    let before = place.show();
    for args in [
        &["set", "s", "--next", "50"][..],
        &["set", "s", "--next", "5", "--backwards"],
        &["revoke", "s"],
        &["remove", "s"],
        &["remove", "s", "--yes"],
    ] {
        let dry = place.run(&[args, &["--dry-run"]].concat());
        assert_eq!((dry.code, dry.err.as_str()), (0, "note: dry run: no change was made\n"), "{args:?}");
        assert_eq!(place.show(), before, "{args:?}");
        let dry = place.json(&[args, &["--dry-run", "--json"]].concat());
        assert_eq!(dry[if args[0] == "remove" { "removed" } else { "before" }], before, "{args:?}");
    }
    let refused = place.run(&["set", "s", "--next", "5", "--dry-run"]);
    assert!(refused.code == 5 && refused.err.contains("backwards"), "{refused:?}");
    let (dry, done) =
        (["set", "s", "--next", "50", "--json", "--dry-run"], ["set", "s", "--next", "50", "--json"]);
    assert_eq!(place.json(&dry), place.json(&done));
}

#[test]
fn variables_have_one_rule() {
    let place = Place::with_sequence(1, 100);
    for (value, code) in [("on", 4), ("TRUE", 2), ("1", 4), ("off", 0), ("", 2), ("2", 2)] {
        let ran = with(&place, &["next", &format!("new{value}")], ("IDMILL_EXISTING", value));
        assert_eq!(ran.code, code, "{value:?}: {ran:?}");
    }
    if cfg!(feature = "serve") {
        for (value, code) in [("on", 0), ("1", 0), ("no", 0), ("", 2), ("2", 2)] {
            let ran = with(&place, &["serve", "--check"], ("IDMILL_SERVE_CREATE", value));
            assert_eq!(ran.code, code, "{value:?}: {ran:?}");
        }
    }
}

/// A store that accepts connections and never answers.
#[test]
#[cfg(feature = "redis")]
fn silent_store_is_reported_after_the_timeout() {
    let place = Place::with_sequence(1, 100);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let store = format!("redis://{}", silent.local_addr().unwrap());
    let ran = place.run(&["doctor", "--store", &store, "--timeout", "100ms"]);
    assert!(ran.code == 8 && ran.out.contains("not_seen"), "{ran:?}");
    let ran = place.run(&["check", "--store", &store, "--timeout", "100ms"]);
    assert_eq!(ran.code, 75, "{ran:?}");
    let check = format!("s=postgres://{}/app?column=t.id", silent.local_addr().unwrap());
    let ran = place.run(&["doctor", "--check", &check, "--timeout", "100ms"]);
    assert!(ran.code == 8 && ran.out.contains("100ms"), "{ran:?}");
}

#[test]
fn accepted_finding_is_info() {
    let place = Place::with_sequence(1, 3);
    place.run(&["next", "s", "-n", "3"]);
    let accept = ["doctor", "--accept", "s=exhausted"];
    assert_eq!(place.run(&["doctor"]).code, 7);
    let ran = place.run(&accept);
    assert!(ran.code == 0 && ran.out.contains("info     s: exhausted"), "{ran:?}");
    // Only this finding of this sequence is accepted.
    place.run(&["create", "t", "--max", "1"]);
    place.run(&["next", "t"]);
    assert_eq!(place.run(&accept).code, 7);
    assert_eq!(place.run(&["doctor", "--accept", "s=too_narrow", "--accept", "t=exhausted"]).code, 7);
    let ran = place.run(&["doctor", "--accept", "s=in_use"]);
    assert!(ran.code == 2 && ran.err.contains("can be accepted: exhausted"), "{ran:?}");
}

#[test]
fn prefix_selects_the_findings_of_the_doctor() {
    let place = Place::with_sequence(1, 3);
    place.run(&["create", "other"]);
    place.run(&["next", "s", "-n", "3"]);
    assert_eq!(place.run(&["doctor", "--prefix", "s"]).code, 7);
    assert_eq!(place.run(&["doctor", "--prefix", "oth"]).code, 0);
}

#[test]
fn quiet_command_prints_no_notes() {
    let place = Place::new();
    let ran = place.run(&["next", "s", "--quiet"]);
    assert_eq!((ran.ids(), ran.err.as_str()), (vec![1], ""));
    let ran = place.run(&["-q", "show", "none"]);
    assert!(ran.code == 4 && ran.err.starts_with("error: "), "{ran:?}");
    let ran = place.run(&["next", "t", "--quiet", "--json"]);
    assert_eq!((ran.ids(), ran.err.as_str()), (vec![1], ""));
    let ran = place.run(&["show", "none", "-q", "--json"]);
    assert!(ran.code == 4 && ran.err.starts_with("{\"error\":"), "{ran:?}");
}

#[test]
fn man_page_describes_a_command() {
    let place = Place::new();
    for (args, title, option) in
        [(&["man"][..], ".TH idmill 1", r"\-\-store"), (&["man", "next"], ".TH idmill-next 1", r"\-\-count")]
    {
        let page = place.run(args);
        assert_eq!(page.code, 0, "{page:?}");
        assert!(page.out.contains(title) && page.out.contains(option), "{}", page.out);
    }
    assert_eq!(place.run(&["man", "none"]).code, 2);
}
