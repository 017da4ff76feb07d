//! The server: its builder, its run loop and its shutdown.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::HeaderMap;
use idmill::{Result, SequenceBuilder, Sequences};
use idmill_kit::secrets;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::Access;
use crate::audit::Audit;
use crate::http::{Hosts, LastAnswers, Readers};
use crate::listener::{Clients, Door, Spot, accept};
use crate::peer::Peer;
use crate::readiness::Readiness;
use crate::sequences::{Configure, OpenSequences};
use crate::state::{Render, ServerState};
use crate::status::{About, ServerStatus};
use crate::store_proxy::StoreProxy;
use crate::tls::{Stream, Tls};
use crate::{counters, http, resp, tls};

/// How often unused sequences are closed.
const SWEEP: Duration = Duration::from_secs(60);
/// Number of HTTP connections that are accepted beyond the maximum, for probes. An orchestrator kills a
/// server that does not answer its probe.
const PROBES: usize = 16;
/// Reply to a client beyond the maximum.
const RESP_FULL: &[u8] = b"-ERR max number of clients reached\r\n";
const HTTP_FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Builds a [`Server`].
#[derive(derive_more::Debug)]
#[must_use = "nothing listens before `bind`"]
pub struct ServerBuilder {
    sequences: Sequences,
    administered: Sequences,
    access: Access,
    tls: Option<Tls>,
    resp: Option<Spot>,
    http: Option<Spot>,
    #[debug(skip)]
    metrics: Option<Arc<Render>>,
    #[debug(skip)]
    parents: Option<Arc<http::Adopt>>,
    timeout: Duration,
    max_connections: usize,
    shutdown_timeout: Duration,
    hosts: Vec<String>,
    store: Option<String>,
    shutdown_delay: Duration,
    #[debug(skip)]
    configure: Arc<Configure>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($this:ident, $value:ident: $ty:ty) { $effect:expr })+) => {
        impl ServerBuilder {
            $($(#[$doc])*
            pub fn $name(mut $this, $value: $ty) -> Self {
                $effect;
                $this
            })+
        }
    };
}

setters! {
    /// Serves the Redis protocol on this address. Port 0 picks a free port.
    resp(self, address: SocketAddr) { self.resp = Some(Spot::At(address)) }

    /// Serves the Redis protocol on an open listener, such as one from the service manager.
    resp_listener(self, listener: std::net::TcpListener) { self.resp = Some(Spot::Open(listener)) }

    /// Serves HTTP on this address. Port 0 picks a free port.
    http(self, address: SocketAddr) { self.http = Some(Spot::At(address)) }

    /// Serves HTTP on an open listener.
    http_listener(self, listener: std::net::TcpListener) { self.http = Some(Spot::Open(listener)) }

    /// Serves `/metrics` with the text that `render` returns, which should be the metrics of this
    /// process's recorder.
    metrics(self, render: impl Fn() -> String + Send + Sync + 'static) {
        self.metrics = Some(Arc::new(render))
    }

    /// Sets the parent span of each HTTP request from the request's headers. The spans are `tracing` spans of
    /// the level `DEBUG`. Probes have no span, unless the router is nested.
    parents(self, adopt: impl Fn(&tracing::Span, &HeaderMap) + Send + Sync + 'static) {
        self.parents = Some(Arc::new(adopt))
    }

    /// Sets the sequences for administration and inspection. Default: the sequences for draws. Pass
    /// another view of the same store if draws are limited to sequences that
    /// [exist](idmill_kit::Existing).
    administers(self, sequences: Sequences) { self.administered = sequences }

    /// Sets the access rules. Default: every client has all rights, so make sure that only trusted clients
    /// can connect.
    access(self, access: Access) { self.access = access }

    /// Sets how long a client waits for an id that is not in memory, and for the store if it uses this server
    /// as its store. Opening the sequence may take longer.
    /// Default: [`Server::TIMEOUT`].
    timeout(self, time: Duration) { self.timeout = time }

    /// Changes the settings of each sequence, by its name, before it is opened: its sizes and its order. A
    /// sequence must always get the same settings. Default: the defaults of the builder, with
    /// [`timeout`](Self::timeout).
    configure(
        self,
        settings: impl Fn(&str, SequenceBuilder<i64>) -> SequenceBuilder<i64> + Send + Sync + 'static
    ) {
        self.configure = Arc::new(settings)
    }

    /// Requires TLS for both protocols. Default: connections are not encrypted.
    tls(self, tls: Tls) { self.tls = Some(tls) }

    /// Sets the maximum number of connected clients. Further clients get an error, or with TLS are
    /// disconnected. Default: [`Server::MAX_CONNECTIONS`].
    max_connections(self, connections: usize) { self.max_connections = connections }

    /// Sets how long pending requests may take after the shutdown has begun. Default:
    /// [`Server::SHUTDOWN_TIMEOUT`].
    shutdown_timeout(self, time: Duration) { self.shutdown_timeout = time }

    /// Answers HTTP requests only for these host names, besides addresses and `localhost`. Default: any name,
    /// except for a server without tokens on a loopback address, which answers only to addresses and
    /// `localhost`.
    http_hosts(self, names: impl IntoIterator<Item = impl Into<String>>) {
        self.hosts = names.into_iter().map(Into::into).collect()
    }

    /// Sets the store's URL for the page for operators. Secrets are redacted.
    store_url(self, url: &str) { self.store = Some(secrets::redacted(url)) }

    /// Sets how long the server continues to serve after the future `ended` of [`run`](Server::run) is ready.
    /// Meanwhile `/readyz` reports that the server is not ready, so that load balancers can remove the
    /// server. Default: 0 s.
    shutdown_delay(self, time: Duration) { self.shutdown_delay = time }
}

impl ServerBuilder {
    /// Binds the listeners. Clients are served once [`run`](Server::run) is polled.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if an address cannot be bound, or a listener cannot
    /// be used.
    pub async fn bind(self) -> Result<Server> {
        let listen = async |spot: Option<Spot>| match spot {
            Some(spot) => spot.listen().await.map(Some),
            None => Ok(None),
        };
        let (resp, http) = (listen(self.resp).await?, listen(self.http).await?);
        let port = resp.as_ref().and_then(|listener| listener.local_addr().ok()).map_or(0, |at| at.port());
        let proxy = StoreProxy::of(self.sequences.store().clone(), self.timeout);
        let mut draws = OpenSequences::of(self.sequences, self.administered, self.timeout);
        draws.configure = self.configure;
        let most = self.max_connections.min(Semaphore::MAX_PERMITS);
        let places = Arc::new(Semaphore::new(most));
        let address = address_of(http.as_ref());
        let (started, name) = (Instant::now(), name(address));
        let about = About { started, name, store: self.store, places: places.clone(), most };
        let state = Arc::new(ServerState {
            draws: Arc::new(draws),
            proxy,
            audit: Audit::of(self.access.clock.clone()),
            access: self.access,
            port,
            metrics: self.metrics,
            status: ServerStatus::new(about),
            readiness: Readiness::default(),
            last_answers: LastAnswers::default(),
            readers: Readers::default(),
            ending: CancellationToken::new(),
        });
        let clients = Clients::new(places, state.access.clock.clone());
        let router = http::router(state.clone(), Hosts::of(self.hosts, address), self.parents);
        let ids = Arc::new(AtomicI64::new(1));
        let (tls, shutdown_timeout, shutdown_delay) = (self.tls, self.shutdown_timeout, self.shutdown_delay);
        Ok(Server { state, tls, resp, http, router, clients, ids, shutdown_timeout, shutdown_delay })
    }
}

/// Returns the host name and the HTTP port, such as `ids1:7381`.
fn name(http: Option<SocketAddr>) -> String {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let machine =
        machine.or_else(|| ["HOSTNAME", "COMPUTERNAME"].into_iter().find_map(|key| std::env::var(key).ok()));
    let machine = machine.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    match (machine, http) {
        (Some(machine), Some(address)) => format!("{machine}:{}", address.port()),
        (machine, _) => machine.or_else(|| http.map(|address| address.to_string())).unwrap_or_default(),
    }
}

fn address_of(listener: Option<&TcpListener>) -> Option<SocketAddr> {
    listener?.local_addr().ok()
}

/// Hands out ids over the Redis protocol and HTTP.
///
/// A server is stateless: everything that must last is in the store. So any number of servers can share one
/// store.
#[derive(Debug)]
pub struct Server {
    state: Arc<ServerState>,
    tls: Option<Tls>,
    resp: Option<TcpListener>,
    http: Option<TcpListener>,
    router: Router,
    clients: Clients,
    /// The next client's number, for `CLIENT ID`.
    ids: Arc<AtomicI64>,
    shutdown_timeout: Duration,
    shutdown_delay: Duration,
}

impl Server {
    /// Default address of the Redis protocol in `idmill serve`. Only this machine can connect to it.
    pub const RESP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7380);
    /// Default address of HTTP in `idmill serve`. Only this machine can connect to it.
    pub const HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7381);
    /// Default time that a client waits for an id that is not in memory.
    pub const TIMEOUT: Duration = Duration::from_secs(5);
    /// Default time for pending requests once the server ends.
    pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
    /// Default maximum number of connected clients.
    pub const MAX_CONNECTIONS: usize = 20_000;

    /// Returns a builder for a server of these sequences.
    pub fn builder(sequences: Sequences) -> ServerBuilder {
        ServerBuilder {
            administered: sequences.clone(),
            sequences,
            access: Access::open(),
            tls: None,
            resp: None,
            http: None,
            metrics: None,
            timeout: Self::TIMEOUT,
            max_connections: Self::MAX_CONNECTIONS,
            shutdown_timeout: Self::SHUTDOWN_TIMEOUT,
            hosts: Vec::new(),
            store: None,
            parents: None,
            shutdown_delay: Duration::ZERO,
            configure: Arc::new(|_, builder| builder),
        }
    }

    /// Returns the address of the Redis protocol; `None` if it is not served.
    pub fn resp_address(&self) -> Option<SocketAddr> {
        address_of(self.resp.as_ref())
    }

    /// Returns the address of HTTP; `None` if it is not served.
    pub fn http_address(&self) -> Option<SocketAddr> {
        address_of(self.http.as_ref())
    }

    /// Returns live figures of the server.
    pub fn figures(&self) -> Figures {
        Figures { state: self.state.clone(), clients: self.clients.tasks.clone() }
    }

    /// Serves one Redis client over a stream that you accepted, such as a Unix socket or a TLS connection.
    /// The stream is closed at the shutdown; [`run`](Self::run) does not wait for its requests. The client
    /// does not count towards [`max_connections`](ServerBuilder::max_connections).
    pub fn resp_client<S>(&self, stream: S) -> impl Future<Output = ()> + Send + use<S>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        resp::serve(self.state.clone(), stream, Peer::default(), next(&self.ids))
    }

    /// Returns the HTTP routes, to be mounted in your service's own [`Router`].
    ///
    /// Poll [`run`](Self::run) while the routes are served: it probes the store, and gives ids back at the
    /// end. So end your own listener before `run`, and limit the wait for its clients: a stream of
    /// `/v1/events` ends only with `run`.
    ///
    /// A mounted router does not know the client's connection: audit lines lack the address, the delay after
    /// wrong tokens does not grow, and a token's `max_connections` has no effect. Without
    /// [`http_hosts`](ServerBuilder::http_hosts) and an HTTP address, the router answers to any `Host`. The
    /// page for operators works only at the root of a site. Everything else works nested.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use axum::Router;
    /// use axum::routing::get;
    /// use idmill::{Sequences, store::MemoryStore};
    /// use idmill_server::Server;
    ///
    /// let ids = Server::builder(Sequences::new(MemoryStore::new())?).bind().await?;
    /// let shop = Router::new().route("/", get(async || "shop")).nest("/ids", ids.router());
    ///
    /// let (end, ended) = tokio::sync::oneshot::channel::<()>();
    /// let ids = tokio::spawn(ids.run(async { drop(ended.await) }));
    /// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    /// // POST /ids/v1/sequences/orders/ids
    /// let served = axum::serve(listener, shop).with_graceful_shutdown(async { /* a signal */ });
    /// served.await?;
    /// drop(end);
    /// ids.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// Serves one HTTP client, as [`resp_client`](Self::resp_client) does for Redis.
    pub fn http_client<S>(&self, stream: S) -> impl Future<Output = ()> + Send + use<S>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        http::serve(stream, Peer::default(), self.router.clone(), self.state.ending.clone())
    }

    /// Serves until `ended` is ready and the [shutdown delay](ServerBuilder::shutdown_delay) has passed.
    ///
    /// Then the server stops accepting clients, answers the requests that it has read, and gives the ids
    /// in memory back to the store. The future completes at the latest after the [shutdown
    /// timeout](ServerBuilder::shutdown_timeout) plus the store's own timeout.
    ///
    /// # Cancellation
    /// Dropping the future disconnects the clients of its listeners. Ids in memory that nothing else draws
    /// are a gap.
    pub async fn run(self, ended: impl Future<Output = ()>) {
        counters::describe();
        let (state, clients) = (&self.state, &self.clients);
        // Dropping this future disconnects the clients of the listeners.
        let _cut = clients.cut.clone().drop_guard();
        let (served, ids) = (state.clone(), self.ids.clone());
        let resp = move |stream: Stream| {
            let peer = Peer::of(&stream);
            resp::serve(served.clone(), stream, peer, next(&ids))
        };
        let (router, ending) = (self.router.clone(), state.ending.clone());
        let http = move |stream: Stream| {
            let peer = Peer::of(&stream);
            http::serve(stream, peer, router.clone(), ending.clone())
        };
        let probes = Arc::new(Semaphore::new(PROBES));
        let door = |listener, full, probes| Door { listener, tls: self.tls.as_ref(), full, probes };
        let ended = async {
            ended.await;
            state.readiness.leave();
            sleep(self.shutdown_delay).await;
        };
        tokio::select! {
            () = ended => {}
            () = accept(door(self.resp.as_ref(), RESP_FULL, None), clients, resp) => {}
            () = accept(door(self.http.as_ref(), HTTP_FULL, Some(probes)), clients, http) => {}
            () = sweep(state) => {}
            () = tls::watch(self.tls.as_ref()) => {}
            () = state.status.keep(&state.draws, &state.readiness) => {}
            () = state.readiness.watch(&state.draws.administered) => {}
        }
        // Further connections are not accepted from now on.
        drop((self.resp, self.http));
        state.ending.cancel();
        clients.tasks.close();
        if timeout(self.shutdown_timeout, clients.tasks.wait()).await.is_err() {
            tracing::warn!(
                clients = clients.tasks.len(),
                "clients are disconnected: the shutdown timeout has expired"
            );
            clients.cut.cancel();
            // Each connection counts its unread ids when it is dropped.
            clients.tasks.wait().await;
        }
        state.draws.close().await;
    }
}

/// Returns the next number. Relaxed, because no other data depends on it.
fn next(ids: &AtomicI64) -> i64 {
    ids.fetch_add(1, Ordering::Relaxed)
}

async fn sweep(state: &ServerState) {
    let mut ticks = interval(SWEEP);
    loop {
        ticks.tick().await;
        state.draws.sweep();
    }
}

/// Live figures, from [`Server::figures`], which are valid while the server runs.
#[derive(Clone, Debug)]
pub struct Figures {
    state: Arc<ServerState>,
    clients: TaskTracker,
}

impl Figures {
    /// Returns the number of open sequences.
    pub fn sequences(&self) -> usize {
        self.state.draws.open.read().len()
    }

    /// Returns the number of connected clients of the server's own listeners.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Returns why the server is not ready, as `/readyz` reports it; `None` if it is ready.
    pub fn fault(&self) -> Option<&'static str> {
        self.state.readiness.standing_now(&self.state.draws.sequences).fault
    }
}

#[cfg(test)]
mod tests {
    use idmill::store::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn defaults_are_those_of_the_docs() {
        let server = Server::builder(Sequences::new(MemoryStore::new()).unwrap());
        let times = [server.timeout, server.shutdown_timeout, server.shutdown_delay];
        assert_eq!(times.map(|time| time.as_secs()), [5, 10, 0]);
        assert_eq!(server.max_connections, 20_000);
        let addresses = [Server::RESP, Server::HTTP].map(|address| address.to_string());
        assert_eq!(addresses, ["127.0.0.1:7380", "127.0.0.1:7381"]);
    }

    #[tokio::test]
    async fn figures_of_an_idle_server_are_zero_and_not_ready() {
        let server = Server::builder(Sequences::new(MemoryStore::new()).unwrap()).bind().await.unwrap();
        let figures = server.figures();
        assert_eq!((figures.sequences(), figures.clients()), (0, 0));
        assert_eq!(figures.fault(), Some("the store has not answered yet"));
    }

    #[test]
    fn clients_are_numbered() {
        let ids = AtomicI64::new(7);
        assert_eq!([next(&ids), next(&ids), next(&ids)], [7, 8, 9]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn server_is_named_by_its_machine_and_port() {
        let machine = name(None);
        assert!(!machine.is_empty() && machine.trim() == machine, "{machine:?}");
        assert_eq!(name(Some(Server::HTTP)), format!("{machine}:7381"));
    }
}
