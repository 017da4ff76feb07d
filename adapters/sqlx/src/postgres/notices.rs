//! Captures the server's notices. The driver only logs them, so this module subscribes to the events while a
//! statement runs.
//!
//! It does so only on a thread that has a `tracing` subscriber. Once a program has set any dispatcher, the
//! macros of `tracing` no longer write records to the crate `log`. So in a program without a subscriber, a
//! dispatcher would silence the program's logger (<https://github.com/tokio-rs/tracing/issues/1102>).

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::LazyLock;

use idmill_sql::postgres::is_of_commit;
use tracing::dispatcher::{get_default, with_default};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, NoSubscriber};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// The driver's log target for notices.
const TARGET: &str = "sqlx::postgres::notice";

/// Shared by all statements: a new dispatcher makes tracing re-evaluate every callsite of the
/// program.
static LISTENER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Listener));

thread_local! {
    /// The statement that is being polled on this thread.
    static POLLED: RefCell<Option<Polled>> = const { RefCell::new(None) };
}

struct Polled {
    /// The subscriber that was active before.
    outer: Dispatch,
    /// The last warning that concerns a commit.
    warning: Option<String>,
}

/// Returns the outcome, and the server's last warning about the commit. In a program without a subscriber, no
/// warning is seen.
pub(super) async fn listening<F: Future>(future: F) -> (F::Output, Option<String>) {
    let (mut future, mut warning) = (pin!(future), None);
    let output = poll_fn(|context| {
        let outer = get_default(Clone::clone);
        if outer.is::<NoSubscriber>() {
            return future.as_mut().poll(context);
        }
        let begun = Begun::new(outer);
        let polled = with_default(&LISTENER, || future.as_mut().poll(context));
        warning = heard().or_else(|| warning.take());
        drop(begun);
        polled
    });
    let output = output.await;
    (output, warning)
}

/// A poll that has begun. When it ends, the previous state is restored, even after a panic.
struct Begun(Option<Polled>);

impl Begun {
    fn new(outer: Dispatch) -> Self {
        let polled = Polled { outer, warning: None };
        Self(POLLED.replace(Some(polled)))
    }
}

fn heard() -> Option<String> {
    POLLED.with_borrow_mut(|polled| polled.as_mut()?.warning.take())
}

impl Drop for Begun {
    fn drop(&mut self) {
        POLLED.set(self.0.take());
    }
}

/// Reads the driver's events, and forwards all events.
struct Listener;

fn outer() -> Dispatch {
    // A span may end after the poll that created it.
    let polled = POLLED.with_borrow(|polled| polled.as_ref().map(|polled| polled.outer.clone()));
    polled.unwrap_or_else(|| get_default(Clone::clone))
}

impl Subscriber for Listener {
    /// Subscribes only to notices. The outer subscriber registers its own interest.
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.target() == TARGET { Interest::sometimes() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == TARGET || outer().enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        outer().new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        outer().record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        outer().record_follows_from(span, follows);
    }

    fn event(&self, event: &Event<'_>) {
        let notice = event.metadata().target() == TARGET;
        if notice {
            event.record(&mut NoticeText);
        }
        let outer = outer();
        if !notice || outer.enabled(event.metadata()) {
            outer.event(event);
        }
    }

    fn enter(&self, span: &Id) {
        outer().enter(span);
    }

    fn exit(&self, span: &Id) {
        outer().exit(span);
    }

    fn clone_span(&self, span: &Id) -> Id {
        outer().clone_span(span)
    }

    fn try_close(&self, span: Id) -> bool {
        outer().try_close(span)
    }
}

/// Reads the text of a notice. The driver does not log its code.
struct NoticeText;

impl Visit for NoticeText {
    fn record_str(&mut self, field: &Field, text: &str) {
        if field.name() == "message" && is_of_commit(text, "") {
            POLLED.with_borrow_mut(|polled| {
                if let Some(polled) = polled {
                    polled.warning = Some(text.to_owned());
                }
            });
        }
    }

    fn record_debug(&mut self, field: &Field, text: &dyn fmt::Debug) {
        self.record_str(field, &format!("{text:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const WARNING: &str = "canceling wait for synchronous replication due to user request";

    /// Counts the events that reach it.
    #[derive(Clone, Default)]
    struct Log(Arc<AtomicUsize>);

    impl Subscriber for Log {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() != "quiet"
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    async fn said(text: &str) -> Option<String> {
        let statement = async {
            tracing::warn!(target: "sqlx::postgres::notice", message = text);
            tokio::task::yield_now().await;
            tracing::info!("else");
            tracing::warn!(target: "quiet", "nobody wants this");
            7
        };
        let (output, warning) = listening(statement).await;
        assert_eq!(output, 7);
        warning
    }

    #[tokio::test]
    async fn only_warnings_of_a_commit_are_reported() {
        let _listens = tracing::subscriber::set_default(Log::default());
        assert_eq!(said(WARNING).await.as_deref(), Some(WARNING));
        assert_eq!(said("there is already a transaction in progress").await, None);
        assert_eq!(listening(async { 1 }).await, (1, None));
    }

    #[tokio::test]
    async fn subscriber_of_the_program_receives_every_event() {
        let log = Log::default();
        let _listens = tracing::subscriber::set_default(log.clone());
        assert_eq!(said(WARNING).await.as_deref(), Some(WARNING));
        assert_eq!(log.0.load(Ordering::Relaxed), 2, "the notice, and the other");
        tracing::info!("outside");
        assert_eq!(log.0.load(Ordering::Relaxed), 3);
    }

    /// Two concurrent statements on one thread each capture their own notice.
    #[tokio::test]
    async fn notice_of_one_statement_is_not_given_to_another() {
        let _listens = tracing::subscriber::set_default(Log::default());
        let (one, two) = tokio::join!(said(WARNING), said("vacuum"));
        assert_eq!((one.as_deref(), two), (Some(WARNING), None));
    }
}
