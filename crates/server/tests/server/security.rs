//! `docs/threats.md` names a test for each defence. All of these tests exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Collects the names of the test functions in Rust files below this folder.
fn functions(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().zip(text.lines().skip(1)).filter(|(line, _)| line.contains("test"));
            let names = lines.filter_map(|(_, line)| line.split_once("fn ")?.1.split_once('('));
            found.extend(names.map(|(name, _)| name.to_owned()));
        }
    }
}

#[test]
fn each_defence_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let page = fs::read_to_string(root.join("docs/threats.md")).unwrap();
    let mut known = BTreeSet::new();
    for folder in ["crates/server/src", "crates/server/tests", "crates/cli/src", "crates/cli/tests", "tests"]
    {
        functions(&root.join(folder), &mut known);
    }
    let defences: Vec<_> =
        page.lines().filter(|line| line.starts_with("| ") && line.matches(" | ").count() == 2).collect();
    let mut checked = 0;
    for defence in defences {
        let tests = defence.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        if tests == "tests" || tests == "---" {
            continue;
        }
        let names: Vec<_> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test holds this: {defence}");
        for name in names {
            assert!(known.contains(name), "there is no test `{name}`: {defence}");
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked}");
}
