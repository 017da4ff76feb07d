//! Systems without a service manager.

use idmill_server::Figures;

use super::Handed;
use crate::error::Outcome;

#[allow(clippy::unnecessary_wraps)] // as in `systemd.rs`
pub(super) fn handed() -> Outcome<Handed> {
    Ok(Handed::default())
}

pub(super) fn ready(_: &Figures) {}

pub(super) fn stopping() {}

pub(super) fn reloading() {}

pub(super) async fn keep(_: &Figures) {
    std::future::pending().await
}
