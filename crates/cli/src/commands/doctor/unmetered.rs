//! `--metrics` in a build without the feature `metrics`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use idmill_doctor::Examined;

use crate::error::{CliError, Outcome};

/// A type that is never constructed.
pub(super) struct Metrics(Infallible);

impl Metrics {
    pub(super) fn serve(_address: SocketAddr, _pause: Duration) -> Outcome<Self> {
        let error = CliError::usage("this `idmill` was built without metrics");
        Err(error.hint("build it with `--features metrics` or `--features full`"))
    }

    pub(super) fn looked(&mut self, _seen: &Examined) {
        match self.0 {}
    }
}
