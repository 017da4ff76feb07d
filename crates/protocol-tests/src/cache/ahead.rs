//! The next range, prepared by a separate task before the window is empty. The task may stop forever.

use idmill_shared_cache::cache;
use idmill_shared_cache::cache::{Command, Extend, Layout, LookReply, Standing, Taken};

use super::server::{Reply, Sent, small};
use super::{Bug, CacheWindow, Ids, LAYOUT, SIZE, State, Step, ids};
use crate::explore::Fate;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ahead {
    at: At,
    /// The window's end, and the number of ids left, when it was seen to be low.
    end: u8,
    left: u8,
    server: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum At {
    Reserving,
    Peeking(Ids),
    /// The first value is the connection.
    Putting(u8, Sent, Ids),
}

impl Ahead {
    pub(super) fn new(taken: &Taken, server: u8) -> Self {
        let Standing { end, left, .. } = taken.after;
        Self { at: At::Reserving, end: small(end), left: small(left), server }
    }
}

impl CacheWindow {
    pub(super) fn steps_ahead(state: &State, ahead: usize, steps: &mut Vec<Step>) {
        let what = match state.ahead[ahead].at {
            At::Reserving => None,
            At::Peeking(_) => Some(Sent::Peek),
            At::Putting(_, what, _) => Some(what),
        };
        steps.push(Step::Prepares { ahead, what, fate: Fate::Answered });
        // `ReplyLost` is not modelled: without the reply the task only ends, and it hands out no ids.
        if state.losses > 0 && matches!(what, Some(Sent::Put(..))) {
            steps.push(Step::Prepares { ahead, what, fate: Fate::OnItsWay });
        }
    }

    pub(super) fn prepares(&self, state: &mut State, ahead: usize, what: Option<Sent>, fate: Fate) {
        let mut one = state.ahead.remove(ahead);
        let s = usize::from(one.server);
        let Some(what) = what else {
            let size = SIZE - u64::from(one.left);
            if let Some(range) = self.reserve(state, 1, size) {
                one.at = self.reserved(&one, ids(range));
                state.ahead.push(one);
            }
            return;
        };
        let here = state.servers[s].restarts;
        if let At::Putting(on, ..) = one.at
            && on != here
            && self.bug != Bug::CasAfterReconnect
        {
            // The connection is gone, and the values that were read on it are void.
            return;
        }
        if fate == Fate::OnItsWay {
            state.losses -= 1;
            return state.flights.push((s, what));
        }
        let unconditional = self.bug == Bug::ExtendsUnseen && matches!(what, Sent::Put(..));
        let bug = if unconditional { Bug::UnconditionalInstall } else { self.bug };
        let reply = state.servers[s].does(what, bug);
        if self.bug == Bug::Resent && matches!(what, Sent::Put(..)) {
            state.flights.push((s, what));
        }
        one.at = match (reply, one.at) {
            (Reply::LookReply(seen), At::Peeking(range)) => match self.extends(&one, range, seen) {
                Some(command) => At::Putting(here, Sent::of(command), range),
                None => return,
            },
            (Reply::Done(false), At::Putting(_, _, range)) => At::Peeking(range),
            _ => return,
        };
        state.ahead.push(one);
    }

    fn reserved(&self, one: &Ahead, range: Ids) -> At {
        if self.bug != Bug::ExtendsUnseen {
            return At::Peeking(range);
        }
        let len = range.1 - range.0;
        let number = Layout::encode((one.end + len).into(), (one.left + len).into()).expect("small");
        At::Putting(0, Sent::Put(0, number), range)
    }

    fn extends(&self, one: &Ahead, (start, end): Ids, seen: LookReply) -> Option<Command> {
        let range = idmill::IdRange::new(start.into(), (end - start).into()).expect("small");
        let standing =
            if let LookReply::Number { number, .. } = seen { Layout::decode(number) } else { None };
        let expected = match (self.bug, standing) {
            (Bug::ExtendsAnother, Some(standing)) => standing.end,
            _ => one.end.into(),
        };
        if let (Bug::JoinsAcrossAGap, Some(standing), LookReply::Number { cas, .. }) =
            (self.bug, standing, seen)
            && standing.end == expected
        {
            let number = Layout::encode((end - 1).into(), standing.left + range.len());
            return number.map(|number| Command::Put { cas, number });
        }
        cache::extend(LAYOUT, expected, range, seen).map(|Extend { command, .. }| command)
    }
}
