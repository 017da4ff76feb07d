//! Log lines on stderr.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::Global;
use crate::output::{compact, shown};

/// Starts the log of a command. By default, it shows only errors after which the library continues, such as a
/// store that went back in time, and whether a witness was created.
pub(crate) fn start(global: &Global) {
    let level = level(global, LevelFilter::ERROR);
    // By default, a failed write would be reported with `eprintln!`, which panics.
    let lines = tracing_subscriber::fmt::layer().log_internal_errors(false);
    let lines = lines.with_ansi(false).with_writer(std::io::stderr);
    let lines = match (global.verbose, global.json) {
        (0, json) => lines.event_format(Warning { json }).boxed(),
        (_, true) => lines.json().boxed(),
        (_, false) => lines.boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(targets(level))).init();
}

/// Selects the lines of idmill's crates at this level, and only the warnings of other crates.
fn targets(level: LevelFilter) -> Targets {
    let others = level.min(LevelFilter::WARN);
    Targets::new()
        .with_default(others)
        .with_target("idmill", level)
        .with_target("idmill_url", level.max(LevelFilter::WARN))
}

fn level(global: &Global, quiet: LevelFilter) -> LevelFilter {
    match global.verbose {
        0 => quiet,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// Starts the log of a server, at the level `info` without `--verbose`, and the layer that exports spans.
/// Dropping the returned value writes the last lines.
#[cfg(feature = "serve")]
pub(crate) fn serve<L>(global: &Global, is_json: bool, spans: Option<L>) -> server::Log
where
    L: tracing_subscriber::Layer<tracing_subscriber::Registry> + Send + Sync,
{
    let (log, writer) = server::Log::begin();
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer);
    let lines = if is_json { lines.json().boxed() } else { lines.boxed() };
    tracing_subscriber::registry()
        .with(spans)
        .with(lines.with_filter(targets(level(global, LevelFilter::INFO))))
        .init();
    log
}

/// The log of a server, which has its own writer thread. If stderr is too slow, lines are dropped and
/// counted, so that no client waits for them.
#[cfg(feature = "serve")]
pub(crate) mod server {
    use std::time::Duration;

    use tokio::time::interval;
    use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

    const LEFT_OUT: &str = "idmill_server_log_lines_left_out_total";
    /// Maximum number of lines in the queue.
    const LINES: usize = 4096;
    /// How often dropped lines are reported.
    const LOOK: Duration = Duration::from_secs(5);

    pub(crate) struct Log {
        left_out: ErrorCounter,
        _writes: WorkerGuard,
    }

    impl Log {
        pub(super) fn begin() -> (Self, NonBlocking) {
            let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES);
            let (writer, writes) = builder.thread_name("log").finish(std::io::stderr());
            (Self { left_out: writer.error_counter(), _writes: writes }, writer)
        }

        /// Reports dropped lines in the metrics and in the log.
        pub(crate) async fn keep(&self) {
            metrics::describe_counter!(LEFT_OUT, "Log lines dropped because stderr was not read fast enough");
            let (counter, mut told) = (metrics::counter!(LEFT_OUT), 0);
            let mut ticks = interval(LOOK);
            loop {
                ticks.tick().await;
                let left_out = self.left_out.dropped_lines() - told;
                // Also by 0, so that the recorder does not drop the counter as idle.
                counter.increment(left_out as u64);
                if left_out > 0 {
                    told += left_out;
                    tracing::warn!(left_out, "log lines were dropped because stderr is not read fast enough");
                }
            }
        }
    }
}

/// Formats log lines like errors and notes.
struct Warning {
    json: bool,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N>
    for Warning
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        if self.json {
            writeln!(writer, "{}", compact(&serde_json::json!({ "warning": text })))
        } else {
            writeln!(writer, "warning: {}", shown(&text))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use tracing::Level;

    use super::*;

    #[test]
    fn verbose_log_has_only_targets_of_idmill() {
        let targets = targets(LevelFilter::DEBUG);
        assert!(targets.would_enable("idmill::refill", &Level::DEBUG));
        assert!(targets.would_enable("idmill_sqlite", &Level::DEBUG));
        assert!(targets.would_enable("h2::codec", &Level::WARN));
        assert!(!targets.would_enable("h2::codec", &Level::DEBUG));
        assert!(!self::targets(LevelFilter::ERROR).would_enable("h2", &Level::WARN));
    }

    #[test]
    fn verbose_flags_raise_the_level_in_steps() {
        for (flags, expected) in [
            ("", LevelFilter::WARN),
            ("-v", LevelFilter::DEBUG),
            ("-vv", LevelFilter::TRACE),
            ("-vvv", LevelFilter::TRACE),
        ] {
            let words = ["idmill", "list"].into_iter().chain(Some(flags).filter(|flags| !flags.is_empty()));
            let global = crate::args::Cli::try_parse_from(words).unwrap().global;
            assert_eq!(level(&global, LevelFilter::WARN), expected, "{flags}");
        }
    }
}
