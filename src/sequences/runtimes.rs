//! The runtimes of the actor and of the store.

use std::io;
use std::sync::mpsc;
use std::thread;

use tokio::runtime::{Builder as RuntimeBuilder, Handle as RuntimeHandle};

use crate::error::{Error, ErrorKind, Result};

/// The runtimes on which the actor and the store's work run.
pub(super) struct Runtimes {
    pub(super) refill: RuntimeHandle,
    pub(super) store: RuntimeHandle,
    /// Keep the actor's own threads running, if it has any.
    pub(super) keepers: Vec<Keeper>,
}

impl Runtimes {
    pub(super) fn within(runtime: RuntimeHandle) -> Self {
        Self { store: runtime.clone(), refill: runtime, keepers: Vec::new() }
    }

    /// Starts two threads, so that a store that blocks its thread does not delay the actor.
    pub(super) fn of_its_own() -> Result<Self> {
        let (refill, first) = runtime_thread("idmill-refill").map_err(no_thread)?;
        let (store, second) = runtime_thread("idmill-store").map_err(no_thread)?;
        Ok(Self { refill, store, keepers: vec![first, second] })
    }
}

/// Keeps the runtime's thread running until it is dropped.
pub(super) type Keeper = tokio::sync::oneshot::Sender<()>;

/// Starts a tokio runtime on a new thread.
fn runtime_thread(name: &str) -> io::Result<(RuntimeHandle, Keeper)> {
    let (keeper, kept) = tokio::sync::oneshot::channel::<()>();
    let (sender, built) = mpsc::channel();
    // The thread builds the runtime. If it were built here and the thread failed to start, dropping it in
    // async code would panic.
    let body = move || match RuntimeBuilder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let _ = sender.send(Ok(runtime.handle().clone()));
            // An error means that the keeper was dropped.
            let _ = runtime.block_on(kept);
        }
        Err(error) => drop(sender.send(Err(error))),
    };
    thread::Builder::new().name(name.to_owned()).spawn(body)?;
    let runtime = built.recv().unwrap_or_else(|_| Err(io::Error::other("it ended immediately")))?;
    Ok((runtime, keeper))
}

fn no_thread(error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "cannot start a thread for refills or the store").because(error)
}
