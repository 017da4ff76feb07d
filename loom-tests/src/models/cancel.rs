//! Checks that the ids of a caller that gives up are accounted for.
//!
//! *Threads*: a caller that asks and gives up at any moment; a caller that asks and waits; the actor.
//! Preemptions are bounded.
//!
//! *Promises*: all other callers are served. Every granted id is drawn, in memory, or counted as a gap.
//!
//! *Bugs it catches*: a reply that is dropped in transit, and not counted by the caller or by the actor.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use loom::thread;

use crate::explore::explore;
use crate::harness::models;
use crate::range::Ranges;
use crate::state::core::Core;
use crate::state::mailbox::{Ending, Mailbox};
use crate::state::want::Want;
use crate::sync::Arc;
use crate::world::{Actor, NEVER, next, sequence};

models![every_id_is_drawn_or_counted, the_others_are_served];

/// Asks, polls at most once, and gives up.
fn asks_and_gives_up(core: &Arc<Core>, mailbox: &Mailbox, look: bool) -> u64 {
    let mut ask = pin!(mailbox.ask(core, Want::Ids(1), NEVER, None).expect("open"));
    if !look {
        return 0;
    }
    match ask.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ids) => ids.as_ref().map_or(0, Ranges::len),
        Poll::Pending => 0,
    }
}

/// Fails unless all granted ids are accounted for after the actor has ended.
fn assert_counted(core: &Core, actor: &Actor, drawn: u64) {
    let stats = &core.stats;
    let gaps = stats.revoked() + stats.abandoned() + stats.dropped();
    assert_eq!(actor.granted(), drawn + gaps, "drawn or counted: {stats:?}");
}

fn every_id_is_drawn_or_counted() {
    for look in [false, true] {
        explore(400, Some(3), move || {
            let (core, mailbox) = sequence(2, 0, 100);
            let actor = Actor::new(&core, &mailbox);
            let actor = thread::spawn(move || actor.run(|| ()));
            let drawn = asks_and_gives_up(&core, &mailbox, look);
            mailbox.close(Ending::Asked);
            assert_counted(&core, &actor.join().unwrap(), drawn);
        });
    }
}

fn the_others_are_served() {
    explore(136_000, Some(3), || {
        let (core, mailbox) = sequence(1, 0, 100);
        let actor = Actor::new(&core, &mailbox);
        let actor = thread::spawn(move || actor.run(|| ()));
        let fickle = {
            let (core, mailbox) = (core.clone(), mailbox.clone());
            thread::spawn(move || asks_and_gives_up(&core, &mailbox, false))
        };
        next(&core, &mailbox).expect("the store has enough");
        let drawn = 1 + fickle.join().unwrap();
        mailbox.close(Ending::Asked);
        assert_counted(&core, &actor.join().unwrap(), drawn);
    });
}
