//! Draws, `/readyz`, the metrics and the alerts under eight faults of PostgreSQL.
//!
//! The test prints a table of the seconds at which each signal changed. With `IDMILL_FAULTS_UNSCALED=1`, the
//! alert rules are unchanged, and the test takes three minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use idmill_testing::{eventually_within, holds};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::alerts::{Alert, Alerts, since_1970};
use crate::faults::{Case, Fault};
use crate::signals::{Signals, Watched};

/// Timeout after which a state that is not reached fails the test.
const LONG: Duration = Duration::from_secs(150);
/// Time for the rates of the sequences, and thus the ids in memory, to settle.
const WARM: Duration = Duration::from_secs(8);
/// How long a fault lasts after all expected changes, so that unexpected changes can occur too.
const REST: Duration = Duration::from_secs(4);
/// How much later than the first failed draw `/readyz` may change: answers are kept for a second.
const SLACK: f64 = 2.0;
/// The rate of waits in `IdmillCallersWait` is over a minute, so this alert may last a minute longer.
const LINGER: Duration = Duration::from_secs(65);

const FAILS: &str = "IdmillStoreFails";
const WAITS: &str = "IdmillCallersWait";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_faults_change_readiness_metrics_and_alerts() {
    let unscaled = std::env::var_os("IDMILL_FAULTS_UNSCALED").is_some();
    let Some(cases) = Case::all().await else { return };
    let servers: Vec<_> = cases.iter().map(|case| case.server.http).collect();
    let Some(alerts) = Alerts::start(&servers, unscaled).await.map(Arc::new) else { return };
    let (rows, failed) = suffer_all(cases, &alerts).await;
    show(&rows, &alerts);
    assert!(failed.is_empty(), "{failed:#?}");
    if unscaled {
        sleep(LINGER).await;
        assert_eq!(alerts.now().iter().find(|alert| is_ours(alert)), None, "after all faults");
    }
}

/// Runs all cases at the same time. Returns the rows of the table, and the errors.
async fn suffer_all(cases: Vec<Case>, alerts: &Arc<Alerts>) -> (Vec<Row>, Vec<String>) {
    let mut tasks = JoinSet::new();
    for case in cases {
        let (alerts, runtime) = (alerts.clone(), Handle::current());
        tasks.spawn_blocking(move || runtime.block_on(suffer(case, alerts)));
    }
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(row) => rows.push(row),
            Err(error) => failed.push(error.to_string()),
        }
    }
    rows.sort_by_key(|row| Fault::ALL.iter().position(|fault| *fault == row.fault));
    (rows, failed)
}

/// The times of a fault and of the signals.
struct Row {
    fault: Fault,
    names: [String; 2],
    begun: SystemTime,
    /// Seconds since the begin, or since the end of the fault.
    during: [Option<f64>; 5],
    after: [Option<f64>; 4],
}

/// Applies the fault, waits for its effects, ends it, and waits for the recovery.
async fn suffer(mut case: Case, alerts: Arc<Alerts>) -> Row {
    let fault = case.fault;
    let watched = Watched::start(&case);
    let signals = watched.signals.clone();
    let good = async || holds(signals.are_good(), format!("{signals:?}"));
    eventually_within(LONG, &format!("{fault:?}: the server is good before"), good).await;
    sleep(WARM).await;
    assert!(signals.are_good(), "{fault:?}: before the fault: {signals:?}");
    let begun = SystemTime::now();
    case.begin().await;
    let expected = expected(&case);
    eventually_within(LONG, &format!("{fault:?} is detected"), async || {
        let now = alerts.now();
        let seen = has_failed(fault, &signals, begun) && now.is_superset(&expected);
        sleep(Duration::from_millis(200)).await;
        holds(seen, format!("{now:?} {signals:?}"))
    })
    .await;
    sleep(REST).await;
    check(fault, &signals, begun);
    let during = during(&signals, begun);
    let ended = SystemTime::now();
    case.end().await;
    eventually_within(LONG, &format!("{fault:?} is over"), async || {
        let fails = alerts.now().iter().any(|(alert, name)| alert == FAILS && name.starts_with(fault.name()));
        sleep(Duration::from_millis(200)).await;
        holds(signals.are_good() && !fails, format!("{FAILS}: {fails}; {signals:?}"))
    })
    .await;
    let after = after(&signals, ended);
    watched.end().await;
    let names = [case.sequence(0), case.sequence(1)];
    only_expected(&alerts, fault, &names, &expected);
    Row { fault, names, begun, during, after }
}

/// The alerts that must fire during the fault. An exhausted sequence is no failure of the store.
fn expected(case: &Case) -> BTreeSet<Alert> {
    let alerts = if case.fault == Fault::Exhausted { &[WAITS][..] } else { &[FAILS, WAITS] };
    let sequences = if case.fault.is_of_one_sequence() { 1 } else { 2 };
    let of = |which| alerts.iter().map(move |alert| ((*alert).to_owned(), case.sequence(which)));
    (0..sequences).flat_map(of).collect()
}

fn is_ours(alert: &Alert) -> bool {
    alert.0 == FAILS || alert.0 == WAITS
}

/// Asserts that no other of these alerts fired at any time, for example for the other sequence.
fn only_expected(alerts: &Alerts, fault: Fault, names: &[String; 2], expected: &BTreeSet<Alert>) {
    let mut fired: BTreeSet<_> = alerts.times().into_keys().filter(is_ours).collect();
    fired.retain(|alert| names.contains(&alert.1));
    assert_eq!(fired, *expected, "{fault:?}: the alerts that fired");
}

/// Returns whether all effects of the fault on draws, metrics and readiness have occurred.
fn has_failed(fault: Fault, signals: &Signals, begun: SystemTime) -> bool {
    let failed = |which: usize| {
        signals.draws[which].became(0, begun).is_some() && signals.health[which].became(0, begun).is_some()
    };
    failed(0) && (fault.is_of_one_sequence() || failed(1) && signals.ready.became(0, begun).is_some())
}

/// Checks the order of the changes. A fault of one sequence must change no signal of others.
fn check(fault: Fault, signals: &Signals, begun: SystemTime) {
    let [warned, unready, failed, others, _] = during(signals, begun);
    let failed = failed.expect("draws failed");
    if fault.is_of_one_sequence() {
        assert_eq!(unready, None, "{fault:?}: the server must stay ready: {signals:?}");
        assert_eq!(others, None, "{fault:?}: the other sequence must be served: {signals:?}");
        assert_eq!(signals.health[1].now(), Some(2), "{fault:?}: the other sequence is healthy");
    } else {
        // A store that answers reads is the cause only if no sequence has ids.
        let last = others.filter(|_| fault.leaves_reads()).map_or(failed, |others| others.max(failed));
        let in_time = unready.is_some_and(|unready| unready < last + SLACK);
        assert!(in_time, "{fault:?}: /readyz must be 503 before draws fail: {signals:?}");
    }
    if fault != Fault::Exhausted {
        let in_time = warned.is_some_and(|warned| warned < failed + SLACK);
        assert!(in_time, "{fault:?}: health must be 1 before draws fail: {signals:?}");
    }
}

fn during(signals: &Signals, begun: SystemTime) -> [Option<f64>; 5] {
    let [busy, calm] = [0, 1].map(|which| signals.draws[which].became(0, begun));
    let health = &signals.health[0];
    [health.became(1, begun), signals.ready.became(0, begun), busy, calm, health.became(0, begun)]
}

fn after(signals: &Signals, ended: SystemTime) -> [Option<f64>; 4] {
    let [busy, calm] = [0, 1].map(|which| signals.draws[which].recovered(1, ended));
    let health = [0, 1].map(|which| signals.health[which].recovered(2, ended));
    [busy, calm, signals.ready.recovered(1, ended), health.into_iter().flatten().reduce(f64::max)]
}

/// Prints the table, and the other alerts that fired.
fn show(rows: &[Row], alerts: &Alerts) {
    println!(
        "| fault | health 1 | {FAILS} | not ready | draws fail | others fail | health 0 | {WAITS} \
         | draws succeed | others succeed | ready | health 2 |"
    );
    let times = alerts.times();
    for row in rows {
        let cells: String = row.cells(&times).into_iter().map(cell).collect();
        let of_it = |alert: &&Alert| !is_ours(alert) && row.names.contains(&alert.1);
        let others = times.keys().filter(of_it).map(|(alert, sequence)| format!(" {alert} of {sequence}"));
        println!("| {} |{cells}{}", row.fault.name(), others.collect::<String>());
    }
}

fn cell(seconds: Option<f64>) -> String {
    seconds.map_or(" – |".to_owned(), |seconds| format!(" {seconds:.1} |"))
}

impl Row {
    fn cells(&self, times: &BTreeMap<Alert, Vec<f64>>) -> Vec<Option<f64>> {
        let begun = since_1970(self.begun);
        let fired = |alert: &str| {
            let times = times.get(&(alert.to_owned(), self.names[0].clone()))?;
            times.iter().map(|at| at - begun).find(|after| *after >= 0.0)
        };
        let [warned, unready, busy, calm, empty] = self.during;
        let during = [warned, fired(FAILS), unready, busy, calm, empty, fired(WAITS)];
        during.into_iter().chain(self.after).collect()
    }
}
