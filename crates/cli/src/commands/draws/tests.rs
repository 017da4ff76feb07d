use std::collections::VecDeque;

use clap::Parser as _;
use idmill::store::MemoryStore;

use super::*;
use crate::args::{Cli, Command};

const MICRO: Duration = Duration::from_micros(1);

/// Draws that wait as scripted. A draw represents three, and has two ids.
struct Scripted(VecDeque<Option<Duration>>);

impl Draw for Scripted {
    const BLOCK: u64 = 3;

    fn ids(&self) -> u64 {
        2
    }

    fn draw(&mut self) -> Result<Option<Duration>> {
        self.0.pop_front().ok_or_else(|| ErrorKind::Exhausted.into())
    }
}

/// Returns the recorded times with their counts.
fn recorded(seen: &Histogram<u64>) -> Vec<(u64, u64)> {
    seen.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
}

/// Returns the number of draws, and the recorded times. The clock takes so long that an unwaited draw took 0.
fn drawn(goal: Goal, draws: u64, waits: &[Option<Duration>]) -> (u64, Vec<(u64, u64)>) {
    let (mut draw, mut seen) = (Scripted(waits.iter().copied().collect()), times());
    let made = block(goal, u64::MAX, &mut draw, draws, Instant::now(), &mut seen).unwrap();
    assert_eq!(made + draw.0.len() as u64, waits.len() as u64, "each draw is counted");
    (made, recorded(&seen))
}

#[test]
fn first_draw_stands_for_those_that_did_not_wait() {
    let (count, wait, no) = (Goal::Count(9), Some(MICRO), None);
    assert_eq!(drawn(count, 1, &[no]), (1, vec![(0, 1)]));
    assert_eq!(drawn(count, 4, &[no, no, no, no, no]), (4, vec![(0, 4)]));
    assert_eq!(drawn(count, 4, &[no, wait, no, Some(2 * MICRO)]), (4, vec![(0, 2), (1000, 1), (2000, 1)]));
    // The first draw waited, so it represents no other.
    assert_eq!(drawn(count, 3, &[wait, no, wait]), (3, vec![(1000, 2)]));
}

#[test]
fn block_ends_at_a_wait_beyond_the_time_limit() {
    let (wait, no) = (Some(MICRO), None);
    for (time, made) in
        [(Duration::ZERO, (3, vec![(0, 2), (1000, 1)])), (TIMEOUT, (5, vec![(0, 4), (1000, 1)]))]
    {
        assert_eq!(drawn(Goal::Time(time), 5, &[no, no, wait, no, no]), made);
    }
}

#[test]
fn work_draws_until_its_goal_in_blocks() {
    for (count, time, ids) in [
        (Some(1), TIMEOUT, 2),
        (Some(6), TIMEOUT, 6),
        (Some(9), TIMEOUT, 10),
        (None, Duration::from_nanos(1), 6),
    ] {
        let plan = Measurement::new(1, count, time);
        let mut draw = Scripted([None; 9].into());
        let (made, seen) = work(&plan, u64::MAX, &mut draw, Instant::now()).unwrap();
        assert_eq!((made, recorded(&seen)), (ids, vec![(0, ids / 2)]));
        assert_eq!(2 * (9 - draw.0.len() as u64), ids);
    }
    let plan = Measurement::new(1, Some(20), TIMEOUT);
    let ended = work(&plan, 0, &mut Scripted([None; 9].into()), Instant::now());
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Exhausted);
}

/// Each of two threads draws 100 ids. A `take` of 7 ids is complete.
#[tokio::test]
async fn every_mode_draws_the_ids_that_it_counts() {
    let cli = Cli::parse_from("idmill draws --step 1000 --block 8 --take 7".split(' '));
    let Command::Draws(args) = cli.command else { unreachable!("the command is `draws`") };
    let args = Arc::new(args);
    for mode in args.mode.clone() {
        let sequences = Sequences::new(MemoryStore::new()).unwrap();
        let ids = open(&sequences, &args, mode).await.unwrap();
        ids.warm(1).await.unwrap();
        let (drawing, given, plan) = (ids.clone(), args.clone(), Measurement::new(2, Some(100), TIMEOUT));
        let seen = off_runtime(move || draw(&drawing, &given, mode, &plan)).await.unwrap();
        let (all, calls) = if mode == Drawing::Take { (210, 30) } else { (200, 200) };
        assert_eq!((seen.ids, seen.draws.len()), (all, calls), "{mode:?}");
        assert!(seen.elapsed > Duration::ZERO);
        // A thread's last block may hold up to 7 ids that are not drawn.
        let drawn = ids.snapshot().drawn;
        assert!((all..all + 16).contains(&drawn), "{mode:?}: {drawn}");
        if !matches!(mode, Drawing::Block | Drawing::Thread) {
            assert_eq!(drawn, all, "{mode:?}");
        }
    }
}

#[test]
fn median_is_the_middle_of_the_sorted_values() {
    assert_eq!(median([9, 1, 5, 7, 3]), 5);
    #[cfg(target_os = "linux")]
    assert!(clock() > 0, "two readings of the clock differ by the time of one");
}

fn totals() -> Totals {
    let mut draws = times();
    for nanos in 1..=1000 {
        draws.record(nanos).unwrap();
    }
    Totals { ids: 4000, elapsed: Duration::from_millis(2), draws }
}

#[test]
fn row_is_computed_from_the_totals_of_the_threads() {
    let counts = Counts { reserves: Some(5), waits: Some(6), gaps: None, left: Some(8) };
    let row = Row::new("take".to_owned(), 3, &totals(), counts).beside(600.0);
    let expected = serde_json::json!({
        "mode": "take", "threads": 3, "ids": 4000, "seconds": 0.002, "ids_per_second": 2e6,
        "ns_per_id": 1500.0, "ratio_to_bare": 2.5,
        "draw_ns": { "p50": 500, "p90": 900, "p99": 990, "p99_9": 999, "p99_99": 1000, "max": 1000 },
        "reserves": 5, "waits": 6, "gaps": null, "left": 8,
    });
    assert_eq!(serde_json::to_value(&row).unwrap(), expected);
    let bare = Row::new("bare".to_owned(), 3, &totals(), Counts::default());
    assert_eq!(
        report::human(&[bare, row]),
        "\
MODE  THREADS   IDS/S  NS/ID  X BARE  RESERVES  WAITED  GAPS  LEFT
bare        3  2.00 M   1500    1.00         -       -     -     -
take        3  2.00 M   1500    2.50         5       6     -     8

Time of one draw:
MODE  THREADS     P50     P90     P99   P99.9   P99.99      MAX
bare        3  500 ns  900 ns  990 ns  999 ns  1.00 us  1.00 us
take        3  500 ns  900 ns  990 ns  999 ns  1.00 us  1.00 us
"
    );
}
