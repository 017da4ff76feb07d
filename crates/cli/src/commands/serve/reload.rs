//! Files that are read again while the server runs.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::time::Duration;

use idmill_server::Figures;
use tokio::time::interval;

use super::settings::Settings;
use super::{systemd, tokens};
use crate::failure::Outcome;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Files and hashes of their contents. A new file can have the time and the size of the old one.
#[derive(Clone, Debug)]
pub(super) struct Files {
    paths: Vec<PathBuf>,
    hasher: RandomState,
    /// `None` for a file that cannot be read.
    seen: Vec<Option<u64>>,
}

impl Files {
    pub(super) fn of(paths: impl Iterator<Item = PathBuf>) -> Self {
        let mut files = Self { paths: paths.collect(), hasher: RandomState::new(), seen: Vec::new() };
        files.have_changed();
        files
    }

    /// Whether a content differs from that of the last call.
    fn have_changed(&mut self) -> bool {
        let hash = |path| fs::read(path).ok().map(|content| self.hasher.hash_one(content));
        let now: Vec<_> = self.paths.iter().map(hash).collect();
        let changed = now != self.seen;
        self.seen = now;
        changed
    }
}

/// Reads tokens and certificates again when their files have changed, and when the process is told to. What
/// cannot be read changes nothing.
pub(super) async fn keep(settings: &Settings, figures: &Figures, mut told: Told) {
    let (mut ticks, mut files) = (interval(LOOK), settings.files.clone());
    loop {
        let asked = tokio::select! {
            _ = ticks.tick() => false,
            () = told.again() => true,
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
        Ok(Some(0)) => tracing::warn!("the {what} were read again, and there are none: nobody is served"),
        Ok(Some(count)) => tracing::info!(count, "the {what} were read again"),
        Err(failure) => tracing::error!("the {what} stay as they were: {}", failure.message()),
    }
}

/// Receives SIGHUP, which ends a process without a handler.
pub(super) struct Told {
    #[cfg(unix)]
    hangup: Option<tokio::signal::unix::Signal>,
}

impl Told {
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
