//! Alerts that a real Prometheus fires while it scrapes the servers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idmill_testing::engines::Engine;
use idmill_testing::fleet::talk;
use serde_json::Value;
use tokio::task::block_in_place;

/// An alert and its sequence.
pub(crate) type Alert = (String, String);

pub(crate) struct Alerts {
    engine: Engine,
    begun: SystemTime,
}

impl Alerts {
    /// Starts Prometheus with the shipped rules. It scrapes these servers and evaluates the rules once a
    /// second. Unless `unchanged`, alerts that fire after a minute fire after two seconds. Returns `None` if
    /// Prometheus is not available.
    pub(crate) async fn start(servers: &[SocketAddr], unchanged: bool) -> Option<Self> {
        let engine = Engine::down("prometheus")?;
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus/idmill.rules.yaml");
        let mut rules = fs::read_to_string(shipped).unwrap();
        if !unchanged {
            assert!(rules.contains("for: 1m\n"), "no alert fires after a minute");
            rules = rules.replace("for: 1m\n", "for: 2s\n");
        }
        fs::write(engine.dir().join("rules.yaml"), rules).unwrap();
        let targets: Vec<_> = servers.iter().map(ToString::to_string).collect();
        let settings = serde_json::json!({
            "global": { "scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s" },
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{ "job_name": "idmill", "static_configs": [{ "targets": targets }] }],
        });
        fs::write(engine.dir().join("prometheus.yml"), settings.to_string()).unwrap();
        engine.restart().await;
        Some(Self { engine, begun: SystemTime::now() })
    }

    /// Returns the alerts that fire now.
    pub(crate) fn now(&self) -> BTreeSet<Alert> {
        let found = self.ask("query?query=ALERTS");
        found.iter().filter_map(firing).collect()
    }

    /// Returns the seconds since 1970 at which each alert fired, one time for each second.
    pub(crate) fn times(&self) -> BTreeMap<Alert, Vec<f64>> {
        let (begun, now) = (since_1970(self.begun), since_1970(SystemTime::now()));
        let found = self.ask(&format!("query_range?query=ALERTS&step=1&start={begun}&end={now}"));
        let times = |series: &Value| {
            let values = series["values"].as_array().unwrap();
            values.iter().map(|value| value[0].as_f64().unwrap()).collect()
        };
        found.iter().filter_map(|series| Some((firing(series)?, times(series)))).collect()
    }

    fn ask(&self, query: &str) -> Vec<Value> {
        // Over HTTP/1.0, the answer ends with the connection.
        let request = format!("GET /api/v1/{query} HTTP/1.0\r\n\r\n");
        let answer = block_in_place(|| talk(self.engine.address(), &request));
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
        let mut body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
        serde_json::from_value(body["data"]["result"].take())
            .unwrap_or_else(|error| panic!("{error}: {answer}"))
    }
}

/// Returns the alert of this series, unless it is only pending.
fn firing(series: &Value) -> Option<Alert> {
    let label = |name: &str| series["metric"][name].as_str().unwrap_or_default().to_owned();
    (label("alertstate") == "firing").then(|| (label("alertname"), label("sequence")))
}

pub(crate) fn since_1970(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64()
}
