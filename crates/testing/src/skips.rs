//! Tests that cannot run on this machine.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::thread;

use parking_lot::Mutex;

/// The environment variable that names the file in which ci/test collects the skipped tests.
const FILE: &str = "IDMILL_SKIPS";

/// Records that the current test is skipped, because cargo counts a test that returns early as passed.
/// Prints the reason, and appends the line `TEST<TAB>REASON` to the file that `IDMILL_SKIPS` names. Call it
/// on the test's own thread. A test is recorded once.
///
/// # Panics
/// If `CI=true`, because a skipped test proves nothing.
pub fn skip(reason: &str) {
    static SKIPPED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let required = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!required, "a test may not be skipped with CI=true: {reason}");
    println!("skipped: {reason}");
    let thread = thread::current();
    let test = thread.name().unwrap_or("a thread without a name");
    let Some(path) = std::env::var_os(FILE) else { return };
    if SKIPPED.lock().insert(test.to_owned()) {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let line = format!("{test}\t{reason}\n");
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file of skips can be written");
    }
}
