//! All atomics, locks and lock-free types are imported through `src/sync.rs`, so that the models in
//! `loom-tests/` cover them.

use std::fs;
use std::path::Path;

/// Only `src/sync.rs` may contain these paths.
const PRIMITIVES: [&str; 7] = [
    "std::sync::atomic",
    "std::sync::Mutex",
    "arc_swap::",
    "parking_lot::",
    "crossbeam_queue::",
    "papaya::",
    "loom::",
];

/// Permitted uses outside of the facade: a counter that does not affect the protocol.
const EXCEPTIONS: [(&str, &str); 1] = [("src/state/core.rs", "static KEY")];

fn visit(folder: &Path, found: &mut Vec<String>, files: &mut usize) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            visit(&path, found, files);
            continue;
        }
        if path.ends_with("src/sync.rs") {
            continue;
        }
        *files += 1;
        let (name, text) = (path.display().to_string(), fs::read_to_string(&path).unwrap());
        let excepted =
            |line: &str| EXCEPTIONS.iter().any(|(file, part)| name.ends_with(file) && line.contains(part));
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if PRIMITIVES.iter().any(|primitive| code.contains(primitive)) && !excepted(line) {
                found.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
}

#[test]
fn primitives_are_imported_through_the_facade() {
    let (mut found, mut files) = (Vec::new(), 0);
    visit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found, &mut files);
    assert!(files > 20, "looked at {files} files only");
    assert!(found.is_empty(), "import these through crate::sync:\n{}", found.join("\n"));
}

/// The files of a draw from memory.
const DRAW: [&str; 9] = [
    "allocator/local.rs",
    "state/block/mod.rs",
    "state/block/slot.rs",
    "state/block/table.rs",
    "state/block/thread.rs",
    "state/core.rs",
    "state/draw.rs",
    "state/segment.rs",
    "state/stock.rs",
];

#[test]
fn files_of_a_draw_from_memory_use_no_clock() {
    for file in DRAW {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file)).unwrap();
        for line in text.lines() {
            let code = line.split("//").next().unwrap_or_default();
            let has_clock =
                ["clock", "Clock", "Instant", "SystemTime"].iter().any(|word| code.contains(word));
            assert!(!has_clock, "src/{file}: {line}");
        }
    }
}
