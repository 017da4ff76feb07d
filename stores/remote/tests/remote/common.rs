//! Test helpers: servers inside this process, and clients of these servers.

use std::net::SocketAddr;

use idmill::store::{Bounds, Grant, Reserve, Store};
use idmill::{Result, SequenceName, Sequences};
use idmill_kit::Existing;
use idmill_remote::RemoteStore;
use idmill_server::{Access, Pattern, Right, Secret, Server, ServerBuilder, Token};
use tokio::task::JoinHandle;

/// A running server. When it is dropped, the server and its connections end as in a crash.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    /// Starts a server that creates sequences on first use, and has no tokens.
    pub(crate) async fn over(store: impl Store + 'static) -> Self {
        Self::with(store, |server| server).await
    }

    pub(crate) async fn with(
        store: impl Store + 'static,
        options: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Self {
        Self::at(([127, 0, 0, 1], 0).into(), Server::builder(Sequences::new(store).unwrap()), options).await
    }

    /// Starts a server like `idmill serve` without `--create`.
    pub(crate) async fn over_what_exists(store: impl Store + Clone + 'static) -> Self {
        let drawn = Sequences::new(Existing::of(store.clone())).unwrap();
        let administered = Sequences::new(store).unwrap();
        let server = Server::builder(drawn).administers(administered);
        Self::at(([127, 0, 0, 1], 0).into(), server, |server| server).await
    }

    pub(crate) async fn at(
        address: SocketAddr,
        server: ServerBuilder,
        options: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Self {
        let server = options(server.resp(address)).bind().await.unwrap();
        let address = server.resp_address().unwrap();
        Self { address, task: tokio::spawn(server.run(std::future::pending())) }
    }

    /// Ends the server as in a crash, and waits until its port is closed. Returns its address.
    pub(crate) async fn die(mut self) -> SocketAddr {
        self.task.abort();
        let _ = (&mut self.task).await;
        self.address
    }

    pub(crate) async fn open(&self) -> RemoteStore {
        open(&[self.address], "timeout=60s").await.unwrap()
    }
}

/// Opens a client of these servers.
pub(crate) async fn open(servers: &[SocketAddr], options: &str) -> Result<RemoteStore> {
    let servers: Vec<_> = servers.iter().map(SocketAddr::to_string).collect();
    RemoteStore::open(&format!("idmill://{}?{options}", servers.join(","))).await
}

pub(crate) fn name(text: &str) -> SequenceName {
    text.parse().unwrap()
}

pub(crate) fn request(text: &str, count: u64) -> Reserve {
    Reserve::new(name(text), count).create(Bounds::new(1, u64::MAX).unwrap())
}

pub(crate) async fn reserve(store: &impl Store, text: &str, count: u64) -> Result<Grant> {
    store.reserve(&request(text, count)).await
}

/// Returns the next id of a sequence in the store.
pub(crate) async fn next(store: &impl Store, text: &str) -> Option<u64> {
    store.inspect(&name(text)).await.unwrap().and_then(|info| info.next)
}

/// Returns the secret of a new token, and the token's entry on the server.
pub(crate) fn token(rights: &[Right], sequences: &[&str]) -> (Secret, Token) {
    let secret = Secret::fresh().unwrap();
    let patterns = sequences.iter().map(|pattern| pattern.parse::<Pattern>().unwrap()).collect();
    let token = Token::new("shop", secret.hash(), rights.iter().copied().collect(), patterns);
    (secret, token)
}

pub(crate) fn access(tokens: impl IntoIterator<Item = Token>) -> impl FnOnce(ServerBuilder) -> ServerBuilder {
    let access = Access::by(tokens);
    move |server| server.access(access)
}
