//! The service manager: what it hands over, and what it is told.

use std::time::Duration;

use idmill_server::Figures;
use sd_notify::NotifyState;
use tokio::time::interval;

use super::Handed;
use crate::failure::{Failure, Outcome};

/// How often it is told how many there are.
const TELL: Duration = Duration::from_secs(5);

/// By their names. To be called once: it takes them.
pub(super) fn handed() -> Outcome<Handed> {
    let all = sd_listen_fds::get().map_err(|error| {
        Failure::usage(format!("what the service manager handed over cannot be read: {error}"))
    })?;
    let mut handed = Handed::default();
    for (name, listener) in all {
        let name = name.unwrap_or_default();
        let place = match name.as_str() {
            "resp" => &mut handed.resp,
            "http" => &mut handed.http,
            _ => return Err(unknown(&format!("one named {name:?}"))),
        };
        if place.replace(listener.into()).is_some() {
            return Err(unknown(&format!("two named {name:?}")));
        }
    }
    Ok(handed)
}

fn unknown(what: &str) -> Failure {
    let message = format!(
        "of the listeners that the service manager hands over there is {what}; one may be `resp`, one `http`"
    );
    Failure::usage(message).hint("name each with FileDescriptorName= in a socket unit of its own")
}

/// It serves, and has read what it was told to read again.
pub(super) fn ready(figures: &Figures) {
    tell(&[NotifyState::Ready, NotifyState::Status(&status(figures))]);
}

pub(super) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("ending: answers what it has read")]);
}

/// The time tells this reading from the one before.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the service manager was not told"),
    }
}

/// Says how much it does, and that it is alive.
pub(super) async fn keep(figures: &Figures) {
    let watched = sd_notify::watchdog_enabled();
    // Half of the time, as the manager asks for.
    let mut ticks = interval(watched.map_or(TELL, |time| TELL.min(time / 2)).max(Duration::from_millis(1)));
    let mut told = String::new();
    loop {
        ticks.tick().await;
        let now = status(figures);
        if now != told {
            tell(&[NotifyState::Status(&now)]);
            told = now;
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

/// Does nothing where there is no manager.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager was not told");
    }
}
