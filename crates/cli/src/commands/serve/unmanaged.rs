//! Where there is no service manager that hands listeners over.

use std::net::{SocketAddr, TcpListener};

use idmill_server::Figures;

use crate::failure::Outcome;

#[derive(Debug, Default)]
pub(super) struct Handed {
    pub(super) resp: Option<TcpListener>,
    pub(super) http: Option<TcpListener>,
}

impl Handed {
    #[allow(clippy::unnecessary_wraps)] // as where there is one
    pub(super) fn address(_: Option<&TcpListener>) -> Outcome<Option<SocketAddr>> {
        Ok(None)
    }
}

#[allow(clippy::unnecessary_wraps)] // as where there is one
pub(super) fn handed() -> Outcome<Handed> {
    Ok(Handed::default())
}

pub(super) fn ready(_: &Figures) {}

pub(super) fn stopping() {}

pub(super) fn reloading() {}

pub(super) async fn keep(_: &Figures) {
    std::future::pending().await
}
