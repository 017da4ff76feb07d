//! Callers that wait in every possible place: during a close, inside a runtime, on a plain thread; and
//! stores and runtimes that misbehave.

mod blocking;
mod limits;
mod odd;
mod opening;
mod trying;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use idmill::store::Store;
use idmill::{ErrorKind, Result, Sequences, SequencesBuilder};

/// Longer than a test takes on the slowest machine.
const LONG: Duration = Duration::from_secs(60);

fn builder(store: impl Store + 'static) -> SequencesBuilder {
    Sequences::builder(store)
}

/// Runs `work` on its own thread, and fails if it hangs.
fn returns<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    let _ = thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(LONG).expect("it neither hangs nor panics")
}

fn invalid<T: std::fmt::Debug>(outcome: Result<T>, instead: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains(instead), "{error} names no alternative");
}
