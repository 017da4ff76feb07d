//! What the log says of a store that fails for a while.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;

use idmill::Sequences;
use idmill::store::{Fault, MemoryStore};
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The lines of the log, those of INFO and above.
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
async fn a_store_that_is_back_is_said_to_be_once() {
    let log = Log::default();
    let _here = tracing::subscriber::set_default(log.clone());
    let store = MemoryStore::new();
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
    assert_eq!(lines.len(), 3, "two failures and one return: {lines:?}");
    for line in &lines[..2] {
        assert!(line.starts_with("WARN ") && line.contains("reserve failed"), "{line}");
        assert!(line.contains("sequence=orders") && line.contains("unavailable"), "{line}");
    }
    assert!(lines[2].starts_with("INFO ") && lines[2].contains("the store is back"), "{}", lines[2]);
    assert!(lines[2].contains("sequence=orders") && lines[2].contains("failures=2"), "{}", lines[2]);
}
