//! One connection through a proxy.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::fault::{Fault, Gate, Nonsense};
use super::pieces::Pieces;
use super::{Command, Piece, Shared};

/// How long the engine's side stays open after the client was cut off, so that the engine reads its input.
const DRAIN: Duration = Duration::from_secs(2);

/// The action for the next answer.
#[derive(Default)]
enum Mode {
    #[default]
    Pass,
    Cut,
    Withhold(Gate),
    Garble(Nonsense),
}

/// Where requests go. Requests that wait for a gate are delivered by a separate task.
struct Upwards {
    engine: Arc<AsyncMutex<OwnedWriteHalf>>,
    /// The waiting requests, in order; `None` while requests are written directly.
    queue: Arc<Mutex<Option<Vec<u8>>>>,
    held: JoinSet<()>,
}

pub(super) struct Connection {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
    pub(super) command: watch::Receiver<Command>,
    /// The state of `command` when this connection was accepted: only later commands affect the connection.
    pub(super) before: Command,
    mode: Mutex<Mode>,
}

impl Connection {
    /// `before` must be read before anything else, so that later commands are noticed.
    pub(super) fn new(shared: Arc<Shared>, number: u64, before: Command) -> Self {
        let command = shared.command.subscribe();
        Self { shared, number, command, before, mode: Mutex::default() }
    }

    pub(super) async fn run(self, client: TcpStream, engine: TcpStream) {
        // Send each piece immediately.
        let _ = (client.set_nodelay(true), engine.set_nodelay(true));
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_engine, to_engine) = engine.into_split();
        let mut upwards = Upwards::to(to_engine);
        tokio::select! {
            // Commands first: data that is sent after a command must not be forwarded.
            biased;
            () = self.until(|now, before| now.cuts > before.cuts) => {}
            () = self.until(|now, before| now.forgets > before.forgets) => {
                // Both sides stay open, and nothing is forwarded.
                self.until(|now, before| now.cuts > before.cuts).await;
            }
            () = self.requests(&mut from_client, &mut upwards) => {}
            () = self.answers(&mut from_engine, &mut to_client) => {}
        }
        drop((from_client, to_client));
        // The client is cut off by now. The engine may still process its input.
        self.drain(&mut from_engine, upwards).await;
    }

    async fn until(&self, holds: impl Fn(&Command, &Command) -> bool) {
        // `wait_for` cannot fail: the sender is in `shared`.
        let _ = self.command.clone().wait_for(|now| now.over || holds(now, &self.before)).await;
    }

    /// Returns when the client must be cut off.
    async fn requests(&self, client: &mut OwnedReadHalf, upwards: &mut Upwards) {
        let mut pieces = Pieces::new(client, self.shared.frames.as_ref());
        while let Some(mut bytes) = pieces.next().await {
            let fault = self.shared.meet(Piece { connection: self.number, bytes: &mut bytes });
            let cut = match fault {
                Some(Fault::CutBefore) => return,
                Some(Fault::Hold(gate)) => {
                    upwards.hold(bytes, gate);
                    continue;
                }
                Some(Fault::HoldAlone(gate)) => {
                    upwards.hold_alone(bytes, gate);
                    continue;
                }
                Some(Fault::CutAfter) => true,
                Some(Fault::CutReply) => self.set(Mode::Cut),
                Some(Fault::Withhold(gate)) => self.set(Mode::Withhold(gate)),
                Some(Fault::Garble(nonsense)) => self.set(Mode::Garble(nonsense)),
                None => false,
            };
            if upwards.send(bytes).await.is_err() || cut {
                return;
            }
        }
        // Forward the rest even if it is an incomplete message: the engine must handle that.
        let _ = upwards.send(pieces.rest()).await;
    }

    /// Sets the mode. Returns `false`: the client is not cut off yet.
    fn set(&self, mode: Mode) -> bool {
        *self.mode.lock() = mode;
        false
    }

    /// Returns when the client must be cut off.
    async fn answers(&self, engine: &mut OwnedReadHalf, client: &mut OwnedWriteHalf) {
        let mut pieces = Pieces::new(engine, self.shared.frames.as_ref());
        while let Some(mut bytes) = pieces.next().await {
            self.shared.answered(Piece { connection: self.number, bytes: &mut bytes });
            let mode = std::mem::take(&mut *self.mode.lock());
            let mut withheld = None;
            match mode {
                Mode::Pass => {}
                Mode::Cut => return,
                Mode::Withhold(gate) => {
                    gate.catch();
                    gate.opened().await;
                    withheld = Some(gate);
                }
                Mode::Garble(nonsense) => {
                    let _ = client.write_all(&nonsense.instead_of(&bytes)).await;
                    return;
                }
            }
            if client.write_all(&bytes).await.is_err() {
                return;
            }
            if let Some(gate) = withheld {
                gate.pass();
            }
        }
        let _ = client.write_all(&pieces.rest()).await;
    }

    /// After the client is gone: keeps the engine's side open, for [`DRAIN`] or, with held requests, until
    /// the engine closes it.
    async fn drain(&self, engine: &mut OwnedReadHalf, mut upwards: Upwards) {
        while upwards.held.try_join_next().is_some() {}
        // Keep reading: dropping the socket with unread answers would reset the engine's connection.
        let mut rest = [0; 4096];
        let drain = async { while let Ok(1..) = engine.read(&mut rest).await {} };
        if upwards.held.is_empty() {
            let _ = upwards.engine.lock().await.shutdown().await;
            let _ = timeout(DRAIN, drain).await;
            return;
        }
        // Keep the connection open even after the held requests are sent: engines may discard requests when
        // their connection ends.
        tokio::select! {
            () = drain => {}
            () = self.until(|_, _| false) => {}
        }
    }
}

impl Upwards {
    fn to(engine: OwnedWriteHalf) -> Self {
        Self { engine: Arc::new(AsyncMutex::new(engine)), queue: Arc::default(), held: JoinSet::new() }
    }

    async fn send(&self, bytes: Vec<u8>) -> std::io::Result<()> {
        if let Some(queue) = &mut *self.queue.lock() {
            queue.extend(bytes);
            return Ok(());
        }
        self.engine.lock().await.write_all(&bytes).await
    }

    fn hold(&mut self, bytes: Vec<u8>, gate: Gate) {
        let mut queue = self.queue.lock();
        if let Some(queue) = &mut *queue {
            queue.extend(bytes);
            return;
        }
        *queue = Some(bytes);
        gate.catch();
        let (engine, queue) = (self.engine.clone(), self.queue.clone());
        self.held.spawn(async move {
            gate.opened().await;
            // Lock before the queue is taken: a later request then waits for this lock until the queued bytes
            // are written.
            let mut engine = engine.lock().await;
            let bytes = queue.lock().take().unwrap_or_default();
            // An error means the end of the connection, which the reader detects.
            if engine.write_all(&bytes).await.is_ok() {
                gate.pass();
            }
        });
    }

    fn hold_alone(&mut self, bytes: Vec<u8>, gate: Gate) {
        let engine = self.engine.clone();
        gate.catch();
        self.held.spawn(async move {
            gate.opened().await;
            if engine.lock().await.write_all(&bytes).await.is_ok() {
                gate.pass();
            }
        });
    }
}
