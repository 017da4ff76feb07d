//! One address that leads to one of several servers, like a host name that is moved to another machine, and
//! processes that draw through it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use idmill::store::Store;
use idmill::{Allocator, Sequences};
use idmill_conformance::Proxy;

/// One process: its store, its sequence, and its last id.
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
        assert!(id > self.last, "{id} is not above {} in the same process", self.last);
        assert!(issued.insert(id), "{id} was handed out twice");
        self.last = id;
    }
}

/// Switches the address between the two servers six times. Returns the number of ids handed out.
pub async fn back_and_forth<S: Store + 'static>(
    switch: &Proxy,
    servers: [SocketAddr; 2],
    processes: &mut [Process<S>],
) -> usize {
    let mut issued = BTreeSet::new();
    for server in servers.into_iter().cycle().take(6) {
        switch.redirect(server);
        for _ in 0..5 {
            for process in &mut *processes {
                process.draw(&mut issued).await;
            }
        }
    }
    issued.len()
}
