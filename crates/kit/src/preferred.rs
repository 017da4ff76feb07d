//! The server that the next call asks first.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The servers of one store, by index, and the server that calls prefer. No data depends on the preferred
/// server, so its accesses are relaxed: a call with a stale value only asks another server first.
#[derive(Debug)]
pub struct Preferred {
    first: AtomicUsize,
    servers: usize,
}

impl Preferred {
    /// Prefers the first of this number of servers.
    pub fn new(servers: usize) -> Self {
        Self { first: AtomicUsize::new(0), servers }
    }

    /// Returns all servers in the order in which a call tries them.
    pub fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, servers) = (self.first.load(Ordering::Relaxed), self.servers);
        (first..first + servers).map(move |server| server % servers)
    }

    /// Prefers this server from now on.
    pub fn prefer(&self, server: usize) {
        self.first.store(server, Ordering::Relaxed);
    }

    /// Prefers the next server after this one, unless another call has already switched.
    pub fn leave(&self, server: usize) {
        let next = (server + 1) % self.servers;
        let _ = self.first.compare_exchange(server, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_after_a_failure_begins_with_the_next_server() {
        let preferred = Preferred::new(3);
        let order = || preferred.order().collect::<Vec<_>>();
        assert_eq!(order(), [0, 1, 2]);
        preferred.leave(0);
        preferred.leave(0);
        assert_eq!(order(), [1, 2, 0], "the second call that left server 0 changed nothing");
        preferred.prefer(2);
        assert_eq!(order(), [2, 0, 1]);
        preferred.leave(2);
        assert_eq!(order(), [0, 1, 2]);
        preferred.leave(0);
        assert_eq!(order(), [1, 2, 0], "server 0 was the preferred one again");
    }
}
