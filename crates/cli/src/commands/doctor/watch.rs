//! `--watch`: looks again and again, and tells what changed.

use std::time::Duration;

use idmill_doctor::Examined;
use tokio::time::{Instant, sleep_until};

use super::metrics::Metrics;
use super::patient::Patient;
use super::report::Report;
use super::{new_in, verdict};
use crate::args::Doctor;
use crate::failure::Outcome;
use crate::signalled;

/// Until a signal ends it; then with the verdict of the last look that came to its end.
pub(super) async fn run(mut patient: Patient, args: &Doctor, report: &Report, pause: Duration) -> Outcome {
    let (mut last, metrics) = (Examined::default(), args.metrics.map(Metrics::serve).transpose()?);
    tokio::select! {
        failed = looks(&mut patient, args, report, (pause, metrics), &mut last) => return failed,
        _ = signalled() => {}
    }
    verdict(&last)
}

async fn looks(
    patient: &mut Patient,
    args: &Doctor,
    report: &Report,
    (pause, mut metrics): (Duration, Option<Metrics>),
    last: &mut Examined,
) -> Outcome {
    let (mut is_first, mut rate_over) = (true, args.rate_over);
    loop {
        let next = Instant::now() + pause;
        let mut seen = patient.look(rate_over.take()).await;
        report.findings(new_in(&seen, last))?;
        report.resolved(new_in(last, &seen))?;
        if is_first && seen.findings.is_empty() {
            report.sound(&seen)?;
        }
        if args.fix && patient.fix(&seen.findings, report).await? {
            let fixed = patient.look(None).await;
            report.resolved(new_in(&seen, &fixed))?;
            report.findings(new_in(&fixed, &seen))?;
            seen = fixed;
        }
        if let Some(metrics) = &mut metrics {
            metrics.looked(&seen);
        }
        (*last, is_first) = (seen, false);
        sleep_until(next).await;
    }
}
