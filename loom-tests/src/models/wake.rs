//! Checks that every message wakes the actor, and that every waiting caller gets a reply, in order.
//!
//! *Threads*: one or two callers; the actor, with the real mailbox, driver and engine. Preemptions are
//! bounded, because the whole protocol runs. A lost wake-up leaves every thread asleep, which loom reports as
//! a deadlock.
//!
//! *Bugs it catches*: waking before the message or signal is visible; serving the last caller first; an
//! actor that calls the store without checking memory again.

use loom::sync::Notify;
use loom::thread;

use crate::explore::explore;
use crate::harness::models;
use crate::state::mailbox::Ending;
use crate::state::want::Want;
use crate::sync::Arc;
use crate::world::{Actor, NEVER, assert_each_once, block_on, drain, next, sequence};

models![callers_share_a_refill, low_water_alone_wakes, first_come_first_served];

/// Two callers, and a refill of two ids. One refill is enough, whether the second caller queues before,
/// during or after it.
fn callers_share_a_refill() {
    explore(100_000, Some(3), || {
        let (core, mailbox) = sequence(2, 0, 100);
        let actor = Actor::new(&core, &mailbox);
        let actor = thread::spawn(move || actor.run(|| ()));
        let caller = {
            let (core, mailbox) = (core.clone(), mailbox.clone());
            thread::spawn(move || next(&core, &mailbox).expect("the store has enough"))
        };
        let ids = vec![next(&core, &mailbox).expect("the store has enough"), caller.join().unwrap()];
        mailbox.close(Ending::Asked);
        let actor = actor.join().unwrap();
        assert_each_once(ids, 1, 2);
        assert_eq!(actor.reserves, 1, "the second caller reserved instead of drawing from memory");
    });
}

/// A caller crosses the watermark and does not wait: only the signal makes the actor refill.
fn low_water_alone_wakes() {
    explore(6_000, Some(3), || {
        let (core, mailbox) = sequence(2, 1, 100);
        let refilled = Arc::new(Notify::new());
        let actor = {
            let (actor, refilled) = (Actor::new(&core, &mailbox), refilled.clone());
            thread::spawn(move || actor.run(|| refilled.notify()))
        };
        let mut ids = vec![next(&core, &mailbox).expect("the store has enough")];
        refilled.wait();
        // This draw crosses the watermark and signals, so the actor refills.
        ids.push(next(&core, &mailbox).expect("the store has enough"));
        refilled.wait();
        mailbox.close(Ending::Asked);
        actor.join().unwrap();
        assert_each_once(ids, 1, 2);
    });
}

fn first_come_first_served() {
    explore(2_200, Some(3), || {
        let (core, mailbox) = sequence(1, 0, 100);
        let actor = Actor::new(&core, &mailbox);
        let actor = thread::spawn(move || actor.run(|| ()));
        let asks = [(); 3].map(|()| mailbox.ask(&core, Want::Ids(1), NEVER, None).expect("open"));
        let ids = asks.map(|ask| block_on(ask).expect("the store has enough").iter().collect::<Vec<_>>());
        assert_eq!(ids, [[1], [2], [3]]);
        mailbox.close(Ending::Asked);
        let actor = actor.join().unwrap();
        assert_eq!((actor.granted(), actor.reserves <= 3, drain(&core.stock).len()), (3, true, 0));
    });
}
