//! A process that forks while it has ids in memory: its child has a copy of them.
#![cfg(unix)]

use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fork::{Fork, fork, waitpid_nohang};
use idmill::store::{MemoryStore, Store};
use idmill::{Allocator, Result, Sequences};

/// Longer than any machine takes.
const LONG: Duration = Duration::from_secs(60);
/// Where what each side got is written to; set for the process that forks.
const REPORTS: &str = "IDMILL_TEST_FORK";
const DRAWS: usize = 30;

/// Not a test by itself: the process that forks, which runs nothing else.
#[test]
fn process() {
    let Ok(reports) = std::env::var(REPORTS) else { return };
    let store = MemoryStore::new();
    let ids = Sequences::builder(Arc::new(store.clone()) as Arc<dyn Store>).own_thread().start().unwrap();
    let sequence = ids.sequence::<u64>("s").step(10).watermark(3).open_blocking().unwrap();
    assert_eq!(draw(&sequence).unwrap(), 1);
    let report = |side: &str| {
        let got: Vec<_> = (0..DRAWS).map(|_| told(&draw(&sequence))).collect();
        let text = format!("{}\n{} reserves", got.join("\n"), store.reserves());
        std::fs::write(format!("{reports}/{side}"), text).unwrap();
    };
    match fork().unwrap() {
        Fork::Child => {
            report("child");
            // No more of what belongs to the parent is run.
            std::process::exit(0)
        }
        Fork::Parent(child) => {
            report("parent");
            while waitpid_nohang(child).unwrap().is_none() {
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

fn draw(sequence: &Allocator<u64>) -> Result<u64> {
    sequence.next_blocking(Duration::from_secs(30))
}

fn told(drawn: &Result<u64>) -> String {
    match drawn {
        Ok(id) => id.to_string(),
        Err(error) => format!("{:?}: {error}", error.kind()),
    }
}

/// Ends a process that hangs.
fn finish(mut command: Command) -> ExitStatus {
    let (mut process, began) = (command.spawn().unwrap(), Instant::now());
    loop {
        match process.try_wait().unwrap() {
            Some(status) => return status,
            None if began.elapsed() > LONG => process.kill().unwrap(),
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
}

#[test]
fn a_child_hears_that_it_is_one_and_its_parent_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["process", "--exact", "--nocapture", "--test-threads=1"]).env(REPORTS, dir.path());
    command.stdout(Stdio::null());
    assert!(finish(command).success());
    let read = |side| std::fs::read_to_string(dir.path().join(side)).unwrap();
    let (parent, child) = (read("parent"), read("child"));
    let all: Vec<_> = (2..=1 + DRAWS).map(|id| id.to_string()).collect();
    assert_eq!(parent.lines().take(DRAWS).collect::<Vec<_>>(), all, "the parent has what it always had");
    // The 8th id of the range is the draw that crosses the watermark.
    let (ids, rest): (Vec<_>, Vec<_>) =
        child.lines().take(DRAWS).partition(|line| line.parse::<u64>().is_ok());
    assert!(ids.iter().all(|id| id.parse::<u64>().unwrap() <= 8), "only what was in memory: {ids:?}");
    assert!(rest.len() >= DRAWS - 7, "{child}");
    for line in &rest {
        assert!(line.starts_with("Closed: ") && line.contains("this process was forked"), "{line}");
    }
    assert!(child.ends_with("\n1 reserves"), "it reserved: {child}");
}
