//! `--metrics`: the findings of the last examination, for Prometheus.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idmill_doctor::{Examined, Finding};
use metrics::{Unit, describe_gauge, gauge, with_local_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use metrics_util::MetricKindMask;

use crate::error::{CliError, Outcome};

const FINDINGS: &str = "idmill_doctor_findings";
const SEQUENCES: &str = "idmill_doctor_sequences";
const LAST_LOOK: &str = "idmill_doctor_last_look_timestamp_seconds";
const DAYS_LEFT: &str = "idmill_doctor_days_to_exhaustion";
const DAY: f64 = 86_400.0;
/// How long the series of a resolved finding is served as 0, unless looks are rarer than this.
const SERIES_KEPT: Duration = Duration::from_secs(3600);

/// Sequence, kind and severity.
type Labels = [String; 3];

/// Serves metrics until the process ends.
pub(super) struct Metrics {
    recorder: PrometheusRecorder,
    /// The findings and sequences of the last look.
    findings: HashSet<Labels>,
    lasting: HashSet<String>,
}

impl Metrics {
    /// Looks come at intervals of `pause`.
    pub(super) fn serve(address: SocketAddr, pause: Duration) -> Outcome<Self> {
        let builder = PrometheusBuilder::new().idle_timeout(MetricKindMask::ALL, Some(kept(pause)));
        let built = builder.with_http_listener(address).build();
        let (recorder, serving) = built.map_err(|error| {
            CliError::usage(format!("cannot serve metrics at {address}: {error}"))
                .hint("set `--metrics` to an address of this machine and a free port")
        })?;
        // If the task fails, scrapes fail, so the operator notices.
        tokio::spawn(serving);
        with_local_recorder(&recorder, describe);
        Ok(Self { recorder, findings: HashSet::new(), lasting: HashSet::new() })
    }

    pub(super) fn looked(&mut self, seen: &Examined) {
        // Findings that are gone are recorded once more, as 0.
        let mut findings: HashMap<_, _> = self.findings.drain().map(|labels| (labels, 0_u32)).collect();
        for finding in &seen.findings {
            *findings.entry(labels(finding)).or_default() += 1;
        }
        let mut days_left: HashMap<_, _> = self.lasting.drain().map(|name| (name, f64::INFINITY)).collect();
        days_left.extend(seen.lasts.iter().map(|(name, seconds)| (name.to_string(), seconds / DAY)));
        with_local_recorder(&self.recorder, || record(&findings, &days_left, seen.sequences));
        self.findings.extend(findings.into_iter().filter(|(_, count)| *count > 0).map(|(labels, _)| labels));
        self.lasting.extend(seen.lasts.iter().map(|(name, _)| name.to_string()));
    }
}

fn kept(pause: Duration) -> Duration {
    SERIES_KEPT.max(pause.saturating_mul(10))
}

fn record(findings: &HashMap<Labels, u32>, days_left: &HashMap<String, f64>, sequences: u64) {
    for ([sequence, finding, severity], count) in findings {
        let labels = [("sequence", sequence), ("finding", finding), ("severity", severity)];
        gauge!(FINDINGS, &labels.map(|(key, value)| (key, value.clone()))).set(*count);
    }
    for (sequence, days) in days_left {
        gauge!(DAYS_LEFT, "sequence" => sequence.clone()).set(*days);
    }
    gauge!(SEQUENCES).set(sequences as f64);
    // A clock before 1970 is reported as 0.
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    gauge!(LAST_LOOK).set(since_1970.as_secs_f64());
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

#[cfg(test)]
mod tests {
    use idmill::store::MemoryStore;
    use idmill_doctor::Doctor;

    use super::*;

    /// The store in memory loses writes, which is a finding about the store.
    #[tokio::test]
    async fn findings_end_as_0_and_days_left_as_infinity() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let mut metrics = Metrics { recorder, findings: HashSet::new(), lasting: HashSet::new() };
        let mut seen = Doctor::new(std::sync::Arc::new(MemoryStore::new())).examine().await;
        seen.lasts = vec![("orders".parse().unwrap(), 2.0 * DAY)];
        metrics.looked(&seen);
        let served = |metrics: &Metrics| metrics.recorder.handle().render();
        let finding = "idmill_doctor_findings{sequence=\"\",finding=\"loses_writes\",severity=\"error\"}";
        let days = "idmill_doctor_days_to_exhaustion{sequence=\"orders\"}";
        let text = served(&metrics);
        assert!(text.contains(&format!("{finding} 1\n")) && text.contains(&format!("{days} 2\n")), "{text}");
        metrics.looked(&Examined::default());
        let text = served(&metrics);
        assert!(
            text.contains(&format!("{finding} 0\n")) && text.contains(&format!("{days} inf\n")),
            "{text}"
        );
    }

    #[test]
    fn resolved_finding_is_served_for_an_hour_or_ten_looks() {
        for (pause, seconds) in [(0, 3600), (60, 3600), (360, 3600), (361, 3610), (86_400, 864_000)] {
            assert_eq!(kept(Duration::from_secs(pause)).as_secs(), seconds);
        }
    }

    #[test]
    fn every_metric_has_its_help_text() {
        let recorder = PrometheusBuilder::new().build_recorder();
        with_local_recorder(&recorder, || {
            describe();
            let labels = HashMap::from([(["s", "in_use", "error"].map(str::to_owned), 1)]);
            record(&labels, &HashMap::from([("s".to_owned(), 2.5)]), 7);
        });
        let text = recorder.handle().render();
        let look = "# HELP idmill_doctor_last_look_timestamp_seconds Unix time at which the last check ended";
        assert!(text.contains(look), "{text}");
        let mut lines: Vec<_> = text.lines().filter(|line| !line.contains("last_look")).collect();
        lines.retain(|line| !line.is_empty());
        lines.sort_unstable();
        let expected = [
            "# HELP idmill_doctor_days_to_exhaustion Days until the sequence is exhausted, at the given or \
             measured rate",
            "# HELP idmill_doctor_findings Findings of the last check; 0 once resolved",
            "# HELP idmill_doctor_sequences Sequences examined",
            "# TYPE idmill_doctor_days_to_exhaustion gauge",
            "# TYPE idmill_doctor_findings gauge",
            "# TYPE idmill_doctor_sequences gauge",
            "idmill_doctor_days_to_exhaustion{sequence=\"s\"} 2.5",
            "idmill_doctor_findings{sequence=\"s\",finding=\"in_use\",severity=\"error\"} 1",
            "idmill_doctor_sequences 7",
        ];
        assert_eq!(lines, expected);
    }
}
