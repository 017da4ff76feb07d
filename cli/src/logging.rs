//! What the library reports while it works, on stderr.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::args::Global;

/// Errors that the library overcame, such as a store that went back in time, are said at any time; all else
/// only if it is asked for.
pub(crate) fn start(global: &Global) {
    let level = match global.verbose {
        0 => {
            let warnings =
                tracing_subscriber::fmt().with_max_level(LevelFilter::ERROR).with_writer(std::io::stderr);
            return warnings.event_format(Warning { json: global.json }).init();
        }
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(std::io::stderr);
    if global.json { lines.json().init() } else { lines.init() }
}

/// What a server tells its log, from `info` on; beside it, where spans go.
#[cfg(feature = "serve")]
pub(crate) fn serve<L>(global: &Global, is_json: bool, spans: Option<L>)
where
    L: tracing_subscriber::Layer<tracing_subscriber::Registry> + Send + Sync,
{
    use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
    use tracing_subscriber::util::SubscriberInitExt as _;

    let level = match global.verbose {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(std::io::stderr);
    let lines = if is_json { lines.json().boxed() } else { lines.boxed() };
    tracing_subscriber::registry().with(spans).with(lines.with_filter(level)).init();
}

/// A line, as errors and notes have one.
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
            writeln!(writer, "{}", serde_json::json!({ "warning": text }))
        } else {
            writeln!(writer, "warning: {text}")
        }
    }
}
