//! Names with invisible characters: text escapes them, and JSON holds exactly the name.

use std::process::Command;

use idmill_sqlite::rusqlite::Connection;
use serde_json::Value;

use crate::common::{Place, Ran};

/// A right-to-left override, which reverses the rest of a line, and a zero-width space.
const NAME: &str = "or\u{202e}ders\u{200b}";
const SHOWN: &str = r"or\u{202e}ders\u{200b}";

fn unseen(c: char) -> bool {
    c.is_control() && c != '\n' || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
}

/// Runs a command as text, in which the name must be escaped, and as JSON, which must have the name itself.
fn check(place: &Place, args: &[&str], code: i32) -> [Ran; 2] {
    let both = [place.run(args), place.run(&[args, &["--json"]].concat())];
    for (ran, json) in both.iter().zip([false, true]) {
        let all = format!("{}{}", ran.out, ran.err);
        assert_eq!(ran.code, code, "{args:?}: {all}");
        assert!(!all.contains(unseen), "{args:?}: {all:?}");
        let shown = if json { [r"\u202e", r"\\342\\200\\256"] } else { [r"\u{202e}", r"\342\200\256"] };
        assert!(shown.iter().any(|shown| all.contains(shown)), "{args:?}: {all}");
    }
    both
}

fn with_name() -> Place {
    let place = Place::new();
    assert_eq!(place.run(&["create", NAME, "--max", "100"]).code, 0);
    place
}

#[test]
fn invisible_characters_of_a_name_are_escaped() {
    let place = with_name();
    assert_eq!(check(&place, &["list"], 0)[0].out.lines().count(), 2);
    let [_, shown] = check(&place, &["show", NAME], 0);
    assert_eq!(serde_json::from_str::<Value>(&shown.out).unwrap()["name"], NAME);
    check(&place, &["revoke", NAME], 0);
    check(&place, &["next", "or\u{202e}dr\u{200b}", "--existing"], 4);
    check(&place, &["show", "or\u{202e}ders"], 4);
    check(&place, &["create", NAME], 5);
    check(&place, &["next", NAME, "--max", "9"], 5);
    check(&place, &["remove", NAME], 5);
    check(&place, &["next", NAME, "-n", "1000"], 3);
    check(&place, &["doctor"], 7);
    check(&place, &["next", "s", NAME], 2);
}

#[test]
fn imported_name_is_escaped_in_lines_and_errors() {
    let place = with_name();
    let exported = place.run(&["export"]).out;
    assert!(exported.contains(r"or\u202eders\u200b") && !exported.contains(unseen), "{exported}");
    std::fs::write(place.path().join("ids.jsonl"), &exported).unwrap();
    let ran = place.run(&["import", "ids.jsonl", "--store", "sqlite:other.db"]);
    assert!(ran.code == 0 && ran.out.contains(SHOWN), "{ran:?}");
    place.run(&["create", NAME, "--max", "7", "--store", "sqlite:small.db"]);
    check(&place, &["import", "ids.jsonl", "--store", "sqlite:small.db"], 5);
}

#[test]
fn guard_warnings_escape_names() {
    let place = Place::new();
    let next = ["next", NAME, "-n", "5", "--guard", "file:w"];
    place.run(&next);
    std::fs::copy(place.path().join("idmill.db"), place.path().join("backup.db")).unwrap();
    place.run(&next);
    std::fs::rename(place.path().join("backup.db"), place.path().join("idmill.db")).unwrap();
    check(&place, &["export", "--guard", "file:w"], 0);
    check(&place, &["doctor", "--guard", "file:w"], 7);
    let ran = place.run(&next);
    assert!(ran.err.contains("warning: ") && !ran.err.contains(unseen), "{ran:?}");
}

#[test]
fn name_of_an_unreadable_row_is_escaped() {
    let place = Place::with_sequence(1, 100);
    let db = Connection::open(place.path().join("idmill.db")).unwrap();
    let name = "x\u{1b}[31m\n\u{202e}y";
    db.execute_batch("PRAGMA ignore_check_constraints = on").unwrap();
    db.execute(
        "INSERT INTO idmill_sequences SELECT ?1, 'x', start, max, incarnation, epoch, format FROM idmill_sequences",
        [name],
    )
    .unwrap();
    for (command, code) in [("list", 1), ("doctor", 7), ("export", 1)] {
        let (text, json) = (place.run(&[command]), place.run(&[command, "--json"]));
        for ran in [&text, &json] {
            assert_eq!(ran.code, code, "{ran:?}");
            assert!(!format!("{}{}", ran.out, ran.err).contains(unseen), "{ran:?}");
        }
        // A line end in the name must not begin a line.
        assert!(!text.out.contains("\n\\u{202e}") && !text.err.contains("\n\\u{202e}"), "{text:?}");
    }
    let listed = place.run(&["list", "--json"]).lines();
    assert!(listed.iter().any(|line| line["unreadable"]["name"] == name), "{listed:?}");
}

/// A command in a hint acts on the name, although the name is not shown.
#[test]
#[cfg(unix)]
fn printed_command_acts_on_the_exact_name() {
    let place = Place::new();
    let name = format!("{NAME} 100% it's \\");
    assert_eq!(place.run(&["create", &name]).code, 0);
    let ran = place.run(&["remove", &name]);
    let command = ran.err.split('`').find(|part| part.starts_with("idmill remove ")).unwrap();
    assert!(!command.contains(unseen), "{command:?}");
    let removed: Ran = Command::output(&mut place.shell(command)).unwrap().into();
    assert_eq!(removed.code, 0, "{command}: {removed:?}");
    assert_eq!(place.run(&["show", &name]).code, 4);
}
