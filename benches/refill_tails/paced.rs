//! A million ids per second, each drawn when it is due, over a store of 10 ms. The results are compared with
//! no store at all, with a witness of 10 ms, and with a mutex.
//!
//! The load is open: an id is due every microsecond, whether the previous one has arrived or not, and its
//! latency counts from its due time. So a pause of 10 ms delays all ten thousand draws that are due in the
//! pause, and no correction for coordinated omission is needed. A thread that waits for the next due time
//! spins.

use std::fs;
use std::hint::spin_loop;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use idmill_bench::plot::{Line, Plot};
use idmill_bench::threads::pin;

use crate::contenders::{Bare, Contender, Idmill, MutexAndFetch};
use crate::times::{histogram, nanos, pretty};

/// The rate of all threads together.
const IDS_PER_SECOND: u64 = 1_000_000;
const LATENCY: Duration = Duration::from_millis(10);
/// One refill every tenth of a second, started when the remaining ids last for four latencies.
const STEP: u64 = 100_000;
const WATERMARK: u64 = 40_000;
const MEASURED: Duration = Duration::from_secs(10);
const THREADS: [u32; 2] = [1, 2];

/// The upper bounds of the histogram's buckets, in nanoseconds.
const BUCKETS: [u64; 6] = [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

struct Row {
    name: String,
    threads: u32,
    reserves: u64,
    waited: u64,
    latencies: Histogram<u64>,
}

/// Prints the tables, and draws the picture of one thread's latencies.
pub(crate) fn run(smoke: bool, picture: Option<&Path>) {
    let time = if smoke { MEASURED / 100 } else { MEASURED };
    // Fail early if the file is not writable: a measurement takes minutes.
    picture.inspect(|file| fs::write(file, "").expect("the plot can be written"));
    let rows: Vec<Row> = THREADS.into_iter().flat_map(|threads| measure_all(threads, time)).collect();
    print_percentiles(&rows);
    print_histogram(&rows);
    if let Some(file) = picture {
        let one: Vec<_> = rows.iter().filter(|row| row.threads == 1).collect();
        fs::write(file, plot(&one).svg()).expect("the picture can be written");
    }
}

fn measure_all(threads: u32, time: Duration) -> Vec<Row> {
    // Create each contender just before its measurement, so that no other contender's threads are running.
    let contenders: [fn() -> Box<dyn Contender>; 5] = [
        || Box::new(Bare::default()),
        || Box::new(Idmill::without_refills()),
        || Box::new(Idmill::new(LATENCY, STEP, WATERMARK)),
        // A guarded refill takes three times as long.
        || Box::new(Idmill::guarded(LATENCY, STEP, 2 * WATERMARK)),
        || Box::new(MutexAndFetch::new(LATENCY, STEP)),
    ];
    contenders.into_iter().map(|make| measure(&*make(), threads, time)).collect()
}

fn measure(contender: &dyn Contender, threads: u32, time: Duration) -> Row {
    let begin = &Barrier::new(threads as usize);
    let latencies = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                scope.spawn(move || {
                    pin(number as usize);
                    let mut draw = contender.drawer();
                    begin.wait();
                    draw_when_due(&mut *draw, number, threads, time)
                })
            })
            .collect();
        let mut all = histogram();
        for worker in workers {
            all.add(worker.join().expect("no worker panics")).expect("both have the same bounds");
        }
        all
    });
    let (reserves, waited) = contender.counts();
    Row { name: contender.name(), threads, reserves, waited, latencies }
}

/// Draws one thread's share: at every `threads`-th due time, starting with `number`.
fn draw_when_due(draw: &mut dyn FnMut(), number: u32, threads: u32, time: Duration) -> Histogram<u64> {
    let mut latencies = histogram();
    let pause = Duration::from_nanos(1_000_000_000 / IDS_PER_SECOND);
    let begun = Instant::now();
    let mut due = begun + pause * number;
    while due - begun < time {
        while Instant::now() < due {
            spin_loop();
        }
        draw();
        latencies.saturating_record(nanos(due.elapsed()));
        due += pause * threads;
    }
    latencies
}

fn print_percentiles(rows: &[Row]) {
    let millis = LATENCY.as_millis();
    println!(
        "\n{} M ids/s on a fixed schedule; store latency {millis} ms, step {STEP}; latency from the \
         scheduled time\n",
        IDS_PER_SECOND / 1_000_000
    );
    println!(
        "| ids from | threads | reserves | draws that waited | p50 | p90 | p99 | p99.9 | p99.99 | max |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for row in rows {
        let at = |quantile| pretty(row.latencies.value_at_quantile(quantile));
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            row.name,
            row.threads,
            row.reserves,
            row.waited,
            at(0.5),
            at(0.9),
            at(0.99),
            at(0.999),
            at(0.9999),
            pretty(row.latencies.max()),
        );
    }
}

/// Prints the number of draws by duration: a table for each number of threads, with a column for each
/// contender.
fn print_histogram(rows: &[Row]) {
    for threads in THREADS {
        let rows: Vec<_> = rows.iter().filter(|row| row.threads == threads).collect();
        let names: Vec<_> = rows.iter().map(|row| row.name.as_str()).collect();
        println!("\n| draws of {threads} thread{} that took | {} |", plural(threads), names.join(" | "));
        println!("|---|{}", "---:|".repeat(rows.len()));
        let mut from = 0;
        for to in BUCKETS.into_iter().chain([u64::MAX]) {
            let cells: Vec<_> =
                rows.iter().map(|row| between(&row.latencies, from, to).to_string()).collect();
            let range = match (from, to) {
                (0, to) => format!("less than {}", bound(to)),
                (from, u64::MAX) => format!("{} or more", bound(from)),
                (from, to) => format!("{} to {}", bound(from), bound(to)),
            };
            println!("| {range} | {} |", cells.join(" | "));
            from = to;
        }
    }
}

/// Returns the number of latencies from `from` to below `to`. Latencies are recorded to three significant
/// digits.
fn between(latencies: &Histogram<u64>, from: u64, to: u64) -> u64 {
    latencies.iter_recorded().fold(0, |sum, seen| {
        let within = (from..to).contains(&seen.value_iterated_to());
        sum + if within { seen.count_at_value() } else { 0 }
    })
}

fn bound(nanos: u64) -> String {
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{} µs", nanos / 1_000),
        _ => format!("{} ms", nanos / 1_000_000),
    }
}

fn plural(number: u32) -> &'static str {
    if number == 1 { "" } else { "s" }
}

/// Latencies by percentile. On the x axis, 90 %, 99 % and 99.9 % have equal distances.
fn plot(rows: &[&Row]) -> Plot {
    Plot {
        title: "A million ids per second, store latency 10 ms, one thread".to_owned(),
        x: "percentile of the draws".to_owned(),
        y: "latency from the scheduled time".to_owned(),
        labels: [share, time],
        lines: rows
            .iter()
            .map(|row| Line { name: row.name.clone(), points: points(&row.latencies) })
            .collect(),
    }
}

/// Returns the points from the median to the second-largest latency.
fn points(latencies: &Histogram<u64>) -> Vec<(f64, f64)> {
    let most = (latencies.len() as f64).log10();
    let nines = (0..).map(|step| 0.3 + f64::from(step) * 0.02).take_while(|nines| *nines < most);
    nines.map(|nines| (nines, latencies.value_at_quantile(1.0 - 0.1_f64.powf(nines)) as f64)).collect()
}

/// Two nines are 99 %.
fn share(nines: f64) -> String {
    let percent = 100.0 * (1.0 - 0.1_f64.powf(nines));
    match nines {
        ..2.1 => format!("{percent:.0} %"),
        ..3.1 => format!("{percent:.1} %"),
        ..4.1 => format!("{percent:.2} %"),
        ..5.1 => format!("{percent:.3} %"),
        _ => format!("{percent:.4} %"),
    }
}

// Labels are positive latencies, far below 2^63 ns.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn time(nanos: f64) -> String {
    bound(nanos as u64)
}
