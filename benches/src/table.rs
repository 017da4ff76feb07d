//! The table of the hot path: medians that criterion has just measured, as ratios to the bare instruction.

use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::Value;

/// A row: its name in criterion's reports, the number of threads at which it has a target, and that target as
/// the largest ratio of its time to the bare instruction's.
#[derive(Debug)]
pub struct Row {
    /// The criterion function.
    pub name: &'static str,
    /// `(threads, largest ratio)`.
    pub targets: &'static [(usize, f64)],
}

/// Prints a row for each of `rows`, with a column pair for each of `threads`; `baseline` is the ratios' denominator.
pub fn print(group: &str, baseline: &str, rows: &[Row], threads: &[usize]) {
    println!(
        "\nns per id (wall time × 1 / ids of all threads), and the ratio to `{baseline}` in the same run\n"
    );
    let heads: Vec<_> =
        threads.iter().map(|n| format!("{n} thread{} | ratio", if *n == 1 { "" } else { "s" })).collect();
    println!("| draw | {} |", heads.join(" | "));
    println!("|---|{}", "---:|---|".repeat(threads.len()));
    for row in rows {
        let cells: Vec<_> = threads.iter().map(|n| cell(group, baseline, row, *n)).collect();
        println!("| {} | {} |", row.name, cells.join(" | "));
    }
}

fn cell(group: &str, baseline: &str, row: &Row, threads: usize) -> String {
    let (Some(own), Some(bare)) = (median(group, row.name, threads), median(group, baseline, threads)) else {
        return "– | –".to_owned();
    };
    let ratio = own / bare;
    let target = row.targets.iter().find(|(n, _)| *n == threads);
    let verdict = match target {
        None => String::new(),
        Some((_, most)) if ratio <= *most => format!(" (≤ {most:.2} ✓)"),
        Some((_, most)) => format!(" (**missed** ≤ {most:.2})"),
    };
    format!("{own:.2} | {ratio:.3}{verdict}")
}

/// The median of what criterion measured just now, in nanoseconds.
fn median(group: &str, name: &str, threads: usize) -> Option<f64> {
    let file = reports().join(group).join(name).join(threads.to_string()).join("new/estimates.json");
    let estimates: Value = serde_json::from_str(&fs::read_to_string(file).ok()?).ok()?;
    estimates["median"]["point_estimate"].as_f64()
}

/// Where criterion writes: `criterion` in the target folder.
fn reports() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target")).join("criterion")
}
