//! The latency of draws while the store refills: the number of draws that waited, and the tail of the
//! latencies.
//!
//! `cargo bench -p idmill-bench --bench refill_tails` prints the tables of `benches/README.md`. `-- drain`
//! or `-- paced` prints one of them, and `-- paced --plot FILE` draws a picture. This benchmark does not use
//! criterion: it measures the distribution of single draws, not the mean of many.

mod contenders;
mod drain;
mod paced;
mod times;

use std::env;
use std::path::PathBuf;

fn main() {
    let mut arguments = env::args().skip(1);
    let (mut smoke, mut picture, mut tables) = (false, None, Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // The smoke run, `cargo bench -- --test`, uses this: everything runs once, for a short time.
            "--test" => smoke = true,
            "--plot" => picture = Some(PathBuf::from(arguments.next().expect("--plot takes a file"))),
            // Cargo passes this.
            "--bench" => {}
            _ => tables.push(argument),
        }
    }
    let wanted = |table: &str| tables.is_empty() || tables.iter().any(|wanted| wanted == table);
    if wanted("drain") {
        drain::run(smoke);
    }
    if wanted("paced") {
        paced::run(smoke, picture.as_deref());
    }
    if smoke {
        println!("Success");
    }
}
