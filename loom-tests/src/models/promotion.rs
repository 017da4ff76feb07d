//! Do callers that find a segment dry all get on to the next one by themselves?
//!
//! *Threads*: two callers with ever staler views, and whoever publishes. Unbounded,
//! but for three segments at once.
//!
//! *Asked*: no id lost, none twice; what a caller draws is larger than all it has drawn or heard of; nobody
//! is sent to the actor while there are ids; the link of a segment that was left is cleared.
//!
//! *What would break it*: a link stored too weakly; a promotion that does not compare; a link that is cleared
//! before the promotion; a caller that finds no link and does not look at what is current.

use loom::thread;

use crate::explore::{UNBOUNDED, explore};
use crate::harness::models;
use crate::sequence::stock::Stock;
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::world::{assert_each_once, drain, draw, draw_anew, range, stock};

models![
    nobody_waits_while_there_are_ids,
    a_late_promotion_undoes_nothing,
    ids_grow_for_every_observer,
    published_while_drawing
];

fn nobody_waits_while_there_are_ids() {
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

/// One caller is slow to promote the second segment, and another has the third
/// promoted by then: that must stay.
fn a_late_promotion_undoes_nothing() {
    explore(5_000, Some(3), || {
        let stock = stock(&[1, 1, 2]);
        let mut ids = vec![draw_anew(&stock).expect("there are enough")];
        ids.extend(draw_at_once(&stock, [2, 1]));
        assert_each_once(ids, 1, 4);
    });
}

/// Two callers that draw so many each, beginning at what is current now.
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
                // Release: what a caller does before it tells others of an id.
                heard.store(ids[1], Ordering::Release);
                ids
            })
        };
        // A view from before everything, as an idle handle has.
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

/// What is published by another thread is seen whole, and nothing of it gets lost: also where `current`
/// itself is replaced, because nothing was published before.
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
                assert!(stock.publish(range(last + 1, *len), 0, 0));
                last += len;
            }
            let mut ids = caller.join().unwrap();
            assert!(ids.is_sorted(), "{ids:?}");
            ids.extend(drain(&stock));
            assert_each_once(ids, 1, last);
        });
    }
}
