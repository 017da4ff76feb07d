//! Checks that a turn of the actor takes its share of the work and loses nothing of the rest.
//!
//! *Threads*: callers that find no ids in memory, and one that draws while a refill is published; the actor's
//! turns, with the real mailbox, driver and engine. Preemptions are unbounded, except in the first model.
//!
//! *Bugs it catches*:
//! - an actor that sleeps although its last turn left work;
//! - a permit that becomes available again while a reserve is in flight, so that a caller that keeps trying
//!   keeps the actor busy;
//! - a permit that is given back after the level was checked, or without a second check.

use loom::thread;

use crate::error::ErrorKind;
use crate::explore::{UNBOUNDED, explore};
use crate::harness::models;
use crate::refill::driver::Driver;
use crate::state::core::Core;
use crate::state::mailbox::Mailbox;
use crate::store::Grant;
use crate::sync::Arc;
use crate::world::{MOST_SIGNALS, NOW, block_on, core, draw_anew, identity, range, sequence, settings};

models![
    what_a_turn_leaves_wakes_the_next,
    tries_during_a_reserve_signal_nothing,
    a_draw_while_a_refill_lands_is_seen,
];

fn try_in_vain(core: &Arc<Core>, mailbox: &Mailbox) {
    assert_eq!(core.refused(ErrorKind::Empty, mailbox).kind(), ErrorKind::Empty);
}

/// Two sequences signal, and a turn takes one signal.
fn what_a_turn_leaves_wakes_the_next() {
    explore(2_700, Some(3), || {
        let mailbox = Arc::new(Mailbox::new());
        let cores = [(); 2].map(|()| core(settings(2, 1, 100)));
        let callers = cores.clone().map(|core| {
            let mailbox = mailbox.clone();
            thread::spawn(move || try_in_vain(&core, &mailbox))
        });
        let mut drivers = cores.map(Driver::new);
        let mut ordered = 0;
        while ordered < 2 {
            let low = mailbox.receive(MOST_SIGNALS).low;
            for core in &low {
                let of = |driver: &&mut Driver| Arc::ptr_eq(driver.core(), core);
                let driver = drivers.iter_mut().find(of).expect("each core has a driver");
                ordered += usize::from(driver.low(NOW).is_some());
            }
            if ordered < 2 {
                block_on(mailbox.woken());
            }
        }
        for caller in callers {
            caller.join().unwrap();
        }
    });
}

/// A caller tries twice while a reserve is in flight.
fn tries_during_a_reserve_signal_nothing() {
    explore(80, UNBOUNDED, || {
        let (core, mailbox) = sequence(2, 1, 100);
        let mut driver = Driver::new(core.clone());
        try_in_vain(&core, &mailbox);
        assert_eq!(mailbox.receive(MOST_SIGNALS).low.len(), 1);
        let caller = {
            let (core, mailbox) = (core.clone(), mailbox.clone());
            thread::spawn(move || (0..2).for_each(|_| try_in_vain(&core, &mailbox)))
        };
        let ordered = driver.low(NOW).is_some();
        // One signal may arrive between the check of the level and the order.
        let mut turn =
            || mailbox.receive(MOST_SIGNALS).low.iter().filter(|_| driver.low(NOW).is_some()).count();
        let again = turn();
        caller.join().unwrap();
        assert_eq!((ordered, again + turn()), (true, 0), "one reserve is sent");
        assert!(
            mailbox.receive(MOST_SIGNALS).low.is_empty(),
            "no signal is left while the reserve is in flight"
        );
    });
}

/// The refill reaches the watermark exactly, and a caller draws one of its ids. The actor holds the permit
/// until the refill is published.
fn a_draw_while_a_refill_lands_is_seen() {
    explore(70, UNBOUNDED, || {
        let (core, mailbox) = sequence(2, 2, 100);
        let mut driver = Driver::new(core.clone());
        try_in_vain(&core, &mailbox);
        assert_eq!(mailbox.receive(MOST_SIGNALS).low.len(), 1);
        assert!(driver.low(NOW).is_some());
        let caller = {
            let (core, mailbox) = (core.clone(), mailbox.clone());
            thread::spawn(move || {
                let drawn = core.draw(&mut core.stock.current(), &mailbox);
                drawn.is_ok()
            })
        };
        let grant = Grant::new(range(1, 2), identity(0), core.settings.bounds);
        let mut ordered = driver.answered(Ok(grant), NOW).is_some();
        let drawn = caller.join().unwrap();
        for _core in mailbox.receive(MOST_SIGNALS).low {
            ordered |= driver.low(NOW).is_some();
        }
        assert_eq!(ordered, drawn, "a draw below the watermark needs a reserve");
        assert!(draw_anew(&core.stock).is_ok());
    });
}
