//! The log of a store that fails for a while.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;
use std::time::Duration;

use idmill::{ErrorKind, Sequences};
use idmill_testing::faulty::{Fault, Faults, FaultyStore};
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The lines of the log, at INFO and above.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a string takes all");
    }
}

#[tokio::test(start_paused = true)]
async fn store_recovery_is_logged_once() {
    let log = Log::default();
    let _here = tracing::subscriber::set_default(log.clone());
    let store = FaultyStore::new();
    let ids = Sequences::new(store.clone()).unwrap();
    let orders = ids.sequence::<u64>("orders").step(1).watermark(0).await.unwrap();
    assert_eq!(orders.next().await.unwrap(), 1);
    assert_eq!(*log.0.lock(), [""; 0], "all is well");

    for _ in 0..2 {
        store.push_fault(Fault::LostRequest);
    }
    for id in 2..=4 {
        assert_eq!(orders.next().await.unwrap(), id);
    }
    let lines = std::mem::take(&mut *log.0.lock());
    let [failed, back] = &lines[..] else { panic!("two failures of one kind, and one return: {lines:?}") };
    assert!(failed.starts_with("WARN ") && failed.contains("reserve failed"), "{failed}");
    assert!(failed.contains("sequence=orders") && failed.contains("unavailable"), "{failed}");
    assert!(back.starts_with("INFO ") && back.contains("the store grants ids again"), "{back}");
    assert!(back.contains("sequence=orders") && back.contains("failures=2"), "{back}");
}

#[tokio::test(start_paused = true)]
async fn failures_have_a_line_when_their_kind_changes() {
    let log = Log::default();
    let _here = tracing::subscriber::set_default(log.clone());
    let store = FaultyStore::new();
    let ids = Sequences::new(store.clone()).unwrap();
    let orders = ids.sequence::<u64>("orders").step(1).watermark(0).await.unwrap();
    for kind in [ErrorKind::Denied, ErrorKind::StoreViolation] {
        store.fail_sequence("orders", kind);
        // A permanent error stands for up to 10 s.
        tokio::time::sleep(Duration::from_secs(11)).await;
        for _ in 0..1000 {
            assert_eq!(orders.next().await.unwrap_err().kind(), kind);
        }
    }
    store.heal_sequence("orders");
    tokio::time::sleep(Duration::from_secs(11)).await;
    orders.next().await.unwrap();
    let lines = log.0.lock();
    let kinds: Vec<_> = lines.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(kinds, ["WARN", "WARN", "INFO"], "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn ids_not_returned_in_time_are_counted_in_the_log() {
    let log = Log::default();
    let _here = tracing::subscriber::set_default(log.clone());
    let store = FaultyStore::new();
    let ids = Sequences::new(store.clone()).unwrap();
    for name in ["orders", "users"] {
        let sequence = ids.sequence::<u64>(name).step(10).watermark(0).await.unwrap();
        assert_eq!(sequence.take(3).await.unwrap().len(), 3);
    }
    store.set_faults(Faults::none().always(Fault::HangBefore));
    ids.close().await;
    let lines = log.0.lock();
    let [late] = &lines[..] else { panic!("one warning: {lines:?}") };
    assert!(late.contains("did not take back") && late.contains("close_timeout"), "{late}");
    assert!(late.contains("sequences=2") && late.contains("ids=14"), "{late}");
}
