//! What a server says of itself while it runs.

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use crate::core::Core;

/// How much a server does: from [`Server::figures`](crate::Server::figures). It is of use for as long as the
/// server runs.
#[derive(Clone, Debug)]
pub struct Figures {
    pub(crate) core: Arc<Core>,
    pub(crate) clients: TaskTracker,
}

impl Figures {
    /// How many sequences are open.
    pub fn sequences(&self) -> usize {
        self.core.draws.count()
    }

    /// How many clients are connected, of both protocols together.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Why clients should not be sent here, as `/readyz` says; `None` for a server that is ready.
    pub fn fault(&self) -> Option<&'static str> {
        self.core.readiness.standing_now(self.core.draws.sequences()).fault
    }
}
