//! A proxy that sees where requests begin, and can cut the connection there.

use std::sync::Arc;

use idmill_conformance::free_port;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Where a connection is to be cut, counted in requests from when that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Before a byte of this request reaches the server.
    Before(usize),
    /// After all of it did: its answer is not passed on, and the connection ends
    /// once [`Proxy::end`] is called.
    Withhold(usize),
}

/// Forwards to an emulator.
pub(crate) struct Proxy {
    pub(crate) address: String,
    state: Arc<Mutex<State>>,
    ended: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    cut: Option<Cut>,
    seen: usize,
}

impl Proxy {
    pub(crate) async fn to(server: String) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let listener = TcpListener::bind(&address).await.unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let (ended, hear) = watch::channel(0);
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(forward(client, server, shared.clone(), hear.clone()));
            }
        });
        Self { address, state, ended }
    }

    /// Cuts the connection once.
    pub(crate) fn cut(&self, cut: Cut) {
        *self.state.lock() = State { cut: Some(cut), seen: 0 };
    }

    /// Ends the connections that are open.
    pub(crate) fn end(&self) {
        self.ended.send_modify(|count| *count += 1);
    }

    /// How many requests have begun since [`cut`](Self::cut).
    pub(crate) fn seen(&self) -> usize {
        self.state.lock().seen
    }
}

async fn forward(
    client: TcpStream,
    server: TcpStream,
    state: Arc<Mutex<State>>,
    mut ended: watch::Receiver<usize>,
) {
    ended.mark_unchanged();
    let (from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let withheld = Arc::new(Mutex::new(false));
    let silent = withheld.clone();
    let requests = async {
        let mut frames = Frames { from: from_client, prefaced: false };
        while let Some((bytes, begins)) = frames.next().await {
            match begins.then(|| state.lock().begin()).flatten() {
                Some(Cut::Before(_)) => return,
                Some(Cut::Withhold(_)) => *silent.lock() = true,
                None => {}
            }
            if to_server.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    let answers = async {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            let silent = *withheld.lock();
            if !silent && to_client.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = requests => {}
        () = answers => {}
        _ = ended.changed() => {}
    }
}

impl State {
    /// A request begins: whether the connection is to be cut.
    fn begin(&mut self) -> Option<Cut> {
        self.seen += 1;
        let due = match self.cut? {
            Cut::Before(nth) | Cut::Withhold(nth) => nth == self.seen,
        };
        if due { self.cut.take() } else { None }
    }
}

/// HTTP/2, as far as where its frames begin: RFC 9113, section 4.1.
struct Frames {
    from: OwnedReadHalf,
    prefaced: bool,
}

impl Frames {
    /// The next frame, and whether it begins a request.
    async fn next(&mut self) -> Option<(Vec<u8>, bool)> {
        const PREFACE: usize = 24;
        const HEADERS: u8 = 1;
        if !self.prefaced {
            self.prefaced = true;
            return Some((self.read(Vec::new(), PREFACE).await?, false));
        }
        let head = self.read(Vec::new(), 9).await?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let begins = head[3] == HEADERS;
        Some((self.read(head, length).await?, begins))
    }

    async fn read(&mut self, mut bytes: Vec<u8>, more: usize) -> Option<Vec<u8>> {
        let old = bytes.len();
        bytes.resize(old + more, 0);
        self.from.read_exact(&mut bytes[old..]).await.ok()?;
        Some(bytes)
    }
}
