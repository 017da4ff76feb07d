//! Many rounds of many threads. ThreadSanitizer (`ci/steps/tsan`) runs these tests and reports data races.
//! `IDMILL_STRESS_ROUNDS` sets the number of rounds.

mod threads;

use idmill::Order;
use threads::Scale;

const SCALE: Scale = Scale { threads: 4, draws: 500, step: 16 };

fn rounds(test: impl Fn(Scale)) {
    let rounds = std::env::var("IDMILL_STRESS_ROUNDS").map_or(3, |text| text.parse().expect("a number"));
    for round in 0..rounds {
        // The step differs in each round, so that segments end at different moments.
        test(Scale { step: SCALE.step + round % 7, ..SCALE });
    }
}

#[test]
fn every_way_grows_across_threads() {
    rounds(threads::every_way_grows_across_threads);
}

#[test]
fn thread_blocks_and_blocks_grow_for_each() {
    rounds(threads::thread_blocks_and_blocks_grow_for_each);
}

#[test]
fn nothing_outlives_a_revocation() {
    rounds(|scale| threads::nothing_outlives_a_revocation(scale, Order::Process));
    rounds(|scale| threads::nothing_outlives_a_revocation(scale, Order::Thread));
}

#[test]
fn close_reaches_every_thread() {
    rounds(threads::close_reaches_every_thread);
}

#[test]
fn opened_and_evicted_at_once() {
    rounds(|scale| threads::opened_and_evicted_at_once(Scale { draws: 100, ..scale }));
}

#[test]
fn takes_race_for_the_last_ids() {
    rounds(threads::takes_race_for_the_last_ids);
}

#[test]
fn callers_that_give_up() {
    rounds(|scale| threads::callers_that_give_up(Scale { draws: 100, ..scale }));
}
