//! Repeats a published benchmark of sequences on Cloud Spanner with `idmill bench`, and compares the ratios.
//!
//! `ci/published STORE` builds the command, starts the store's engine, and prints the tables of
//! `benches/README.md`. By hand: `cargo build --release -p idmill-cli`, and then
//! `cargo bench -p idmill-bench --bench published -- --store URL`. `--plot FILE` draws a picture; the other
//! options are passed to `idmill bench`, such as `--duration 1s`.

#![allow(missing_docs)] // a benchmark has no public interface

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use idmill_bench::published::{Comparison, SETTINGS};

fn main() {
    let mut arguments = env::args().skip(1);
    let (mut smoke, mut picture, mut options) = (false, None, Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // The smoke run, `cargo bench -- --test`, uses this.
            "--test" => smoke = true,
            "--plot" => picture = Some(PathBuf::from(arguments.next().expect("--plot takes a file"))),
            // Cargo passes this.
            "--bench" => {}
            _ => options.push(argument),
        }
    }
    if smoke {
        options.extend(["-n", "2"].map(str::to_owned));
    }
    let comparison = Comparison::of(&measure(&options));
    println!("\nEach measured column is followed by the column published for Cloud Spanner:\n");
    print!("{}", comparison.markdown());
    let drawn = comparison.svg();
    if let Some(file) = picture {
        fs::write(file, drawn).expect("the picture can be written");
    }
    if smoke {
        println!("Success");
    }
}

/// Runs `idmill bench`, which prints its tables. Returns its results as JSON.
fn measure(options: &[String]) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("bench.json");
    let mut command = Command::new(idmill());
    command.arg("bench").args(SETTINGS).args(options).arg("--markdown").arg("--json").arg(&file);
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}; build it first"));
    assert!(status.success(), "{command:?}: {status}");
    fs::read_to_string(file).expect("`idmill bench` has written its results")
}

/// Returns the command of the same profile: it is in the directory above this program's.
fn idmill() -> PathBuf {
    let program = env::current_exe().expect("this program has a path");
    let directory = program.parent().and_then(|deps| deps.parent()).expect("the target directory");
    directory.join(format!("idmill{}", env::consts::EXE_SUFFIX))
}
