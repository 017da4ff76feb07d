//! `idmill doctor`: checks the sequences of a store.

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "unmetered.rs"]
mod metrics;
mod patient;
mod report;

use std::time::Duration;

use idmill_doctor::{Examined, Finding, FindingKind, Severity};
use tokio::time::{Instant, sleep_until};

use self::metrics::Metrics;
use self::patient::Patient;
use self::report::Report;
use crate::args::{Doctor, Global};
use crate::failure::{Failure, Outcome};
use crate::signalled;

pub(super) async fn run(global: &Global, args: &Doctor) -> Outcome {
    let patient = Patient::new(global, args)?;
    let report = Report::new(global);
    match args.watch {
        Some(pause) => watch(patient, args, &report, pause).await,
        None => once(patient, args, &report).await,
    }
}

async fn once(mut patient: Patient, args: &Doctor, report: &Report) -> Outcome {
    let mut seen = patient.look(args.rate_over).await;
    report.findings(&seen.findings)?;
    if args.fix && patient.fix(&seen.findings, report).await? {
        let again = patient.look(None).await;
        let before = std::mem::replace(&mut seen, again);
        report.findings(new_in(&seen, &before))?;
    }
    match verdict(&seen) {
        Ok(()) => report.sound(&seen),
        unsound => unsound,
    }
}

/// Repeats the examination and reports changes, until a signal. Then returns the verdict of the last
/// complete examination.
async fn watch(mut patient: Patient, args: &Doctor, report: &Report, pause: Duration) -> Outcome {
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

/// Returns whether two findings are the same except for their numbers.
fn is_same(one: &Finding, other: &Finding) -> bool {
    let key =
        |finding: &Finding| (finding.kind, finding.severity, finding.sequence.clone(), finding.asked.clone());
    key(one) == key(other)
}

/// Returns the findings of `one` that are not in `other`.
fn new_in<'a>(one: &'a Examined, other: &Examined) -> impl Iterator<Item = &'a Finding> {
    one.findings.iter().filter(|finding| !other.findings.iter().any(|known| is_same(known, finding)))
}

/// Returns an error with the exit code unless all findings are only information. Errors take precedence over
/// sequences that could not be examined, which take precedence over warnings.
fn verdict(seen: &Examined) -> Outcome {
    let count = |of: &dyn Fn(&Finding) -> bool| seen.findings.iter().filter(|finding| of(finding)).count();
    let unknown = count(&|finding| finding.kind == FindingKind::NotSeen);
    let errors = count(&|finding| finding.severity == Severity::Error) - unknown;
    let warnings = count(&|finding| finding.severity == Severity::Warning);
    let named = [(errors, "error"), (unknown, "not checked"), (warnings, "warning")];
    let named = named.into_iter().filter(|(count, _)| *count > 0);
    let message = named.map(|(count, what)| plural(count, what)).collect::<Vec<_>>().join(", ");
    if message.is_empty() { Ok(()) } else { Err(Failure::of_doctor(errors, unknown, message)) }
}

fn plural(count: usize, what: &str) -> String {
    let ending = if count == 1 || what.contains(' ') { "" } else { "s" };
    format!("{count} {what}{ending}")
}
