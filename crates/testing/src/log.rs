//! The log of a test, captured.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// A second subscriber. With several subscribers, `tracing` combines their filters. With only one subscriber,
/// `tracing` caches the filter of the first thread, which may belong to a test without a subscriber.
static OTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Log::at(Level::TRACE)));

/// Captures the log of this thread, and of all tasks of a single-threaded test: one line for each event,
/// span, and addition to a span.
#[derive(Clone, Debug)]
pub struct Log {
    lines: Arc<Mutex<Vec<Value>>>,
    level: Level,
}

impl Log {
    /// Captures the events of this level and above until the guard is dropped.
    pub fn begin(level: Level) -> (Self, DefaultGuard) {
        LazyLock::force(&OTHER);
        let log = Self::at(level);
        (log.clone(), tracing::subscriber::set_default(log))
    }

    fn at(level: Level) -> Self {
        Self { lines: Arc::default(), level }
    }

    /// Returns all lines so far, each with `level`, `target` and `fields`. The text of an event is the field
    /// `message`.
    pub fn lines(&self) -> Vec<Value> {
        self.lines.lock().clone()
    }

    /// Returns all lines so far as text.
    pub fn text(&self) -> String {
        let lines: Vec<_> = self.lines.lock().iter().map(ToString::to_string).collect();
        lines.join("\n")
    }

    fn push(&self, level: &str, target: &str, record: impl FnOnce(&mut Fields)) {
        let mut fields = Fields::default();
        record(&mut fields);
        self.lines.lock().push(json!({ "level": level, "target": target, "fields": fields.0 }));
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        self.push(metadata.level().as_str(), metadata.target(), |fields| event.record(fields));
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.push("SPAN", span.metadata().target(), |fields| span.record(fields));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, record: &Record<'_>) {
        self.push("SPAN", "", |fields| record.record(fields));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}
