//! Checks that a revocation takes effect immediately for every holder of ids.
//!
//! *Threads*: a thread that revokes; a thread that draws from a segment it has long held, from a block, or
//! for the first time; a publisher. Preemptions are unbounded.
//!
//! *Promises*: no draw that begins after `revoke` returned yields an id from before it. Every id is drawn
//! or counted.
//!
//! *Bugs it catches*: revoking without sealing; increasing the generation before everything else; a block
//! that takes ids before it reads the generation; publishing a range that was reserved before the
//! revocation.

use loom::thread;

use crate::error::ErrorKind;
use crate::explore::{UNBOUNDED, explore};
use crate::harness::models;
use crate::refill::driver::Driver;
use crate::state::block::Block;
use crate::state::mailbox::Mailbox;
use crate::state::want::Want;
use crate::store::Grant;
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::world::{
    NEVER, NOW, asked, assert_each_once, drain, draw, draw_anew, identity, range, sequence, stock,
};

models![
    held_segments_are_sealed,
    who_sees_the_generation_sees_the_seals,
    what_was_reserved_before_is_not_published,
    blocks_are_void,
    a_block_renewed_meanwhile_is_void,
    a_new_identity_does_not_undo_it,
    the_end_is_heard_of_after_it,
];

fn held_segments_are_sealed() {
    explore(800, UNBOUNDED, || {
        let stock = stock(&[2, 1]);
        let returned = Arc::new(AtomicBool::new(false));
        let mut held = stock.current();
        let caller = {
            let (stock, returned) = (stock.clone(), returned.clone());
            thread::spawn(move || -> Vec<u64> {
                let draw_one = || {
                    // Acquire: if this is true, the draw begins after the revocation.
                    let after = returned.load(Ordering::Acquire);
                    let drawn = draw(&stock, &mut held);
                    assert!(!after || drawn == Err(ErrorKind::Empty), "{drawn:?} after revocation");
                    drawn.ok()
                };
                std::iter::repeat_with(draw_one).take(2).flatten().collect()
            })
        };
        let lost = stock.revoke(ErrorKind::Empty, |_| {});
        returned.store(true, Ordering::Release);
        assert_eq!(draw_anew(&stock), Err(ErrorKind::Empty));
        let drawn = caller.join().unwrap();
        assert_each_once(drawn.clone(), 1, drawn.len() as u64);
        // Check the ids and not only their number: lost ids may be given back and drawn by others.
        assert_each_once(drawn.into_iter().chain(lost).collect(), 1, 3);
    });
}

/// A thread that reads the new generation must also see the seals. Otherwise it could take revoked ids under
/// the new generation.
fn who_sees_the_generation_sees_the_seals() {
    explore(5, UNBOUNDED, || {
        let stock = stock(&[2]);
        let held = stock.current();
        let caller = {
            let stock = stock.clone();
            thread::spawn(move || (stock.generation(), held.remaining()))
        };
        let _ = stock.revoke(ErrorKind::Empty, |_| {});
        let (generation, left) = caller.join().unwrap();
        assert!(generation == 0 || left == 0, "{left} ids left in the new generation");
    });
}

/// The actor reads the generation, reserves and publishes, while another thread revokes.
fn what_was_reserved_before_is_not_published() {
    explore(150, UNBOUNDED, || {
        let stock = stock(&[1]);
        let actor = {
            let stock = stock.clone();
            thread::spawn(move || {
                let generation = stock.generation();
                (generation, stock.publish(range(2, 2), 0, generation, |_| ()))
            })
        };
        let lost = stock.revoke(ErrorKind::Empty, |_| {}).len();
        let drawn = draw_anew(&stock).ok();
        let (generation, published) = actor.join().unwrap();
        let left = drain(&stock).len() as u64 + u64::from(drawn.is_some());
        if generation == 0 {
            assert_eq!(drawn, None, "reserved before the revocation");
            assert_eq!((lost, left), (if published { 3 } else { 1 }, 0));
        } else {
            assert_eq!((published, lost, left), (true, 1, 2));
        }
    });
}

fn blocks_are_void() {
    explore(20, UNBOUNDED, || {
        let (core, mailbox) = sequence(4, 0, 100);
        assert!(core.stock.publish(range(1, 4), 0, 0, |_| ()));
        let mut block = Block::EMPTY;
        let mut segment = core.stock.current();
        let first = block
            .renew(&core.stock, &core.stats, || core.take_some(3, &mut segment, &mailbox))
            .expect("there are enough");
        let returned = Arc::new(AtomicBool::new(false));
        let lessee = {
            let (core, returned) = (core.clone(), returned.clone());
            thread::spawn(move || {
                let after = returned.load(Ordering::Acquire);
                let drawn = block.draw(&core.stock);
                assert!(!after || drawn.is_none(), "{drawn:?} after revocation");
                block.abandon(&core.stats);
                drawn
            })
        };
        let lost = core.stock.revoke(ErrorKind::Empty, |_| {}).len();
        returned.store(true, Ordering::Release);
        let second = lessee.join().unwrap();
        assert_eq!((first, second.unwrap_or(2), lost), (1, 2, 1));
        assert_eq!(core.stats.dropped(), 2 - u64::from(second.is_some()));
    });
}

/// A thread renews a block during a revocation.
fn a_block_renewed_meanwhile_is_void() {
    explore(350, UNBOUNDED, || {
        let (core, mailbox) = sequence(4, 0, 100);
        assert!(core.stock.publish(range(1, 4), 0, 0, |_| ()));
        let returned = Arc::new(AtomicBool::new(false));
        let lessee = {
            let (core, mailbox, returned) = (core.clone(), mailbox.clone(), returned.clone());
            // A block keeps the segment that it last took from.
            let mut held = core.stock.current();
            thread::spawn(move || {
                let mut block = Block::EMPTY;
                // As in `Handle::draw` and `Handle::draw_slow`.
                let draw_one = || {
                    let after = returned.load(Ordering::Acquire);
                    let drawn = block.draw(&core.stock).or_else(|| {
                        block.renew(&core.stock, &core.stats, || core.take_some(2, &mut held, &mailbox))
                    });
                    assert!(!after || drawn.is_none(), "{drawn:?} after revocation");
                    drawn
                };
                let drawn = std::iter::repeat_with(draw_one).take(2).flatten().count();
                block.abandon(&core.stats);
                drawn as u64
            })
        };
        let lost = core.stock.revoke(ErrorKind::Empty, |_| {}).len();
        returned.store(true, Ordering::Release);
        let drawn = lessee.join().unwrap();
        assert_eq!(drawn + lost + core.stats.dropped(), 4, "drawn or counted");
    });
}

/// The store grants under another identity, so the actor revokes the ids in memory. At the same time a
/// caller revokes for another reason.
fn a_new_identity_does_not_undo_it() {
    explore(150, UNBOUNDED, || {
        let (core, mailbox) = sequence(2, 2, 100);
        let mut driver = Driver::new(core.clone());
        let grant = |range, epoch| Ok(Grant::new(range, identity(epoch), core.settings.bounds));
        let waiting = asked(&core, &mailbox, |request| driver.request(request, &mailbox, NOW));
        // One id is the reply, the other is published. A level of one id is below the watermark, so another
        // reserve is ordered.
        assert!(driver.answered(grant(range(1, 2), 0), NOW).is_some());
        let answer = grant(range(1, 2), 1);
        let actor = thread::spawn(move || drop(driver.answered(answer, NOW)));
        core.revoke(&mailbox);
        assert_eq!(draw_anew(&core.stock), Err(ErrorKind::Empty), "reserved before the revocation");
        actor.join().unwrap();
        drop((waiting, mailbox.receive(0)));
    });
}

/// The store reports the end of the sequence while a caller revokes. After the next request, memory must
/// report the end to every new caller. Otherwise `try_next` would return `Empty` forever.
fn the_end_is_heard_of_after_it() {
    explore(20, UNBOUNDED, || {
        let (core, mailbox) = sequence(2, 0, 100);
        let mut driver = Driver::new(core.clone());
        let exhausted = || Err(ErrorKind::Exhausted.into());
        let first = asked(&core, &mailbox, |request| driver.request(request, &mailbox, NOW));
        let revoker = {
            let (core, mailbox) = (core.clone(), mailbox.clone());
            thread::spawn(move || core.revoke(&mailbox))
        };
        tell(&mut driver, &mailbox);
        assert!(driver.answered(exhausted(), NOW).is_none());
        revoker.join().unwrap();
        tell(&mut driver, &mailbox);
        let second = mailbox.ask(&core, Want::Ids(1), NEVER, None).expect("open");
        if tell(&mut driver, &mailbox) {
            assert!(driver.answered(exhausted(), NOW).is_none());
        }
        assert_eq!(draw_anew(&core.stock), Err(ErrorKind::Exhausted));
        drop((first, second));
    });
}

/// Passes all messages to the driver. Returns whether the driver ordered a reserve.
fn tell(driver: &mut Driver, mailbox: &Mailbox) -> bool {
    let messages = mailbox.receive(0).messages;
    let orders = messages.into_iter().filter_map(|message| driver.message(message, mailbox, NOW));
    orders.count() > 0
}
