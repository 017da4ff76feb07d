//! Events that happen to the servers.

use super::{Role, State, other};

impl State {
    pub(super) fn promotes(&mut self, server: u8, split: bool) {
        self.failovers -= 1;
        self.names.1 += 1;
        let old = &mut self.servers[other(server)];
        if old.role == Role::Master && !split {
            old.role = Role::Deposed;
        }
        let new = &mut self.servers[usize::from(server)];
        new.role = Role::Master;
        new.history = self.names.1;
    }

    pub(super) fn follows(&mut self, server: u8) {
        let master = self.servers[other(server)].clone();
        let follower = &mut self.servers[usize::from(server)];
        follower.role = Role::Follows;
        follower.history = master.history;
        follower.kept = master.kept;
    }

    pub(super) fn restarts(&mut self, server: u8) {
        self.restarts -= 1;
        self.names.0 += 1;
        let started = &mut self.servers[usize::from(server)];
        started.run = self.names.0;
        started.kept = started.saved.clone();
        if started.role == Role::Master {
            self.names.1 += 1;
            started.history = self.names.1;
        }
        // Commands in flight are lost with their connection.
        self.flights.retain(|(to, _)| *to != server);
    }
}
