//! A server to ask, over a store in memory.

use std::net::SocketAddr;
use std::time::Duration;

use idmill::Sequences;
use idmill::store::{Bounds, MemoryStore, Store};
use idmill_server::{Server, ServerBuilder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Long enough for anything that comes at all.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Running {
    pub(crate) resp: SocketAddr,
    pub(crate) http: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    /// One that creates sequences on their first use.
    pub(crate) async fn over(store: impl Store + 'static) -> Self {
        Self::with(store, |server| server).await
    }

    pub(crate) async fn with(
        store: impl Store + 'static,
        options: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let sequences = Sequences::new(store).unwrap();
        let server = options(Server::builder(sequences)).resp(any).http(any).bind().await.unwrap();
        let (resp, http) = (server.resp_address().unwrap(), server.http_address().unwrap());
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            let _ = ended.await;
        }));
        Self { resp, http, end: Some(end), task }
    }

    pub(crate) async fn client(&self) -> Client {
        Client(TcpStream::connect(self.resp).await.unwrap())
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }

    /// Tells it to end; whoever awaits the task waits until it has.
    pub(crate) fn end(mut self) -> JoinHandle<()> {
        self.end.take().unwrap().send(()).unwrap();
        self.task
    }
}

/// A store with the sequence `orders`.
pub(crate) async fn with_orders() -> MemoryStore {
    let store = MemoryStore::new();
    store.create(&"orders".parse().unwrap(), Bounds::new(1, u64::MAX).unwrap()).await.unwrap();
    store
}

/// A client that writes what it is told, byte for byte.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The answer to one line of words, of which the first line is.
    pub(crate) async fn ask(&mut self, words: &str) -> String {
        self.send(format!("{words}\r\n")).await;
        self.line().await
    }

    pub(crate) async fn line(&mut self) -> String {
        let line = self.rest_of_line().await;
        assert!(!line.is_empty(), "the server left");
        line
    }

    /// A line, or what there was when the server left.
    pub(crate) async fn rest_of_line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            match timeout(PATIENCE, self.0.read_u8()).await.unwrap() {
                Ok(byte) => line.push(byte),
                Err(_) => break,
            }
        }
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    pub(crate) async fn id(&mut self, words: &str) -> u64 {
        let answer = self.ask(words).await;
        answer.strip_prefix(':').and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
    }

    /// What comes until the server leaves.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // A server that leaves with bytes unread resets the connection.
        let _ = timeout(PATIENCE, self.0.read_to_end(&mut rest)).await.unwrap();
        String::from_utf8(rest).unwrap()
    }
}
