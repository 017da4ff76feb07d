//! A server over a memory store, and clients for it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use idmill::store::{Bounds, Grant, Reserve, SequenceInfo, Store, StoreFuture};
use idmill::{Error, ErrorKind, Result, SequenceName, Sequences};
use idmill_remote::protocol::{Ask, Request, VERSION};
use idmill_server::{Server, ServerBuilder};
use idmill_testing::eventually;
use idmill_testing::faulty::FaultyStore;
use idmill_testing::fleet::Resp;
use tokio::io::{AsyncBufReadExt, AsyncReadExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Timeout after which a hanging test fails.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Running {
    pub(crate) resp: SocketAddr,
    pub(crate) http: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    /// Starts a server that creates sequences on their first use.
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
        Client::to(self.resp).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }

    /// Ends the server. Await the returned task to wait until the server has ended.
    pub(crate) fn end(mut self) -> JoinHandle<()> {
        self.end.take().unwrap().send(()).unwrap();
        self.task
    }
}

/// Creates a store with the sequence `orders`.
pub(crate) async fn with_orders() -> FaultyStore {
    let store = FaultyStore::new();
    store.create(&"orders".parse().unwrap(), Bounds::new(1, u64::MAX).unwrap()).await.unwrap();
    store
}

/// A memory store that counts reserves, creations and reads, and can be made to reject these.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    pub(crate) memory: FaultyStore,
    calls: Arc<AtomicUsize>,
    broken: Arc<AtomicBool>,
}

impl Watched {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    pub(crate) fn break_all(&self, is_broken: bool) {
        self.broken.store(is_broken, Ordering::Relaxed);
    }

    fn asked(&self) -> Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let broken = || Error::new(ErrorKind::StoreViolation, "the file was replaced");
        if self.broken.load(Ordering::Relaxed) { Err(broken()) } else { Ok(()) }
    }
}

impl Store for Watched {
    idmill::store_calls!(|this| this.memory => capabilities give_back list set remove);

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            self.asked()?;
            self.memory.reserve(request).await
        })
    }

    fn create<'a>(&'a self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> {
        Box::pin(async move {
            self.asked()?;
            self.memory.create(name, bounds).await
        })
    }

    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        Box::pin(async move {
            self.asked()?;
            self.memory.inspect(name).await
        })
    }

    fn inspect_many<'a>(
        &'a self,
        names: &'a [SequenceName],
    ) -> StoreFuture<'a, Vec<Result<Option<SequenceInfo>>>> {
        Box::pin(async move {
            match self.asked() {
                Ok(()) => self.memory.inspect_many(names).await,
                Err(error) => vec![Err(error); names.len()],
            }
        })
    }
}

/// A client whose tests fail where [`Resp`] returns an error.
pub(crate) struct Client(pub(crate) Resp);

impl Client {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        Self(Resp::connect(address).await.unwrap())
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.send(bytes).await.unwrap();
    }

    /// Sends one line of words, and returns the first line of the answer.
    pub(crate) async fn ask(&mut self, words: &str) -> String {
        self.send(format!("{words}\r\n")).await;
        self.line().await
    }

    /// Asks like `ask`; returns an empty string if the server has disconnected.
    pub(crate) async fn ask_or_end(&mut self, words: &str) -> String {
        let _ = self.0.send(format!("{words}\r\n")).await;
        self.rest_of_line().await
    }

    /// Reads the next lines.
    pub(crate) async fn lines(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::with_capacity(count);
        for _ in 0..count {
            lines.push(self.line().await);
        }
        lines
    }

    /// Sends `IDMILL.STORE`.
    pub(crate) async fn send_store(&mut self, ask: Ask) {
        let request = String::from_utf8(Request { number: 7, ask }.encode()).unwrap();
        let (command, length) = (format!("*3\r\n$12\r\nIDMILL.STORE\r\n$1\r\n{VERSION}"), request.len());
        self.send(format!("{command}\r\n${length}\r\n{request}\r\n")).await;
    }

    /// Returns the answer to `IDMILL.STORE`.
    pub(crate) async fn ask_store(&mut self, ask: Ask) -> String {
        self.send_store(ask).await;
        match self.line().await {
            length if length.starts_with('$') => self.line().await,
            refused => refused,
        }
    }

    pub(crate) async fn line(&mut self) -> String {
        let line = self.rest_of_line().await;
        assert!(!line.is_empty(), "the server left");
        line
    }

    /// Reads a line, or the bytes up to the end of the connection.
    pub(crate) async fn rest_of_line(&mut self) -> String {
        let mut line = Vec::new();
        // Ignore the error: a server that disconnects with bytes unread resets the connection.
        let _ = timeout(TIMEOUT, self.0.stream().read_until(b'\n', &mut line)).await.unwrap();
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    /// Asks repeatedly for ids, without pauses, until the server refuses. Returns the refusal.
    pub(crate) async fn until_refused(&mut self, words: &str) -> String {
        let begun = Instant::now();
        loop {
            let answer = self.ask(words).await;
            if !answer.starts_with(':') {
                return answer;
            }
            assert!(begun.elapsed() < TIMEOUT, "{words} is not refused within {TIMEOUT:?}, but {answer}");
        }
    }

    /// Asks until the server returns an id: transient errors may come before it.
    pub(crate) async fn until_drawn(&mut self, words: &str) -> u64 {
        eventually(words, async || {
            let answer = self.ask(words).await;
            answer.strip_prefix(':').map(|id| id.parse().unwrap()).ok_or(answer.clone())
        })
        .await
    }

    pub(crate) async fn id(&mut self, words: &str) -> u64 {
        let answer = self.ask(words).await;
        answer.strip_prefix(':').and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
    }

    /// Reads until the server disconnects.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // Ignore the error: a server that disconnects with bytes unread resets the connection.
        let _ = timeout(TIMEOUT, self.0.stream().read_to_end(&mut rest)).await.unwrap();
        String::from_utf8(rest).unwrap()
    }
}
