//! The results, as Markdown and as a picture.

use idmill_bench::plot::{Bars, Group, bars_svg};

use crate::contenders::Contender;
use crate::loads::{Load, Measured};

/// One load on one contender.
pub(crate) struct Row {
    pub(crate) load: Load,
    pub(crate) contender: Contender,
    pub(crate) measured: Vec<Measured>,
}

impl Row {
    pub(crate) fn of(load: Load, contender: Contender) -> Self {
        Self { load, contender, measured: Vec::new() }
    }

    fn sorted(&self, of: impl Fn(&Measured) -> f64) -> Vec<f64> {
        let mut values: Vec<f64> = self.measured.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn median(&self, of: impl Fn(&Measured) -> f64) -> f64 {
        let values = self.sorted(of);
        values[values.len() / 2]
    }

    fn per_second(&self) -> f64 {
        self.median(|run| run.per_second)
    }
}

/// The goal for idmill's rate, relative to the first other server's.
fn goal(load: Load) -> f64 {
    match load {
        Load::Incr { pipeline: 1, .. } => 1.0,
        Load::Incr { pipeline: ..32, .. } => 1.5,
        Load::Incr { .. } => 2.0,
        Load::Http { .. } => 0.8,
    }
}

pub(crate) fn print(rows: &[Row]) {
    println!("| load | server | requests/s | min to max | p99 | CPU time | idmill / server |");
    println!("|---|---|---:|---|---:|---:|---|");
    for row in rows {
        let range = row.sorted(|run| run.per_second);
        println!(
            "| {} | {} | {} | {} to {} | {:.2} ms | {:.2} µs | {} |",
            row.load.name(),
            row.contender.name(),
            thousands(row.per_second()),
            thousands(range[0]),
            thousands(range[range.len() - 1]),
            row.median(|run| run.p99),
            row.median(|run| run.work),
            beside(rows, row),
        );
    }
}

/// How many times faster idmill is.
fn beside(rows: &[Row], row: &Row) -> String {
    let of_load: Vec<&Row> = rows.iter().filter(|other| other.load == row.load).collect();
    let (idmill, first) = (of_load[0].per_second(), of_load[1].contender);
    let ratio = idmill / row.per_second();
    match row.contender {
        Contender::Idmill => String::new(),
        contender if contender == first => {
            let goal = goal(row.load);
            let verdict = if ratio >= goal { "✓" } else { "**missed**" };
            format!("{ratio:.2} ×; goal {goal} {verdict}")
        }
        _ => format!("{ratio:.2} ×"),
    }
}

fn thousands(value: f64) -> String {
    if value >= 1e6 { format!("{:.2} M", value / 1e6) } else { format!("{:.1} k", value / 1e3) }
}

pub(crate) fn picture(rows: &[Row]) -> String {
    let loads: Vec<Bars> = Load::ALL
        .iter()
        .map(|load| Bars {
            title: format!("{}: answers a second", load.name()),
            legend: vec!["answers a second".to_owned()],
            log: false,
            label: thousands,
            groups: rows
                .iter()
                .filter(|row| row.load == *load)
                .map(|row| Group { name: row.contender.short().to_owned(), values: vec![row.per_second()] })
                .collect(),
        })
        .collect();
    bars_svg(&loads)
}
