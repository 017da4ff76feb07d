//! The next range, prepared by a separate task before the window is empty. The task may stop forever.

use super::{FencedWindow, Ids, NEXT, Role, Sent, State, other};
use crate::explore::Fate;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ahead {
    pub(super) token: u8,
    pub(super) server: u8,
    pub(super) left: u8,
    pub(super) range: Option<Ids>,
}

impl FencedWindow {
    pub(super) fn prepares(&self, state: &mut State, ahead: usize, fate: Fate) {
        let mut one = state.ahead.remove(ahead);
        let Some(block) = one.range else {
            one.range = self.reserve(state, NEXT);
            state.ahead.extend(one.range.map(|_| one));
            return;
        };
        let what = Sent::Prepare(one.token, block, one.left);
        if fate == Fate::OnItsWay {
            state.losses -= 1;
            return state.flights.push((one.server, what));
        }
        // The task hands out no ids, so the reply is ignored.
        self.does(&mut state.servers[usize::from(one.server)], what);
        if self.waits && state.servers[other(one.server)].role == Role::Follows {
            let kept = state.servers[usize::from(one.server)].kept.clone();
            state.servers[other(one.server)].kept = kept;
        }
    }
}
