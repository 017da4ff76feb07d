//! `idmill doctor --watch`: changes are printed, and the findings are served as metrics.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idmill_conformance::free_port;
use idmill_testing::eventually_blocking;
use idmill_testing::fleet::talk;

use super::execute;
use crate::common::Place;

/// A running command and its output lines. The command ends with the test.
struct Watching(std::process::Child, mpsc::Receiver<String>);

impl Watching {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (out, (said, lines)) = (child.stdout.take().unwrap(), mpsc::channel());
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| said.send(line))
        });
        Self(child, lines)
    }

    fn next(&self) -> String {
        self.1.recv_timeout(Duration::from_secs(60)).expect("another line")
    }

    /// Returns the next line that contains `text`.
    fn until(&self, text: &str) -> String {
        std::iter::repeat_with(|| self.next()).find(|line| line.contains(text)).unwrap_or_default()
    }

    /// Sends the signal, and returns the exit code.
    fn end(&mut self, signal: &str) -> Option<i32> {
        let told = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(told.success());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

#[test]
fn watch_prints_changes_and_exits_with_the_last_verdict() {
    let place = Place::with_sequence(1, 1000);
    execute(&place, "shop.db", "CREATE TABLE t (id INTEGER)");
    let args = ["doctor", "--watch", "100ms", "--check", "s=sqlite:shop.db?column=t.id"];
    let mut watching = Watching::start(place.command(&args));
    watching.until("sound");
    execute(&place, "shop.db", "INSERT INTO t VALUES (20)");
    watching.until("s: in_use");
    place.run(&["set", "s", "--next", "21"]);
    assert_eq!(watching.until("resolved"), "resolved in_use s: the largest id in sqlite:shop.db?column=t.id");
    execute(&place, "shop.db", "INSERT INTO t VALUES (30)");
    watching.until("s: in_use");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(watching.end("-TERM"), Some(7), "the exit code of the last check");
    assert_eq!(
        watching.1.iter().filter(|line| line.contains("in_use")).count(),
        0,
        "a finding is printed once"
    );
}

/// A store that is sound at the first look is reported once, and a store that becomes sound is not.
#[test]
fn watch_reports_a_sound_store_only_at_its_start() {
    let place = Place::with_sequence(1, 1000);
    execute(&place, "shop.db", "CREATE TABLE t (id INTEGER)");
    let args = ["doctor", "--watch", "50ms", "--check", "s=sqlite:shop.db?column=t.id"];
    for (is_sound, next) in [(true, "21"), (false, "41")] {
        let mut watching = Watching::start(place.command(&args));
        if is_sound {
            watching.until("sound");
            execute(&place, "shop.db", "INSERT INTO t VALUES (20)");
        }
        let mut lines = vec![watching.until("in_use")];
        place.run(&["set", "s", "--next", next]);
        while !lines.concat().contains("resolved") {
            lines.push(watching.next());
        }
        execute(&place, "shop.db", "INSERT INTO t SELECT 20 + max(id) FROM t");
        lines.push(watching.next());
        assert!(
            lines.pop().unwrap().ends_with("s: in_use") && !lines.concat().contains("sound"),
            "{lines:?}"
        );
        assert_eq!(watching.end("-TERM"), Some(7));
    }
}

#[test]
fn watch_interval_defaults_to_one_minute() {
    let place = Place::with_sequence(1, 1000);
    let mut watching = Watching::start(place.command(&["doctor", "--watch"]));
    watching.until("sound");
    assert_eq!(watching.end("-INT"), Some(0), "nothing was found");
}

/// Without a verdict, the exit code is that of the signal.
#[test]
fn signal_before_the_first_look_ends_has_no_verdict() {
    let place = Place::with_sequence(1, 1000);
    let mut watching = Watching::start(place.command(&["doctor", "--watch", "--rate-over", "1h"]));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(watching.end("-TERM"), Some(143));
}

#[test]
fn watch_ends_when_its_reader_does() {
    let place = Place::with_sequence(1, 1000);
    execute(&place, "shop.db", "CREATE TABLE t (id INTEGER)");
    let args = ["doctor", "--watch", "50ms", "--check", "s=sqlite:shop.db?column=t.id"];
    let mut child = place.command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    drop(out);
    // The next change cannot be printed.
    execute(&place, "shop.db", "INSERT INTO t VALUES (20)");
    let ended = eventually_blocking("the end", || child.try_wait().unwrap().ok_or("it runs on"));
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn failed_fix_neither_ends_the_watch_nor_stops_other_fixes() {
    let place = Place::with_sequence(1, 1000);
    assert_eq!(place.run(&["create", "a"]).code, 0);
    execute(&place, "shop.db", "CREATE TABLE t (id INTEGER); INSERT INTO t VALUES (20)");
    let refuse = "BEFORE UPDATE ON idmill_sequences WHEN NEW.name = 'a' BEGIN SELECT RAISE(ABORT, 'no'); END";
    execute(&place, "idmill.db", &format!("CREATE TRIGGER refuse {refuse}"));
    let checks = ["--check", "a=sqlite:shop.db?column=t.id", "--check", "s=sqlite:shop.db?column=t.id"];
    let mut watching =
        Watching::start(place.command(&[&["doctor", "--watch", "100ms", "--fix"], &checks[..]].concat()));
    assert!(watching.until("fixed").contains(" s: next 1 -> 21"));
    execute(&place, "idmill.db", "DROP TRIGGER refuse");
    assert!(watching.until("fixed").contains(" a: next 1 -> 21"));
    watching.until("resolved in_use a");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(watching.end("-TERM"), Some(0));
    let ran = place.run(&[&["doctor", "--fix"], &checks[..]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
}

/// Returns the metrics at this address: each with its labels and its value.
fn served(address: SocketAddr) -> BTreeMap<String, String> {
    let answer = talk(address, "GET /metrics HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let samples = body.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    samples
        .map(|line| {
            let (metric, value) = line.rsplit_once(' ').expect("a value");
            (metric.to_owned(), value.to_owned())
        })
        .collect()
}

#[cfg_attr(not(feature = "metrics"), ignore = "needs the feature `metrics`")]
#[test]
fn watch_serves_its_findings_as_metrics() {
    let place = Place::with_sequence(1, 864_000);
    execute(&place, "shop.db", "CREATE TABLE t (id INTEGER)");
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let check = "s=sqlite:shop.db?column=t.id";
    let metrics = address.to_string();
    // The ids last for ten days at the given rate, and none are drawn.
    let rate = ["--check", check, "--rate", "s=1/s", "--ends-within", "1d"];
    let args = [&["doctor", "--watch", "100ms", "--metrics", &metrics], &rate[..]].concat();
    let mut watching = Watching::start(place.command(&args));
    let in_use = r#"idmill_doctor_findings{sequence="s",finding="in_use",severity="error"}"#;
    // Findings are printed before they are served, so poll the metrics.
    let until = |what: &str, holds: &dyn Fn(&BTreeMap<String, String>) -> bool| {
        eventually_blocking(what, || {
            let found = served(address);
            if holds(&found) { Ok(found) } else { Err(found) }
        })
    };
    watching.until("sound");
    let found = until("a look", &|found| found.contains_key("idmill_doctor_sequences"));
    assert_eq!(found["idmill_doctor_sequences"], "1");
    assert_eq!(found[r#"idmill_doctor_days_to_exhaustion{sequence="s"}"#], "10");
    assert_eq!(found.get(in_use), None);
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/metrics.md")).unwrap();
    for metric in found.keys() {
        let name = metric.split('{').next().unwrap();
        assert!(page.contains(&format!("| `{name}` |")), "{name} is not on the page");
    }
    let last_look = |found: &BTreeMap<String, String>| {
        found["idmill_doctor_last_look_timestamp_seconds"].parse::<f64>().expect("seconds")
    };
    let looked = last_look(&found);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((now - 60.0..=now).contains(&looked), "{looked} at {now}");

    execute(&place, "shop.db", "INSERT INTO t VALUES (20)");
    let value = |found: &BTreeMap<String, String>| found.get(in_use).cloned().unwrap_or_default();
    let found = until("the fault", &|found| value(found) == "1");
    assert!(last_look(&found) > looked, "`doctor` has checked again");
    place.run(&["set", "s", "--next", "21"]);
    until("the remedy", &|found| value(found) == "0");
    assert_eq!(watching.end("-TERM"), Some(0), "the exit code of the last check");
    let port = TcpListener::bind(address).expect("the address is free again");
    let ran = place.run(&args);
    drop(port);
    assert!(ran.code == 2 && ran.err.contains("cannot serve metrics at 127.0.0.1:"), "{ran:?}");
    assert_eq!(place.run(&["doctor", "--metrics", &metrics]).code, 2, "--metrics requires --watch");
}
