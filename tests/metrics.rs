//! The values recorded through the `metrics` facade.

#![cfg(feature = "metrics")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // of gauges that are whole and small

use std::collections::{BTreeSet, HashMap};
use std::future::Future as _;
use std::task::{Context, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use idmill::store::{Bounds, MemoryStore, Reserve, Store as _};
use idmill::{Health, Order, Sequences};
use idmill_guard::{Guarded, MemoryWitness};
use idmill_testing::eventually;
use idmill_testing::faulty::{Fault, Faults, FaultyStore};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

#[test]
fn metrics_are_recorded_by_sequence_name() {
    let recorder = DebuggingRecorder::new();
    let mut reader = Reader { snapshotter: recorder.snapshotter(), counted: HashMap::new() };
    recorder.install().unwrap();
    let store = FaultyStore::with_faults(Faults::default().script([Fault::LostReply]));
    let ids = Sequences::builder(store).own_thread().start().unwrap();
    let orders = ids.sequence::<u64>("orders").step(10).watermark(0).open_blocking().unwrap();
    for _ in 0..12 {
        let _ = orders.blocking().next().unwrap();
    }
    ids.record_metrics();

    let seen = reader.read();
    assert_eq!(seen["idmill_draws_total"], 12);
    assert_eq!(seen["idmill_granted_total"], 20);
    assert_eq!(seen["idmill_reserves_total"], 3);
    assert_eq!(seen["idmill_reserve_failures_total"], 1);
    assert_eq!(seen["idmill_waits_total"], 2);
    assert_eq!(seen["idmill_gaps_totalunknown"], 10);
    assert_eq!(seen["idmill_remaining"], 8);
    assert!(seen["idmill_seconds_to_exhaustion"] > 0);
    assert!(seen["idmill_last_grant_timestamp_seconds"] > 1_700_000_000);
    assert_eq!((seen["idmill_failures_in_a_row"], seen["idmill_health"]), (0, 2));
    assert_eq!((seen["idmill_reserve_secondsgranted"], seen["idmill_reserve_secondsunknown"]), (2, 1));
    assert_eq!(seen.len(), 24, "20 of the sequence, and 4 of the store");

    ids.blocking().close().unwrap();
    let seen = reader.read();
    assert_eq!((seen["idmill_given_back_total"], seen["idmill_gaps_totalrevoked"]), (8, 0));
    an_outage_shows_while_it_lasts(&mut reader);
    what_was_evicted_counts_on(&mut reader);
    what_a_caller_gave_up_is_drawn_and_dropped(&mut reader);
    what_a_block_did_not_hand_out_is_drawn_and_dropped(&mut reader);
    what_is_on_its_way_back_is_no_gap(&mut reader);
    every_metric_is_described_and_on_the_page(&mut reader);
}

/// Not a separate test, because a process has only one recorder.
fn an_outage_shows_while_it_lasts(reader: &mut Reader) {
    let store = FaultyStore::new();
    let ids = Sequences::builder(store.clone()).own_thread().start().unwrap();
    let hour = Duration::from_secs(3600);
    let builder = ids.sequence::<u64>("orders").step(10).watermark(0).timeout(hour);
    let orders = builder.open_blocking().unwrap();
    assert_eq!(orders.blocking().next().unwrap(), 1);
    store.set_faults(Faults::outage());
    assert_eq!(orders.blocking().take(9).unwrap().len(), 9);
    let waiting = orders.clone();
    let caller = std::thread::spawn(move || waiting.blocking().next().unwrap());
    // This state lasts: the store stays unreachable, and the caller keeps waiting.
    let limit = Instant::now() + Duration::from_secs(60);
    let seen = loop {
        ids.record_metrics();
        let seen = reader.read();
        if seen["idmill_empty_milliseconds_total"] > 0 && seen["idmill_failures_in_a_row"] > 0 {
            break seen;
        }
        assert!(Instant::now() < limit, "the metrics do not show the outage: {seen:?}");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!((seen["idmill_health"], orders.snapshot().health()), (0, Health::Empty));
    store.set_faults(Faults::none());
    assert_eq!(caller.join().unwrap(), 11);
    ids.record_metrics();
    let seen = reader.read();
    assert_eq!((seen["idmill_health"], seen["idmill_failures_in_a_row"]), (2, 0));
    assert_eq!(orders.snapshot().health(), Health::Serving);
    // The caller receives its ids a moment before it counts as served.
    while orders.snapshot().is_empty {
        assert!(Instant::now() < limit, "the served caller still counts as waiting");
        std::thread::yield_now();
    }
    ids.blocking().close().unwrap();
}

/// The increase of a counter.
fn since(before: &HashMap<String, u64>, now: &HashMap<String, u64>, name: &str) -> u64 {
    now[name] - before[name]
}

/// A reopened sequence counts from zero, and the recorder's counters continue.
fn what_was_evicted_counts_on(reader: &mut Reader) {
    let before = reader.read();
    let idle = Duration::from_millis(20);
    let ids = Sequences::builder(FaultyStore::new()).own_thread().idle_eviction(idle).start().unwrap();
    for draws in [7, 3] {
        let orders = ids.sequence::<u64>("orders").step(10).watermark(0).open_blocking().unwrap();
        assert_eq!(orders.blocking().take(draws).unwrap().len(), draws);
        drop(orders);
        let limit = Instant::now() + Duration::from_secs(60);
        while !ids.is_empty() {
            assert!(Instant::now() < limit, "it is never evicted");
            std::thread::sleep(idle);
        }
    }
    ids.blocking().close().unwrap();
    let now = reader.read();
    assert_eq!(since(&before, &now, "idmill_draws_total"), 10);
    assert_eq!(since(&before, &now, "idmill_granted_total"), 20);
    assert_eq!(since(&before, &now, "idmill_given_back_total"), 10);
}

/// Ids of a cancelled call stay counted as drawn, since counters cannot decrease, and become a gap, so that
/// all granted ids are accounted for.
fn what_a_caller_gave_up_is_drawn_and_dropped(reader: &mut Reader) {
    let before = reader.read();
    let store = FaultyStore::new();
    let ids = Sequences::builder(store.clone()).own_thread().start().unwrap();
    let orders = ids.sequence::<u64>("orders").step(10).watermark(0).open_blocking().unwrap();
    store.set_faults(Faults::none().always(Fault::Latency(Duration::from_millis(100))));
    let mut asked = Box::pin(orders.next());
    let polled = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "it has to wait for the store");
    let limit = Instant::now() + Duration::from_secs(60);
    while since(&before, &reader.read(), "idmill_draws_total") == 0 {
        assert!(Instant::now() < limit, "it is never answered");
        ids.record_metrics();
    }
    drop(asked);
    ids.blocking().close().unwrap();
    let now = reader.read();
    let come =
        ["idmill_granted_total", "idmill_draws_total", "idmill_gaps_totaldropped", "idmill_given_back_total"]
            .map(|name| since(&before, &now, name));
    assert_eq!((come, orders.snapshot().drawn), ([10, 1, 1, 9], 0));
}

/// The counts are right even if nothing was recorded while the block was held.
fn what_a_block_did_not_hand_out_is_drawn_and_dropped(reader: &mut Reader) {
    let before = reader.read();
    let ids = Sequences::builder(FaultyStore::new()).own_thread().start().unwrap();
    let builder = ids.sequence::<u64>("orders").order(Order::Thread).step(100).watermark(0);
    let orders = builder.block_size(10).open_blocking().unwrap();
    let mut block = orders.handle();
    for _ in 0..2 {
        let _ = block.blocking().next().unwrap();
    }
    drop(block);
    ids.blocking().close().unwrap();
    let now = reader.read();
    let [draws, dropped] =
        ["idmill_draws_total", "idmill_gaps_totaldropped"].map(|name| since(&before, &now, name));
    // The first id came from the store, not from a block.
    assert_eq!((draws, dropped, orders.snapshot().drawn), (11, 9, 2));
}

/// Ids count as given back only after the store has confirmed the give-back.
fn what_is_on_its_way_back_is_no_gap(reader: &mut Reader) {
    let before = reader.read();
    let store = FaultyStore::new();
    let ids = Sequences::builder(store.clone()).own_thread().start().unwrap();
    let orders = ids.sequence::<u64>("orders").step(10).watermark(0).open_blocking().unwrap();
    assert_eq!(orders.blocking().next().unwrap(), 1);
    store.set_faults(Faults::none().always(Fault::Latency(Duration::from_millis(100))));
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| ids.blocking().close().unwrap());
        while !closing.is_finished() {
            ids.record_metrics();
            assert_eq!(orders.snapshot().gaps.total(), 0);
        }
    });
    let now = reader.read();
    assert_eq!(since(&before, &now, "idmill_given_back_total"), 9);
    assert_eq!(since(&before, &now, "idmill_gaps_totalrevoked"), 0);
}

fn every_metric_is_described_and_on_the_page(reader: &mut Reader) {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guide/metrics.md")).unwrap();
    let store = FaultyStore::new();
    let ids = Sequences::builder(store).own_thread().start().unwrap();
    let orders = ids.sequence::<u64>("orders").open_blocking().unwrap();
    assert_eq!(orders.blocking().next().unwrap(), 1);
    ids.record_metrics();
    for (key, unit, description, _) in reader.snapshotter.snapshot().into_vec() {
        let name = key.key().name();
        assert!(
            unit.is_some() && description.is_some_and(|text| !text.is_empty()),
            "{name} is not described"
        );
        assert!(page.contains(&format!("| `{name}` |")), "{name} is not on the page");
        let is_of_the_store = ["idmill_healed_total", "idmill_history_changes_total"].contains(&name);
        let is_labelled = key.key().labels().any(|label| label.key() == "sequence");
        assert_ne!(is_labelled, is_of_the_store, "{name}");
    }
    ids.blocking().close().unwrap();
}

/// Runs `work` on this thread, with a recorder of its own.
fn recorded(work: impl AsyncFnOnce(Reader)) {
    let recorder = DebuggingRecorder::new();
    let reader = Reader { snapshotter: recorder.snapshotter(), counted: HashMap::new() };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(work(reader)));
}

/// An alert on a health of 0 or on failures must not fire for a sequence that is not open any more.
#[test]
fn evicted_sequence_reports_no_trouble() {
    recorded(async |mut reader| {
        let idle = Duration::from_secs(60);
        let ids = Sequences::builder(FaultyStore::new()).idle_eviction(idle).start().unwrap();
        assert_eq!(ids.sequence::<u64>("orders").await.unwrap().next().await.unwrap(), 1);
        ids.record_metrics();
        assert!(reader.read()["idmill_remaining"] > 0);
        eventually("the sequence is evicted", async || {
            tokio::time::advance(idle).await;
            idmill_testing::holds(ids.is_empty(), ids.len())
        })
        .await;
        let seen = reader.read();
        assert_eq!((seen["idmill_health"], seen["idmill_remaining"]), (2, 0));
        assert!(ids.sequence::<u64>("orders").await.unwrap().next().await.unwrap() > 1);
        ids.close().await;
        assert_eq!(reader.read()["idmill_health"], 2, "after the close");
    });
}

#[test]
fn health_is_1_while_ids_last_and_0_without_or_at_the_end() {
    recorded(async |mut reader| {
        let store = FaultyStore::new();
        let ids = Sequences::new(store.clone()).unwrap();
        let orders = ids.sequence::<u64>("orders").max(20).step(10).watermark(9).await.unwrap();
        let orders = orders.within(Duration::from_secs(1));
        orders.warm(1).await.unwrap();
        let mut seen = || {
            ids.record_metrics();
            let seen = reader.read();
            (seen["idmill_health"], seen["idmill_failures_in_a_row"] > 0)
        };
        assert_eq!(seen(), (2, false));
        store.set_faults(Faults::outage());
        for _ in 0..2 {
            orders.next().await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(seen(), (1, true), "ids are in memory");
        while orders.next().await.is_ok() {}
        assert_eq!(seen(), (0, true), "memory is empty");
        store.set_faults(Faults::none());
        tokio::time::sleep(Duration::from_secs(11)).await;
        orders.next().await.unwrap();
        assert_eq!(seen(), (2, false));
        while orders.next().await.is_ok() {}
        assert_eq!(seen(), (0, false), "exhausted");
        store.set_faults(Faults::outage());
        tokio::time::sleep(Duration::from_secs(31)).await;
        let _ = orders.next().await.unwrap_err();
        assert_eq!(seen(), (0, true));
        ids.close().await;
        assert_eq!(seen(), (2, false), "no alert fires for a closed sequence");
    });
}

#[test]
fn refill_is_recorded_and_a_draw_is_not() {
    recorded(async |mut reader| {
        let ids = Sequences::new(FaultyStore::new()).unwrap();
        let orders = ids.sequence::<u64>("orders").step(10).watermark(0).await.unwrap();
        let mut seen = || {
            let seen = reader.read();
            (seen.get("idmill_granted_total").copied(), seen.get("idmill_draws_total").copied())
        };
        assert_eq!(orders.next().await.unwrap(), 1);
        tokio::time::sleep(Duration::from_millis(1)).await;
        let refilled = seen();
        assert_eq!(refilled.0, Some(10));
        for expected in 2..=10 {
            assert_eq!(orders.try_next().unwrap(), expected);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(seen(), refilled);
        ids.record_metrics();
        assert_eq!(seen(), (Some(10), Some(10)));
        ids.close().await;
    });
}

#[test]
fn timed_out_reserve_is_recorded_with_its_latency() {
    recorded(async |mut reader| {
        let store = FaultyStore::with_faults(Faults::none().script([Fault::Hang]));
        let ids = Sequences::builder(store).store_timeout(Duration::from_secs(3)).start().unwrap();
        let orders = ids.sequence::<u64>("orders").await.unwrap();
        orders.next().await.unwrap();
        let seen = reader.read();
        assert_eq!((seen["idmill_reserve_secondsunknown"], seen["idmill_reserve_secondsgranted"]), (1, 1));
        ids.close().await;
    });
}

#[test]
fn time_to_exhaustion_is_that_of_the_rest_of_the_sequence() {
    recorded(async |mut reader| {
        let ids = Sequences::new(FaultyStore::new()).unwrap();
        let orders = ids.sequence::<u64>("orders").max(1_000_000).step(10).watermark(0).await.unwrap();
        for _ in 0..2_000 {
            orders.next().await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        ids.record_metrics();
        let left = reader.read()["idmill_seconds_to_exhaustion"];
        assert!((9_900..=10_100).contains(&left), "998,000 ids at 100 a second: {left}");
        ids.close().await;
    });
}

/// `increase` of a counter sees the first event only if the counter was 0 before.
#[test]
fn counters_of_the_store_begin_at_zero() {
    recorded(async |mut reader| {
        let ids = Sequences::new(FaultyStore::new()).unwrap();
        let seen = reader.read();
        assert_eq!(seen.get("idmill_healed_total"), Some(&0));
        for decision in ["allowed", "refused", "skipped"] {
            assert_eq!(seen.get(&format!("idmill_history_changes_total{decision}")), Some(&0));
        }
        ids.close().await;
    });
}

#[test]
fn each_store_that_went_back_is_counted_once() {
    recorded(async |mut reader| {
        let store = MemoryStore::new();
        let guarded = Guarded::new(store.clone(), MemoryWitness::new());
        let orders = Reserve::new("orders".parse().unwrap(), 10).create(Bounds::of::<u64>());
        assert_eq!(guarded.reserve(&orders).await.unwrap().range.start(), 1);
        let backup = store.snapshot();
        for (start, healed) in [(11, 0), (21, 1), (31, 2)] {
            assert_eq!(guarded.reserve(&orders).await.unwrap().range.start(), start);
            assert_eq!(reader.read().get("idmill_healed_total").copied().unwrap_or_default(), healed);
            store.restore(&backup);
        }
    });
}

/// The estimates under a steady load of 100 ids a second, and a long time after the last grant.
#[test]
fn gauges_show_the_rate_and_the_time_that_ids_last() {
    recorded(async |reader| {
        let ids = Sequences::new(FaultyStore::new()).unwrap();
        let orders = ids.sequence::<u64>("orders").max(1_000_000).step(1000).watermark(500).await.unwrap();
        ids.record_metrics();
        assert!(!reader.gauges().contains_key("idmill_last_grant_timestamp_seconds"), "no grant yet");
        for _ in 0..600 {
            let _ids = orders.take(10).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        ids.record_metrics();
        let seen = reader.gauges();
        let (remaining, rate) = (seen["idmill_remaining"], seen["idmill_rate"]);
        assert!((500.0..=1500.0).contains(&remaining), "{remaining}");
        assert!((90.0..110.0).contains(&rate), "{rate}");
        let near = |name: &str, seconds: f64| {
            assert!((seen[name] / seconds - 1.0).abs() < 0.001, "{name}: {}, and not {seconds}", seen[name]);
        };
        near("idmill_seconds_to_empty", remaining / rate);
        near("idmill_seconds_to_exhaustion", (1_000_000.0 - 6000.0) / rate);

        tokio::time::sleep(Duration::from_secs(10_000)).await;
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let ago = orders.snapshot().since_grant.unwrap().as_secs_f64();
        assert!((10_000.0..10_020.0).contains(&ago), "{ago}");
        let before = now() - ago;
        ids.record_metrics();
        let granted = reader.gauges()["idmill_last_grant_timestamp_seconds"];
        assert!((before - 0.002..=now() - ago + 0.002).contains(&granted), "{granted}, and not {before}");
        ids.close().await;
    });
}

/// Each reason of a gap is a label of its own.
#[test]
fn ids_dropped_by_a_revoke_are_counted_by_reason() {
    recorded(async |mut reader| {
        let store = FaultyStore::new();
        let ids = Sequences::new(store.clone()).unwrap();
        let orders = ids.sequence::<u64>("orders").step(10).watermark(0).await.unwrap();
        store.set_faults(Faults::none().latency(Duration::from_secs(1)));
        let waits = tokio::spawn({
            let orders = orders.clone();
            async move { orders.next().await }
        });
        tokio::time::sleep(Duration::from_millis(10)).await;
        orders.discard();
        assert_eq!(waits.await.unwrap().unwrap(), 11);
        ids.record_metrics();
        let seen = reader.read();
        let gaps = |seen: &HashMap<String, u64>| {
            ["abandoned", "revoked", "dropped", "unknown"]
                .map(|reason| seen[&format!("idmill_gaps_total{reason}")])
        };
        assert_eq!((gaps(&seen), seen["idmill_granted_total"]), ([10, 0, 0, 0], 20));
        assert_eq!(orders.discard(), 9);
        ids.record_metrics();
        assert_eq!(gaps(&reader.read()), [10, 9, 0, 0]);
        ids.close().await;
    });
}

/// Sequences in trouble and the busiest have series of their own. Nothing is lost or counted twice when a
/// sequence gets or loses them.
#[test]
fn labelled_sequences_are_bounded_and_the_rest_is_summed() {
    recorded(async |mut reader| {
        let store = FaultyStore::new();
        let ids = Sequences::new(store.clone()).unwrap();
        let mut open = Vec::new();
        for at in 0..3000 {
            let sequence = ids.sequence::<u64>(format!("s{at}")).max(if at == 2900 { 1 } else { 1_000_000 });
            let sequence = sequence.lazy().unwrap();
            assert_eq!(sequence.next().await.unwrap(), 1);
            open.push(sequence);
        }
        open[2900].next().await.unwrap_err();
        for _ in 0..100 {
            tokio::time::advance(Duration::from_millis(100)).await;
            assert_eq!(open[2950].take(50).await.unwrap().len(), 50);
        }
        let mut drawn = 3000 + 5000;
        for round in 0..3 {
            ids.record_metrics();
            let (names, sums) = reader.by_name();
            assert!((1000..=1001 + 2).contains(&names.len()), "{} names in round {round}", names.len());
            assert!(names.contains("(others)") && names.contains("s2900") && names.contains("s2950"));
            assert_eq!(sums["idmill_draws_total"], drawn, "in round {round}");
            for sequence in &open[..2000] {
                drawn += u64::from(sequence.try_next().is_ok());
            }
        }
        let remaining: u64 = open.iter().map(|sequence| sequence.snapshot().remaining).sum();
        ids.record_metrics();
        assert_eq!(reader.by_name().1["idmill_remaining"], remaining);
        ids.close().await;
    });
}

struct Reader {
    snapshotter: Snapshotter,
    counted: HashMap<String, u64>,
}

impl Reader {
    /// All values, by name and labels, without the label `sequence`.
    fn read(&mut self) -> HashMap<String, u64> {
        let mut seen = HashMap::new();
        for (key, _, _, value) in self.snapshotter.snapshot().into_vec() {
            let labels =
                key.key().labels().filter(|label| label.key() != "sequence" || label.value() != "orders");
            let labels: Vec<_> = labels.map(|label| label.value().to_owned()).collect();
            let name = format!("{}{}", key.key().name(), labels.concat());
            let value = match value {
                // The increase since the last read.
                DebugValue::Counter(more) => {
                    let counted = self.counted.entry(name.clone()).or_default();
                    *counted += more;
                    *counted
                }
                // Whole numbers below 2^53, except for the estimates.
                DebugValue::Gauge(value) => value.0 as u64,
                DebugValue::Histogram(values) => values.len() as u64,
            };
            seen.insert(name, value);
        }
        seen
    }

    /// The gauges of the only sequence, by name.
    fn gauges(&self) -> HashMap<String, f64> {
        let all = self.snapshotter.snapshot().into_vec().into_iter();
        let gauges = all.filter_map(|(key, _, _, value)| match value {
            DebugValue::Gauge(value) => Some((key.key().name().to_owned(), value.0)),
            _ => None,
        });
        gauges.collect()
    }

    /// The names of all sequences that have series, and the sum of each metric over the sequences.
    fn by_name(&mut self) -> (BTreeSet<String>, HashMap<String, u64>) {
        let (mut names, mut sums) = (BTreeSet::new(), HashMap::new());
        for (key, _, _, value) in self.snapshotter.snapshot().into_vec() {
            let Some(label) = key.key().labels().find(|label| label.key() == "sequence") else { continue };
            names.insert(label.value().to_owned());
            let metric = key.key().name().to_owned();
            match value {
                DebugValue::Counter(more) => *self.counted.entry(metric).or_default() += more,
                DebugValue::Gauge(value) => {
                    let sum: &mut u64 = sums.entry(metric).or_default();
                    *sum = sum.saturating_add(value.0 as u64);
                }
                DebugValue::Histogram(_) => {}
            }
        }
        sums.extend(self.counted.clone());
        (names, sums)
    }
}
