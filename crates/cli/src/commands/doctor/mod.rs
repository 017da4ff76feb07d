//! `idmill doctor`: what is wrong with the sequences of a store.

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "unmetered.rs"]
mod metrics;
mod patient;
mod report;
mod watch;

use idmill_doctor::{Examined, Finding, FindingKind, Severity};

use self::patient::Patient;
use self::report::Report;
use crate::args::{Doctor, Global};
use crate::failure::{Failure, Outcome};

pub(super) async fn run(global: &Global, args: &Doctor) -> Outcome {
    let patient = Patient::new(global, args)?;
    let report = Report::new(global);
    match args.watch {
        Some(pause) => watch::run(patient, args, &report, pause).await,
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

/// Whether two looks found the same, whatever the numbers are by now.
fn is_same(one: &Finding, other: &Finding) -> bool {
    let key =
        |finding: &Finding| (finding.kind, finding.severity, finding.sequence.clone(), finding.asked.clone());
    key(one) == key(other)
}

/// What the one look found and the other did not.
fn new_in<'a>(one: &'a Examined, other: &Examined) -> impl Iterator<Item = &'a Finding> {
    one.findings.iter().filter(|finding| !other.findings.iter().any(|known| is_same(known, finding)))
}

/// What to exit with: by what is worst, where something that is known to be wrong is worse than what is not
/// known.
fn verdict(seen: &Examined) -> Outcome {
    let count = |of: &dyn Fn(&Finding) -> bool| seen.findings.iter().filter(|finding| of(finding)).count();
    let unknown = count(&|finding| finding.kind == FindingKind::NotSeen);
    let errors = count(&|finding| finding.severity == Severity::Error) - unknown;
    let warnings = count(&|finding| finding.severity == Severity::Warning);
    let named = [(errors, "error"), (unknown, "not looked at"), (warnings, "warning")];
    let named = named.into_iter().filter(|(count, _)| *count > 0);
    let message = named.map(|(count, what)| plural(count, what)).collect::<Vec<_>>().join(", ");
    match (errors, unknown, warnings) {
        (0, 0, 0) => Ok(()),
        (0, 0, _) => Err(Failure::warned(message)),
        (0, ..) => Err(Failure::not_seen(message)),
        _ => Err(Failure::unsound(message)),
    }
}

fn plural(count: usize, what: &str) -> String {
    let ending = if count == 1 || what.contains(' ') { "" } else { "s" };
    format!("{count} {what}{ending}")
}
