//! Checks the end of a sequence, which is appended to memory, and taken back when the end has moved.
//!
//! *Threads*: the actor, which ends and reopens the sequence; a thread that draws or revokes. Up to 2
//! preemptions if the thread draws.
//!
//! *Promises*: every id is drawn once, across ends and reopenings. After a revocation, no call reports an end
//! from before it.
//!
//! *Bugs it catches*: ids that are unreachable behind an end; an end that outlives a revocation.

use loom::thread;

use crate::error::ErrorKind;
use crate::explore::{UNBOUNDED, explore};
use crate::harness::models;
use crate::world::{assert_each_once, drain, draw, draw_anew, range, stock};

models![reopened_ends_lose_no_ids, a_revocation_removes_the_end];

fn reopened_ends_lose_no_ids() {
    explore(3_000, Some(2), || {
        let stock = stock(&[1]);
        let drawer = {
            let stock = stock.clone();
            thread::spawn(move || {
                let mut segment = stock.current();
                [(); 2].map(|()| draw(&stock, &mut segment))
            })
        };
        assert!(stock.finish(ErrorKind::Exhausted, 0) && stock.finish(ErrorKind::Empty, 0));
        assert!(stock.publish(range(2, 1), 0, 0, |_| ()));
        let drawn = drawer.join().unwrap();
        let is_allowed =
            |drawn: &Result<_, _>| matches!(drawn, Ok(_) | Err(ErrorKind::Empty | ErrorKind::Exhausted));
        assert!(drawn.iter().all(is_allowed), "{drawn:?}");
        let ids: Vec<_> = drawn.into_iter().flatten().chain(drain(&stock)).collect();
        assert!(ids.is_sorted(), "{ids:?}");
        assert_each_once(ids, 1, 2);
        assert_eq!(draw_anew(&stock), Err(ErrorKind::Empty), "the sequence is open");
    });
}

fn a_revocation_removes_the_end() {
    explore(5, UNBOUNDED, || {
        let stock = stock(&[1]);
        let revoker = {
            let stock = stock.clone();
            thread::spawn(move || stock.revoke(ErrorKind::Empty, |_| {}).len())
        };
        let _ = stock.finish(ErrorKind::Exhausted, 0);
        assert_eq!(revoker.join().unwrap(), 1);
        assert_eq!(draw_anew(&stock), Err(ErrorKind::Empty));
        assert!(stock.publish(range(2, 1), 0, 1, |_| ()));
        assert_eq!(draw_anew(&stock), Ok(2));
    });
}
