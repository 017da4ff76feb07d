//! Checks that a revocation reaches a reserve that is in flight.
//!
//! *Threads*: a caller that asks, revokes, and asks again; another thread that revokes; the actor, whose
//! reserves are in flight between its turns. Up to 3 preemptions.
//!
//! *Promises*: a call that begins after a revocation gets an id that was requested from the store after it.
//!
//! *Bugs it catches*: a reserve in flight that survives a revocation; an actor that handles only the first
//! revocation; a revocation that is reported before it has taken effect, or by a message that is not sent
//! yet.

use loom::thread;

use crate::explore::explore;
use crate::harness::models;
use crate::refill::driver::Driver;
use crate::state::core::Core;
use crate::state::mailbox::{Ending, Mailbox};
use crate::state::want::Want;
use crate::store::Grant;
use crate::sync::Arc;
use crate::world::{Actor, NEVER, NOW, asked, block_on, identity, next, range, sequence};

models![what_was_sent_before_it_is_void, two_revocations_are_both_seen, two_revokers_are_both_seen];

/// Revokes, and returns the next id, and the generation after the revocation.
fn revoke_and_draw(core: &Arc<Core>, mailbox: &Mailbox) -> (u64, u64) {
    core.revoke(mailbox);
    let generation = core.stock.generation();
    (next(core, mailbox).expect("the store has enough"), generation)
}

fn assert_requested_after(actor: &Actor, (id, generation): (u64, u64)) {
    let under = actor.requested_under(id);
    assert!(under >= generation, "{id} was requested under {under}, and drawn after {generation}");
}

fn what_was_sent_before_it_is_void() {
    explore(2_400, Some(3), || {
        let (core, mailbox) = sequence(2, 0, 100);
        let actor = Actor::new(&core, &mailbox);
        let actor = thread::spawn(move || actor.run(|| ()));
        let waiting = mailbox.ask(&core, Want::Ids(1), NEVER, None).expect("open");
        let drawn = revoke_and_draw(&core, &mailbox);
        mailbox.close(Ending::Asked);
        assert_requested_after(&actor.join().unwrap(), drawn);
        drop(waiting);
    });
}

/// The second revocation follows a reserve that was sent after the first.
fn two_revocations_are_both_seen() {
    explore(4_000, Some(3), || {
        let (core, mailbox) = sequence(2, 0, 100);
        let actor = Actor::new(&core, &mailbox);
        let actor = thread::spawn(move || actor.run(|| ()));
        core.revoke(&mailbox);
        let waiting = mailbox.ask(&core, Want::Ids(1), NEVER, None).expect("open");
        let drawn = revoke_and_draw(&core, &mailbox);
        mailbox.close(Ending::Asked);
        assert_requested_after(&actor.join().unwrap(), drawn);
        drop(waiting);
    });
}

/// Two threads revoke while a reserve of two ids is in flight, and one of them then asks for an id. Both
/// revocations are reported by one message, which must precede the request.
fn two_revokers_are_both_seen() {
    explore(1_200, Some(3), || {
        let (core, mailbox) = sequence(2, 0, 100);
        let mut driver = Driver::new(core.clone());
        let waiting = asked(&core, &mailbox, |request| driver.request(request, &mailbox, NOW));
        let other = {
            let (core, mailbox) = (core.clone(), mailbox.clone());
            thread::spawn(move || core.revoke(&mailbox))
        };
        let caller = {
            let (core, mailbox) = (core.clone(), mailbox.clone());
            thread::spawn(move || {
                core.revoke(&mailbox);
                mailbox.ask(&core, Want::Ids(1), NEVER, None).expect("open")
            })
        };
        let mut answer = |first| {
            for message in mailbox.receive(0).messages {
                let _ = driver.message(message, &mailbox, NOW);
            }
            let grant = Grant::new(range(first, 2), identity(0), core.settings.bounds);
            let _ = driver.answered(Ok(grant), NOW);
        };
        answer(1);
        other.join().unwrap();
        let reply = caller.join().unwrap();
        answer(3);
        answer(5);
        let id = block_on(reply).expect("the store has enough").iter().next();
        assert!(id > Some(2), "{id:?} was requested before the revocation");
        drop(waiting);
    });
}
