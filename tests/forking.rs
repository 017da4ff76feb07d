//! A process that forks while it has ids in memory. The child gets a copy of these ids.
#![cfg(unix)]

use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fork::{Fork, fork, waitpid_nohang};
use idmill::store::MemoryStore;
use idmill::{Allocator, Order, Result, Sequences};

/// Longer than a process takes on the slowest machine.
const LONG: Duration = Duration::from_secs(60);
/// The directory for the reports of both sides; set for the process that forks.
const REPORTS: &str = "IDMILL_TEST_FORK";
/// Set for a process that uses `Order::Thread`.
const BY_THREAD: &str = "IDMILL_TEST_FORK_BY_THREAD";
/// Set for a process whose child takes several ids, reads its snapshot and closes.
const TAKES: &str = "IDMILL_TEST_FORK_TAKES";
/// Ids per reserve.
const STEP: u64 = 10;
const DRAWS: usize = 30;
/// How many processes fork until a signal has detected it.
const TRIES: usize = 10;

/// Not a test: the tests below run this function in a new process, which forks.
#[test]
fn process() {
    let Ok(reports) = std::env::var(REPORTS) else { return };
    let store = MemoryStore::new();
    let ids = Sequences::builder(store.clone()).own_thread().start().unwrap();
    let order = if std::env::var_os(BY_THREAD).is_some() { Order::Thread } else { Order::Process };
    let sequence = ids.sequence::<u64>("s").step(STEP).watermark(3).order(order).open_blocking().unwrap();
    assert_eq!(draw(&sequence).unwrap(), 1);
    let takes = std::env::var_os(TAKES).is_some();
    let report = |side: &str| {
        let got: Vec<_> = (0..DRAWS).map(|_| told(&draw(&sequence))).collect();
        let text = format!("{}\n{} reserves", got.join("\n"), store.reserves());
        std::fs::write(format!("{reports}/{side}"), text).unwrap();
    };
    match fork().unwrap() {
        Fork::Child if takes => {
            let text = takes_and_ends(&ids, &sequence);
            std::fs::write(format!("{reports}/child"), text).unwrap();
            std::process::exit(0)
        }
        Fork::Child => {
            report("child");
            // Exit without running the parent's destructors.
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

/// Takes ids, reads the snapshot and closes the sequences in a child. Reports each result.
fn takes_and_ends(ids: &Sequences, sequence: &Allocator<u64>) -> String {
    let taken = sequence.blocking().take(2 * STEP).unwrap_err();
    let snapshot = sequence.snapshot();
    let health = ids.health();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(ids.close());
    let revoked = runtime.block_on(ids.admin().revoke("s")).unwrap_err();
    let closed = ids.blocking().close();
    let opened = ids.sequence::<u64>("t").lazy().unwrap_err();
    format!(
        "{:?}: {taken}\n{:?} {}\n{health}\n{:?} {closed:?} {:?}",
        taken.kind(),
        snapshot.ended,
        snapshot.remaining,
        revoked.kind(),
        opened.kind()
    )
}

fn draw(sequence: &Allocator<u64>) -> Result<u64> {
    sequence.blocking().next()
}

fn told(drawn: &Result<u64>) -> String {
    match drawn {
        Ok(id) => id.to_string(),
        Err(error) => format!("{:?}: {error}", error.kind()),
    }
}

/// Waits for a process, and kills it if it hangs.
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

/// The reports of the parent and the child.
fn forked(setting: Option<&str>) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["process", "--exact", "--nocapture", "--test-threads=1"]).env(REPORTS, dir.path());
    command.stdout(Stdio::null());
    setting.map(|setting| command.env(setting, "1"));
    assert!(finish(command).success());
    let read = |side| std::fs::read_to_string(dir.path().join(side)).unwrap();
    (read("parent"), read("child"))
}

/// Returns the number of ids that the child drew. Checks that these ids were in memory at the fork, and that
/// all other draws failed because of the fork.
fn ids_of_a_child(child: &str, last: u64) -> usize {
    let (ids, rest): (Vec<_>, Vec<_>) =
        child.lines().take(DRAWS).partition(|line| line.parse::<u64>().is_ok());
    assert!(
        ids.iter().all(|id| id.parse::<u64>().unwrap() <= last),
        "ids that were not in memory at the fork: {ids:?}"
    );
    for line in &rest {
        assert!(line.starts_with("Closed: ") && line.contains("this process was forked"), "{line}");
    }
    assert!(child.ends_with("\n1 reserves"), "it reserved: {child}");
    ids.len()
}

#[test]
fn forked_child_gets_an_error_and_its_parent_continues() {
    let all: Vec<_> = (2..=1 + DRAWS).map(|id| id.to_string()).collect();
    // The draw of id 8 crosses the watermark, and its signal detects the fork. If the actor had not finished
    // the last signal at the fork, the draw sends none, and the fork is detected once memory is empty.
    let signalled = (0..TRIES).any(|_| {
        let (parent, child) = forked(None);
        let drawn: Vec<_> = parent.lines().take(DRAWS).collect();
        assert_eq!(drawn, all, "the fork does not change the parent's ids");
        ids_of_a_child(&child, STEP) <= 7
    });
    assert!(signalled, "the signal detects no fork");
}

/// The child also gets copies of the threads' blocks.
#[test]
fn forked_child_gets_an_error_in_thread_order_too() {
    let (parent, child) = forked(Some(BY_THREAD));
    let drawn: Vec<u64> = parent.lines().take(DRAWS).map(|line| line.parse().unwrap()).collect();
    assert!(drawn.is_sorted_by(|one, next| one < next) && drawn[0] > 1, "{parent}");
    assert!(ids_of_a_child(&child, STEP) < DRAWS, "{child}");
}

#[test]
fn take_snapshot_and_close_return_in_a_child() {
    let (_parent, child) = forked(Some(TAKES));
    let (taken, rest) = child.split_once('\n').unwrap();
    assert!(taken.starts_with("Closed: ") && taken.contains("this process was forked"), "{taken}");
    assert_eq!(
        rest,
        "Some(Closed) 0\nnot ready: 1 sequences, 1 in trouble; `s` is ended (the allocator is closed)\nClosed Ok(()) Closed"
    );
}
