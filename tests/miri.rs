//! Few threads and few draws, for Miri (`ci/steps/miri`). Miri detects undefined behaviour, and simulates
//! memory orderings that the machine would never produce. Each of Miri's seeds gives another schedule.

mod threads;

use idmill::Order;
use threads::Scale;

const SCALE: Scale = Scale { threads: 2, draws: 5, step: 3 };

#[test]
fn every_way_grows_across_threads() {
    threads::every_way_grows_across_threads(SCALE);
}

#[test]
fn thread_blocks_and_blocks_grow_for_each() {
    threads::thread_blocks_and_blocks_grow_for_each(SCALE);
}

#[test]
fn nothing_outlives_a_revocation() {
    threads::nothing_outlives_a_revocation(SCALE, Order::Process);
    threads::nothing_outlives_a_revocation(SCALE, Order::Thread);
}

#[test]
fn close_reaches_every_thread() {
    threads::close_reaches_every_thread(SCALE);
}

#[test]
fn opened_and_evicted_at_once() {
    threads::opened_and_evicted_at_once(Scale { draws: 2, ..SCALE });
}

#[test]
fn takes_race_for_the_last_ids() {
    threads::takes_race_for_the_last_ids(Scale { draws: 2, ..SCALE });
}

#[test]
fn callers_that_give_up() {
    threads::callers_that_give_up(Scale { draws: 3, ..SCALE });
}
