//! `idmill doctor`: checks the sequences of a store.

#[cfg(feature = "metrics")]
mod metrics;
mod patient;
mod report;

use std::collections::HashSet;
use std::time::Duration;

use idmill_doctor::{Examined, Finding, FindingKind, Severity};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use self::patient::Patient;
use self::report::Report;
use crate::args::{Doctor, Global};
use crate::error::{CliError, Outcome};
use crate::output::unless_left;

/// The verdict of the last examination of `--watch`, which is the result of the command after a signal.
static LAST: Mutex<Option<Outcome>> = parking_lot::const_mutex(None);

/// Takes the verdict of the last complete examination, if the command watches.
pub(crate) fn last_verdict() -> Option<Outcome> {
    LAST.lock().take()
}

pub(super) async fn run(global: &Global, args: &Doctor) -> Outcome {
    if args.metrics.is_some() && cfg!(not(feature = "metrics")) {
        let error = CliError::usage("this `idmill` was built without metrics");
        return Err(error.hint("build it with `--features metrics` or `--features full`"));
    }
    let patient = Patient::new(global, args)?;
    let report = Report::new(global);
    match args.watch {
        Some(pause) => watch(patient, args, &report, pause).await,
        None => once(patient, args, &report).await,
    }
}

async fn once(mut patient: Patient, args: &Doctor, report: &Report) -> Outcome {
    let mut seen = patient.look(args.rate_over).await;
    // The exit code has the verdict even if the reader closed stdout.
    unless_left(report.findings(&seen.findings))?;
    if args.fix && patient.fix(&seen.findings, report).await? {
        let again = patient.look(None).await;
        let before = std::mem::replace(&mut seen, again);
        unless_left(report.findings(new_in(&seen, &before)))?;
    }
    match verdict(&seen) {
        Ok(()) => report.sound(&seen),
        unsound => unsound,
    }
}

/// Repeats the examination and reports changes, until a signal, or until the reader closes stdout.
async fn watch(mut patient: Patient, args: &Doctor, report: &Report, pause: Duration) -> Outcome {
    #[cfg(feature = "metrics")]
    let mut metrics = args.metrics.map(|address| metrics::Metrics::serve(address, pause)).transpose()?;
    let (mut last, mut rate_over) = (None, args.rate_over);
    loop {
        let next = Instant::now() + pause;
        let mut seen = patient.look(rate_over.take()).await;
        changes(report, last.as_ref(), &seen)?;
        if args.fix && patient.fix(&seen.findings, report).await? {
            let fixed = patient.look(None).await;
            changes(report, Some(&seen), &fixed)?;
            seen = fixed;
        }
        #[cfg(feature = "metrics")]
        if let Some(metrics) = &mut metrics {
            metrics.looked(&seen);
        }
        *LAST.lock() = Some(verdict(&seen));
        last = Some(seen);
        sleep_until(next).await;
    }
}

/// Reports the changes since the last examination. The first one may be sound.
fn changes(report: &Report, last: Option<&Examined>, seen: &Examined) -> Outcome {
    let none = Examined::default();
    let earlier = last.unwrap_or(&none);
    report.findings(new_in(seen, earlier))?;
    report.resolved(new_in(earlier, seen))?;
    if last.is_none() && seen.findings.is_empty() { report.sound(seen) } else { Ok(()) }
}

/// Returns the findings of `one` that are not in `other`. Findings that differ only in their numbers are the
/// same.
fn new_in<'a>(one: &'a Examined, other: &'a Examined) -> impl Iterator<Item = &'a Finding> {
    let key = |finding: &'a Finding| (finding.kind, finding.severity, &finding.sequence, &finding.asked);
    let known: HashSet<_> = other.findings.iter().map(key).collect();
    one.findings.iter().filter(move |finding| !known.contains(&key(finding)))
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
    if message.is_empty() { Ok(()) } else { Err(CliError::of_doctor(errors, unknown, message)) }
}

fn plural(count: usize, what: &str) -> String {
    let ending = if count == 1 || what.contains(' ') { "" } else { "s" };
    format!("{count} {what}{ending}")
}

#[cfg(test)]
mod tests {
    use idmill::{Error, ErrorKind};

    use super::*;

    fn finding(kind: FindingKind, severity: Severity) -> Finding {
        let mut finding = Finding::of_opening("the store", &Error::from(ErrorKind::Unavailable));
        (finding.kind, finding.severity) = (kind, severity);
        finding
    }

    fn seen(errors: usize, unknown: usize, warnings: usize, infos: usize) -> Examined {
        let some = |count, kind, severity| std::iter::repeat_n(finding(kind, severity), count);
        let mut seen = Examined::default();
        seen.findings.extend(some(errors, FindingKind::InUse, Severity::Error));
        seen.findings.extend(some(unknown, FindingKind::NotSeen, Severity::Error));
        seen.findings.extend(some(warnings, FindingKind::EndsSoon, Severity::Warning));
        seen.findings.extend(some(infos, FindingKind::Unguarded, Severity::Info));
        seen
    }

    #[test]
    fn verdict_counts_findings_by_severity() {
        for (seen, message) in [
            (seen(0, 0, 0, 0), None),
            (seen(0, 0, 0, 2), None),
            (seen(0, 0, 1, 0), Some("1 warning")),
            (seen(1, 0, 0, 0), Some("1 error")),
            (seen(0, 1, 0, 0), Some("1 not checked")),
            (seen(3, 2, 2, 1), Some("3 errors, 2 not checked, 2 warnings")),
        ] {
            assert_eq!(verdict(&seen).err().as_ref().map(CliError::message), message);
        }
    }

    #[test]
    fn finding_is_new_unless_only_its_numbers_differ() {
        let (before, mut after) = (seen(1, 0, 0, 0), seen(1, 0, 1, 0));
        after.findings[0].found = "another number".to_owned();
        let new: Vec<_> = new_in(&after, &before).map(|finding| finding.kind).collect();
        assert_eq!(new, [FindingKind::EndsSoon]);
        assert_eq!(new_in(&before, &after).count(), 0);
        after.findings[0].severity = Severity::Info;
        assert_eq!(new_in(&after, &before).count(), 2);
        assert_eq!(new_in(&before, &after).count(), 1);
    }
}
