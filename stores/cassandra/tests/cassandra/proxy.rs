//! Between a store and a node: reads the frames of CQL (version 4 of the protocol), and keeps back or
//! misspells those that the test names.
//!
//! Statements are known by their text, also where they are executed by the id that the node gave them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

const QUERY: u8 = 0x07;
const RESULT: u8 = 0x08;
const PREPARE: u8 = 0x09;
const EXECUTE: u8 = 0x0A;
/// The kind of a result that tells the id of a prepared statement.
const PREPARED: [u8; 4] = [0, 0, 0, 4];

pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    // Ends with the proxy.
    _serving: JoinSet<()>,
}

#[derive(Default)]
struct State {
    /// The texts of prepared statements, by their ids.
    prepared: HashMap<Vec<u8>, String>,
    rules: Vec<Rule>,
}

/// What happens to the next requests of a statement whose text contains this, and that contain these bytes.
struct Rule {
    statement: String,
    bytes: Vec<u8>,
    times: usize,
    act: Act,
}

enum Act {
    /// Replaces the bytes by as many others.
    Misspell(Vec<u8>),
    /// Keeps the request back: tells that it does, and where to say that it may go on.
    Hold(mpsc::UnboundedSender<oneshot::Sender<()>>),
}

/// A request that is to be kept back.
pub(crate) struct Held(mpsc::UnboundedReceiver<oneshot::Sender<()>>);

impl Held {
    /// Waits until it is kept back.
    pub(crate) async fn caught(mut self) -> Caught {
        Caught(self.0.recv().await.expect("the proxy runs"))
    }
}

/// A request that is kept back; dropping this sends it on as well.
pub(crate) struct Caught(oneshot::Sender<()>);

impl Caught {
    pub(crate) fn release(self) {
        self.0.send(()).expect("the connection is there");
    }
}

struct Frame {
    header: [u8; 9],
    body: Vec<u8>,
}

impl Frame {
    async fn read(from: &mut (impl AsyncRead + Unpin)) -> Option<Self> {
        let mut header = [0; 9];
        from.read_exact(&mut header).await.ok()?;
        let length = u32::from_be_bytes(header[5..].try_into().expect("four bytes"));
        let mut body = vec![0; length.try_into().expect("fits")];
        from.read_exact(&mut body).await.ok()?;
        Some(Self { header, body })
    }

    async fn write(&self, to: &mut OwnedWriteHalf) -> Option<()> {
        to.write_all(&[&self.header[..], &self.body].concat()).await.ok()
    }

    fn stream(&self) -> [u8; 2] {
        [self.header[2], self.header[3]]
    }

    fn opcode(&self) -> u8 {
        self.header[4]
    }

    /// What QUERY and PREPARE begin with.
    fn text(&self) -> String {
        let length = u32::from_be_bytes(self.body[..4].try_into().expect("four bytes"));
        String::from_utf8_lossy(&self.body[4..][..length as usize]).into_owned()
    }

    /// What EXECUTE begins with, and the result of PREPARE after its kind.
    fn id(&self, from: usize) -> Vec<u8> {
        let body = &self.body[from..];
        body[2..][..usize::from(u16::from_be_bytes([body[0], body[1]]))].to_vec()
    }
}

impl Proxy {
    /// At the node's port, since that is where the driver takes all others to listen too.
    pub(crate) async fn to(node: SocketAddr) -> Self {
        let listener = listen_beside(node).await;
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let (shared, mut serving) = (Arc::clone(&state), JoinSet::new());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, node, Arc::clone(&shared)));
            }
        });
        Self { address, state, _serving: serving }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Keeps back the next request of a statement whose text contains this, with this name among its values.
    pub(crate) fn hold(&self, statement: &str, name: &str) -> Held {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.rule(statement, name, 1, Act::Hold(sender));
        Held(receiver)
    }

    /// Replaces `right` by `wrong`, of the same length, in the next requests of a statement whose text
    /// contains this. The node then answers as one that does not know what is meant.
    pub(crate) fn misspell(&self, statement: &str, right: &str, wrong: &str, times: usize) {
        assert_eq!(right.len(), wrong.len());
        self.rule(statement, right, times, Act::Misspell(wrong.into()));
    }

    fn rule(&self, statement: &str, bytes: &str, times: usize, act: Act) {
        self.state.lock().rules.push(Rule {
            statement: statement.to_owned(),
            bytes: bytes.into(),
            times,
            act,
        });
    }

    /// How many requests are still to come for which something was asked.
    pub(crate) fn outstanding(&self) -> usize {
        self.state.lock().rules.iter().map(|rule| rule.times).sum()
    }
}

async fn listen_beside(node: SocketAddr) -> TcpListener {
    let IpAddr::V4(ip) = node.ip() else { panic!("{node}") };
    let [a, b, c, _] = ip.octets();
    for last in 100..=250 {
        match TcpListener::bind((Ipv4Addr::new(a, b, c, last), node.port())).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            listener => return listener.unwrap(),
        }
    }
    panic!("all addresses beside {node} are taken");
}

impl State {
    /// Misspells the request, or says whom to tell that it is kept back.
    fn meet(&mut self, frame: &mut Frame) -> Option<mpsc::UnboundedSender<oneshot::Sender<()>>> {
        let text = match frame.opcode() {
            QUERY => frame.text(),
            EXECUTE => self.prepared.get(&frame.id(0))?.clone(),
            _ => return None,
        };
        let meant = |rule: &&mut Rule| rule.times > 0 && text.contains(&rule.statement);
        for rule in self.rules.iter_mut().filter(meant) {
            let Some(at) = frame.body.windows(rule.bytes.len()).position(|bytes| bytes == rule.bytes) else {
                continue;
            };
            rule.times -= 1;
            match &rule.act {
                Act::Misspell(wrong) => frame.body[at..][..wrong.len()].copy_from_slice(wrong),
                Act::Hold(sender) => return Some(sender.clone()),
            }
        }
        None
    }
}

/// Statements that were sent to be prepared, by the stream of the answer.
type Preparing = Mutex<HashMap<[u8; 2], String>>;

/// One connection; it ends on both sides when one of them ends it.
async fn carry(client: TcpStream, node: SocketAddr, state: Arc<Mutex<State>>) {
    let Ok(node) = TcpStream::connect(node).await else { return };
    let _ = (client.set_nodelay(true), node.set_nodelay(true));
    let ((from_client, to_client), (from_node, to_node)) = (client.into_split(), node.into_split());
    let preparing = Preparing::default();
    tokio::select! {
        _ = upwards(from_client, to_node, &state, &preparing) => {}
        _ = downwards(from_node, to_client, &state, &preparing) => {}
    }
}

async fn upwards(
    mut from: OwnedReadHalf,
    to: OwnedWriteHalf,
    state: &Mutex<State>,
    preparing: &Preparing,
) -> Option<()> {
    let to = Arc::new(tokio::sync::Mutex::new(to));
    // Ends with the connection: what is kept back then is never delivered.
    let mut kept = JoinSet::new();
    loop {
        let mut frame = Frame::read(&mut from).await?;
        if frame.opcode() == PREPARE {
            preparing.lock().insert(frame.stream(), frame.text());
        }
        let hold = state.lock().meet(&mut frame);
        let Some(hold) = hold else {
            frame.write(&mut *to.lock().await).await?;
            continue;
        };
        let (release, released) = oneshot::channel();
        let to = Arc::clone(&to);
        kept.spawn(async move {
            let _ = hold.send(release);
            let _ = released.await;
            frame.write(&mut *to.lock().await).await
        });
    }
}

async fn downwards(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &Mutex<State>,
    preparing: &Preparing,
) -> Option<()> {
    loop {
        let frame = Frame::read(&mut from).await?;
        if frame.opcode() == RESULT && frame.body.starts_with(&PREPARED) {
            let text = preparing.lock().remove(&frame.stream())?;
            state.lock().prepared.insert(frame.id(4), text);
        }
        frame.write(&mut to).await?;
    }
}
