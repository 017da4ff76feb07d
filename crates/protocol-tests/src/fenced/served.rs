//! Checks that processes can continue.

use idmill_testing::fenced::Kept;

use super::{At, FencedWindow, Process, State, Step};
use crate::explore::Protocol;

impl FencedWindow {
    /// Whether a single process gets an id, or the store has none.
    pub(super) fn is_served(&self, state: &State) -> bool {
        let mut state =
            State { flights: Vec::new(), ahead: Vec::new(), calls: 1, losses: 0, ..state.clone() };
        state.processes.iter_mut().for_each(|process| *process = Process::default());
        // Use the newest master, and let the other server follow it again.
        let Some(server) = state.masters().max_by_key(|server| state.servers[usize::from(*server)].history)
        else {
            return false;
        };
        state.follows(1 - server);
        let before = state.issued;
        state = self.after(&state, Step::Begins { process: 0, server });
        for _ in 0..16 {
            if state.processes[0].at == At::Idle {
                return state.issued != before || u64::from(state.next) > self.max;
            }
            // The process that claimed the window is gone, and the claim expires.
            let kept = &mut state.servers[usize::from(server)].kept;
            let waits = matches!(kept, Some(Kept::Claim { .. }))
                || matches!(kept, Some(Kept::Range { used, len, ahead: Some(_), .. }) if *used >= *len);
            if state.processes[0].at == At::Drawing && waits {
                *kept = None;
            }
            let mut steps = Vec::new();
            Self::steps_of(&state, 0, &mut steps);
            state = self.after(&state, steps[0]);
        }
        false
    }
}
