//! Something between the store and etcd that loses what the test wants lost.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What is held back. Writes are told from reads by what they write: only they have a claim in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Nothing,
    /// What the store sends, from the next write on. It is delivered when
    /// [`Proxy::release`] is called, however late.
    Writes,
    /// What etcd answers, from the next write on. It is never delivered.
    AnswersToWrites,
    /// What etcd answers.
    Answers,
}

#[derive(Debug)]
struct State {
    target: SocketAddr,
    hold: Hold,
    /// Bytes that were held back, and where they were to go.
    held: Vec<(Vec<u8>, OwnedWriteHalf)>,
    released: Vec<OwnedWriteHalf>,
}

impl State {
    /// Whether a piece that the store sends is held back.
    fn holds(&mut self, piece: &[u8]) -> bool {
        let claims = || piece.windows(5).any(|word| word == b"claim");
        match self.hold {
            Hold::Writes => claims(),
            Hold::AnswersToWrites if claims() => {
                self.hold = Hold::Answers;
                false
            }
            _ => false,
        }
    }
}

pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// How often all connections were cut.
    cuts: watch::Sender<u64>,
    /// How many pieces were held back.
    holding: watch::Receiver<u64>,
    // Ends with the proxy.
    _serving: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State {
            target,
            hold: Hold::Nothing,
            held: Vec::new(),
            released: Vec::new(),
        }));
        let (cuts, _) = watch::channel(0);
        let (held, holding) = watch::channel(0);
        let mut serving = JoinSet::new();
        let (shared, cut) = (Arc::clone(&state), cuts.clone());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let target = shared.lock().target;
                let Ok(server) = TcpStream::connect(target).await else { continue };
                connections.spawn(connection(
                    client,
                    server,
                    Arc::clone(&shared),
                    cut.subscribe(),
                    held.clone(),
                ));
            }
        });
        Self { address, state, cuts, holding, _serving: serving }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn hold(&self, hold: Hold) {
        self.state.lock().hold = hold;
    }

    /// Until a piece has been held back.
    pub(crate) async fn has_held(&self) {
        self.holding.clone().wait_for(|held| *held > 0).await.unwrap();
    }

    /// Cuts the store off on every connection that is there, and holds nothing back on later ones.
    /// What etcd was sent it keeps.
    pub(crate) fn cut(&self) {
        self.hold(Hold::Nothing);
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Later connections lead elsewhere; those that are there are cut.
    pub(crate) fn redirect(&self, target: SocketAddr) {
        self.state.lock().target = target;
        self.cut();
    }

    /// Delivers the requests that were held back.
    pub(crate) async fn release(&self) {
        let held = std::mem::take(&mut self.state.lock().held);
        assert!(!held.is_empty(), "nothing was held back: the test proves nothing");
        for (bytes, mut server) in held {
            server.write_all(&bytes).await.unwrap();
            // Left open: etcd forgets what it was told by a connection that ends.
            self.state.lock().released.push(server);
        }
    }
}

async fn connection(
    client: TcpStream,
    server: TcpStream,
    state: Arc<Mutex<State>>,
    mut cuts: watch::Receiver<u64>,
    held: watch::Sender<u64>,
) {
    let before = *cuts.borrow();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut kept = Vec::new();
    let upwards = async {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_client.read(&mut piece).await {
            if !kept.is_empty() || state.lock().holds(&piece[..length]) {
                kept.extend_from_slice(&piece[..length]);
                held.send_modify(|held| *held += 1);
            } else if to_server.write_all(&piece[..length]).await.is_err() {
                break;
            }
        }
    };
    let downwards = async {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_server.read(&mut piece).await {
            if state.lock().hold != Hold::Answers && to_client.write_all(&piece[..length]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = upwards => {}
        () = downwards => {}
        _ = cuts.wait_for(|cuts| *cuts > before) => {}
    }
    if !kept.is_empty() {
        state.lock().held.push((kept, to_server));
        // The store hears of the cut now, and need not wait for its timeout.
        drop((from_client, to_client));
        // Reads on, or etcd would see a connection that is gone.
        let mut rest = [0; 4096];
        while let Ok(1..) = from_server.read(&mut rest).await {}
    }
}
