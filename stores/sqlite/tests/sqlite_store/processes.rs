//! Several processes on one file, killed at any time.
//!
//! Each process runs this test binary with only the test `child`, which prints the ranges it was
//! granted.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use idmill::SequenceName;
use idmill::store::{Bounds, Reserve, Store};
use idmill_sqlite::SqliteStore;
use idmill_sqlite::rusqlite::Connection;

const FILE: &str = "IDMILL_TEST_CHILD_FILE";
const MOUNTED: &str = "IDMILL_TEST_CHILD_MOUNTED";

/// Not a test: the code of each process.
#[test]
fn child() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(file).await.unwrap();
        let name = SequenceName::new("s").unwrap();
        let request = Reserve::new(name, 7).create(Bounds::of::<u64>());
        for _ in 0..10_000 {
            let range = store.reserve(&request).await.unwrap().range;
            // Write each line in one call, so that a kill can truncate only the last line.
            let line = format!("granted {} {}\n", range.start(), range.len());
            std::io::stdout().write_all(line.as_bytes()).unwrap();
        }
    });
}

/// Not a test: a process with the database file, or its directory, as a mount point.
#[test]
fn child_that_opens() {
    let Some(file) = std::env::var_os(MOUNTED) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    match runtime.block_on(SqliteStore::open(file)) {
        Ok(_) => println!("opened"),
        Err(error) => println!("refused {}: {error}", error.kind().as_str()),
    }
}

/// A container that persists only the database file: the log would be lost.
#[cfg(target_os = "linux")]
#[test]
fn database_mounted_as_a_single_file_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (host, app) = (dir.path().join("host"), dir.path().join("app"));
    for each in [&host, &app] {
        std::fs::create_dir(each).unwrap();
    }
    std::fs::write(host.join("ids.db"), "").unwrap();
    std::fs::write(app.join("ids.db"), "").unwrap();
    let mount = |from: &Path, to: &Path| {
        let script = format!(
            "mount --bind '{}' '{}' || exit 77; exec '{}' processes::child_that_opens --exact --nocapture --test-threads=1",
            from.display(),
            to.display(),
            std::env::current_exe().unwrap().display()
        );
        let mut command = Command::new("unshare");
        let output = command.args(["-rm", "sh", "-c", &script]).env(MOUNTED, app.join("ids.db")).output();
        let Ok(output) = output else { return None };
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (Some(file), Some(directory)) =
        (mount(&host.join("ids.db"), &app.join("ids.db")), mount(&host, &app))
    else {
        idmill_testing::skip("this user may not mount");
        return;
    };
    assert!(file.contains("refused conflict") && file.contains("mount the directory"), "{file}");
    assert!(directory.contains("opened"), "{directory}");
}

fn spawn(file: &Path, output: &Path) -> Child {
    let output = std::fs::File::create(output).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["processes::child", "--exact", "--nocapture", "--test-threads=1"])
        .env(FILE, file)
        .stdout(output)
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

fn granted(output: &Path) -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string(output).unwrap();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().filter_map(|line| line.split_once("granted ")?.1.split_once(' '));
    lines.map(|(start, len)| (start.parse().unwrap(), len.parse().unwrap())).collect()
}

#[test]
fn killed_processes_leave_a_whole_file_and_no_id_twice() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ids.db");
    let mut all = Vec::new();
    for round in 0..100_u64 {
        // A slow machine needs more rounds to make progress.
        if round >= 8 && all.len() > 20 {
            break;
        }
        let outputs: Vec<_> = (0..3).map(|n| dir.path().join(format!("{round}-{n}"))).collect();
        let mut children: Vec<_> = outputs.iter().map(|output| spawn(&file, output)).collect();
        // In the first rounds, the processes are killed while the file is being created. Later rounds last
        // longer, for slow machines.
        let millis = 4 + 8 * (round * round).min(50);
        std::thread::sleep(Duration::from_millis(millis * (1 + round / 8)));
        for child in &mut children {
            child.kill().unwrap();
            assert!(!child.wait().unwrap().success(), "killed, not failed or done");
        }
        all.extend(outputs.iter().flat_map(|output| granted(output)));
    }
    assert!(all.len() > 20, "only {} reserves before the kills", all.len());
    all.sort_unstable();
    for pair in all.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "handed out twice: {pair:?}");
    }
    let db = Connection::open(&file).unwrap();
    let check: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let next: i64 = db.query_row("SELECT next FROM idmill_sequences", [], |row| row.get(0)).unwrap();
    let (start, len) = all[all.len() - 1];
    assert!(next.cast_unsigned() >= start + len);
}
