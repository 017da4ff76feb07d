//! The service manager: listeners from it, and notifications to it.

use std::time::Duration;

use idmill_server::Figures;
use sd_notify::NotifyState;
use tokio::time::interval;

use super::Handed;
use crate::error::{CliError, Outcome};

/// Interval of status updates.
const TELL: Duration = Duration::from_secs(5);

/// Takes the listeners by name. Call this only once.
pub(super) fn handed() -> Outcome<Handed> {
    let all = sd_listen_fds::get().map_err(|error| {
        CliError::usage(format!("cannot take the listeners from the service manager: {error}"))
    })?;
    let mut handed = Handed::default();
    for (name, listener) in all {
        let name = name.unwrap_or_default();
        let place = match name.as_str() {
            "resp" => &mut handed.resp,
            "http" => &mut handed.http,
            _ => return Err(unknown(&format!("a listener named {name:?}"))),
        };
        if place.replace(listener.into()).is_some() {
            return Err(unknown(&format!("two listeners named {name:?}")));
        }
    }
    Ok(handed)
}

fn unknown(what: &str) -> CliError {
    let message = format!("the service manager passed {what}; it may pass one `resp` and one `http`");
    CliError::usage(message)
        .hint("use a separate socket unit for each listener, and set `FileDescriptorName=`")
}

/// Reports that the server is ready, also after a reload.
pub(super) fn ready(figures: &Figures) {
    tell(&[NotifyState::Ready, NotifyState::Status(&status(figures))]);
}

pub(super) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping: answering pending requests")]);
}

/// Reports that a reload has begun. The timestamp distinguishes this reload from the previous one.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the service manager could not be notified"),
    }
}

/// Reports the status, and pings the watchdog.
pub(super) async fn keep(figures: &Figures) {
    let watched = sd_notify::watchdog_enabled();
    // Use half of the watchdog timeout, as systemd recommends.
    let mut ticks = interval(watched.map_or(TELL, |time| TELL.min(time / 2)).max(Duration::from_millis(1)));
    let mut reported = String::new();
    loop {
        ticks.tick().await;
        let now = status(figures);
        if now != reported {
            tell(&[NotifyState::Status(&now)]);
            reported = now;
        }
        if watched.is_some() {
            tell(&[NotifyState::Watchdog]);
        }
    }
}

fn status(figures: &Figures) -> String {
    let counts = format!("{} sequences, {} clients", figures.sequences(), figures.clients());
    match figures.fault() {
        None => format!("serving {counts}"),
        Some(fault) => format!("not ready: {fault}; {counts}"),
    }
}

/// Does nothing without a service manager.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager could not be notified");
    }
}
