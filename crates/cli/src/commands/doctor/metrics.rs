//! `--metrics`: the findings of the last examination, for Prometheus.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use idmill_doctor::{Examined, Finding};
use metrics::{Unit, describe_gauge, gauge, with_local_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use crate::failure::{Failure, Outcome};

const FINDINGS: &str = "idmill_doctor_findings";
const SEQUENCES: &str = "idmill_doctor_sequences";
const LAST_LOOK: &str = "idmill_doctor_last_look_timestamp_seconds";
const DAYS_LEFT: &str = "idmill_doctor_days_to_exhaustion";
const DAY: f64 = 86_400.0;

/// Sequence, kind and severity.
type Labels = [String; 3];

/// Serves metrics until the process ends.
pub(super) struct Metrics {
    recorder: PrometheusRecorder,
    // All findings so far, because a resolved finding must be served as 0.
    findings: HashMap<Labels, u32>,
    days_left: HashMap<String, f64>,
}

impl Metrics {
    pub(super) fn serve(address: SocketAddr) -> Outcome<Self> {
        let built = PrometheusBuilder::new().with_http_listener(address).build();
        let (recorder, serving) = built.map_err(|error| {
            Failure::usage(format!("cannot serve metrics at {address}: {error}"))
                .hint("set `--metrics` to an address of this machine and a free port")
        })?;
        // If the task fails, scrapes fail, so the operator notices.
        tokio::spawn(serving);
        with_local_recorder(&recorder, describe);
        Ok(Self { recorder, findings: HashMap::new(), days_left: HashMap::new() })
    }

    pub(super) fn looked(&mut self, seen: &Examined) {
        self.findings.values_mut().for_each(|count| *count = 0);
        for finding in &seen.findings {
            *self.findings.entry(labels(finding)).or_default() += 1;
        }
        self.days_left.values_mut().for_each(|days| *days = f64::INFINITY);
        self.days_left.extend(seen.lasts.iter().map(|(name, seconds)| (name.to_string(), seconds / DAY)));
        with_local_recorder(&self.recorder, || self.record(seen.sequences));
    }

    fn record(&self, sequences: u64) {
        for ([sequence, finding, severity], count) in &self.findings {
            let labels = [("sequence", sequence), ("finding", finding), ("severity", severity)];
            gauge!(FINDINGS, &labels.map(|(key, value)| (key, value.clone()))).set(*count);
        }
        for (sequence, days) in &self.days_left {
            gauge!(DAYS_LEFT, "sequence" => sequence.clone()).set(*days);
        }
        gauge!(SEQUENCES).set(sequences as f64);
        // A clock before 1970 is reported as 0.
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        gauge!(LAST_LOOK).set(since_1970.as_secs_f64());
    }
}

/// Returns the labels of a finding. The sequence name is empty if the finding is about the store.
fn labels(finding: &Finding) -> Labels {
    let sequence = finding.sequence.clone().unwrap_or_default();
    [sequence, finding.kind.to_string(), finding.severity.to_string()]
}

fn describe() {
    for (name, unit, what) in [
        (FINDINGS, Unit::Count, "Findings of the last check; 0 once resolved"),
        (SEQUENCES, Unit::Count, "Sequences examined"),
        (LAST_LOOK, Unit::Seconds, "Unix time at which the last check ended"),
        (DAYS_LEFT, Unit::Count, "Days until the sequence is exhausted, at the given or measured rate"),
    ] {
        describe_gauge!(name, unit, what);
    }
}
