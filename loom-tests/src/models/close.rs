//! Checks that a close reaches every caller.
//!
//! *Threads*: a thread that draws or waits; a thread that closes; the actor; and for `closed_stays_closed`, a
//! thread that revokes. Preemptions are bounded if the actor runs.
//!
//! *Promises*: a caller gets an id or `Closed`, and never waits forever. After the close, all calls return
//! `Closed`. Every id is accounted for.
//!
//! *Bugs it catches*: the rest of a segment is counted before it is sealed; the mailbox accepts requests
//! that nothing will read; the actor drops the requests that arrived last; a revocation reopens a closed
//! stock.

use loom::thread;

use crate::error::ErrorKind;
use crate::explore::{UNBOUNDED, explore};
use crate::harness::models;
use crate::refill::driver::Driver;
use crate::state::block::Block;
use crate::state::mailbox::Ending;
use crate::store::Grant;
use crate::world::{
    Actor, NOW, asked, assert_each_once, block_on, draw_anew, identity, next, range, sequence, stock, wait,
};

models![
    a_caller_gets_an_id_or_hears_of_it,
    what_is_given_back_was_not_drawn,
    what_is_taken_is_not_given_back,
    closed_while_drawing,
    closed_stays_closed
];

fn a_caller_gets_an_id_or_hears_of_it() {
    explore(5_000, Some(4), || {
        let (core, mailbox) = sequence(1, 0, 100);
        let actor = Actor::new(&core, &mailbox);
        let actor = thread::spawn(move || actor.run(|| ()));
        let caller = {
            let (core, mailbox) = (core.clone(), mailbox.clone());
            thread::spawn(move || next(&core, &mailbox))
        };
        mailbox.close(Ending::Asked);
        let actor = actor.join().unwrap();
        let outcome = caller.join().unwrap();
        assert!(matches!(outcome, Ok(1) | Err(ErrorKind::Closed)), "{outcome:?}");
        assert_eq!(
            actor.granted(),
            u64::from(outcome.is_ok()) + core.stats.abandoned() + core.stats.revoked()
        );
        assert_eq!(draw_anew(&core.stock), Err(ErrorKind::Closed));
        assert_eq!(wait(&core, &mailbox), Err(ErrorKind::Closed));
    });
}

/// Ids that are left at the end are given back to the store, which grants them to others: no caller may have
/// drawn them.
fn what_is_given_back_was_not_drawn() {
    explore(30_000, Some(4), || {
        let (core, mailbox) = sequence(3, 0, 100);
        let actor = Actor::new(&core, &mailbox);
        let actor = thread::spawn(move || actor.run(|| ()));
        let mut ids = vec![next(&core, &mailbox).expect("the store has enough")];
        let caller = {
            let (core, mailbox) = (core.clone(), mailbox.clone());
            thread::spawn(move || {
                let mut segment = core.stock.current();
                [(); 2].map(|()| core.draw(&mut segment, &mailbox).ok())
            })
        };
        mailbox.close(Ending::Asked);
        let actor = actor.join().unwrap();
        ids.extend(caller.join().unwrap().into_iter().flatten());
        ids.extend(actor.left.iter().flatten());
        assert_each_once(ids, 1, 3);
    });
}

/// One thread takes ids, and another has a block, while the sequence closes.
fn what_is_taken_is_not_given_back() {
    explore(4_000, Some(3), || {
        let (core, mailbox) = sequence(4, 0, 100);
        let mut driver = Driver::new(core.clone());
        let waiting = asked(&core, &mailbox, |request| driver.request(request, &mailbox, NOW));
        let grant = Grant::new(range(1, 4), identity(0), core.settings.bounds);
        assert!(driver.answered(Ok(grant), NOW).is_none());
        let taker = {
            let (core, mailbox) = (core.clone(), mailbox.clone());
            thread::spawn(move || core.take(2, &mailbox).unwrap_or_else(|got| got))
        };
        let holder = {
            let (core, mailbox) = (core.clone(), mailbox.clone());
            thread::spawn(move || {
                let (mut block, mut segment) = (Block::EMPTY, core.stock.current());
                let take = || core.take_some(2, &mut segment, &mailbox);
                let drawn = [block.renew(&core.stock, &core.stats, take), block.draw(&core.stock)];
                block.abandon(&core.stats);
                drawn
            })
        };
        let rest = driver.close(NOW);
        let mut ids: Vec<_> = rest.iter().flat_map(|rest| rest.back().rest).collect();
        ids.extend(taker.join().unwrap().iter());
        ids.extend(holder.join().unwrap().into_iter().flatten());
        ids.extend(block_on(waiting).expect("one id was granted").iter());
        ids.sort_unstable();
        assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
        assert_eq!(ids.len() as u64 + core.stats.revoked() + core.stats.dropped(), 4, "{ids:?}");
    });
}

fn closed_while_drawing() {
    explore(60, UNBOUNDED, || {
        let (core, mailbox) = sequence(1, 0, 100);
        assert!(core.stock.publish(range(1, 2), 0, 0, |_| ()));
        let caller = {
            let (core, mailbox) = (core.clone(), mailbox.clone());
            thread::spawn(move || {
                let mut segment = core.stock.current();
                [(); 2].map(|()| core.draw(&mut segment, &mailbox))
            })
        };
        core.close();
        assert_eq!(draw_anew(&core.stock), Err(ErrorKind::Closed));
        let drawn = caller.join().unwrap();
        let ids = drawn.iter().filter(|drawn| drawn.is_ok()).count() as u64;
        // `Empty` is allowed: a draw may see the seal before its reason. The caller then tries the mailbox,
        // which returns `Closed`.
        let heard = |drawn: &Result<_, _>| matches!(drawn, Ok(_) | Err(ErrorKind::Empty | ErrorKind::Closed));
        assert!(drawn.iter().all(heard), "{drawn:?}");
        assert_eq!(ids + core.stats.revoked(), 2, "drawn or counted");
    });
}

fn closed_stays_closed() {
    explore(6, UNBOUNDED, || {
        let stock = stock(&[1]);
        let revoker = {
            let stock = stock.clone();
            thread::spawn(move || stock.revoke(ErrorKind::Empty, |_| {}))
        };
        let lost = stock.revoke(ErrorKind::Closed, |_| {}).len() + revoker.join().unwrap().len();
        assert_eq!((lost, draw_anew(&stock)), (1, Err(ErrorKind::Closed)));
    });
}
