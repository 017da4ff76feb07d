//! Measures rows side by side, several times, and prints a table of the ranges of the results.
//!
//! A *run* recreates everything, so that the results do not depend on one memory layout. It measures all
//! rows repeatedly, one after the other, and keeps the median of each. Ratios are computed within a run.
//! The table has the minimum and the maximum of all runs.

use std::time::Duration;

/// Measures the time in which all threads together draw the ids: `(threads, ids)`.
pub type Measure = Box<dyn Fn(usize, u64) -> Duration>;

/// A row of the table.
pub struct Row {
    /// The row's label.
    pub name: &'static str,
    /// The row that the goals compare this row with.
    pub against: &'static str,
    /// `(threads, ratio)`: the largest ratio to the row `against`.
    pub goals: &'static [(usize, f64)],
    /// The measurement.
    pub measure: Measure,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Row").field("name", &self.name).finish_non_exhaustive()
    }
}

const RUNS: usize = 7;
/// How often a run measures each row.
const REPEATS: usize = 15;
/// The approximate duration of one measurement.
const SPAN: Duration = Duration::from_millis(6);

/// Measures and prints. The argument `--test` only checks that everything can be measured.
pub fn main(threads: &[usize], rows: impl Fn() -> Vec<Row>) {
    if std::env::args().any(|argument| argument == "--test") {
        for row in rows() {
            for threads in threads {
                (row.measure)(*threads, 1000);
            }
        }
        println!("Success");
        return;
    }
    let runs: Vec<Vec<Vec<f64>>> = (0..RUNS).map(|_| run(threads, &rows())).collect();
    print(threads, &rows(), &runs);
}

/// Nanoseconds per id, by row and number of threads.
fn run(threads: &[usize], rows: &[Row]) -> Vec<Vec<f64>> {
    let cells = || rows.iter().flat_map(|row| threads.iter().map(move |threads| (row, *threads)));
    let ids: Vec<_> = cells().map(|(row, threads)| ids_for(row, threads)).collect();
    let mut times = vec![Vec::new(); ids.len()];
    for _ in 0..REPEATS {
        for (((row, threads), ids), times) in cells().zip(&ids).zip(&mut times) {
            times.push((row.measure)(threads, *ids).as_nanos() as f64 / *ids as f64);
        }
    }
    let medians: Vec<_> = times.into_iter().map(median).collect();
    medians.chunks(threads.len()).map(<[f64]>::to_vec).collect()
}

/// The number of ids that takes about as long as one measurement should last.
// The result is positive and far below 2^53.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn ids_for(row: &Row, threads: usize) -> u64 {
    const FEW: u64 = 200_000;
    let took = (row.measure)(threads, FEW).as_nanos() as f64;
    (FEW as f64 * SPAN.as_nanos() as f64 / took.max(1.0)) as u64 + 1
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn print(threads: &[usize], rows: &[Row], runs: &[Vec<Vec<f64>>]) {
    println!(
        "\nns per id over all threads, and the ratio to `{}`: min–max of {RUNS} runs; the goal column uses \
         the median run\n",
        rows[0].name
    );
    let heads: Vec<_> =
        threads.iter().map(|n| format!("{n} thread{} | ratio", if *n == 1 { "" } else { "s" })).collect();
    println!("| draw | {} | goal |", heads.join(" | "));
    println!("|---|{}---|", "---:|---|".repeat(threads.len()));
    let index = |name| rows.iter().position(|row| row.name == name).expect("a row of this name");
    for (number, row) in rows.iter().enumerate() {
        let ratios = |beside: usize, column: usize| {
            Range::of(runs.iter().map(|run| run[number][column] / run[beside][column]))
        };
        let cells = (0..threads.len()).map(|column| {
            let nanos = Range::of(runs.iter().map(|run| run[number][column]));
            format!("{} | {}", nanos, ratios(0, column))
        });
        let goals = row.goals.iter().map(|(of, most)| {
            let column = threads.iter().position(|threads| threads == of).expect("measured");
            let range = ratios(index(row.against), column);
            let verdict = if range.middle <= *most { "✓" } else { "**missed**" };
            let against = if index(row.against) == 0 {
                String::new()
            } else {
                format!(" × {} ({range})", row.against)
            };
            format!("{of}: ≤ {most:.2}{against} {verdict}")
        });
        let (cells, goals) = (cells.collect::<Vec<_>>(), goals.collect::<Vec<_>>());
        println!("| {} | {} | {} |", row.name, cells.join(" | "), goals.join("; "));
    }
}

/// The minimum, the maximum and the median.
struct Range {
    least: f64,
    middle: f64,
    largest: f64,
}

impl Range {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<_> = values.collect();
        values.sort_by(f64::total_cmp);
        Self { least: values[0], middle: values[values.len() / 2], largest: values[values.len() - 1] }
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2}–{:.2}", self.least, self.largest)
    }
}
