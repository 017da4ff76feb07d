//! Every command with streams that cannot be written, and with signals while it waits for a stream: no panic,
//! no lost id, and the usual exit code.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::common::{Place, Ran};

/// Commands that run in order, and their exit codes. The store has the sequence `s`.
const COMMANDS: [(&[&str], i32); 24] = [
    (&["next", "fresh"], 0),
    (&["next", "s", "-n", "3"], 0),
    (&["next", "s", "--existing", "--max", "5"], 5),
    (&["next", "none", "--existing"], 4),
    (&["create", "made"], 0),
    (&["create", "made"], 5),
    (&["list"], 0),
    (&["list", "--json"], 0),
    (&["show", "s"], 0),
    (&["show", "none"], 4),
    (&["set", "s", "--next", "50"], 0),
    (&["set", "s", "--next", "5", "--backwards"], 5),
    (&["revoke", "s"], 0),
    (&["export"], 0),
    (&["export", "--output", "ids.jsonl"], 0),
    (&["import", "ids.jsonl", "--store", "sqlite:other.db"], 0),
    (&["schema"], 0),
    (&["encode", "--format", "base62", "5"], 0),
    (&["decode", "--format", "base62", "!"], 2),
    (&["plan", "--rate", "10", "--outage", "10s"], 0),
    (&["doctor", "--check", "s=sqlite:none.db?column=t.id"], 8),
    (&["remove", "s"], 5),
    (&["remove", "s", "--yes"], 0),
    (&["completions", "bash"], 0),
];

/// Returns a stream that can never be written, like a full disk.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

#[test]
fn full_stderr_changes_no_result() {
    let [place, usual, logged] = [(); 3].map(|()| Place::with_sequence(1, 1000));
    for (args, code) in COMMANDS {
        let ran = place.command(args).stderr(full()).stdout(Stdio::piped()).output().unwrap();
        let usual = usual.run(args);
        assert_eq!((ran.status.code(), usual.code), (Some(code), code), "{args:?}: {usual:?}");
        let out = String::from_utf8(ran.stdout).unwrap();
        assert_eq!(without_chance(&out), without_chance(&usual.out), "{args:?}");
        let ran = logged.command(&[args, &["-v"]].concat()).stderr(full()).stdout(Stdio::null()).status();
        assert_eq!(ran.unwrap().code(), Some(code), "{args:?} with log lines");
    }
}

/// Incarnations and the names of temporary directories are random.
fn without_chance(out: &str) -> String {
    let is_id = |word: &str| word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_random = |word: &&str| is_id(word) || word.starts_with("tmp");
    out.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !is_random(word))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn closed_stdout_changes_no_exit_code() {
    let place = Place::with_sequence(1, 1000);
    for (args, code) in COMMANDS {
        let mut child = place.command(args).stderr(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{args:?}");
    }
}

#[test]
fn full_stdout_is_reported() {
    let place = Place::with_sequence(1, 1000);
    for (args, code) in COMMANDS {
        let ran: Ran = place.command(args).stdout(full()).output().unwrap().into();
        let reported = ran.err.contains("cannot be written to stdout");
        // A command that only writes files or errors does not need stdout.
        assert!(if reported { ran.code == 1 } else { ran.code == code }, "{args:?}: {ran:?}");
        let writes = code == 0 && !args.contains(&"--output");
        assert!(!writes || reported, "{args:?}: {ran:?}");
    }
}

/// Waits until the command handles SIGINT and SIGTERM: on a loaded machine it may not have begun.
fn handles_signals(child: &std::process::Child) {
    #[cfg(target_os = "linux")]
    idmill_testing::eventually_blocking("the handlers", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        let caught = u64::from_str_radix(caught, 16).unwrap();
        let both = 1 << (2 - 1) | 1 << (15 - 1);
        if caught & both == both { Ok(()) } else { Err(format!("{caught:x}")) }
    });
    let _ = child;
}

/// Sends a signal, and returns how the command ended. Fails if the command runs on.
fn told(child: &mut std::process::Child, signal: &str) -> ExitStatus {
    handles_signals(child);
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    idmill_testing::eventually_blocking("the end", || child.try_wait().unwrap().ok_or("it runs on"))
}

#[test]
fn signal_ends_a_command_that_reads_stdin() {
    let place = Place::new();
    for args in [&["import"][..], &["encode", "--format", "base62"], &["decode", "--format", "base62"]] {
        for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
            let mut command = place.command(args);
            // A line of input shows that the command reads.
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            input.write_all(b"5\n").unwrap();
            std::thread::sleep(Duration::from_millis(300));
            assert_eq!(told(&mut child, signal).code(), Some(code), "{args:?} {signal}");
        }
    }
    assert_eq!(place.files().len(), 0, "nothing was imported");
}

#[test]
fn signal_ends_a_command_whose_reader_stalls() {
    let place = Place::new();
    let mut lines = String::new();
    for name in 0..2_000 {
        writeln!(lines, r#"{{"format":"1","name":"{name:0100}","next":"5","start":"1","max":"9"}}"#).unwrap();
    }
    lines += "{\"format\":\"1\",\"sequences\":\"2000\"}\n";
    std::fs::write(place.path().join("ids.jsonl"), lines).unwrap();
    assert_eq!(place.run(&["import", "ids.jsonl"]).code, 0);
    let import = ["import", "ids.jsonl", "--dry-run", "--store", "sqlite:other.db"];
    for args in [&["list"][..], &["list", "--json"], &["export"], &import] {
        let mut command = place.command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut out = BufReader::with_capacity(16, child.stdout.take().unwrap());
        // The rest of the output does not fit into the pipe.
        assert!(out.read_line(&mut String::new()).unwrap() > 0);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(told(&mut child, "-TERM").code(), Some(143), "{args:?}");
    }
}

#[test]
fn endless_line_is_an_error() {
    let place = Place::new();
    let zeros = || File::open("/dev/zero").unwrap();
    for args in [&["import"][..], &["decode", "--format", "base62"], &["encode", "--format", "base62"]] {
        let ran: Ran = place.command(args).stdin(zeros()).output().unwrap().into();
        assert!(ran.code == 1 && ran.err.contains("is longer than 65536 bytes"), "{args:?}: {ran:?}");
    }
}
