//! The store under examination, and the checks on it.

use std::sync::Arc;
use std::time::Duration;

use idmill::store::Store;
use idmill::{Result, SequenceName};
use idmill_doctor as doctor;
use idmill_doctor::{ColumnUrl, Examined, Finding, FindingKind, Reached, Remedy, Severity};
use idmill_url::StoreUrl;
use tokio::time::sleep;

use super::report::Report;
use crate::args::{Doctor, Global};
use crate::error::{CliError, Outcome};
use crate::opening;

pub(super) struct Patient {
    url: StoreUrl,
    columns: Vec<(SequenceName, ColumnUrl)>,
    args: Doctor,
    /// `None` until the store is open. The doctor is `None` until the witness is open too.
    opened: Option<(Arc<dyn Store>, Option<doctor::Doctor>)>,
    earlier: Option<Reached>,
}

impl Patient {
    /// Rejects invalid arguments before the store is opened.
    pub(super) fn new(global: &Global, args: &Doctor) -> Outcome<Self> {
        let url = opening::url(global)?.existing();
        let column = |(name, url): &(SequenceName, String)| {
            Ok((name.clone(), ColumnUrl::parse(&global.schemes, url)?))
        };
        let columns = opening::columns(&args.check)?.iter().map(column).collect::<Result<_>>()?;
        Ok(Self { url, columns, args: args.clone(), opened: None, earlier: None })
    }

    /// Returns the doctor that the arguments describe.
    fn asked(&self, store: Arc<dyn Store>) -> doctor::Doctor {
        let mut doctor = doctor::Doctor::new(store).reached_at(self.url.clone());
        doctor = doctor
            .timeout(self.args.timeout)
            .ends_within(self.args.ends_within)
            .measures(self.args.watch.is_some());
        for (name, column) in &self.columns {
            doctor = doctor.column(name.clone(), column.clone());
        }
        for (name, (of_type, largest)) in &self.args.types {
            doctor = doctor.holds(name.clone(), of_type, *largest);
        }
        for (name, rate) in &self.args.rate {
            doctor = doctor.rate(name.clone(), *rate);
        }
        doctor
    }

    /// Examines the store. With `rate_over`, first reads the next ids and waits this long, to measure the
    /// rates.
    pub(super) async fn look(&mut self, rate_over: Option<Duration>) -> Examined {
        let mut seen = Examined::default();
        let doctor = match self.doctor(&mut seen.findings).await {
            Ok(doctor) => doctor,
            Err(error) => {
                seen.findings.push(Finding::of_opening("the store", &error));
                return seen;
            }
        };
        if let Some(pause) = rate_over {
            match doctor.reached().await {
                Ok(reached) => self.earlier = Some(reached),
                Err(error) => seen.findings.push(Finding::of_opening("the rate of each sequence", &error)),
            }
            sleep(pause).await;
        }
        let mut looked = doctor.examine_since(self.earlier.as_ref()).await;
        if let Some(reached) = looked.reached.take() {
            self.earlier = Some(reached);
        }
        looked.findings.splice(0..0, seen.findings);
        self.select(&mut looked.findings);
        looked
    }

    /// Removes the findings of other sequences, and lowers accepted findings to info.
    fn select(&self, findings: &mut Vec<Finding>) {
        let prefix = self.args.prefix.as_deref().unwrap_or_default();
        findings.retain(|finding| finding.sequence.as_ref().is_none_or(|name| name.starts_with(prefix)));
        for finding in findings {
            let is_accepted = |(name, kind): &(SequenceName, FindingKind)| {
                *kind == finding.kind && finding.sequence.as_deref() == Some(&**name)
            };
            if self.args.accept.iter().any(is_accepted) {
                finding.severity = Severity::Info;
            }
        }
    }

    /// Opens the store and the witness if necessary. If the witness cannot be opened, this failure is a
    /// finding, and the other checks run without the witness.
    async fn doctor(&mut self, findings: &mut Vec<Finding>) -> Result<doctor::Doctor> {
        if let Some((_, Some(doctor))) = &self.opened {
            return Ok(doctor.clone());
        }
        let store = match &self.opened {
            Some((store, None)) => store.clone(),
            _ => self.url.connect_within(self.args.timeout).await?,
        };
        let asked = self.asked(store.clone());
        let whole = match self.url.witness(&*store).await {
            Ok(witness) => Some(witness.into_iter().fold(asked.clone(), doctor::Doctor::witness)),
            Err(error) => {
                findings.push(Finding::of_opening("the witness", &error));
                None
            }
        };
        self.opened = Some((store, whole.clone()));
        Ok(whole.unwrap_or(asked))
    }

    /// Applies the remedies that only raise a counter, and reports failures. Returns whether there were any
    /// such remedies.
    pub(super) async fn fix(&self, findings: &[Finding], report: &Report) -> Outcome<bool> {
        let Some((store, _)) = &self.opened else { return Ok(false) };
        let mut done = false;
        for finding in findings {
            let Remedy::Raise { name, .. } = &finding.remedy else { continue };
            done = true;
            match raised(&**store, name, &finding.remedy).await {
                // The fix of another finding may already have raised the sequence further.
                Ok([before, after]) if before != after => report.fixed(name, before, after)?,
                Ok(_) => {}
                // The finding stays, and with it the exit code.
                Err(error) => report.unfixed(CliError::from(error)),
            }
        }
        Ok(done)
    }
}

/// Applies a remedy, and returns the next id before and after.
async fn raised(store: &dyn Store, name: &SequenceName, remedy: &Remedy) -> Result<[Option<u64>; 2]> {
    let before = store.inspect(name).await?;
    let after = doctor::apply(store, remedy).await?;
    Ok([before, after].map(|info| info.and_then(|info| info.next)))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use idmill_guard::FileWitness;

    use super::*;
    use crate::args::{Cli, Command};

    /// The store in memory is a new one whenever it is opened.
    #[tokio::test]
    async fn store_stays_open_until_the_witness_opens() {
        let place = tempfile::tempdir().unwrap();
        let guard = format!("file:{}", place.path().join("missing/w").display());
        let cli = Cli::parse_from(["idmill", "doctor", "--store", "memory:", "--guard", &guard]);
        let Command::Doctor(args) = cli.command else { unreachable!("the command is `doctor`") };
        let mut patient = Patient::new(&cli.global, &args).unwrap();
        let mut opened = Vec::new();
        for is_open in [false, false, true, true] {
            if is_open {
                let directory = place.path().join("missing");
                std::fs::create_dir_all(&directory).unwrap();
                FileWitness::open(directory.join("w")).unwrap();
            }
            let seen = patient.look(None).await;
            let unopened = seen.findings.iter().any(|finding| finding.asked == "the witness");
            let (store, doctor) = patient.opened.as_ref().unwrap();
            assert_eq!((unopened, doctor.is_some()), (!is_open, is_open), "{:?}", seen.findings);
            opened.push(store.clone());
        }
        assert!(opened.iter().all(|store| Arc::ptr_eq(store, &opened[0])));
    }
}
