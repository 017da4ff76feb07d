//! Where clients connect, and how many may.

use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener as Std};
use std::sync::Arc;
use std::time::{Duration, Instant};

use idmill::{Error, ErrorKind, Operation, Result};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::Clock;
use crate::audit::Lines;
use crate::counters;
use crate::http;
use crate::tls::{Stream, Tls, secured};

/// After the system refused a connection: too many files are open, most often.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause between two log lines about connections that the system refused.
const QUIET: Duration = Duration::from_secs(60);
/// After so much silence the system asks whether a client is still there: its machine may be gone, and would
/// otherwise have a place for ever.
const SILENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) enum Spot {
    /// To be listened at.
    At(SocketAddr),
    /// Somebody listens there already, and hands it over.
    Open(Std),
}

impl Spot {
    pub(crate) async fn listen(self) -> Result<TcpListener> {
        match self {
            Self::At(address) => TcpListener::bind(address).await.map_err(|error| {
                let what = "choose another address or port, or end what listens there";
                refused(format!("{address} cannot be listened at; {what}"), error)
            }),
            Self::Open(listener) => taken_over(listener).map_err(|error| {
                refused(
                    "the listener that was handed over cannot be used; hand over one of TCP".to_owned(),
                    error,
                )
            }),
        }
    }
}

fn taken_over(listener: Std) -> io::Result<TcpListener> {
    // Other kinds of sockets have no such address.
    listener.local_addr()?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn refused(message: String, error: io::Error) -> Error {
    Error::new(ErrorKind::InvalidInput, message).because(error).during(Operation::Configure)
}

/// The clients that are served.
#[derive(Debug)]
pub(crate) struct Clients {
    places: Arc<Semaphore>,
    pub(crate) tasks: TaskTracker,
    /// They are left at once.
    pub(crate) cut: CancellationToken,
    /// Limits the lines about refused connections.
    turned_away: Lines,
    clock: Clock,
}

impl Clients {
    pub(crate) fn new(places: Arc<Semaphore>, clock: Clock) -> Self {
        let (tasks, cut) = (TaskTracker::new(), CancellationToken::new());
        Self { places, tasks, cut, turned_away: Lines::default(), clock }
    }

    /// Serves a client in a task of its own, which has this place until it ends.
    fn spawn<C>(
        &self,
        place: OwnedSemaphorePermit,
        secured: impl Future<Output = Option<Stream>> + Send + 'static,
        serve: impl FnOnce(Stream) -> C + Send + 'static,
    ) where
        C: Future<Output = ()> + Send,
    {
        let client = async move {
            if let Some(stream) = secured.await {
                serve(stream).await;
            }
            drop(place);
        };
        self.tasks.spawn(self.cut.clone().run_until_cancelled_owned(client));
    }

    fn turn_away(&self, stream: &TcpStream, full: &[u8]) {
        counters::refused("full");
        let told: io::Result<usize> = stream.try_write(full);
        if let Some(unlogged) = self.turned_away.one_more(&self.clock) {
            let told = told.is_ok();
            tracing::warn!(told, unlogged, "a client was turned away: there are as many as may be");
        }
    }
}

/// Where one protocol is served.
pub(crate) struct Door<'a> {
    pub(crate) listener: Option<&'a TcpListener>,
    pub(crate) tls: Option<&'a Tls>,
    /// The answer to a client without a place.
    pub(crate) full: &'static [u8],
    /// Places for probes, where the protocol has them.
    pub(crate) probes: Option<Arc<Semaphore>>,
}

/// Accepts clients for as long as there are places, and serves each by itself.
pub(crate) async fn accept<C>(
    door: Door<'_>,
    clients: &Clients,
    serve: impl Fn(Stream) -> C + Clone + Send + 'static,
) where
    C: Future<Output = ()> + Send + 'static,
{
    let Some(listener) = door.listener else { return pending().await };
    let (mut logged, mut unlogged) = (None::<Instant>, 0_u64);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => admit(&door, clients, stream, serve.clone()),
            Err(error) => {
                unlogged += 1;
                if logged.is_none_or(|at| at.elapsed() >= QUIET) {
                    tracing::warn!(%error, times = unlogged, "connections were not accepted");
                    (logged, unlogged) = (Some(Instant::now()), 0_u64);
                }
                sleep(PAUSE).await;
            }
        }
    }
}

fn admit<C>(
    door: &Door<'_>,
    clients: &Clients,
    stream: TcpStream,
    serve: impl FnOnce(Stream) -> C + Send + 'static,
) where
    C: Future<Output = ()> + Send + 'static,
{
    if let Ok(place) = clients.places.clone().try_acquire_owned() {
        // An answer is small, and waits for nothing that would follow it.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE));
        return clients.spawn(place, secured(door.tls.cloned(), stream), serve);
    }
    match door.probes.clone().and_then(|probes| probes.try_acquire_owned().ok()) {
        Some(place) => clients.spawn(place, secured(door.tls.cloned(), stream), http::refuse),
        // Over TLS it would not be understood.
        None => clients.turn_away(&stream, if door.tls.is_some() { &[] } else { door.full }),
    }
}
