//! Checks that `take` stays within the available ids, across segments and at the end of the sequence.
//!
//! *Threads*: two threads that take several ids, or all of them, and one that draws; the actor, which takes
//! the ids in memory. Preemptions are unbounded, except for takes across segments, which would run for
//! minutes.
//!
//! *Bugs it catches*: a cursor that overflows after a large take; a take that is not cut at the end, or
//! loses the ids that it found; a take that exceeds the sequence's end and uses up the last ids.

use loom::thread;

use crate::error::ErrorKind;
use crate::explore::{UNBOUNDED, explore};
use crate::harness::models;
use crate::range::Ranges;
use crate::refill::driver::Driver;
use crate::state::mailbox::Message;
use crate::state::segment::Segment;
use crate::state::stock::Stock;
use crate::state::want::Want;
use crate::store::Grant;
use crate::sync::Arc;
use crate::world::{NEVER, NOW, assert_each_once, drain, draw_anew, identity, range, sequence, stock};

models![
    a_segment_is_cut_at_its_end,
    a_take_goes_on_in_the_next_segment,
    the_last_ids_stay_for_smaller_draws,
    ids_drained_for_a_take_follow_all_drawn,
];

/// When a short grant arrives, the actor takes the ids of two segments out of memory for a waiting `take`,
/// and puts them back with the grant, since they are too few. Another caller draws at the same time.
fn ids_drained_for_a_take_follow_all_drawn() {
    explore(1_500, Some(3), || {
        let (core, mailbox) = sequence(2, 0, 100);
        let count = |ids| core.stats.add_published(ids);
        assert!(core.stock.publish(range(1, 1), 0, 0, count) && core.stock.publish(range(2, 2), 0, 0, count));
        let mut driver = Driver::new(core.clone());
        let waiting = mailbox.ask(&core, Want::Ids(9), NEVER, None).expect("open");
        let Some(Message::Request(request)) = mailbox.receive(0).messages.pop_front() else {
            panic!("the mailbox has no request")
        };
        assert!(driver.request(request, &mailbox, NOW).is_some(), "a request for nine ids needs a reserve");
        let drawer = {
            let core = core.clone();
            thread::spawn(move || draw_anew(&core.stock).ok())
        };
        let grant = Grant::new(range(4, 2), identity(0), core.settings.bounds);
        assert!(driver.answered(Ok(grant), NOW).is_some(), "the take needs more ids");
        assert!(driver.answered(Err(ErrorKind::Denied.into()), NOW).is_none());
        let drawn = drawer.join().unwrap();
        let left = drain(&core.stock);
        assert!(drawn.is_none_or(|drawn| left.iter().all(|id| *id > drawn)), "{left:?} after {drawn:?}");
        assert_each_once(left.into_iter().chain(drawn).collect(), 1, 5);
        assert_eq!(core.drawn(), 5);
        drop(waiting);
    });
}

fn a_segment_is_cut_at_its_end() {
    explore(400, UNBOUNDED, || {
        let segment = Arc::new(Segment::new(range(u64::MAX - 2, 3), 0));
        let taker = |n| {
            let segment = segment.clone();
            thread::spawn(move || segment.take(n).range)
        };
        let takers = [taker(u64::MAX), taker(2)];
        let mut ids: Vec<_> = segment.draw().map(|drawn| drawn.id).into_iter().collect();
        for range in takers.map(|taker| taker.join().unwrap()) {
            ids.extend(range.iter());
        }
        assert_each_once(ids, u64::MAX - 2, u64::MAX);
        assert!(segment.draw().is_none() && segment.take(u64::MAX).range.is_empty());
    });
}

/// Takes `n` ids. Returns the taken ids, and the number that is missing.
fn take(stock: &Stock, n: u64) -> (Ranges, u64) {
    let mut got = Ranges::none();
    let short = stock.take(n, |taken| got.push(taken.range)).err().map_or(0, |(missing, reason)| {
        assert!(matches!(reason, ErrorKind::Empty | ErrorKind::Exhausted), "{reason:?}");
        missing
    });
    assert_eq!(got.len() + short, n, "each id is returned or counted as missing");
    let ids: Vec<_> = got.iter().collect();
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    (got, short)
}

/// Two takes want four of three ids. At least one of them gets its ids.
fn a_take_goes_on_in_the_next_segment() {
    explore(8_000, Some(4), || {
        let stock = stock(&[1, 2]);
        let taker = {
            let stock = stock.clone();
            thread::spawn(move || take(&stock, 2))
        };
        let (mine, short) = take(&stock, 2);
        let (others, other_short) = taker.join().unwrap();
        assert!(short == 0 || other_short == 0, "{short} and {other_short} ids are missing");
        assert_each_once(mine.iter().chain(others.iter()).chain(drain(&stock)).collect(), 1, 3);
    });
}

fn the_last_ids_stay_for_smaller_draws() {
    explore(10, UNBOUNDED, || {
        let stock = stock(&[1, 2]);
        assert!(stock.finish(ErrorKind::Exhausted, 0));
        let greedy = {
            let stock = stock.clone();
            thread::spawn(move || take(&stock, 4))
        };
        let mut ids = vec![draw_anew(&stock).expect("the take of four ids returns none")];
        let (none, short) = greedy.join().unwrap();
        assert_eq!((none.len(), short), (0, 4));
        ids.extend(drain(&stock));
        assert_each_once(ids, 1, 3);
    });
}
