//! What clients, probes and scrapers see of a server, and when.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use idmill_testing::fleet::{Connection, Http, Recorder, Resp, Way};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::faults::Case;

/// The times between two draws of the sequences `busy` and `calm`.
const PACE: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];
/// The time between two requests of a probe.
const PROBE: Duration = Duration::from_millis(100);

/// The changes of a signal.
pub(crate) struct Signal(watch::Sender<Vec<(SystemTime, u8)>>);

/// Shows the seconds since the first value, and the values.
impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = self.0.borrow();
        let since = |at: &SystemTime| at.duration_since(changes[0].0).unwrap_or_default().as_secs_f64();
        let shown = changes.iter().map(|(at, value)| format!("{:.1} s: {value}", since(at)));
        f.write_str(&shown.collect::<Vec<_>>().join(", "))
    }
}

impl Signal {
    fn new() -> Self {
        Self(watch::Sender::new(Vec::new()))
    }

    fn note(&self, value: u8) {
        self.0.send_if_modified(|changes| {
            let is_new = changes.last().is_none_or(|(_, last)| *last != value);
            if is_new {
                changes.push((SystemTime::now(), value));
            }
            is_new
        });
    }

    /// Returns the value now; `None` before the first.
    pub(crate) fn now(&self) -> Option<u8> {
        self.0.borrow().last().map(|(_, value)| *value)
    }

    /// Returns the seconds from `begun` to the first change to this value.
    pub(crate) fn became(&self, value: u8, begun: SystemTime) -> Option<f64> {
        let changes = self.0.borrow();
        let times = changes.iter().filter(|(_, new)| *new == value);
        let mut times = times.filter_map(|(at, _)| at.duration_since(begun).ok());
        times.next().map(|time| time.as_secs_f64())
    }

    /// Returns the seconds from `begun` to the last change, which was to `least` or a larger value.
    pub(crate) fn recovered(&self, least: u8, begun: SystemTime) -> Option<f64> {
        let changes = self.0.borrow();
        let (at, value) = changes.last()?;
        (*value >= least).then(|| at.duration_since(begun).map_or(0.0, |time| time.as_secs_f64()))
    }
}

/// The signals of one server; the arrays are for the sequences `busy` and `calm`.
#[derive(Debug)]
pub(crate) struct Signals {
    /// 1 if the last draw succeeded.
    pub(crate) draws: [Signal; 2],
    /// `idmill_health`.
    pub(crate) health: [Signal; 2],
    /// 1 while `/readyz` returns 200.
    pub(crate) ready: Signal,
}

impl Signals {
    fn new() -> Self {
        Self {
            draws: [Signal::new(), Signal::new()],
            health: [Signal::new(), Signal::new()],
            ready: Signal::new(),
        }
    }

    /// Returns whether every signal is good.
    pub(crate) fn are_good(&self) -> bool {
        let good = |signals: &[Signal; 2], value| signals.iter().all(|signal| signal.now() == Some(value));
        good(&self.draws, 1) && good(&self.health, 2) && self.ready.now() == Some(1)
    }
}

/// Clients and probes of one server, until dropped.
pub(crate) struct Watched {
    pub(crate) signals: Arc<Signals>,
    recorders: [Arc<Recorder>; 2],
    tasks: JoinSet<()>,
}

impl Watched {
    pub(crate) fn start(case: &Case) -> Self {
        let (signals, mut tasks) = (Arc::new(Signals::new()), JoinSet::new());
        let recorders = [Recorder::new(), Recorder::new()];
        let names = [case.sequence(0), case.sequence(1)];
        for (which, name) in names.iter().enumerate() {
            let connection = recorders[which].connection(case.server.number);
            tasks.spawn(draw(which, name.clone(), case.server.resp, connection, signals.clone()));
        }
        tasks.spawn(probe(case.server.http, signals.clone()));
        tasks.spawn(scrape(names, case.server.http, signals.clone()));
        Self { signals, recorders, tasks }
    }

    /// Ends the clients.
    ///
    /// # Panics
    /// If an id was handed out twice, or a client or probe got no answer.
    pub(crate) async fn end(mut self) {
        assert!(self.tasks.try_join_next().is_none(), "a client ended before the test");
        self.tasks.shutdown().await;
        self.recorders.iter().for_each(|recorder| {
            recorder.none_twice_and_in_order();
        });
    }
}

/// Returns ticks that are skipped while an answer takes longer.
fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

async fn draw(
    which: usize,
    name: String,
    resp: SocketAddr,
    mut connection: Connection,
    signals: Arc<Signals>,
) {
    let (mut client, mut ticks) = (Resp::connect(resp).await.unwrap(), ticks(PACE[which]));
    loop {
        ticks.tick().await;
        let drawn = client.draw(Way::Incr(1), &name, &mut connection).await.unwrap();
        signals.draws[which].note(u8::from(drawn.is_ok()));
    }
}

async fn probe(http: SocketAddr, signals: Arc<Signals>) {
    let (mut client, mut ticks) = (Http::connect(http).await.unwrap(), ticks(PROBE));
    loop {
        ticks.tick().await;
        let (code, _, _) = client.ask("GET /readyz").await.unwrap();
        signals.ready.note(u8::from(code == 200));
    }
}

async fn scrape(names: [String; 2], http: SocketAddr, signals: Arc<Signals>) {
    let (mut client, mut ticks) = (Http::connect(http).await.unwrap(), ticks(PROBE));
    loop {
        ticks.tick().await;
        let (_, _, text) = client.ask("GET /metrics").await.unwrap();
        for (name, signal) in names.iter().zip(&signals.health) {
            let series = format!("idmill_health{{sequence=\"{name}\"}} ");
            let value = text.lines().find_map(|line| line.strip_prefix(&series));
            if let Some(value) = value {
                signal.note(value.parse().unwrap());
            }
        }
    }
}
