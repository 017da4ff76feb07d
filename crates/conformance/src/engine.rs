//! The interface of an engine.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use idmill::Result;
use idmill::store::StoreFuture;

use super::Daemon;

/// The server behind a store, which the suite starts, kills and pauses.
///
/// [`Daemon`] implements this trait for any server that runs in the foreground. Your own implementation can
/// represent a cluster: then `kill` and `pause` must stop enough nodes that the store does not respond.
///
/// An implementation must start nothing before [`start`](Self::start): each worker process of the suite also
/// creates an engine, but never starts it.
pub trait Engine: Send + Sync + fmt::Debug {
    /// Returns the name of the engine.
    fn name(&self) -> &str;

    /// Returns the version of the engine. Called after the engine has been started.
    fn version(&self) -> String;

    /// Returns the address for clients, which stays the same across restarts.
    fn address(&self) -> SocketAddr;

    /// Starts the engine if it is down, over its existing data, and returns when it responds. Does nothing if
    /// the engine is running.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](idmill::ErrorKind::Unsupported) if the engine is not available on this
    /// machine. The suite is then skipped, or fails if the environment has `CI=true`. Any other error fails
    /// the suite.
    fn start(&self) -> StoreFuture<'_, Result<()>>;

    /// Ends the engine like a crash, even if it is paused. Returns when the engine is gone.
    fn kill(&self);

    /// Pauses the engine: connections stay open, and nothing is answered.
    fn pause(&self);

    /// Resumes the engine after a pause.
    fn resume(&self);

    /// Returns whether ids granted before a [`kill`](Self::kill) are still recorded after the next start.
    fn survives_kill(&self) -> bool {
        true
    }
}

impl Engine for Daemon {
    fn name(&self) -> &str {
        self.name()
    }

    fn version(&self) -> String {
        self.version().to_owned()
    }

    fn address(&self) -> SocketAddr {
        self.address()
    }

    fn start(&self) -> StoreFuture<'_, Result<()>> {
        Box::pin(self.start())
    }

    fn kill(&self) {
        self.kill();
    }

    fn pause(&self) {
        self.pause();
    }

    fn resume(&self) {
        self.resume();
    }

    fn survives_kill(&self) -> bool {
        self.survives()
    }
}

impl<E: Engine + ?Sized> Engine for Arc<E> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn version(&self) -> String {
        (**self).version()
    }

    fn address(&self) -> SocketAddr {
        (**self).address()
    }

    fn start(&self) -> StoreFuture<'_, Result<()>> {
        (**self).start()
    }

    fn kill(&self) {
        (**self).kill();
    }

    fn pause(&self) {
        (**self).pause();
    }

    fn resume(&self) {
        (**self).resume();
    }

    fn survives_kill(&self) -> bool {
        (**self).survives_kill()
    }
}
