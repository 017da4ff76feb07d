//! Listens, serves and ends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::HeaderMap;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use idmill::{Result, Sequences};
use idmill_kit::secrets;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::Access;
use crate::audit::Audit;
use crate::http::Hosts;
use crate::listener::{Clients, Door, Spot, accept};
use crate::peer::Peer;
use crate::readiness::Readiness;
use crate::sequences::OpenSequences;
use crate::state::{Metrics, ServerState};
use crate::status::{About, ServerStatus};
use crate::store_proxy::StoreProxy;
use crate::tls::{Stream, Tls};
use crate::{counters, http, resp, tls};

/// How often sequences that nobody draws from are looked for.
const SWEEP: Duration = Duration::from_secs(60);
/// Places of HTTP that are kept for probes. An orchestrator kills a server whose probe has no answer.
const PROBES: usize = 16;
/// What a client is told for whom there is no place.
const RESP_FULL: &[u8] = b"-ERR max number of clients reached\r\n";
const HTTP_FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// How a server is to be.
#[derive(Debug)]
#[must_use = "nothing listens before `bind`"]
pub struct ServerBuilder {
    sequences: Sequences,
    administered: Sequences,
    access: Access,
    tls: Option<Tls>,
    resp: Option<Spot>,
    http: Option<Spot>,
    metrics: Option<Metrics>,
    parents: Option<http::Parents>,
    patience: Duration,
    max_connections: usize,
    drain: Duration,
    hosts: Vec<String>,
    store: Option<String>,
    drain_delay: Duration,
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
    /// Serves clients of Redis at this address; port 0 is any that is free.
    resp(self, address: SocketAddr) { self.resp = Some(Spot::At(address)) }

    /// Serves clients of Redis by a listener that is open, such as one that the system's service manager
    /// handed over.
    resp_listener(self, listener: std::net::TcpListener) { self.resp = Some(Spot::Open(listener)) }

    /// Serves HTTP at this address; port 0 is any that is free.
    http(self, address: SocketAddr) { self.http = Some(Spot::At(address)) }

    /// Serves HTTP by a listener that is open.
    http_listener(self, listener: std::net::TcpListener) { self.http = Some(Spot::Open(listener)) }

    /// What `/metrics` answers: the metrics of this process, rendered by its recorder.
    metrics(self, render: impl Fn() -> String + Send + Sync + 'static) {
        self.metrics = Some(Metrics(Arc::new(render)))
    }

    /// Gives the span of each HTTP request a parent, by the headers of the request. The spans are those of
    /// `tracing`, at the level `DEBUG`; probes have none.
    parents(self, adopt: impl Fn(&tracing::Span, &HeaderMap) + Send + Sync + 'static) {
        self.parents = Some(http::Parents(Arc::new(adopt)))
    }

    /// What administration and looking go to. Default: what ids are drawn from. It is another view of the
    /// same store where ids are drawn from what [exists](idmill_kit::Existing) alone.
    administers(self, sequences: Sequences) { self.administered = sequences }

    /// Who may do what. Default: everybody, everything; so let only those reach it who may.
    access(self, access: Access) { self.access = access }

    /// How long a client waits for an id that is not in memory. Default: [`Server::PATIENCE`].
    patience(self, time: Duration) { self.patience = time }

    /// Speaks TLS with everybody, over both protocols. Default: nothing is encrypted.
    tls(self, tls: Tls) { self.tls = Some(tls) }

    /// So many clients are served at once; more are turned away with an error. Default:
    /// [`Server::MAX_CONNECTIONS`].
    max_connections(self, connections: usize) { self.max_connections = connections }

    /// How long clients that are being answered have, once the server ends. Default: [`Server::DRAIN`].
    drain(self, time: Duration) { self.drain = time }

    /// Has HTTP answered under these names alone, besides addresses and `localhost`. Default: under any,
    /// except where only this machine reaches the server and everybody may do everything: then under no name.
    http_hosts(self, names: impl IntoIterator<Item = impl Into<String>>) {
        self.hosts = names.into_iter().map(Into::into).collect()
    }

    /// What the page for operators says of the store: its URL, of which secrets are left out.
    store_url(self, url: &str) { self.store = Some(secrets::redacted(url)) }

    /// How long the server goes on as before once it is told to end, but for `/readyz`, which says that it is
    /// not ready: whoever sends clients here needs a while to notice. Default: 0 s.
    drain_delay(self, time: Duration) { self.drain_delay = time }
}

impl ServerBuilder {
    /// Listens. Nobody is served before [`run`](Server::run).
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an address that cannot be had.
    pub async fn bind(self) -> Result<Server> {
        let listen = async |spot: Option<Spot>| match spot {
            Some(spot) => spot.listen().await.map(Some),
            None => Ok(None),
        };
        let (resp, http) = (listen(self.resp).await?, listen(self.http).await?);
        let port = resp.as_ref().and_then(|listener| listener.local_addr().ok()).map_or(0, |at| at.port());
        let proxy = StoreProxy::of(&self.sequences, &self.administered);
        let (draws, ending) =
            (OpenSequences::of(self.sequences, self.administered, self.patience), CancellationToken::new());
        let most = self.max_connections.min(Semaphore::MAX_PERMITS);
        let places = Arc::new(Semaphore::new(most));
        let address = address_of(http.as_ref());
        let (started, name) = (Instant::now(), name(address));
        let about = About { started, name, store: self.store, places: places.clone(), most };
        let state = Arc::new(ServerState {
            draws,
            proxy,
            audit: Audit::of(self.access.clock().clone()),
            access: self.access,
            port,
            metrics: self.metrics,
            status: ServerStatus::new(about),
            readiness: Readiness::default(),
            ending,
        });
        let clients = Clients::new(places, state.access.clock().clone());
        let router = http::router(state.clone(), Hosts::of(self.hosts, address), self.parents);
        let ids = Arc::new(AtomicI64::new(1));
        let (tls, drain, drain_delay) = (self.tls, self.drain, self.drain_delay);
        Ok(Server { state, tls, resp, http, router, clients, ids, drain, drain_delay })
    }
}

/// The name of the machine and the port of HTTP, such as `ids1:7381`.
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

/// Hands out ids to clients of Redis and of HTTP.
///
/// It keeps nothing: all that lasts is in the store, so any number of servers can run over one.
#[derive(Debug)]
pub struct Server {
    state: Arc<ServerState>,
    tls: Option<Tls>,
    resp: Option<TcpListener>,
    http: Option<TcpListener>,
    router: Router,
    clients: Clients,
    /// Numbers that tell clients apart, as `CLIENT ID` says them.
    ids: Arc<AtomicI64>,
    drain: Duration,
    drain_delay: Duration,
}

impl Server {
    /// Where clients of Redis expect it, unless told otherwise: this machine alone.
    pub const RESP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7380);
    /// Where HTTP is expected, unless told otherwise: this machine alone.
    pub const HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7381);
    /// How long a client waits for an id that is not in memory, unless told otherwise.
    pub const PATIENCE: Duration = Duration::from_secs(5);
    /// How long clients that are being answered have, once the server ends, unless told otherwise.
    pub const DRAIN: Duration = Duration::from_secs(10);
    /// How many clients are served at once, unless told otherwise.
    pub const MAX_CONNECTIONS: usize = 20_000;

    /// A server of these sequences.
    pub fn builder(sequences: Sequences) -> ServerBuilder {
        ServerBuilder {
            administered: sequences.clone(),
            sequences,
            access: Access::open(),
            tls: None,
            resp: None,
            http: None,
            metrics: None,
            patience: Self::PATIENCE,
            max_connections: Self::MAX_CONNECTIONS,
            drain: Self::DRAIN,
            hosts: Vec::new(),
            store: None,
            parents: None,
            drain_delay: Duration::ZERO,
        }
    }

    /// Where clients of Redis connect.
    pub fn resp_address(&self) -> Option<SocketAddr> {
        address_of(self.resp.as_ref())
    }

    /// Where HTTP is served.
    pub fn http_address(&self) -> Option<SocketAddr> {
        address_of(self.http.as_ref())
    }

    /// Live figures of the server.
    pub fn figures(&self) -> Figures {
        Figures { state: self.state.clone(), clients: self.clients.tasks.clone() }
    }

    /// Serves one client of Redis that somebody else accepted: at a Unix socket, say, or through a proxy that
    /// speaks TLS. It is left when the server ends, and is not counted among the
    /// [most](ServerBuilder::max_connections).
    pub fn resp_client<S>(&self, stream: S) -> impl Future<Output = ()> + Send + use<S>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        resp::serve(self.state.clone(), stream, Peer::default(), next(&self.ids))
    }

    /// The HTTP side, to be mounted in a service's own [`Router`]. It serves while [`run`](Self::run) is polled,
    /// which probes the store and gives ids back at the end; end the service's own listener first.
    ///
    /// A mounted router does not know the address of a client: audit lines do not have it, and wrong tokens are
    /// not slowed down. Without [`http_hosts`](ServerBuilder::http_hosts) it answers to any `Host`. The page for
    /// operators works at the root of a site only; the rest works nested.
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

    /// Serves one client of HTTP, as [`resp_client`](Self::resp_client) does one of Redis.
    pub fn http_client<S>(&self, stream: S) -> impl Future<Output = ()> + Send + use<S>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        http::serve(stream, Peer::default(), self.router.clone(), self.state.ending.clone())
    }

    /// Serves until `ended` is ready, and for the [drain delay](ServerBuilder::drain_delay). Then accepts
    /// nobody any more, answers what it has read, gives what is in memory back to the store, and returns: at
    /// the latest after the [drain time](ServerBuilder::drain) and the store's own.
    ///
    /// Dropped instead, it ends at once, and what is in memory is a gap.
    pub async fn run(self, ended: impl Future<Output = ()>) {
        counters::describe();
        let (state, clients) = (&self.state, &self.clients);
        // Dropped with this future, it cuts all clients off.
        let _cut = clients.cut.clone().drop_guard();
        let resp = resp_of(state.clone(), self.ids.clone());
        let http = http_of(self.router.clone(), state.ending.clone());
        let probes = Arc::new(Semaphore::new(PROBES));
        let door = |listener, full, probes| Door { listener, tls: self.tls.as_ref(), full, probes };
        let ended = async {
            ended.await;
            state.readiness.leave();
            sleep(self.drain_delay).await;
        };
        tokio::select! {
            () = ended => {}
            () = accept(door(self.resp.as_ref(), RESP_FULL, None), clients, resp) => {}
            () = accept(door(self.http.as_ref(), HTTP_FULL, Some(probes)), clients, http) => {}
            () = sweep(state) => {}
            () = tls::watch(self.tls.as_ref()) => {}
            () = state.status.keep(&state.draws, &state.readiness) => {}
            () = state.readiness.watch(state.draws.administered()) => {}
        }
        // Nobody may wait in vain to be accepted.
        drop((self.resp, self.http));
        state.ending.cancel();
        clients.tasks.close();
        if timeout(self.drain, clients.tasks.wait()).await.is_err() {
            tracing::warn!(clients = clients.tasks.len(), "clients are cut off: the drain time is over");
            clients.cut.cancel();
            // What they did not read is counted by then.
            clients.tasks.wait().await;
        }
        state.draws.close().await;
    }
}

/// Relaxed: nothing else is read by it.
fn next(ids: &AtomicI64) -> i64 {
    ids.fetch_add(1, Ordering::Relaxed)
}

/// What serves a client of Redis.
fn resp_of(
    state: Arc<ServerState>,
    ids: Arc<AtomicI64>,
) -> impl Fn(Stream) -> BoxFuture<'static, ()> + Clone + Send {
    move |stream| {
        let peer = Peer::of(&stream);
        resp::serve(state.clone(), stream, peer, next(&ids)).boxed()
    }
}

/// What serves a client of HTTP.
fn http_of(
    router: Router,
    ending: CancellationToken,
) -> impl Fn(Stream) -> BoxFuture<'static, ()> + Clone + Send {
    move |stream| {
        let peer = Peer::of(&stream);
        http::serve(stream, peer, router.clone(), ending.clone()).boxed()
    }
}

async fn sweep(state: &ServerState) {
    let mut ticks = interval(SWEEP);
    loop {
        ticks.tick().await;
        state.draws.sweep();
    }
}

/// How much a server does: from [`Server::figures`]. It is of use for as long as the server runs.
#[derive(Clone, Debug)]
pub struct Figures {
    state: Arc<ServerState>,
    clients: TaskTracker,
}

impl Figures {
    /// How many sequences are open.
    pub fn sequences(&self) -> usize {
        self.state.draws.count()
    }

    /// How many clients are connected, of both protocols together.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Why clients should not be sent here, as `/readyz` says; `None` for a server that is ready.
    pub fn fault(&self) -> Option<&'static str> {
        self.state.readiness.standing_now(self.state.draws.sequences()).fault
    }
}
