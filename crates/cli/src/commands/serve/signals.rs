//! Signals to the server.

use crate::signalled;

/// Keeps SIGUSR1 and SIGUSR2 from ending the process: its ids in memory would be a gap.
#[cfg(unix)]
pub(super) fn ignore() {
    use tokio::signal::unix::{SignalKind, signal};

    for kind in [SignalKind::user_defined1(), SignalKind::user_defined2()] {
        // The handler stays installed after its receiver is dropped.
        let _ = signal(kind);
    }
}

#[cfg(not(unix))]
pub(super) fn ignore() {}

/// Waits for a signal to stop: SIGTERM, SIGINT or SIGQUIT. The handlers are installed by this call.
#[cfg(unix)]
pub(super) fn stopped() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};

    let (told, quit) = (signalled(), signal(SignalKind::quit()));
    async {
        let Ok(mut quit) = quit else { return drop(told.await) };
        tokio::select! {
            _ = told => {}
            _ = quit.recv() => {}
        }
    }
}

#[cfg(not(unix))]
pub(super) async fn stopped() {
    signalled().await;
}

/// Completes at the second signal since the call.
pub(super) fn stopped_twice() -> impl Future<Output = ()> {
    let first = stopped();
    async {
        first.await;
        stopped().await;
    }
}
