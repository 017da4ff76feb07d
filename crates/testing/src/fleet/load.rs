//! Clients that draw all the time, and switch to another server if one returns no ids.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::clients::{Http, Refused, Resp, Way};
use super::recorder::{Connection, Recorder};
use super::server::Server;

/// A request that takes at most this long counts as answered in time.
const IN_TIME: Duration = Duration::from_secs(1);

/// Servers by place. A server may be gone, or replaced by another process.
#[derive(Debug)]
pub struct Fleet(Mutex<Vec<Option<Server>>>);

impl Fleet {
    pub fn new(places: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new((0..places).map(|_| None).collect())))
    }

    /// A fleet of these servers.
    pub fn of(servers: impl IntoIterator<Item = Server>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(servers.into_iter().map(Some).collect())))
    }

    pub fn put(&self, place: usize, server: Server) {
        self.0.lock()[place] = Some(server);
    }

    /// Removes a server: clients no longer find it.
    ///
    /// # Panics
    /// If there is none.
    pub fn take(&self, place: usize) -> Server {
        self.0.lock()[place].take().expect("a server")
    }

    pub fn places(&self) -> usize {
        self.0.lock().len()
    }

    /// Calls `ask` with the server at this place; `None` if there is none.
    pub fn at<T>(&self, place: usize, ask: impl FnOnce(&mut Server) -> T) -> Option<T> {
        self.0.lock()[place].as_mut().map(ask)
    }

    /// Returns the process number of the server at this place, and its addresses for the Redis protocol and
    /// HTTP.
    pub fn spot(&self, place: usize) -> Option<(u32, SocketAddr, SocketAddr)> {
        self.at(place, |server| (server.number, server.resp, server.http))
    }
}

/// How clients draw.
#[derive(Clone, Debug)]
pub struct Pace {
    pub sequence: &'static str,
    pub clients: usize,
    /// The pause between two requests of a client.
    pub pause: Duration,
    /// A client's timeout for an answer, after which it switches to another server.
    pub timeout: Duration,
    /// Each client cycles through the ways in this list.
    pub ways: Vec<Way>,
}

impl Default for Pace {
    fn default() -> Self {
        let ways =
            vec![Way::Incr(20), Way::IncrBy(7), Way::Take(33), Way::Ids(5), Way::Ranges(50), Way::Incr(1)];
        let (pause, timeout) = (Duration::from_millis(5), Duration::from_secs(60));
        Self { sequence: "orders", clients: 12, pause, timeout, ways }
    }
}

/// How long requests took until any server returned ids.
#[derive(Debug, Default)]
pub struct Waits {
    pub requests: AtomicU64,
    pub in_time: AtomicU64,
    /// In milliseconds.
    pub worst: AtomicU64,
    /// Number of answers without ids. Some of them are kept in `said`.
    pub refused: AtomicU64,
    pub said: Mutex<Vec<String>>,
    /// Connections that ended or timed out.
    pub broken: AtomicU64,
}

impl Waits {
    // Relaxed: these are counts, which are read at the end.
    fn note(&self, wait: Duration) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.in_time.fetch_add(u64::from(wait <= IN_TIME), Ordering::Relaxed);
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.worst.fetch_max(wait, Ordering::Relaxed);
    }

    fn was_refused(&self, said: String) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut kept = self.said.lock();
        if kept.len() < 10_000 {
            kept.push(said);
        }
    }

    /// The share of requests that were answered in time.
    pub fn availability(&self) -> f64 {
        let (answered, in_time) =
            (self.requests.load(Ordering::Relaxed), self.in_time.load(Ordering::Relaxed));
        in_time as f64 / answered.max(1) as f64
    }
}

/// Clients that draw until [`Load::end`] is called.
#[derive(Debug)]
pub struct Load {
    clients: JoinSet<()>,
    ending: Arc<AtomicBool>,
    pub waits: Arc<Waits>,
}

impl Load {
    pub fn start(recorder: &Arc<Recorder>, fleet: &Arc<Fleet>, pace: &Pace) -> Self {
        let (ending, waits) = (Arc::new(AtomicBool::new(false)), Arc::new(Waits::default()));
        let mut clients = JoinSet::new();
        for at in 0..pace.clients {
            let client = Client {
                recorder: recorder.clone(),
                fleet: fleet.clone(),
                pace: pace.clone(),
                ending: ending.clone(),
                waits: waits.clone(),
                place: at % fleet.places(),
                resp: None,
                http: None,
            };
            clients.spawn(client.draw_all_the_time(at));
        }
        Self { clients, ending, waits }
    }

    /// Waits until every client has its answer and disconnects.
    pub async fn end(mut self) -> Arc<Waits> {
        self.ending.store(true, Ordering::Release);
        while let Some(client) = self.clients.join_next().await {
            client.expect("no client panics");
        }
        self.waits
    }
}

struct Client {
    recorder: Arc<Recorder>,
    fleet: Arc<Fleet>,
    pace: Pace,
    ending: Arc<AtomicBool>,
    waits: Arc<Waits>,
    /// The place of the client's server.
    place: usize,
    resp: Option<(Resp, Connection)>,
    http: Option<(Http, Connection)>,
}

impl Client {
    async fn draw_all_the_time(mut self, at: usize) {
        let ways = self.pace.ways.clone();
        // Stagger the starts of the clients.
        sleep(self.pace.pause.mul_f64(at as f64 / self.pace.clients as f64)).await;
        for way in ways.iter().cycle().skip(at) {
            if self.ending.load(Ordering::Acquire) {
                return;
            }
            let begun = Instant::now();
            if self.answered(*way).await {
                self.waits.note(begun.elapsed());
            }
            sleep(self.pace.pause).await;
        }
    }

    /// Tries one server after the other until one returns ids. Returns false if the load ends first.
    async fn answered(&mut self, way: Way) -> bool {
        loop {
            for _ in 0..self.fleet.places() {
                match timeout(self.pace.timeout, self.ask(way)).await {
                    Ok(Ok(Ok(()))) => return true,
                    Ok(Ok(Err(Refused(said)))) => self.waits.was_refused(said),
                    // A connection that was cut off mid-answer cannot be reused.
                    Ok(Err(_)) | Err(_) => {
                        self.waits.broken.fetch_add(1, Ordering::Relaxed);
                        (self.resp, self.http) = (None, None);
                    }
                }
                if self.ending.load(Ordering::Acquire) {
                    return false;
                }
                (self.resp, self.http) = (None, None);
                self.place = (self.place + 1) % self.fleet.places();
            }
            // No server answered with ids.
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn ask(&mut self, way: Way) -> std::io::Result<Result<(), Refused>> {
        let spot = || self.fleet.spot(self.place).ok_or(std::io::ErrorKind::NotConnected);
        let sequence = self.pace.sequence;
        if way.is_http() {
            if self.http.is_none() {
                let (number, _, http) = spot()?;
                self.http = Some((Http::connect(http).await?, self.recorder.connection(number)));
            }
            let (client, connection) = self.http.as_mut().expect("connected");
            client.draw(way, sequence, connection).await
        } else {
            if self.resp.is_none() {
                let (number, resp, _) = spot()?;
                self.resp = Some((Resp::connect(resp).await?, self.recorder.connection(number)));
            }
            let (client, connection) = self.resp.as_mut().expect("connected");
            client.draw(way, sequence, connection).await
        }
    }
}
