use idmill::store::Bounds;

use super::*;

fn simulated(max_buffered: Option<u64>) -> Outage {
    let budget = Duration::from_secs(20);
    let workload = Workload::surviving(budget, 1.0, Duration::from_millis(100));
    let workload = Workload { max_buffered: max_buffered.unwrap_or(workload.max_buffered), ..workload };
    outage(&workload, budget).unwrap()
}

/// The simulation has its own clock and a fixed seed, so its figures are always the same.
#[test]
fn simulated_process_survives_the_outage_it_is_sized_for() {
    let Outage { empty_after, reserves, least } = simulated(None);
    assert_eq!((empty_after, reserves, least), (None, 42, 11));
}

#[test]
fn simulated_process_with_too_little_memory_runs_out() {
    let Outage { empty_after, reserves, least } = simulated(Some(2));
    assert_eq!((empty_after, reserves, least), (Some(Duration::from_millis(1_750)), 73, 0));
}

#[tokio::test(start_paused = true)]
async fn remote_store_answers_after_its_latency() {
    let store = Remote { latency: Duration::from_millis(8), ..Remote::default() };
    let request = Reserve::new("s".parse().unwrap(), 5).create(Bounds::of::<u64>());
    for (is_away, next) in [(false, Some(6)), (true, Some(6)), (false, Some(11))] {
        store.is_away.store(is_away, Ordering::Relaxed);
        let before = Instant::now();
        let grant = store.reserve(&request).await;
        assert_eq!(grant.err().map(|error| error.kind()), is_away.then_some(ErrorKind::Unavailable));
        assert_eq!(before.elapsed(), Duration::from_millis(8));
        assert_eq!(store.inspect(&request.name).await.unwrap().unwrap().next, next);
    }
}
