//! One address that leads to one of several servers, as a name does that is moved to another machine.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// An address that leads to the server it was last told to.
pub(crate) struct Switch {
    pub(crate) address: SocketAddr,
    leads_to: watch::Sender<SocketAddr>,
}

impl Switch {
    pub(crate) async fn to(server: SocketAddr) -> Self {
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
    pub(crate) fn move_to(&self, server: SocketAddr) {
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
