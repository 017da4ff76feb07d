//! Where clients connect.

use std::io;
use std::net::{SocketAddr, TcpListener as Std};

use idmill::{Error, ErrorKind, Operation, Result};
use tokio::net::TcpListener;

#[derive(Debug)]
pub(crate) enum Spot {
    /// To be listened at.
    At(SocketAddr),
    /// Somebody listens there already, and hands it over.
    Open(Std),
}

impl Spot {
    pub(crate) async fn listen(self) -> Result<TcpListener> {
        match self {
            Self::At(address) => TcpListener::bind(address).await.map_err(|error| {
                let what = "choose another address or port, or end what listens there";
                refused(format!("{address} cannot be listened at; {what}"), error)
            }),
            Self::Open(listener) => taken_over(listener).map_err(|error| {
                refused(
                    "the listener that was handed over cannot be used; hand over one of TCP".to_owned(),
                    error,
                )
            }),
        }
    }
}

fn taken_over(listener: Std) -> io::Result<TcpListener> {
    // What is no socket of the internet has no such address.
    listener.local_addr()?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn refused(message: String, error: io::Error) -> Error {
    Error::new(ErrorKind::InvalidInput, message).because(error).during(Operation::Configure)
}
