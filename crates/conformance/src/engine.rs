//! What the suite wants of an engine.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use idmill::Result;
use idmill::store::StoreFuture;

use super::Daemon;

/// The server behind a store, which the suite starts, kills and pauses.
///
/// [`Daemon`] is one for any server that runs in the foreground. An implementation of your own can stand for
/// a cluster: then `kill` and `pause` take down as much of it as makes the store stop answering.
///
/// Nothing is started before [`start`](Self::start) is called; processes that only
/// work for the suite never do.
pub trait Engine: Send + Sync + fmt::Debug {
    /// What it is called.
    fn name(&self) -> &str;

    /// Its version; asked for once it has been started.
    fn version(&self) -> String;

    /// Where clients reach it, the same over all restarts.
    fn address(&self) -> SocketAddr;

    /// Starts it where it is down, over the data that it had, and returns when it
    /// answers. Does nothing where it runs.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](idmill::ErrorKind::Unsupported) if it cannot be had on this machine: the
    /// suite is skipped then, or fails where the environment says `CI=true`. Any other error fails the suite.
    fn start(&self) -> StoreFuture<'_, Result<()>>;

    /// Ends it as a crash would, also when it is paused; returns when it is gone.
    fn kill(&self);

    /// Stops it where it stands: connections stay open, nothing is answered.
    fn pause(&self);

    /// Lets it go on after a pause.
    fn resume(&self);

    /// Whether what was granted before a [`kill`](Self::kill) is still granted after the next start.
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
