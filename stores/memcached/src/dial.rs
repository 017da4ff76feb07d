//! Connects a window to its server, over TCP or in a simulation.

use std::{fmt, io};

use idmill::store::StoreFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A byte stream to a server.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Opens connections to a server.
pub trait Dial: fmt::Debug + Send + Sync + 'static {
    /// Opens a connection.
    ///
    /// # Errors
    /// Returns the I/O error if the connection fails.
    fn dial<'a>(&'a self, address: &'a str) -> StoreFuture<'a, io::Result<Box<dyn Stream>>>;
}

#[derive(Debug)]
pub(super) struct Tcp;

impl Dial for Tcp {
    fn dial<'a>(&'a self, address: &'a str) -> StoreFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            // A draw is one small packet in each direction, which Nagle's algorithm would delay.
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}
