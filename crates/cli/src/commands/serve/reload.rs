//! Reloads files while the server runs.

use std::time::Duration;

use idmill_server::Figures;
use tokio::time::interval;

use super::settings::Settings;
use super::{systemd, tokens};
use crate::error::Outcome;

/// Interval of checks for changed files.
const LOOK: Duration = Duration::from_secs(5);

/// Reloads tokens and certificates when their files change, and on SIGHUP. An unreadable file changes
/// nothing.
pub(super) async fn keep(settings: &Settings, figures: &Figures, mut hangups: Hangups) {
    let (mut ticks, mut files) = (interval(LOOK), settings.files.clone());
    loop {
        let asked = tokio::select! {
            _ = ticks.tick() => false,
            () = hangups.again() => true,
        };
        if asked {
            systemd::reloading();
        }
        if files.have_changed() || asked {
            report("tokens", read_tokens(settings));
            report("certificates", read_certificates(settings));
        }
        if asked {
            systemd::ready(figures);
        }
    }
}

fn read_tokens(settings: &Settings) -> Outcome<Option<usize>> {
    let Some(file) = &settings.tokens else { return Ok(None) };
    let tokens = tokens::read(file)?;
    let count = tokens.len();
    settings.access.replace(tokens);
    Ok(Some(count))
}

fn read_certificates(settings: &Settings) -> Outcome<Option<usize>> {
    let Some(certificate) = &settings.certificate else { return Ok(None) };
    certificate.read_again().map(|()| Some(1))
}

fn report(what: &str, outcome: Outcome<Option<usize>>) {
    match outcome {
        Ok(None) => {}
        Ok(Some(0)) => {
            tracing::warn!("the {what} were reloaded, but the file is empty: all clients are rejected");
        }
        Ok(Some(count)) => tracing::info!(count, "the {what} were reloaded"),
        Err(error) => tracing::error!("the {what} were not reloaded: {}", error.message()),
    }
}

/// Receives SIGHUP, which would end a process without a handler.
pub(super) struct Hangups {
    #[cfg(unix)]
    hangup: Option<tokio::signal::unix::Signal>,
}

impl Hangups {
    #[cfg(unix)]
    pub(super) fn new() -> Self {
        Self { hangup: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok() }
    }

    #[cfg(not(unix))]
    pub(super) fn new() -> Self {
        Self {}
    }

    async fn again(&mut self) {
        #[cfg(unix)]
        if let Some(hangup) = &mut self.hangup {
            hangup.recv().await;
            return;
        }
        std::future::pending::<()>().await;
    }
}
