//! Where the refills run.

use std::io;
use std::sync::mpsc;
use std::thread;

use tokio::runtime::{Builder as RuntimeBuilder, Handle as RuntimeHandle};

use crate::error::{Error, ErrorKind, Result};

/// Where the actor and the store's work run.
pub(super) struct Home {
    pub(super) refill: RuntimeHandle,
    pub(super) store: RuntimeHandle,
    /// Keeps the actor's own threads running, if it has any.
    pub(super) keepers: Vec<Keeper>,
}

impl Home {
    pub(super) fn within(runtime: RuntimeHandle) -> Self {
        Self { store: runtime.clone(), refill: runtime, keepers: Vec::new() }
    }

    /// Two threads, so that a store that blocks its own does not hold the actor up.
    pub(super) fn of_its_own() -> Result<Self> {
        let (refill, first) = runtime_thread("idmill-refill").map_err(no_thread)?;
        let (store, second) = runtime_thread("idmill-store").map_err(no_thread)?;
        Ok(Self { refill, store, keepers: vec![first, second] })
    }
}

/// Keeps the runtime's thread running until it is dropped.
pub(super) type Keeper = tokio::sync::oneshot::Sender<()>;

/// A tokio runtime on a thread of its own.
fn runtime_thread(name: &str) -> io::Result<(RuntimeHandle, Keeper)> {
    let (keeper, kept) = tokio::sync::oneshot::channel::<()>();
    let (sender, built) = mpsc::channel();
    // Built by its own thread: had it to be dropped here because there is no thread, async code would panic.
    let body = move || match RuntimeBuilder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let _ = sender.send(Ok(runtime.handle().clone()));
            // An error is the keeper's end, which is what this waits for.
            let _ = runtime.block_on(kept);
        }
        Err(error) => drop(sender.send(Err(error))),
    };
    thread::Builder::new().name(name.to_owned()).spawn(body)?;
    let runtime = built.recv().unwrap_or_else(|_| Err(io::Error::other("it ended at once")))?;
    Ok((runtime, keeper))
}

fn no_thread(error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "no thread for the refill actor").because(error)
}
