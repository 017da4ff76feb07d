//! Checks that callers with an empty segment move on to the next one without the actor.
//!
//! *Threads*: two callers whose views grow stale, and a publisher. Preemptions are unbounded, except with
//! three segments.
//!
//! *Promises*: no id is lost or duplicated. An id is larger than all ids that its caller has drawn or
//! received. No caller is sent to the actor while there are ids. The link of a segment that was left is
//! cleared.
//!
//! *Bugs it catches*: a link that is stored with too weak an ordering; a promotion without a comparison; a
//! link that is cleared before the promotion; a caller that finds no link and does not load `current`
//! again.

use loom::thread;

use crate::explore::{UNBOUNDED, explore};
use crate::harness::models;
use crate::state::stock::Stock;
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::world::{assert_each_once, drain, draw, draw_anew, range, stock};

models![
    draws_do_not_wait_while_ids_are_left,
    a_late_promotion_undoes_nothing,
    ids_grow_for_every_observer,
    published_while_drawing
];

fn draws_do_not_wait_while_ids_are_left() {
    explore(100_000, UNBOUNDED, || {
        let stock = stock(&[1, 2]);
        let mut first = stock.current();
        let mut ids = vec![draw(&stock, &mut first).expect("there are enough")];
        ids.extend(draw_at_once(&stock, [1, 1]));
        assert_each_once(ids, 1, 3);
        assert_eq!(drain(&stock), []);
        assert!(first.next().load_full().is_none(), "an old segment keeps later ones alive");
    });
}

/// One caller is slow to promote the second segment. The other has already promoted the third one, which
/// must remain current.
fn a_late_promotion_undoes_nothing() {
    explore(5_000, Some(3), || {
        let stock = stock(&[1, 1, 2]);
        let mut ids = vec![draw_anew(&stock).expect("there are enough")];
        ids.extend(draw_at_once(&stock, [2, 1]));
        assert_each_once(ids, 1, 4);
    });
}

/// Two callers draw the given numbers of ids, beginning at the current segment.
fn draw_at_once(stock: &Arc<Stock>, ids: [usize; 2]) -> Vec<u64> {
    let callers = ids.map(|ids| {
        let (stock, mut segment) = (stock.clone(), stock.current());
        thread::spawn(move || -> Vec<u64> {
            (0..ids).map(|_| draw(&stock, &mut segment).expect("there are enough")).collect()
        })
    });
    callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
}

fn ids_grow_for_every_observer() {
    explore(100_000, UNBOUNDED, || {
        let stock = stock(&[2, 2]);
        let heard = Arc::new(AtomicU64::new(0));
        let speaker = {
            let (stock, heard) = (stock.clone(), heard.clone());
            thread::spawn(move || {
                let mut segment = stock.current();
                let ids = [(); 2].map(|()| draw(&stock, &mut segment).expect("there are enough"));
                assert!(ids[0] < ids[1], "{ids:?}");
                // Release: orders the draw before the publication of its id.
                heard.store(ids[1], Ordering::Release);
                ids
            })
        };
        // Load the segment once, as an idle handle does.
        let mut segment = stock.current();
        let mut ids = Vec::new();
        for _ in 0..2 {
            let heard = heard.load(Ordering::Acquire);
            let id = draw(&stock, &mut segment).expect("there are enough");
            assert!(id > heard && ids.last().is_none_or(|last| id > *last), "{id} after {heard} and {ids:?}");
            ids.push(id);
        }
        ids.extend(speaker.join().unwrap());
        assert_each_once(ids, 1, 4);
    });
}

/// Another thread's segments are seen whole, and none of their ids is lost. Both hold for the first
/// publication too, which replaces `current` itself.
fn published_while_drawing() {
    for (lens, published) in [(&[][..], &[1, 2][..]), (&[1], &[1, 2])] {
        explore(500, UNBOUNDED, move || {
            let stock = stock(lens);
            let caller = {
                let stock = stock.clone();
                thread::spawn(move || -> Vec<u64> {
                    let mut segment = stock.current();
                    (0..3).filter_map(|_| draw(&stock, &mut segment).ok()).collect()
                })
            };
            let mut last = lens.iter().sum();
            for len in published {
                assert!(stock.publish(range(last + 1, *len), 0, 0, |_| ()));
                last += len;
            }
            let mut ids = caller.join().unwrap();
            assert!(ids.is_sorted(), "{ids:?}");
            ids.extend(drain(&stock));
            assert_each_once(ids, 1, last);
        });
    }
}
