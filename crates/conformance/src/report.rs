//! The results of a run.

use std::fmt::{self, Write as _};
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

/// The environment variable that names the file in which ci/test collects the results of its steps.
const FILE: &str = "IDMILL_CI_REPORT";

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The trial's promise holds.
    Passed,
    /// The trial's promise does not hold, for this reason.
    Failed(String),
    /// The trial did not run, for this reason.
    Skipped(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(reason) => write!(f, "FAILED: {reason}"),
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
        }
    }
}

/// The results of a suite.
#[derive(Clone, Debug)]
pub struct Report {
    pub(super) store: String,
    pub(super) engine: String,
    pub(super) trials: Vec<(&'static str, Verdict, Duration)>,
    pub(super) seed: u64,
}

impl Report {
    /// Returns the result of a trial; `None` if it was not selected.
    pub fn verdict(&self, trial: &str) -> Option<&Verdict> {
        self.trials.iter().find(|(name, ..)| *name == trial).map(|(_, verdict, _)| verdict)
    }

    /// Returns the trials that failed.
    pub fn failed(&self) -> Vec<&'static str> {
        self.with(|verdict| matches!(verdict, Verdict::Failed(_)))
    }

    /// Returns the trials that passed.
    pub fn passed(&self) -> Vec<&'static str> {
        self.with(|verdict| *verdict == Verdict::Passed)
    }

    /// Returns the trials that did not run.
    pub fn skipped(&self) -> Vec<&'static str> {
        self.with(|verdict| matches!(verdict, Verdict::Skipped(_)))
    }

    fn with(&self, wanted: impl Fn(&Verdict) -> bool) -> Vec<&'static str> {
        self.trials.iter().filter(|(_, verdict, _)| wanted(verdict)).map(|(name, ..)| *name).collect()
    }

    /// Returns the seed that reproduces the random choices.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Total duration of the trials.
    fn took(&self) -> Duration {
        self.trials.iter().map(|(.., took)| *took).sum()
    }

    /// The reasons for skipped trials, each listed once with its trials.
    fn reasons(&self) -> String {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (name, verdict, _) in &self.trials {
            let Verdict::Skipped(reason) = verdict else { continue };
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, names)) => names.push(name),
                None => reasons.push((reason, vec![name])),
            }
        }
        let shown: Vec<_> =
            reasons.iter().map(|(reason, names)| format!("{}: {reason}", names.join(", "))).collect();
        shown.join("; ")
    }

    /// Appends the results to the file that collects those of all steps, if there is one.
    pub(super) fn hand_in(&self) {
        let Some(path) = std::env::var_os(FILE) else { return };
        let (passed, failed, skipped) = (self.passed().len(), self.failed().len(), self.skipped().len());
        let mut lines = format!(
            "passed {passed}\nfailed {failed}\nignored {skipped}\nengine\t{}\t{}\t{:.0}\t{}\t{skipped}\t{}\n",
            self.store,
            self.engine.replace(['\t', '\n'], " "),
            self.took().as_secs_f64(),
            passed + failed,
            self.reasons().replace(['\t', '\n'], " "),
        );
        for (name, verdict, took) in &self.trials {
            if *took > Duration::from_secs(1) {
                let _ = writeln!(lines, "slow {:.1} {} {name}", took.as_secs_f64(), self.store);
            }
            if let Verdict::Failed(reason) = verdict {
                let _ = writeln!(lines, "failure {} {name}: {}", self.store, reason.replace('\n', " "));
            }
        }
        let file = OpenOptions::new().append(true).create(true).open(&path);
        if let Err(error) = file.and_then(|mut file| file.write_all(lines.as_bytes())) {
            eprintln!("the report cannot be written to {}: {error}", path.display());
        }
    }
}

/// The summary: the engine, its version, the number of trials that ran, and why the others did not.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, failed, skipped) = (self.passed().len(), self.failed().len(), self.skipped().len());
        write!(f, "{} ({}): {} trials run, ", self.store, self.engine, passed + failed)?;
        write!(
            f,
            "{passed} passed, {failed} FAILED, {skipped} skipped, in {:.0} s",
            self.took().as_secs_f64()
        )?;
        if skipped > 0 {
            write!(f, " ({})", self.reasons())?;
        }
        if failed > 0 {
            write!(
                f,
                "\nfailed: {}; IDMILL_CONFORMANCE_SEED={} repeats the run",
                self.failed().join(", "),
                self.seed
            )?;
        }
        Ok(())
    }
}
