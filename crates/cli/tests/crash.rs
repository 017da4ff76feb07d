//! Processes over one SQLite file are killed with SIGKILL at arbitrary moments. No id is a duplicate.
//!
//! Some processes run the command line. The other processes run only `child` of this test binary, which
//! uses the library with several threads, handles and blocks.
#![cfg(unix)]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use idmill::{Allocator, Order, Sequences};
use idmill_sqlite::rusqlite::Connection;

const FILE: &str = "IDMILL_CRASH_CHILD_FILE";

/// Returns the number of rounds.
fn rounds() -> u64 {
    std::env::var("IDMILL_CRASH_ROUNDS").map_or(12, |text| text.parse().expect("a number"))
}

/// Not a test: the main function of a process that uses the library.
#[test]
fn child() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let url = format!("sqlite:{}", file.to_str().expect("a path of this test"));
    let ids = Sequences::connect_blocking(async move { idmill_any::schemes().open(&url).await })
        .expect("the store opens");
    let open = |order| {
        ids.sequence::<u64>("s").order(order).step(20).watermark(15).block_size(5).lazy().expect("opens")
    };
    // A sequence has one order per process, so each process uses one of the two orders.
    let thread_order = std::process::id().is_multiple_of(2);
    let allocator = open(if thread_order { Order::Thread } else { Order::Process });
    thread::scope(|scope| {
        for number in 0..3 {
            let allocator = allocator.clone();
            scope.spawn(move || draw_for_ever(&allocator, number));
        }
    });
}

fn draw_for_ever(allocator: &Allocator<u64>, number: u32) {
    let mut handle = allocator.handle();
    loop {
        let id = match number {
            0 => allocator.blocking().next(),
            _ => handle.blocking().next(),
        };
        // Write each line in one call, so that a kill can truncate only the last line. The test harness
        // prints too, so lines with ids have a prefix.
        let line = format!("id {}\n", id.expect("the store is there"));
        std::io::stdout().write_all(line.as_bytes()).expect("stdout is a file");
    }
}

fn start(mut command: Command, output: &Path) -> Child {
    let output = File::create(output).expect("a file for the output");
    command.stdin(Stdio::null()).stdout(output).stderr(Stdio::null()).spawn().expect("starts")
}

fn library(file: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["child", "--exact", "--nocapture", "--test-threads=1"]).env(FILE, file);
    command
}

fn next(file: &Path, count: u64, step: u64) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idmill"));
    let (count, step) = (count.to_string(), step.to_string());
    command.args(["next", "s", "-n", &count, "--step", &step, "--store"]);
    command.arg(format!("sqlite:{}", file.display()));
    command
}

/// Returns the ids on complete lines.
fn printed(output: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(output).expect("text");
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let id = |line: &str| line.rsplit("id ").next().and_then(|id| id.parse().ok());
    whole.lines().filter_map(id).collect()
}

struct Scene {
    dir: tempfile::TempDir,
    ids: Vec<u64>,
    killed: u64,
    started: u64,
}

impl Scene {
    fn file(&self) -> PathBuf {
        self.dir.path().join("ids.db")
    }

    /// Starts several processes at the same time, and kills them one after the other, with a pause that
    /// depends on `round`.
    fn round(&mut self, round: u64) {
        let file = self.file();
        let output = |slot: u64| self.dir.path().join(format!("output-{slot}"));
        let mut children = Vec::new();
        for slot in 0..6 {
            let command = match slot % 3 {
                0 => library(&file),
                1 => next(&file, 1 + round % 5, 1),
                _ => next(&file, 500_000, 1 + round * 3),
            };
            children.push(start(command, &output(slot)));
        }
        for child in &mut children {
            // Kill the process at any time from before the file is opened until well after the first output.
            // The delay grows if the first rounds printed too few ids.
            let longer = 1 + round / rounds().max(1);
            thread::sleep(Duration::from_micros(round * 7919 % 29_000 * longer));
            child.kill().expect("may be killed");
            self.killed += u64::from(!child.wait().expect("is there").success());
            self.started += 1;
        }
        for slot in 0..6 {
            self.ids.extend(printed(&output(slot)));
        }
    }

    fn no_id_is_there_twice(&mut self) {
        self.ids.sort_unstable();
        let twice = self.ids.windows(2).find(|pair| pair[0] == pair[1]);
        assert_eq!(twice, None, "printed twice");
    }

    fn the_file_is_whole(&self) {
        let db = Connection::open(self.file()).expect("opens");
        let check: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("answers");
        assert_eq!(check, "ok");
    }

    fn a_later_run_goes_on(&self) {
        let output = next(&self.file(), 10, 1).output().expect("runs");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        let later: Vec<u64> = text.lines().map(|line| line.parse().expect("an id a line")).collect();
        assert_eq!(later.len(), 10);
        assert!(later.iter().all(|id| Some(id) > self.ids.last()), "{later:?}");
    }
}

#[test]
fn killed_processes_print_no_duplicate_ids() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut scene = Scene { dir, ids: Vec::new(), killed: 0, started: 0 };
    // A slow machine needs more rounds to print enough ids.
    for round in 1..1000 {
        if round > rounds() && scene.killed > 0 && scene.ids.len() > 100 {
            break;
        }
        scene.round(round);
    }
    scene.no_id_is_there_twice();
    scene.the_file_is_whole();
    scene.a_later_run_goes_on();
    println!("{} ids of {} processes, {} of them killed", scene.ids.len(), scene.started, scene.killed);
    assert!(scene.killed > 0 && scene.ids.len() > 100, "a test of nothing");
}
