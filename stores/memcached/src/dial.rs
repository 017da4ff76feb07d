//! How a window reaches its server: by TCP, or by what stands in for it in a simulation.

use std::{fmt, io};

use idmill::store::StoreFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// What carries bytes to a server and back.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// How a server is reached.
pub trait Dial: fmt::Debug + Send + Sync + 'static {
    /// A new connection.
    ///
    /// # Errors
    /// There is none to be had.
    fn dial<'a>(&'a self, address: &'a str) -> StoreFuture<'a, io::Result<Box<dyn Stream>>>;
}

#[derive(Debug)]
pub(super) struct Tcp;

impl Dial for Tcp {
    fn dial<'a>(&'a self, address: &'a str) -> StoreFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            // A draw is one small packet each way: waiting for more to send would be all of its time.
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}
