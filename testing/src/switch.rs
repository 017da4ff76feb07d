//! One address that leads to one of several servers, as a name does that is moved to another machine; and
//! processes that draw through it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use idmill::store::Store;
use idmill::{Allocator, Sequences};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// An address that leads to the server it was last told to.
pub struct Switch {
    pub address: SocketAddr,
    leads_to: watch::Sender<SocketAddr>,
}

impl Switch {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let leads_to = watch::Sender::new(server);
        let told = leads_to.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, told.subscribe()));
            }
        });
        Self { address, leads_to }
    }

    /// Cuts every connection; new ones reach this server.
    fn move_to(&self, server: SocketAddr) {
        self.leads_to.send_replace(server);
    }
}

async fn serve(mut client: TcpStream, mut told: watch::Receiver<SocketAddr>) {
    let address = *told.borrow_and_update();
    let Ok(mut server) = TcpStream::connect(address).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = told.changed() => {}
    }
}

/// One process: its store, its sequence, and what it drew last.
pub struct Process<S> {
    pub store: Arc<S>,
    _ids: Sequences,
    sequence: Allocator<u64>,
    last: u64,
}

impl<S: Store + 'static> Process<S> {
    pub async fn new(store: S, name: &str) -> Self {
        let store = Arc::new(store);
        let ids = Sequences::new(store.clone()).unwrap();
        let sequence = ids.sequence::<u64>(name).step(1).watermark(0).await.unwrap();
        Self { store, _ids: ids, sequence, last: 0 }
    }

    async fn draw(&mut self, issued: &mut BTreeSet<u64>) {
        let id = self.sequence.next().await.unwrap();
        assert!(id > self.last, "{id} after {} in one process", self.last);
        assert!(issued.insert(id), "{id} was handed out twice");
        self.last = id;
    }
}

/// Moves the address from one server to the other and back, six times; how many ids were handed out.
pub async fn back_and_forth<S: Store + 'static>(
    switch: &Switch,
    servers: [SocketAddr; 2],
    processes: &mut [Process<S>],
) -> usize {
    let mut issued = BTreeSet::new();
    for server in servers.into_iter().cycle().take(6) {
        switch.move_to(server);
        for _ in 0..5 {
            for process in &mut *processes {
                process.draw(&mut issued).await;
            }
        }
    }
    issued.len()
}
