//! A proxy between a window and its server that holds every command until the test lets it pass.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

/// A gate, initially closed. A closed gate holds every command except `mn`, which the window sends first on a
/// connection, and which draws no ids.
pub(crate) struct Gate {
    address: SocketAddr,
    open: Arc<AtomicBool>,
    held: mpsc::UnboundedReceiver<Held>,
}

/// Commands that a window sent together, held at the gate.
#[derive(Debug)]
pub(crate) struct Held {
    text: String,
    decide: oneshot::Sender<Decision>,
}

#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Pass,
    PassAndCut,
    CutBefore,
    CutAfter,
}

impl Gate {
    pub(crate) async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(AtomicBool::new(false));
        let (arrivals, held) = mpsc::unbounded_channel();
        let opened = open.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (arrivals, open) = (arrivals.clone(), opened.clone());
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(server).await else { return };
                    serve(client, server, arrivals, open).await;
                });
            }
        });
        Self { address, open, held }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Returns the next held commands. Panics if none arrive within 20 s.
    pub(crate) async fn held(&mut self) -> Held {
        let held = tokio::time::timeout(Duration::from_secs(20), self.held.recv()).await;
        held.expect("a command arrives within 20 s").expect("the gate is open")
    }

    /// Lets the next command pass. Panics if it is not `command`.
    pub(crate) async fn pass(&mut self, command: &str) {
        self.expect(command).await.pass();
    }

    /// Returns the next command, still held. Panics if it is not `command`.
    pub(crate) async fn expect(&mut self, command: &str) -> Held {
        let held = self.held().await;
        assert!(held.text.starts_with(command), "expected {command:?}, held {:?}", held.text);
        held
    }

    /// Lets all later commands pass. Commands that are already held stay held.
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

impl Held {
    pub(crate) fn pass(self) {
        let _ = self.decide.send(Decision::Pass);
    }

    /// Delivers the reply, then closes the connection.
    pub(crate) fn pass_and_cut(self) {
        let _ = self.decide.send(Decision::PassAndCut);
    }

    /// Closes the connection before the server receives the command.
    pub(crate) fn cut_before(self) {
        let _ = self.decide.send(Decision::CutBefore);
    }

    /// Lets the server execute the command, and closes the connection before the reply is delivered.
    pub(crate) fn cut_after(self) {
        let _ = self.decide.send(Decision::CutAfter);
    }
}

async fn serve(
    client: TcpStream,
    server: TcpStream,
    arrivals: mpsc::UnboundedSender<Held>,
    open: Arc<AtomicBool>,
) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut buffer = vec![0; 4096];
    while let Ok(len @ 1..) = from_client.read(&mut buffer).await {
        let bytes = &buffer[..len];
        let decision = if open.load(Ordering::SeqCst) || bytes == b"mn\r\n" {
            Decision::Pass
        } else {
            let (decide, decision) = oneshot::channel();
            let text = String::from_utf8_lossy(bytes).into_owned();
            let _ = arrivals.send(Held { text, decide });
            decision.await.unwrap_or(Decision::CutBefore)
        };
        if decision == Decision::CutBefore || to_server.write_all(bytes).await.is_err() {
            return;
        }
        // These windows have one command in progress at a time, so the next data is the reply to that
        // command.
        if !answer(&mut from_server, &mut to_client, &decision).await {
            return;
        }
    }
}

async fn answer(server: &mut OwnedReadHalf, client: &mut OwnedWriteHalf, decision: &Decision) -> bool {
    let mut buffer = vec![0; 4096];
    let Ok(len @ 1..) = server.read(&mut buffer).await else { return false };
    if matches!(decision, Decision::CutBefore | Decision::CutAfter) {
        return false;
    }
    client.write_all(&buffer[..len]).await.is_ok() && *decision == Decision::Pass
}
