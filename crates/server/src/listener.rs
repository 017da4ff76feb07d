//! Listeners, and the limit of connections.

use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener as Std};
use std::sync::Arc;
use std::time::Duration;

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

/// Pause after `accept` has failed. The usual cause is too many open files.
const PAUSE: Duration = Duration::from_millis(100);
/// Idle time before the first TCP keepalive probe. Without probes, a client whose machine has disappeared
/// would never free its place.
const SILENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) enum Spot {
    /// An address to listen on.
    At(SocketAddr),
    /// An open listener, handed over by the caller.
    Open(Std),
}

impl Spot {
    pub(crate) async fn listen(self) -> Result<TcpListener> {
        match self {
            Self::At(address) => TcpListener::bind(address).await.map_err(|error| {
                let what = "choose another address or port, or stop the process that listens there";
                refused(format!("cannot listen on {address}; {what}"), error)
            }),
            Self::Open(listener) => taken_over(listener).map_err(|error| {
                refused("the given listener cannot be used; pass a TCP listener".to_owned(), error)
            }),
        }
    }
}

fn taken_over(listener: Std) -> io::Result<TcpListener> {
    // This call fails for Unix sockets.
    listener.local_addr()?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn refused(message: String, error: io::Error) -> Error {
    Error::new(ErrorKind::InvalidInput, message).because(error).during(Operation::Configure)
}

/// The connected clients.
#[derive(Debug)]
pub(crate) struct Clients {
    places: Arc<Semaphore>,
    pub(crate) tasks: TaskTracker,
    /// Disconnects all clients.
    pub(crate) cut: CancellationToken,
    /// Limits the log lines about clients that were turned away.
    turned_away: Lines,
    clock: Clock,
}

impl Clients {
    pub(crate) fn new(places: Arc<Semaphore>, clock: Clock) -> Self {
        let (tasks, cut) = (TaskTracker::new(), CancellationToken::new());
        Self { places, tasks, cut, turned_away: Lines::default(), clock }
    }

    /// Serves a client in its own task. The task holds the place until it ends.
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
            tracing::warn!(told, unlogged, "a connection was rejected: the connection limit is reached");
        }
    }
}

/// The listener of one protocol.
pub(crate) struct Door<'a> {
    pub(crate) listener: Option<&'a TcpListener>,
    pub(crate) tls: Option<&'a Tls>,
    /// The reply to a client beyond the maximum.
    pub(crate) full: &'static [u8],
    /// Places for probes; `None` if the protocol has none.
    pub(crate) probes: Option<Arc<Semaphore>>,
}

/// Accepts clients, and serves each in its own task while there are places.
pub(crate) async fn accept<C>(
    door: Door<'_>,
    clients: &Clients,
    serve: impl Fn(Stream) -> C + Clone + Send + 'static,
) where
    C: Future<Output = ()> + Send + 'static,
{
    let Some(listener) = door.listener else { return pending().await };
    let failures = Lines::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => admit(&door, clients, stream, serve.clone()),
            Err(error) => {
                if let Some(unlogged) = failures.one_more(&clients.clock) {
                    tracing::warn!(%error, unlogged, "connections could not be accepted");
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
        // Replies are small, so send them immediately.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE));
        return clients.spawn(place, secured(door.tls.cloned(), stream), serve);
    }
    match door.probes.clone().and_then(|probes| probes.try_acquire_owned().ok()) {
        Some(place) => clients.spawn(place, secured(door.tls.cloned(), stream), http::refuse),
        // A client that expects TLS cannot read a plain reply.
        None => clients.turn_away(&stream, if door.tls.is_some() { &[] } else { door.full }),
    }
}
