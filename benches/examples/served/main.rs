//! Compares `idmill serve` with Redis and with a minimal server over the same HTTP library, in one run on
//! one machine.
//!
//! `ci/published server` builds all programs and prints the tables of `benches/README.md`. By hand:
//! `cargo run --release -p idmill-bench --example served -- --idmill target/release/idmill`, with
//! `redis-server`, `redis-benchmark` and `wrk` in the path. `--rounds N` (5) and `--seconds N` (2, for each
//! load) set how much is measured, `--plot FILE` draws a picture.

mod contenders;
mod loads;
mod tables;

use std::env;
use std::path::PathBuf;

use contenders::{Contender, Running};
use loads::{Load, Measured};
use tables::Row;

fn main() {
    let options = match Options::of(env::args().skip(1)) {
        Ok(Asked::Measure(options)) => options,
        Ok(Asked::Hello) => return contenders::say_hello(),
        Err(message) => {
            eprintln!("{message}; usage: served --idmill FILE [--rounds N] [--seconds N] [--plot FILE]");
            std::process::exit(2);
        }
    };
    let rows = measure(&options);
    tables::print(&rows);
    println!("\n{}", loads::idle(&options.idmill));
    if let Some(file) = &options.plot {
        std::fs::write(file, tables::picture(&rows)).expect("the plot can be written");
    }
}

/// Runs each load on each of its contenders, round by round, so that a slow minute of the machine affects
/// all alike.
fn measure(options: &Options) -> Vec<Row> {
    let running: Vec<Running> = Contender::ALL.iter().map(|which| which.start(&options.idmill)).collect();
    let mut rows: Vec<Row> = Vec::new();
    for load in Load::ALL {
        rows.extend(
            running.iter().filter(|one| load.fits(one.contender)).map(|one| Row::of(*load, one.contender)),
        );
    }
    for round in 0..=options.rounds {
        for row in &mut rows {
            let one = running.iter().find(|one| one.contender == row.contender).expect("each was started");
            let measured: Measured = row.load.on(one, options.seconds);
            // The first round is a warm-up.
            if round > 0 {
                row.measured.push(measured);
            }
        }
        eprintln!("round {round} of {}", options.rounds);
    }
    rows
}

enum Asked {
    Measure(Options),
    /// This program starts itself with the argument `hello`.
    Hello,
}

struct Options {
    idmill: PathBuf,
    rounds: u32,
    seconds: u32,
    plot: Option<PathBuf>,
}

impl Options {
    fn of(mut arguments: impl Iterator<Item = String>) -> Result<Asked, String> {
        let (mut idmill, mut rounds, mut seconds, mut plot) = (None, 5, 2, None);
        while let Some(argument) = arguments.next() {
            if argument == "hello" {
                return Ok(Asked::Hello);
            }
            let value = arguments.next().ok_or_else(|| format!("{argument} takes a value"))?;
            let number = || value.parse().map_err(|_| format!("{argument} takes a number, not {value}"));
            match argument.as_str() {
                "--idmill" => idmill = Some(PathBuf::from(value)),
                "--plot" => plot = Some(PathBuf::from(value)),
                "--rounds" => rounds = number()?,
                "--seconds" => seconds = number()?,
                _ => return Err(format!("unknown option {argument}")),
            }
        }
        let idmill = idmill.ok_or("`--idmill FILE` is missing")?;
        Ok(Asked::Measure(Self { idmill, rounds, seconds, plot }))
    }
}
