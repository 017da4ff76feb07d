//! Between a store and its server: forgets connections, as a firewall does, so that those who send on them
//! hear nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Bounds, Reserve, Store};
use idmill::{ErrorKind, SequenceName};
use parking_lot::Mutex;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Ends with the runtime of the test.
#[derive(Clone, Debug)]
pub struct Proxy {
    address: SocketAddr,
    /// How often all were forgotten.
    forgotten: watch::Sender<u64>,
    /// Those that were forgotten: held, so that nobody hears of their end.
    held: Arc<Mutex<Vec<TcpStream>>>,
    accepted: Arc<Mutex<usize>>,
}

impl Proxy {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            forgotten: watch::channel(0).0,
            held: Arc::default(),
            accepted: Arc::default(),
        };
        let serving = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                *serving.accepted.lock() += 1;
                tokio::spawn(serving.clone().carry(client, server));
            }
        });
        proxy
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections there have been.
    pub fn connections(&self) -> usize {
        *self.accepted.lock()
    }

    /// From now on nothing is carried on the connections that there are.
    pub fn forget(&self) {
        self.forgotten.send_modify(|times| *times += 1);
    }

    async fn carry(self, mut client: TcpStream, server: SocketAddr) {
        let mut forgotten = self.forgotten.subscribe();
        let Ok(mut server) = TcpStream::connect(server).await else { return };
        tokio::select! {
            _ = copy_bidirectional(&mut client, &mut server) => {}
            _ = forgotten.changed() => self.held.lock().push(client),
        }
    }
}

/// The connections that are idle end in silence, as behind a firewall that forgot them. One reserve has to
/// find that out, and not one each.
pub async fn one_silence_is_unknown(store: Arc<dyn Store>, proxy: &Proxy) {
    let request = |number: usize| {
        let name = SequenceName::new(&format!("s{number}")).unwrap();
        Reserve::new(name, 1).create(Bounds::of::<u64>())
    };
    let all: Vec<_> = (0..40)
        .map(|number| {
            let (store, request) = (store.clone(), request(number));
            tokio::spawn(async move { store.reserve(&request).await })
        })
        .collect();
    for one in all {
        one.await.unwrap().unwrap();
    }
    assert!(proxy.connections() >= 4, "{}", proxy.connections());
    proxy.forget();
    let mut unknown = 0;
    for _ in 0..6 {
        if let Err(error) = store.reserve(&request(0)).await {
            assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
            unknown += 1;
        }
    }
    assert_eq!(unknown, 1);
    let listed = tokio::time::timeout(Duration::from_secs(60), store.list_all()).await;
    assert!(listed.expect("it ends").is_ok());
}
