//! A TCP proxy that cuts, withholds and garbles, when it is told to.
//!
//! A fault waits for bytes that a client sends. Drivers send a request in pieces, over several connections,
//! and pings in between, so nobody can say which piece belongs to a reserve; a fault that lets some pieces
//! pass first, and many rounds of them, come to every step of a protocol.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::outcome::Outcome;

/// For how long the engine's side of a connection whose client was cut off is kept, so that the
/// engine reads what it was sent.
const DRAIN: Duration = Duration::from_secs(2);

/// What is done to one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The bytes never reach the engine; the client is cut off.
    CutBefore,
    /// The bytes reach the engine; the client is cut off at once.
    CutAfter,
    /// The bytes reach the engine; the client is cut off when its answer comes.
    CutReply,
    /// The bytes reach the engine; answers are withheld until they are released or the connection is cut.
    Withhold,
    /// The bytes reach the engine; nonsense of this kind comes back, and then the end.
    Garble(Nonsense),
}

/// What comes instead of an answer. Nothing that could be a wrong answer in any
/// protocol: no store could tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nonsense {
    /// As many random bytes.
    Noise,
    /// Half of the answer.
    Half,
    /// An answer of another protocol.
    Stranger,
    /// The answer with every bit of its first bytes flipped.
    Flipped,
}

/// A proxy in front of an engine, gone when dropped.
#[derive(Debug)]
pub(super) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    plan: Mutex<Plan>,
    /// What happens to answers that are withheld, and to connections at large.
    command: watch::Sender<Command>,
}

#[derive(Debug, Default)]
struct Plan {
    armed: Option<(Fault, u64)>,
    /// Pieces that clients have sent.
    pieces: u64,
    refusing: bool,
}

/// Counted, so that a connection sees a command that was given after it began to wait.
#[derive(Clone, Copy, Debug, Default)]
struct Command {
    releases: u64,
    cuts: u64,
}

impl Proxy {
    pub(super) async fn start(target: SocketAddr) -> Outcome<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target,
            plan: Mutex::default(),
            command: watch::Sender::new(Command::default()),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Ok(Self { address, shared, accepting })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many pieces clients have sent so far.
    pub(super) fn pieces(&self) -> u64 {
        self.shared.plan.lock().pieces
    }

    /// The next piece but `skip` that a client sends meets this fault.
    pub(super) fn arm(&self, fault: Fault, skip: u64) {
        self.shared.plan.lock().armed = Some((fault, skip));
    }

    /// Forgets the fault; says whether it was met.
    pub(super) fn disarm(&self) -> bool {
        self.shared.plan.lock().armed.take().is_none()
    }

    /// Delivers every answer that is withheld.
    pub(super) fn release(&self) {
        self.shared.command.send_modify(|command| command.releases += 1);
    }

    /// Cuts every connection.
    pub(super) fn cut(&self) {
        self.shared.command.send_modify(|command| command.cuts += 1);
    }

    /// Cuts every connection, and lets no new one in until told otherwise.
    pub(super) fn refuse(&self, refusing: bool) {
        self.shared.plan.lock().refusing = refusing;
        if refusing {
            self.cut();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        if shared.plan.lock().refusing {
            continue;
        }
        let shared = shared.clone();
        tokio::spawn(async move {
            if let Ok(engine) = TcpStream::connect(shared.target).await {
                Connection::new(shared).run(client, engine).await;
            }
        });
    }
}

/// What the downward half of a connection does with the next answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Pass,
    Cut,
    /// Until more have been released than this.
    Withhold(u64),
    Garble(Nonsense),
}

struct Connection {
    shared: Arc<Shared>,
    mode: Mutex<Mode>,
    command: watch::Receiver<Command>,
    /// How often all connections had been cut before this one was there.
    cuts: u64,
}

impl Connection {
    fn new(shared: Arc<Shared>) -> Self {
        let command = shared.command.subscribe();
        let cuts = command.borrow().cuts;
        Self { shared, mode: Mutex::new(Mode::Pass), command, cuts }
    }

    async fn run(self, client: TcpStream, engine: TcpStream) {
        // A piece is to leave when it has come.
        let _ = (client.set_nodelay(true), engine.set_nodelay(true));
        let (mut from_client, to_client) = client.into_split();
        let (mut from_engine, mut to_engine) = engine.into_split();
        let (cuts, mut command) = (self.cuts, self.command.clone());
        tokio::select! {
            () = self.upwards(&mut from_client, &mut to_engine) => {}
            () = self.downwards(&mut from_engine, to_client) => {}
            _ = command.wait_for(|command| command.cuts > cuts) => {}
        }
        drop(from_client);
        // The client is cut off by now; the engine may go on with what it has.
        let _ = to_engine.shutdown().await;
        let mut rest = [0; 4096];
        let drain = async { while let Ok(1..) = from_engine.read(&mut rest).await {} };
        let _ = timeout(DRAIN, drain).await;
    }

    /// Returns when the client is to be cut off.
    async fn upwards(&self, client: &mut OwnedReadHalf, engine: &mut OwnedWriteHalf) {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = client.read(&mut piece).await {
            let fault = self.shared.plan.lock().next();
            match fault {
                Some(Fault::CutBefore) => return,
                Some(Fault::CutReply) => *self.mode.lock() = Mode::Cut,
                Some(Fault::Withhold) => *self.mode.lock() = Mode::Withhold(self.command.borrow().releases),
                Some(Fault::Garble(nonsense)) => *self.mode.lock() = Mode::Garble(nonsense),
                Some(Fault::CutAfter) | None => {}
            }
            if engine.write_all(&piece[..length]).await.is_err() || fault == Some(Fault::CutAfter) {
                return;
            }
        }
    }

    /// Returns when the client is to be cut off.
    async fn downwards(&self, engine: &mut OwnedReadHalf, mut client: OwnedWriteHalf) {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = engine.read(&mut piece).await {
            let mode = *self.mode.lock();
            match mode {
                Mode::Pass => {}
                Mode::Cut => return,
                Mode::Withhold(releases) => self.released(releases).await,
                Mode::Garble(nonsense) => {
                    let _ = client.write_all(&garbled(nonsense, &piece[..length])).await;
                    return;
                }
            }
            if client.write_all(&piece[..length]).await.is_err() {
                return;
            }
        }
    }

    async fn released(&self, before: u64) {
        let mut command = self.command.clone();
        // An error is the end of the proxy, which cuts the connection by other means.
        let _ = command.wait_for(|command| command.releases > before).await;
        *self.mode.lock() = Mode::Pass;
    }
}

impl Plan {
    /// What happens to the piece that has come.
    fn next(&mut self) -> Option<Fault> {
        self.pieces += 1;
        let (fault, skip) = self.armed?;
        if skip > 0 {
            self.armed = Some((fault, skip - 1));
            return None;
        }
        self.armed = None;
        Some(fault)
    }
}

fn garbled(nonsense: Nonsense, answer: &[u8]) -> Vec<u8> {
    match nonsense {
        Nonsense::Noise => answer.iter().map(|_| fastrand::u8(..)).collect(),
        Nonsense::Half => answer[..answer.len() / 2].to_vec(),
        Nonsense::Stranger => b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".to_vec(),
        Nonsense::Flipped => {
            let flipped = |(position, byte): (usize, &u8)| if position < 16 { !byte } else { *byte };
            answer.iter().enumerate().map(flipped).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An engine that answers `n` bytes with `n` bytes, each one larger, and counts those that came.
    async fn engine() -> (SocketAddr, watch::Receiver<u64>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (sender, receiver) = watch::channel(0);
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let sender = sender.clone();
                tokio::spawn(async move {
                    let mut piece = [0; 1024];
                    while let Ok(length @ 1..) = stream.read(&mut piece).await {
                        sender.send_modify(|count| *count += length as u64);
                        piece[..length].iter_mut().for_each(|byte| *byte += 1);
                        let _ = stream.write_all(&piece[..length]).await;
                    }
                });
            }
        });
        (address, receiver)
    }

    async fn ask(stream: &mut TcpStream) -> Vec<u8> {
        let mut answer = vec![0; 1024];
        if stream.write_all(b"abc").await.is_err() {
            return Vec::new();
        }
        let length = stream.read(&mut answer).await.unwrap_or(0);
        answer.truncate(length);
        answer
    }

    #[tokio::test]
    async fn each_fault_does_what_it_says() {
        let (address, mut arrived) = engine().await;
        let proxy = Proxy::start(address).await.unwrap();
        let cut = [(Fault::CutBefore, 0), (Fault::CutAfter, 3), (Fault::CutReply, 3)];
        for (fault, more) in cut {
            let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
            assert_eq!(ask(&mut stream).await, b"bcd");
            let before = *arrived.borrow();
            proxy.arm(fault, 1);
            assert_eq!(ask(&mut stream).await, b"bcd", "one is let through");
            assert_eq!(ask(&mut stream).await, b"", "{fault:?}");
            assert!(proxy.disarm());
            arrived.wait_for(|count| *count >= before + 3 + more).await.unwrap();
            assert_eq!(*arrived.borrow(), before + 3 + more, "{fault:?}");
        }
        for nonsense in [Nonsense::Noise, Nonsense::Half, Nonsense::Stranger, Nonsense::Flipped] {
            let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
            proxy.arm(Fault::Garble(nonsense), 0);
            assert_ne!(ask(&mut stream).await, b"bcd");
            assert_eq!(ask(&mut stream).await, b"", "and then the end");
        }
        proxy.arm(Fault::CutBefore, 0);
        assert!(!proxy.disarm(), "nothing was sent");
    }

    #[tokio::test]
    async fn what_is_withheld_can_be_released_or_cut() {
        let (address, mut arrived) = engine().await;
        let proxy = Proxy::start(address).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        proxy.arm(Fault::Withhold, 0);
        stream.write_all(b"abc").await.unwrap();
        arrived.wait_for(|count| *count == 3).await.unwrap();
        let mut answer = [0; 3];
        assert!(timeout(Duration::from_millis(100), stream.read_exact(&mut answer)).await.is_err());
        proxy.release();
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"bcd");
        assert_eq!(ask(&mut stream).await, b"bcd", "and all is as before");
        proxy.arm(Fault::Withhold, 0);
        stream.write_all(b"abc").await.unwrap();
        arrived.wait_for(|count| *count == 9).await.unwrap();
        proxy.cut();
        assert_eq!(ask(&mut stream).await, b"");
        proxy.refuse(true);
        let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(ask(&mut refused).await, b"");
        proxy.refuse(false);
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(ask(&mut stream).await, b"bcd");
    }
}
