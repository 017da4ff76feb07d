//! A year of a process in which little happens: probes, scrapes, a few draws, a short outage each night, and
//! sequences that end, vanish, are evicted, or are never drawn from again. Nothing may grow.

mod figures;
mod life;
mod observer;

use std::time::Instant;

use allocation_counter::measure;
use idmill_testing::seeds;

use figures::{FIRST, Figures, hold};
use life::Life;
use observer::Observer;

/// Days of a whole year, and the seeds for each day: a run of fewer seeds simulates fewer days.
const DAYS: usize = 365;
const SEEDS_A_DAY: u64 = 5;
/// The default number of days, for a debug build.
const DEFAULT_DAYS: u64 = 12;
/// The length of a day in seconds, and of a short day, which is enough to show a planted bug.
const DAY: u64 = 24 * 3600;
const SHORT: u64 = 2 * 3600;
/// The most bytes that may be left at the end: metric series and thread-local caches.
const LEFT: i64 = 1 << 20;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    None,
    /// Each probe keeps a few bytes.
    ProbesLeak,
    /// Series of evicted sequences are kept, and each sequence has a new name.
    NewNames,
}

fn year(days: usize, day: u64, bug: Bug) -> Result<Vec<Figures>, String> {
    let observer = Observer::default();
    observer.observe(|| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
        let (mut life, mut figures) = (None, Vec::new());
        let mut live = measure(|| life = Some(runtime.block_on(Life::begin(day, bug)))).bytes_current;
        let mut life = life.expect("it has begun");
        for _ in 0..days {
            let mut unready = 0;
            live += measure(|| unready = runtime.block_on(life.day())).bytes_current;
            figures.push(Figures { live, unready, calls: life.calls(), ..observer.day() });
        }
        // Before the end: it clears the levels of all sequences.
        Life::reports_the_truth(&observer)?;
        live += measure(|| runtime.block_on(life.end())).bytes_current;
        if live > LEFT {
            return Err(format!("{live} bytes are left after the end"));
        }
        hold(&figures)?;
        Ok(figures)
    })
}

#[test]
fn a_year_costs_no_more_at_its_end_than_at_its_start() {
    let days = seeds::chosen(DEFAULT_DAYS * SEEDS_A_DAY, SEEDS_A_DAY).len().clamp(2 * FIRST, DAYS);
    let began = Instant::now();
    let figures = year(days, DAY, Bug::None).unwrap_or_else(|fault| panic!("{fault}"));
    println!("{days} days in {:.1} s; the last: {:?}", began.elapsed().as_secs_f64(), figures[days - 1]);
}

#[test]
fn growth_is_found() {
    for (bug, fault) in [(Bug::ProbesLeak, "memory grows"), (Bug::NewNames, "metric series grow")] {
        let found = year(4 * FIRST, SHORT, bug).expect_err("it is found");
        assert!(found.contains(fault), "{bug:?}: {found}");
        println!("caught {bug:?}: {fault}");
    }
}
