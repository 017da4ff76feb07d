//! Checks that low water reaches the actor exactly once per segment, for every way to draw, and is never
//! lost.
//!
//! *Threads*: callers that draw one or several ids across the watermark; for the permit, also the actor's
//! check of the level. Preemptions are unbounded, except for the permit.
//!
//! *Bugs it catches*: an add in two steps; a comparison that several draws satisfy (`>=`); a check before
//! the permit is set; a permit that is given back after the level was checked.

use loom::thread;

use crate::explore::{UNBOUNDED, explore};
use crate::harness::models;
use crate::refill::driver::Driver;
use crate::state::segment::Segment;
use crate::sync::Arc;
use crate::world::{MOST_SIGNALS, NOW, assert_each_once, range, sequence};

models![one_draw_signals, a_take_signals_as_a_draw_does, the_permit_is_not_lost_and_does_not_pile_up];

fn one_draw_signals() {
    explore(50, UNBOUNDED, || {
        let segment = Arc::new(Segment::new(range(1, 3), 2));
        let draw_one = |segment: &Segment| segment.draw().expect("there are enough");
        let callers = [(); 2].map(|()| {
            let segment = segment.clone();
            thread::spawn(move || draw_one(&segment))
        });
        let mut drawn = vec![draw_one(&segment)];
        drawn.extend(callers.map(|caller| caller.join().unwrap()));
        assert_eq!(drawn.iter().filter(|drawn| drawn.low).count(), 1, "{drawn:?}");
        // The draw of id 2 crosses the watermark, and only that one signals.
        assert!(drawn.iter().all(|drawn| drawn.low == (drawn.id == 2)), "{drawn:?}");
        assert_each_once(drawn.iter().map(|drawn| drawn.id).collect(), 1, 3);
        assert_eq!(segment.draw(), None);
    });
}

fn a_take_signals_as_a_draw_does() {
    explore(400, UNBOUNDED, || {
        let segment = Arc::new(Segment::new(range(1, 5), 3));
        let taker = |n| {
            let segment = segment.clone();
            thread::spawn(move || segment.take(n))
        };
        let takers = [taker(2), taker(2)];
        let drawn = segment.draw().expect("there are enough");
        let (mut signals, mut ids) = (usize::from(drawn.low), vec![drawn.id]);
        for taken in takers.map(|taker| taker.join().unwrap()) {
            signals += usize::from(taken.low);
            ids.extend(taken.range.iter());
        }
        assert_eq!(signals, 1);
        assert_each_once(ids, 1, 5);
    });
}

/// Two threads draw three ids, and each segment signals once. The level is below the watermark only after the
/// second signal: if that signal is lost, no refill is ordered. If the first signal is still queued, the
/// second must not be queued.
fn the_permit_is_not_lost_and_does_not_pile_up() {
    explore(25_000, Some(5), || {
        let (core, mailbox) = sequence(2, 2, 100);
        assert!(
            core.stock.publish(range(1, 2), 2, 0, |_| ()) && core.stock.publish(range(3, 2), 2, 0, |_| ())
        );
        let callers = [1, 2].map(|ids| {
            let (core, mailbox) = (core.clone(), mailbox.clone());
            thread::spawn(move || {
                let mut segment = core.stock.current();
                for _ in 0..ids {
                    core.draw(&mut segment, &mailbox).expect("there are enough");
                }
            })
        });
        let mut driver = Driver::new(core.clone());
        let mut ordered = 0;
        let mut look = || {
            let seen = !mailbox.receive(MOST_SIGNALS).low.is_empty();
            ordered += usize::from(seen && driver.low(NOW).is_some());
            seen
        };
        look();
        for caller in callers {
            caller.join().unwrap();
        }
        assert!(!(look() && look()), "signals piled up");
        assert_eq!(ordered, 1, "one id left, below the watermark of two, needs one reserve");
    });
}
