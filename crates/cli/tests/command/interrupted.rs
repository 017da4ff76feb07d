//! A command that is stopped by a signal reports whether it may have changed the store.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use idmill_sqlite::rusqlite::Connection;
use idmill_testing::{eventually_blocking, holds};
use serde_json::Value;

use crate::common::Place;

/// Starts a command whose errors are JSON.
fn start(place: &Place, args: &[&str]) -> Child {
    let mut command = place.command(&[args, &["--json"]].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the process handles SIGINT, which is bit 1 of its mask.
fn wait_for_handler(running: &Child) {
    let file = format!("/proc/{}/status", running.id());
    eventually_blocking("the process handles SIGINT", || {
        let status = std::fs::read_to_string(&file).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        holds(u64::from_str_radix(mask, 16).unwrap() & 2 != 0, mask.to_owned())
    });
}

fn interrupt(running: &Child) {
    assert!(Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap().success());
}

/// Returns the error of a command that was interrupted.
fn error_of(running: Child) -> Value {
    let ended = running.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    let text = String::from_utf8(ended.stderr).unwrap();
    let mut error = serde_json::from_str::<Value>(text.lines().last().unwrap()).unwrap()["error"].take();
    assert_eq!(error["kind"].take(), "interrupted", "{text}");
    error
}

#[test]
fn interrupted_change_has_an_unknown_status() {
    let place = Place::with_sequence(1, 100);
    let db = Connection::open(place.path().join("idmill.db")).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    for args in
        [&["set", "s", "--next", "5"][..], &["remove", "s", "--yes"], &["create", "t"], &["next", "s"]]
    {
        let running = start(&place, args);
        wait_for_handler(&running);
        interrupt(&running);
        let error = error_of(running);
        assert_eq!(error["status"], "unknown", "{args:?}: {error}");
        let printed = if args[0] == "next" { Value::from(0) } else { Value::Null };
        assert_eq!(error["printed"], printed, "{args:?}: {error}");
    }
}

#[test]
fn interrupted_read_can_be_repeated() {
    let place = Place::with_sequence(1, 100);
    let running = start(&place, &["doctor", "--rate-over", "1h"]);
    wait_for_handler(&running);
    interrupt(&running);
    let error = error_of(running);
    assert_eq!((&error["status"], &error["printed"]), (&"transient".into(), &Value::Null), "{error}");
}

#[test]
fn interrupted_next_reports_its_printed_ids() {
    let place = Place::with_sequence(1, u64::MAX);
    let mut running = start(&place, &["next", "s", "-n", "1_000_000_000"]);
    let mut out = BufReader::new(running.stdout.take().unwrap());
    let mut text = String::new();
    for _ in 0..1000 {
        out.read_line(&mut text).unwrap();
    }
    // The pipe is full soon, and the command waits for its reader.
    interrupt(&running);
    let error = error_of(running);
    out.read_to_string(&mut text).unwrap();
    assert_eq!(error["printed"], text.lines().count(), "{error}");
    assert_eq!(error["status"], "unknown", "{error}");
}
