//! The store under examination, and the checks on it.

use std::sync::Arc;
use std::time::Duration;

use idmill::store::{SequenceInfo, Store};
use idmill::{Result, SequenceName};
use idmill_doctor as doctor;
use idmill_doctor::{ColumnUrl, Examined, Finding, Reached, Remedy};
use idmill_url::StoreUrl;
use tokio::time::sleep;

use super::report::Report;
use crate::args::{Doctor, Global};
use crate::failure::{Failure, Outcome};
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
        let columns = args.check.iter().map(column).collect::<Result<_>>()?;
        Ok(Self { url, columns, args: args.clone(), opened: None, earlier: None })
    }

    /// Returns the doctor that the arguments describe.
    fn asked(&self, store: Arc<dyn Store>) -> doctor::Doctor {
        let mut doctor = doctor::Doctor::new(store).reached_at(self.url.clone());
        doctor = doctor.ends_within(self.args.ends_within).measures(self.args.watch.is_some());
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
        looked
    }

    /// Opens the store and the witness if necessary. If the witness cannot be opened, this failure is a
    /// finding, and the other checks run without the witness.
    async fn doctor(&mut self, findings: &mut Vec<Finding>) -> Result<doctor::Doctor> {
        if let Some((_, Some(doctor))) = &self.opened {
            return Ok(doctor.clone());
        }
        let store = match &self.opened {
            Some((store, None)) => store.clone(),
            _ => self.url.connect().await?,
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

    /// Applies the remedies that only raise a counter. Returns whether there were any.
    pub(super) async fn fix(&self, findings: &[Finding], report: &Report) -> Outcome<bool> {
        let Some((store, _)) = &self.opened else { return Ok(false) };
        let mut done = false;
        for finding in findings {
            let Remedy::Raise { name, .. } = &finding.remedy else { continue };
            let before = store.inspect(name).await?;
            let after = doctor::apply(&**store, &finding.remedy).await.map_err(Failure::from)?;
            let next = |info: &Option<SequenceInfo>| info.as_ref().and_then(|info| info.next);
            done = true;
            // The fix of another finding may already have raised the sequence further.
            if next(&before) != next(&after) {
                report.fixed(name, next(&before), next(&after))?;
            }
        }
        Ok(done)
    }
}
