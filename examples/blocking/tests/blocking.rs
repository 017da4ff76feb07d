//! The program, run twice over one file.

use std::path::Path;
use std::process::Command;

/// Returns the printed ids, sorted, and the printed number of ids given back.
fn run(file: &Path) -> (Vec<u64>, u64) {
    let output = Command::new(env!("CARGO_BIN_EXE_blocking")).arg(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let (ids, last) = printed.trim_end().rsplit_once('\n').unwrap();
    let mut ids: Vec<u64> = ids.lines().map(|line| line.parse().unwrap()).collect();
    ids.sort_unstable();
    (ids, last.strip_suffix(" given back").unwrap().parse().unwrap())
}

#[test]
fn second_run_continues_after_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ids.db");
    for ids in [1..=40, 41..=80] {
        let (drawn, given_back) = run(&file);
        assert_eq!(drawn, ids.collect::<Vec<_>>());
        assert!(given_back > 0, "nothing was left to give back");
    }
}
