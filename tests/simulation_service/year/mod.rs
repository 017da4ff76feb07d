//! A year of a process in which little happens: probes, scrapes, a few draws, a short outage each night, and
//! sequences that end, vanish, are evicted, or are never drawn from again. Nothing may grow.

mod figures;
mod life;
mod observer;

use std::time::Instant;

use allocation_counter::measure;
use idmill_testing::seeds;

use figures::{Figures, hold};
use life::Life;
use observer::Observer;

/// Days of a whole year, and the seeds of a full run: a run of fewer seeds simulates fewer days.
const DAYS: usize = 365;
const SEEDS_A_DAY: u64 = 5;
/// The default number of days, for a debug build.
const DEFAULT_DAYS: u64 = 20;
/// The most bytes that may be left at the end: metric series and thread-local caches.
const LEFT: i64 = 1 << 20;

#[test]
fn a_year_costs_no_more_at_its_end_than_at_its_start() {
    let days = seeds::chosen(DEFAULT_DAYS * SEEDS_A_DAY, SEEDS_A_DAY).len().min(DAYS);
    let (began, observer) = (Instant::now(), Observer::default());
    let figures = observer.observe(|| year(days, &observer));
    println!("{days} days in {:.1} s; the first, the tenth and the last:", began.elapsed().as_secs_f64());
    for day in [0, days.min(10) - 1, days - 1] {
        println!("  {:?}", figures[day]);
    }
    hold(&figures);
    Life::must_report_the_truth(&observer);
}

fn year(days: usize, observer: &Observer) -> Vec<Figures> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    let (mut life, mut figures) = (None, Vec::new());
    let mut live = measure(|| life = Some(runtime.block_on(Life::begin()))).bytes_current;
    let mut life = life.expect("it has begun");
    for _ in 0..days {
        let mut unready = 0;
        live += measure(|| unready = runtime.block_on(life.day())).bytes_current;
        figures.push(Figures { live, unready, calls: life.calls(), ..observer.day() });
    }
    live += measure(|| runtime.block_on(life.end())).bytes_current;
    assert!(live < LEFT, "{live} bytes are left after the end");
    figures
}
